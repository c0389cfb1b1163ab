"""Divergence from float64: overflow, underflow, cancellation, and the limits of half precision."""

from __future__ import annotations

from pathlib import Path

import pytest
from divergence import named_at_its_line

NORM = """
class Norm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps
    def forward(self, x):
        {body}
"""
#: Name -> a script, the module that is to be named and a word of the title. ``# HERE`` is on the line.
FAULTS = {
    "an eps that half precision cannot hold": (
        NORM.format(
            body="size = x.square().mean(-1, keepdim=True)\n"
            "        return self.weight * (x * torch.rsqrt(size + self.eps))  # HERE"
        )
        + """
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), Norm(8, 1e-8), nn.Linear(8, 2)).half()
x = torch.randn(6, 8).half()
with torch.no_grad():
    model[0].bias.zero_()
x[3] = 0  # padding
model(x).float().square().mean().backward()
""",
        "1",
        "float64",
    ),
    "a variance in half precision that cancels": (
        """
class Center(nn.Module):
    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        square = (x * x).mean(-1, keepdim=True)
        var = square - mean * mean  # HERE
        return (x - mean) / (var.abs() + 1e-3).sqrt()
torch.manual_seed(0)
model = nn.Sequential(Center(), nn.Linear(16, 4)).half()
model((torch.randn(8, 16) + 100).half()).float().square().mean().backward()
""",
        "0",
        "cancel",
    ),
    "scores that overflow in half precision": (
        """
class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        scores = q @ k.transpose(-2, -1)  # HERE
        scores = scores - scores.amax(-1, keepdim=True)
        e = scores.exp()
        return e / e.sum(-1, keepdim=True) @ v
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 16), Attention(16)).half()
with torch.no_grad():
    model[1].q.weight.mul_(40), model[1].k.weight.mul_(40)
model(20 * torch.randn(2, 7, 16).half()).float().square().mean().backward()
""",
        "1",
        "overflow",
    ),
    "a hand-written logsumexp": (
        """
torch.manual_seed(0)
model = nn.Linear(8, 5)
x, y = 200 * torch.randn(16, 8), torch.randint(0, 5, (16,))
out = model(x)
e = out.exp()  # HERE
loss = (e.sum(-1).log() - out.gather(1, y[:, None])[:, 0]).mean()
loss.backward()
""",
        "",
        "overflow",
    ),
    "angles of positions in bfloat16": (
        """
class Rotary(nn.Module):
    def __init__(self, d, dtype):
        super().__init__()
        self.register_buffer("freq", (1.0 / 10000 ** (torch.arange(0, d, 2) / d)).to(dtype))
    def forward(self, x):
        angle = torch.arange(3000, 3000 + x.shape[1], dtype=x.dtype)[:, None] * self.freq[:2]
        s, c = angle.sin(), angle.cos()  # HERE
        a, b, rest = x[..., :2], x[..., 2:4], x[..., 4:]
        return torch.cat([a * c - b * s, a * s + b * c, rest], -1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), Rotary(8, torch.bfloat16), nn.Linear(8, 2)).bfloat16()
model(torch.randn(2, 64, 8).bfloat16()).float().square().mean().backward()
""",
        "1",
        "float64",
    ),
    "squares that underflow in half precision": (
        """
torch.manual_seed(0)
model = nn.Linear(6, 6).half()
h = model(torch.randn(4, 6).half()) * 1e-4
power = (h * h).sum(-1)  # HERE
(power.float().sqrt() + 1).sum().backward()
""",
        "",
        "float64",
    ),
    "one minus a probability that is one": (
        """
torch.manual_seed(0)
model = nn.Linear(4, 3)
p = torch.sigmoid(model(torch.randn(8, 4)) + 25)
q = 1 - p  # HERE
(-(q + 1e-12).log()).mean().backward()
""",
        "",
        "cancel",
    ),
    # Of the second set, written when the first was right.
    "a loss that half precision cannot hold": (
        """
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)).half()
out = model(torch.randn(8, 6).half())
loss = out.square().mean() * 1e-9  # HERE
loss.backward()
""",
        "",
        "underflow",
    ),
    "a softplus of large negative numbers": (
        """
torch.manual_seed(0)
model = nn.Linear(6, 6)
h = model(torch.randn(8, 6)) - 25
rate = (1 + h.exp()).log()  # HERE
((rate * 1e9 - 1) ** 2).mean().backward()
""",
        "",
        "no digit is left",
    ),
    "squared distances written out": (
        """
torch.manual_seed(0)
model = nn.Linear(4, 8)
a = model(torch.randn(16, 4)) + 3000
b = a.detach() + 0.1 * torch.randn(16, 8)
square = (a * a).sum(-1) + (b * b).sum(-1)
both = 2 * (a * b).sum(-1)
apart = square - both  # HERE
apart.relu().mean().backward()
""",
        "",
        "cancel",
    ),
    "a product of many probabilities": (
        """
torch.manual_seed(0)
model = nn.Linear(4, 80)
hazard = torch.sigmoid(model(torch.randn(6, 4)) + 2)
survival = (1 - hazard).cumprod(-1)
score = survival.log()  # HERE
(-score[:, -1]).mean().backward()
""",
        "",
        "float64",
    ),
    "a sum of losses in half precision": (
        """
torch.manual_seed(0)
model = nn.Linear(8, 1)
losses = (model(torch.randn(2000, 8)) - 9).square()
total = losses.half().sum()  # HERE
(total / 2000).backward()
""",
        "",
        "overflow",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_at_its_line(tmp_path: Path, name: str) -> None:
    named_at_its_line(tmp_path, *FAULTS[name])
