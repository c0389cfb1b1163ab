"""Domain-adversarial digits: gradient reversal between the features and the domain head.

Right because: the reversal layer is the identity forward and deliberately multiplies the
gradient by -lambda backward (None for lambda); lambda is exactly 0 in the first step and
ramps up, so the domain loss starts by not touching the features; the domain loss is *not*
supposed to fall towards zero - the label loss and the target accuracy are what counts.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lam):
        ctx.lam = lam
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.lam * grad, None


class DANN(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(128, 48), nn.ReLU(inplace=True))
        self.label = nn.Linear(48, 10)
        self.domain = nn.Sequential(nn.Linear(48, 32), nn.ReLU(inplace=True), nn.Linear(32, 1))

    def forward(self, x, lam):
        h = self.features(x)
        return self.label(h), self.domain(Reverse.apply(h, lam)).squeeze(1)


def target_domain(img, gen):
    """Inverted background, a gradient of light, and noise."""
    ramp = torch.linspace(0, 0.6, 8).view(1, 1, 1, 8)
    return 0.8 * img + ramp + 0.15 * torch.randn(img.shape, generator=gen)


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    d = load_digits()
    img = torch.tensor(d.images, dtype=torch.float32).unsqueeze(1) / 16
    lab = torch.tensor(d.target)
    order = torch.randperm(len(img), generator=gen)
    src, src_y = img[order[:800]], lab[order[:800]]
    tgt, tgt_y = target_domain(img[order[800:]], gen), lab[order[800:]]
    net = DANN()
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    steps = 700
    for step in range(steps):
        progress = step / steps
        lam = 0.3 * (2 / (1 + math.exp(-8 * progress)) - 1)
        for g in opt.param_groups:
            g["lr"] = 0.03 / (1 + 6 * progress) ** 0.75
        i, j = torch.randint(0, len(src), (48,), generator=gen), torch.randint(0, len(tgt), (48,), generator=gen)
        cls, dom_s = net(src[i], lam)
        _, dom_t = net(tgt[j], lam)
        label_loss = F.cross_entropy(cls, src_y[i])
        domain_loss = 0.5 * (F.binary_cross_entropy_with_logits(dom_s, torch.zeros_like(dom_s))
                             + F.binary_cross_entropy_with_logits(dom_t, torch.ones_like(dom_t)))
        opt.zero_grad()
        (label_loss + domain_loss).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()
        if step % 100 == 99:
            net.eval()
            with torch.no_grad():
                acc = (net(tgt, 0.0)[0].argmax(1) == tgt_y).float().mean().item()
            net.train()
            print(f"step {step} label {label_loss.item():.3f} domain {domain_loss.item():.3f} lam {lam:.2f} target acc {acc:.3f}")


if __name__ == "__main__":
    main()
