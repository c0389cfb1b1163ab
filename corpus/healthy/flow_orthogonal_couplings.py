"""Normalising flow in 4-D: affine couplings, orthogonal mixing, data-initialised actnorm.

Right because: the mixing matrices are parametrised orthogonal (log-det 0), weight_norm is
applied only to hidden layers (never to the zero-initialised last layer, where the norm would
be 0/0), log-scales are bounded with tanh, and actnorm is initialised under no_grad from
the first batch.  The negative log-likelihood may become negative.  Hidden layers have zero gradient in the first step only.
"""
import math

import torch
import torch.nn as nn
from sklearn.datasets import make_moons
from torch.nn.utils.parametrizations import orthogonal, weight_norm

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}


class ActNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.log_scale, self.shift = nn.Parameter(torch.zeros(d)), nn.Parameter(torch.zeros(d))
        self.register_buffer("ready", torch.tensor(False))

    def forward(self, x):
        if self.training and not self.ready:
            with torch.no_grad():
                self.log_scale.copy_(-x.std(0).clamp_min(1e-3).log())
                self.shift.copy_(-x.mean(0))
                self.ready.fill_(True)
        return (x + self.shift) * self.log_scale.exp(), self.log_scale.sum()

    def inverse(self, y):
        return y * (-self.log_scale).exp() - self.shift


class Coupling(nn.Module):
    def __init__(self, d, hidden, flip):
        super().__init__()
        self.flip, h = flip, d // 2
        last = nn.Linear(hidden, 2 * h)
        for p in last.parameters():
            nn.init.zeros_(p)
        self.net = nn.Sequential(weight_norm(nn.Linear(h, hidden)), nn.SiLU(),
                                 weight_norm(nn.Linear(hidden, hidden)), nn.SiLU(), last)

    def split(self, x):
        a, b = x.chunk(2, -1)
        return (b, a) if self.flip else (a, b)

    def join(self, a, b):
        return torch.cat((b, a) if self.flip else (a, b), -1)

    def forward(self, x):
        a, b = self.split(x)
        s, t = self.net(a).chunk(2, -1)
        s = 1.5 * torch.tanh(s / 1.5)
        return self.join(a, b * s.exp() + t), s.sum(-1)

    def inverse(self, y):
        a, b = self.split(y)
        s, t = self.net(a).chunk(2, -1)
        return self.join(a, (b - t) * (-1.5 * torch.tanh(s / 1.5)).exp())


class Rotation(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.lin = orthogonal(nn.Linear(d, d, bias=False), orthogonal_map="cayley")

    def forward(self, x):
        return self.lin(x), 0.0

    def inverse(self, y):
        return y @ self.lin.weight


class Flow(nn.Module):
    def __init__(self, d=4, hidden=32, depth=5):
        super().__init__()
        self.d = d
        self.steps = nn.ModuleList(m for i in range(depth)
                                   for m in (ActNorm(d), Rotation(d), Coupling(d, hidden, bool(i % 2))))

    def log_prob(self, x):
        total = torch.zeros(len(x))
        for s in self.steps:
            x, ld = s(x)
            total = total + ld
        return total - 0.5 * (x ** 2).sum(-1) - 0.5 * self.d * math.log(2 * math.pi)

    @torch.no_grad()
    def roundtrip(self, x):
        y = x
        for s in self.steps:
            y = s(y)[0]
        for s in reversed(self.steps):
            y = s.inverse(y)
        return (x - y).abs().max().item()


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    m = torch.tensor(make_moons(n, noise=0.06, random_state=seed)[0], dtype=torch.float32)
    extra = torch.stack([torch.sin(2 * m[:, 0]) * m[:, 1], m[:, 0] ** 2 - 0.5], 1)
    return torch.cat([m, extra + 0.1 * torch.randn(n, 2, generator=g)], 1)


def main():
    torch.manual_seed(0)
    train, test = make_data(4000, 0), make_data(1000, 1)
    net = Flow()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 450)
    for step in range(450):
        loss = -net.log_prob(train[torch.randint(0, len(train), (192,))]).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 20.0)
        opt.step()
        sched.step()
        if step % 90 == 0 or step == 449:
            net.eval()
            with torch.no_grad():
                print(f"step {step} nll {loss.item():.3f} test {-net.log_prob(test).mean().item():.3f} "
                      f"roundtrip {net.roundtrip(test):.1e}")
            net.train()


if __name__ == "__main__":
    main()
