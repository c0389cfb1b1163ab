"""The op at which a port of a model diverges from the original."""

from __future__ import annotations

from pathlib import Path

import pytest
from divergence import named_at_its_line

#: Name -> a script, the module that is to be named and a word of the title. ``# HERE`` is on the line.
FAULTS = {
    "a port with another eps": (
        """
class Net(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.a = nn.Linear(6, 8)
        self.norm = nn.LayerNorm(8, eps=eps)  # HERE
        self.b = nn.Linear(8, 2)
    def forward(self, x):
        return self.b(torch.relu(self.norm(self.a(x))))
torch.manual_seed(0)
one, two = Net(1e-5), Net(1e-6)
two.load_state_dict(one.state_dict())
x = torch.randn(5, 6)
print((one(x) - two(x)).abs().max() > 0)
""",
        "norm",
        "two models",
    ),
    "a port that lacks a weight": (
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 8)
        self.b = nn.Linear(8, 8)  # HERE
        self.c = nn.Linear(8, 2)
    def forward(self, x):
        return self.c(torch.relu(self.b(torch.relu(self.a(x)))))
torch.manual_seed(0)
one, two = Net(), Net()
two.load_state_dict({k: v for k, v in one.state_dict().items() if not k.startswith("b.")}, strict=False)
x = torch.randn(5, 6)
for model in (one, two):
    model(x).square().mean().backward()
""",
        "b",
        "two models",
    ),
    "a port without a scale": (
        """
class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5  # HERE
    def forward(self, x):
        return self.scores(self.q(x), self.k(x)).softmax(-1) @ self.v(x)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Attention(8) for _ in range(3))
    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x
torch.manual_seed(0)
one, two = Model(), Model()
two.load_state_dict(one.state_dict())
two.blocks[1].scores = lambda q, k: q @ k.transpose(-2, -1)
x = torch.randn(2, 5, 8)
for model in (one, two):
    model(x).square().mean().backward()
""",
        "blocks.1",
        "two models",
    ),
    # Of the second set, written when the first was right.
    "a port whose mask is off by one": (
        """
class Attention(nn.Module):
    def __init__(self, d, first):
        super().__init__()
        self.qkv, self.out, self.first = nn.Linear(d, 3 * d), nn.Linear(d, d), first
    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(self.first)
        scores = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).masked_fill(mask, float("-inf"))
        return self.out(scores.softmax(-1) @ v)
class Model(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.inp = nn.Linear(4, 8)
        self.attn = Attention(8, first)  # HERE
    def forward(self, x):
        return self.attn(self.inp(x))
torch.manual_seed(0)
one, two = Model(1), Model(2)
two.load_state_dict(one.state_dict())
x = torch.randn(2, 6, 4)
for model in (one, two):
    model(x).square().mean().backward()
""",
        "attn",
        "two models",
    ),
    # Of neither set: it came later.
    "a port that comes when the original has been trained": (
        """
class Net(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.up = nn.Linear(6, 24)
        self.act = act  # HERE
        self.down = nn.Linear(24, 3)
    def forward(self, x):
        return self.down(self.act(self.up(x)))
def step(model, optimizer, x):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.manual_seed(0)
one, two = Net(nn.GELU()), Net(nn.GELU(approximate="tanh"))
optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in (one, two)]
for _ in range(12):
    step(one, optimizers[0], torch.randn(8, 6))
two.load_state_dict(one.state_dict())
for _ in range(6):
    x = torch.randn(8, 6)
    for model, optimizer in zip((one, two), optimizers):
        step(model, optimizer, x)
""",
        "act",
        "two models",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_at_its_line(tmp_path: Path, name: str) -> None:
    named_at_its_line(tmp_path, *FAULTS[name])
