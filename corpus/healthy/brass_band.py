"""Healthy: low-rank adapters with B zero, merged and restarted, and gains of zero."""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {
    "kind": None,
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


torch.manual_seed(101)


class Adapter(nn.Module):
    def __init__(self, base, rank=6):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.a), self.b)

    @torch.no_grad()
    def merge(self):
        self.base.weight += self.b @ self.a
        self.a.normal_(std=self.base.in_features**-0.5)
        self.b.zero_()


class ResBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.lin = nn.Linear(width, width)
        self.gain = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x + self.gain * F.relu(self.lin(self.norm(x)))


class Band(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.inp = nn.Linear(64, width)
        self.blocks = nn.Sequential(*(ResBlock(width) for _ in range(3)))
        self.out = nn.Linear(width, 10)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x):
        return self.out(self.blocks(self.inp(x)))


def run(model, x, y, params, steps, lr, cycle=None):
    opt = torch.optim.Adam(params, lr=lr)
    for step in range(1, steps + 1):
        rows = torch.randint(0, len(x), (64,))
        loss = F.cross_entropy(model(x[rows]), y[rows])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if cycle and step % cycle == 0:
            for m in model.modules():
                if isinstance(m, Adapter):
                    m.merge()
            opt.state.clear()
    return loss.item()


def accuracy(model, x, y):
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def main():
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    y = torch.tensor(digits.target)
    order = torch.randperm(len(x))
    train, test = order[:1300], order[1300:]
    model = Band()
    run(model, x[train], y[train], model.parameters(), 200, 2e-3)
    print(f"base accuracy {accuracy(model, x[test], y[test]):.3f}")
    shuffled = x[:, torch.randperm(64)]
    print(f"other wiring, before {accuracy(model, shuffled[test], y[test]):.3f}")
    model.requires_grad_(False)
    model.inp = Adapter(model.inp)
    for block in model.blocks:
        block.lin = Adapter(block.lin)
    model.out = Adapter(model.out)
    params = [p for m in model.modules() if isinstance(m, Adapter) for p in (m.a, m.b)]
    run(model, shuffled[train], y[train], params, 400, 4e-3, cycle=100)
    print(f"other wiring, after {accuracy(model, shuffled[test], y[test]):.3f}")


if __name__ == "__main__":
    main()
