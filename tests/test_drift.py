"""Two models or runs of the same computation, one of which loses more digits by rounding."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from scripts import line_of, run
from torch import nn

import backprobe
from backprobe.commands.compare import judge_of
from backprobe.comparing.blame import Blame
from backprobe.comparing.compared import Compared, as_dict, compare
from backprobe.comparing.drift import MIN_ELEMENTS, STEPS, drift, loses
from backprobe.comparing.files import read_tape, tape_folder
from backprobe.comparing.sides import Side
from backprobe.comparing.text import report, what
from backprobe.records import Gap, Judged, Print, Site, Taken, Tape, TapeOp
from backprobe.report.comparison import document

EPS = 2.0**-7
#: Name -> a script, and the module that is to be named. ``# HERE`` is on the line.
FAULTS = {
    "a mean of many terms, in bfloat16": (
        """
class Pool(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.wide = wide
    def forward(self, x):
        if self.wide:
            return x.float().mean(1).to(x.dtype)
        total = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            total = total + x[:, t]  # HERE
        return total / x.shape[1]
class Net(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.emb, self.pool, self.out = nn.Linear(8, 16), Pool(wide), nn.Linear(16, 4)
    def forward(self, x):
        return self.out(self.pool(torch.relu(self.emb(x))))
torch.manual_seed(0)
one, two = Net(True).bfloat16(), Net(False).bfloat16()
two.load_state_dict(one.state_dict())
x = torch.randn(4, 600, 8).bfloat16()
for model in (one, two):
    model(x).float().square().mean().backward()
""",
        "pool",
    ),
    "a variance in one pass, far from zero": (
        """
class Norm(nn.Module):
    def __init__(self, two_pass):
        super().__init__()
        self.two_pass = two_pass
    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        if self.two_pass:
            var = (x - mean).square().mean(-1, keepdim=True)
        else:
            var = x.square().mean(-1, keepdim=True) - mean.square()  # HERE
        return (x - mean) * (var + 1e-5).rsqrt()
def build(two_pass):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 64), Norm(two_pass), nn.Linear(64, 2))
    with torch.no_grad():
        net[0].bias += 100.0
    return net
x = torch.randn(16, 8)
for model in (build(True), build(False)):
    model(x).square().mean().backward()
""",
        "1",
    ),
    "a norm that only one layer makes lose digits": (
        """
class Norm(nn.Module):
    def __init__(self, exact):
        super().__init__()
        self.exact = exact
    def forward(self, x):
        if self.exact:
            total = x.float().square().sum(-1, keepdim=True)
        else:
            total = torch.zeros_like(x[..., :1])
            for column in x.unbind(-1):
                total = total + (column * column)[..., None]  # HERE
            total = total.float()
        return (x.float() * (total / x.shape[-1] + 1e-6).rsqrt()).to(x.dtype)
class Net(nn.Module):
    def __init__(self, exact):
        super().__init__()
        self.norms = nn.ModuleList(Norm(exact) for _ in range(3))
        self.lins = nn.ModuleList(nn.Linear(192, 192) for _ in range(3))
        with torch.no_grad():
            self.lins[1].bias[0] = 40.0
    def forward(self, x):
        for norm, lin in zip(self.norms, self.lins):
            x = x + lin(norm(x))
        return x
torch.manual_seed(0)
one, two = Net(True).bfloat16(), Net(False).bfloat16()
two.load_state_dict(one.state_dict())
x = torch.randn(4, 192).bfloat16()
for model in (one, two):
    model(x).float().square().mean().backward()
""",
        "norms.2",
    ),
}
HEALTHY = {
    "a layer norm that is written out, in a deep net in bfloat16": """
class Norm(nn.Module):
    def __init__(self, own):
        super().__init__()
        self.weight, self.bias, self.own = nn.Parameter(torch.ones(48)), nn.Parameter(torch.zeros(48)), own
    def forward(self, x):
        if not self.own:
            return nn.functional.layer_norm(x, x.shape[-1:], self.weight, self.bias)
        c = x - x.mean(-1, keepdim=True)
        return c * torch.rsqrt(c.square().mean(-1, keepdim=True) + 1e-5) * self.weight + self.bias
