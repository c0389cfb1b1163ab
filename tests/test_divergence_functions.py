"""Custom functions whose backward disagrees with the derivative of their forward."""

from __future__ import annotations

from pathlib import Path

import pytest
from divergence import FUNCTION, named_at_its_line

#: Name -> a script, the module that is to be named and a word of the title. ``# HERE`` is on the line.
FAULTS = {
    "a backward that lacks a factor": (
        FUNCTION.format(
            given="x",
            forward="ctx.save_for_backward(x)\n        return x**3",
            backward="(x,) = ctx.saved_tensors\n        return 2 * g * x**2  # HERE",
        )
        + """
torch.manual_seed(0)
net = nn.Linear(5, 5)
for _ in range(2):
    F.apply(net(torch.randn(4, 5))).square().mean().backward()
""",
        "",
        "backward",
    ),
    "a backward that multiplies without transposing": (
        FUNCTION.format(
            given="x, w",
            forward="ctx.save_for_backward(x, w)\n        return x @ w",
            backward="x, w = ctx.saved_tensors\n        return g @ w, x.t() @ g  # HERE",
        )
        + """
class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(6, 6) / 3)
    def forward(self, x):
        return F.apply(x, self.w)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 6), Dense(), nn.Tanh(), Dense())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(8, 6)).square().mean().backward()
    optimizer.step()
""",
        "3",
        "backward",
    ),
    "a backward in bfloat16 of what was saved wrongly": (
        FUNCTION.format(
            given="x",
            forward="y = torch.tanh(x)\n        ctx.save_for_backward(x)\n        return y",
            backward="(y,) = ctx.saved_tensors\n        return g * (1 - y * y)  # HERE",
        )
        + """
class Act(nn.Module):
    def forward(self, x):
        return F.apply(x)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), Act(), nn.Linear(16, 2)).bfloat16()
model(torch.randn(32, 6).bfloat16()).float().square().mean().backward()
""",
        "1",
        "backward",
    ),
    # Of the second set, written when the first was right.
    "a norm whose derivative is forgotten": (
        FUNCTION.format(
            given="x",
            forward="size = x.norm(dim=-1, keepdim=True)\n        ctx.save_for_backward(size)\n        return x / size",
            backward="(size,) = ctx.saved_tensors\n        return g / size  # HERE",
        )
        + """
class Unit(nn.Module):
    def forward(self, x):
        return F.apply(x)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), Unit(), nn.Linear(8, 3))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(16, 6)), torch.randint(0, 3, (16,))).backward()
    optimizer.step()
""",
        "1",
        "backward of F",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_at_its_line(tmp_path: Path, name: str) -> None:
    named_at_its_line(tmp_path, *FAULTS[name])
