"""Domain adaptation with gradient reversal, a frozen random-feature front end and a separate critic update.

Source: https://github.com/SSL92/hyperIQA/issues/16 (why frozen parts still pass gradients); pattern of DANN and ADDA
(https://github.com/corenel/pytorch-adda/issues/19).
"""
import math

import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {"kind": "none", "set": "twelfth", "written": "2026-11-25"}


class GradReverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lam):
        ctx.lam = lam
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.lam * grad, None


class FourierFeatures(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.proj = nn.Linear(d, n).requires_grad_(False)

    def forward(self, x):
        z = self.proj(x)
        return torch.cat([z.sin(), z.cos()], -1)


class DANN(nn.Module):
    def __init__(self, d=2, width=32):
        super().__init__()
        self.front = FourierFeatures(d, 16)
        self.feat = nn.Sequential(nn.Linear(32, width), nn.ReLU(), nn.Linear(width, 8))
        self.label = nn.Linear(8, 2)
        self.domain = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def features(self, x):
        return self.feat(self.front(x))


def blobs(n, shift):
    y = torch.randint(0, 2, (n,))
    x = torch.stack([y * 2.0 - 1.0, torch.zeros(n)], 1) + 0.4 * torch.randn(n, 2)
    return x + torch.tensor([0.3, shift]), y


def main():
    torch.manual_seed(0)
    net = DANN()
    opt = torch.optim.Adam([*net.feat.parameters(), *net.label.parameters()], lr=2e-3)
    opt_domain = torch.optim.Adam(net.domain.parameters(), lr=2e-3)
    steps = 240
    for step in range(steps):
        lam = 2 / (1 + math.exp(-10 * step / steps)) - 1
        (xs, ys), (xt, _) = blobs(64, 0.0), blobs(64, 1.5)
        dom = torch.cat([torch.ones(64), torch.zeros(64)])

        with torch.no_grad():
            frozen = net.features(torch.cat([xs, xt]))
        critic = F.binary_cross_entropy_with_logits(net.domain(frozen).squeeze(1), dom)
        opt_domain.zero_grad()
        critic.backward()
        opt_domain.step()

        fs, ft = net.features(xs), net.features(xt)
        cls = F.cross_entropy(net.label(fs), ys)
        adv_logit = net.domain(GradReverse.apply(torch.cat([fs, ft]), lam)).squeeze(1)
        loss = cls + 0.3 * F.binary_cross_entropy_with_logits(adv_logit, dom)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 40 == 0:
            with torch.no_grad():
                x, y = blobs(400, 1.5)
                acc = (net.label(net.features(x)).argmax(1) == y).float().mean().item()
            print(f"{step} cls {cls.item():.3f} critic {critic.item():.3f} target acc {acc:.3f}")


if __name__ == "__main__":
    main()