class Net(nn.Module):
    def __init__(self, own):
        super().__init__()
        self.lins = nn.ModuleList(nn.Linear(48, 48) for _ in range(12))
        self.norms = nn.ModuleList(Norm(own) for _ in range(12))
    def forward(self, x):
        for norm, lin in zip(self.norms, self.lins):
            x = x + torch.relu(lin(norm(x)))
        return x
torch.manual_seed(0)
one, two = Net(False).bfloat16(), Net(True).bfloat16()
two.load_state_dict(one.state_dict())
x = torch.randn(16, 48).bfloat16()
for model in (one, two):
    model(x).float().square().mean().backward()
""",
    "a recurrence of one product or of two": """
class Net(nn.Module):
    def __init__(self, cat):
        super().__init__()
        self.w, self.u, self.cat = nn.Linear(8, 32), nn.Linear(32, 32, bias=False), cat
    def forward(self, x):
        h = x.new_zeros(x.shape[0], 32)
        for t in range(x.shape[1]):
            if self.cat:
                both = torch.cat([self.w.weight, self.u.weight], 1)
                h = torch.tanh(torch.cat([x[:, t], h], 1) @ both.t() + self.w.bias)
            else:
                h = torch.tanh(self.w(x[:, t]) + self.u(h))
        return h
torch.manual_seed(0)
one, two = Net(True), Net(False)
with torch.no_grad():
    one.u.weight.mul_(3.0)
two.load_state_dict(one.state_dict())
x = torch.randn(4, 40, 8)
for model in (one, two):
    model(x).square().mean().backward()
