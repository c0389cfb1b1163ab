"""BYOL: online and target encoder, stop-gradient on the target, predictor, EMA; trunk gradients scaled on purpose.

Source: https://github.com/lucidrains/ema-pytorch/issues/25 and https://github.com/lucidrains/DALLE2-pytorch/issues/131 (people
        who suspected exactly these parts)
Plain PyTorch 2.13: the loss falls and the linear probe gets better.
"""
import copy

import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {"class": "healthy", "kind": "none", "plain": {"outcome": "ok"}, "set": "thirteenth", "written": "2026-11-25"}


def mlp(a, b, c):
    return nn.Sequential(nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(inplace=True), nn.Linear(b, c))


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.project = mlp(16, 48, 24), mlp(24, 48, 12)

    def forward(self, x):
        return self.project(self.trunk(x))


class BYOL(nn.Module):
    def __init__(self):
        super().__init__()
        self.online, self.predict = Branch(), mlp(12, 48, 12)
        self.target = copy.deepcopy(self.online)
        self.target.requires_grad_(False)
        self.probe = nn.Linear(24, 4)

    @torch.no_grad()
    def follow(self, decay):
        for t, o in zip(self.target.parameters(), self.online.parameters()):
            t.lerp_(o, 1 - decay)
        for t, o in zip(self.target.buffers(), self.online.buffers()):
            t.copy_(o)

    def distance(self, a, b):
        p = self.predict(self.online(a))
        with torch.no_grad():
            z = self.target(b)
        return 2 - 2 * F.cosine_similarity(p, z.detach()).mean()

    def forward(self, a, b, label):
        loss = (self.distance(a, b) + self.distance(b, a)) / 2
        features = self.online.trunk(a).detach()
        return loss + F.cross_entropy(self.probe(features), label)


def views(centres, count=64):
    label = torch.randint(4, (count,))
    x = centres[label] + 0.5 * torch.randn(count, 16)
    return x + 0.3 * torch.randn_like(x), x * (torch.rand_like(x) > 0.2), label


@torch.no_grad()
def accuracy(model, centres):
    model.eval()
    x, _, label = views(centres, 512)
    right = (model.probe(model.online.trunk(x)).argmax(1) == label).float().mean()
    model.train()
    return right.item()


def main():
    torch.manual_seed(0)
    model, centres = BYOL(), torch.randn(4, 16)
    for p in model.online.trunk.parameters():
        p.register_hook(lambda g: g * 0.5)
    opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05, momentum=0.9, weight_decay=1e-4)
    for step in range(500):
        decay = 1 - 0.02 * (1 - step / 500)
        loss = model(*views(centres))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        opt.step()
        model.follow(decay)
        for p in model.parameters():
            p.grad = None
        if step % 50 == 0:
            print(step, f"{loss.item():.4f}", f"{accuracy(model, centres):.3f}", flush=True)


if __name__ == "__main__":
    main()