""",
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_op_that_loses_digits_is_named(tmp_path: Path, name: str) -> None:
    script, module = FAULTS[name]
    text, found, _ = run(tmp_path, script, "divergence")
    (finding,) = [one for one in found if one.kind == "first-divergence"]
    assert finding.module == module and "drift apart" in finding.title
    assert finding.sites[0].site.line == line_of(text, "# HERE")


@pytest.mark.parametrize("name", HEALTHY)
def test_rounding_as_it_should_be_is_silent(tmp_path: Path, name: str) -> None:
    _, found, _ = run(tmp_path, HEALTHY[name], "divergence")
    assert [one for one in found if one.kind == "first-divergence"] == []


def tape(count: int, shape: tuple[int, ...] = (MIN_ELEMENTS,), dtype: str = "bfloat16") -> Tape:
    """A chain of ops, each in a module of its own."""
    prints = [Print(shape, dtype, f"{k}", 1.0, 0, (1.0 + 0.01 * k, 2.0)) for k in range(count + 1)]
    ops = [
        TapeOp(
            k, 0, "forward", "add.Tensor", f"m{k}", site=Site("train.py", k + 1, "forward", "x = x + y"),
            inputs=(Taken(k, *((k, -1) if k == 0 else (k - 1, 0))),), outputs=(k + 1,),
        )
        for k in range(count)
    ]  # fmt: skip
    return Tape({}, ({"step": 0},), {}, tuple(ops), tuple(prints))


def judged(first: list[float], second: list[float], same: bool = True, step: float = EPS) -> Judged:
    off = tuple({(k, 0): (error, step) for k, error in enumerate(side)} for side in (first, second))
    return Judged({(k, 0): Gap(not same) for k in range(len(first))}, {}, {}, {}, ({}, {}), ({}, {}), off=off)


def named(first: list[float], second: list[float], *, shape: tuple[int, ...] = (MIN_ELEMENTS,), same: bool = True):
    one, two = tape(len(first), shape), tape(len(second), shape)
    return loses(one, two, list(zip(one.ops, two.ops, strict=True)), judged(first, second, same))


def test_the_op_by_which_a_third_is_lost() -> None:
    little, much = EPS / 2, 20 * EPS
    # The second run: it loses some in the first op, most in the third, and carries that on.
    found = named([little] * 5, [4 * EPS, 4 * EPS, much, much, much])
    assert found is not None and found.kind == "loses" and found.a is None and found.b.module == "m2"
    assert (found.error, found.other) == (much, little)
    # The other way round; and where it grows bit by bit, the op by which a third of it is there.
    grows = [k * EPS for k in range(1, 9)]
    found = named(grows, [little] * 8)
    assert found is not None and found.b is None and found.a.module == "m2"


def test_differences_that_are_no_drift() -> None:
    little, much = EPS / 2, 20 * EPS
    assert named([little], [STEPS * EPS]) is None  # few steps
    assert named([much / 2], [much]) is None  # both lose
    assert named([little], [much], shape=(MIN_ELEMENTS - 1,)) is None  # chance
    assert named([little], [much], same=False) is None  # they calculate other things
    one, two = tape(1), tape(1)
    other = judged([little], [much])
    other.off[0][0, 0] = little, EPS * 2**-16
    assert loses(one, two, [(one.ops[0], two.ops[0])], other) is None  # another dtype


def test_an_op_in_only_one_run_is_reported() -> None:
    op = tape(1).ops[0]
    assert what(Blame("kernel", op, None)).startswith("an op that the other run does not have")
    assert what(Blame("kernel", op, op)).startswith("the same op of the same tensors")


def test_the_report_shows_lost_digits_beside_module_drift() -> None:
    one, two = tape(2), tape(2)
    pairs = list(zip(one.ops, two.ops, strict=True))
    found = loses(one, two, pairs, judged([EPS / 2] * 2, [EPS / 2, 0.25]))
    apart = drift(one, two, pairs)
    assert apart == [("m0", 0.0), ("m1", 0.0)]
    text = report(Compared("rounding", [], None, 2, ([], []), 1, 1, apart, loses=found), "A", "B")
    assert "lost more digits: it is off by 0.25, the other by 0.0039" in text
    assert "B: add.Tensor in m1 at train.py:2" in text and "has no such op" not in text


def mean_of(x: torch.Tensor, wide: bool) -> torch.Tensor:
    if wide:
        return x.float().sum(1).bfloat16() / x.shape[1]
    total = torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        total = total + x[:, t]  # PILES UP
    return total / x.shape[1]


def test_two_runs_and_their_page(tmp_path: Path) -> None:
    for wide in (True, False):
        torch.manual_seed(0)
        lin = nn.Linear(8, 4).bfloat16()
        with backprobe.trace(lin, record_ops=tmp_path / str(wide), steps=(0, 1)):
            x = torch.relu(lin(torch.randn(4, 600, 8).bfloat16()))
            mean_of(x, wide).float().square().mean().backward()
    folders = [tmp_path / str(wide) for wide in (True, False)]
    a, b = (read_tape(folder) for folder in folders)
    found = compare(a, b, judge_of(*map(tape_folder, folders)))
    here = line_of(Path(__file__).read_text(), "# PILES UP")
    assert found.verdict == "rounding" and found.blame is None
    told = as_dict(found)
    assert told["blame"] is None and told["loses"]["a"] is None and told["loses"]["b"]["line"] == here
    assert told["loses"]["error"] > 3 * EPS
    said = report(found, "A", "B")
    assert "Rounding that piles up" in said and f"B: add.Tensor at test_drift.py:{here}" in said
    assert "A: add" not in said
    sides = [Side(name, folder, tape) for name, folder, tape in zip("AB", folders, (a, b), strict=True)]
    (one,) = document(sides, [found])["comparisons"]
    assert one["blame"]["kind"] == "loses" and one["blame"]["b"]["line"] == here and one["blame"]["row"] >= 0
    assert any(here == line["b"][0] for line in one["blame"]["lines"] if line["b"])
