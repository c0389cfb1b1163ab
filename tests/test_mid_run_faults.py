"""Faults that begin in the middle of a run, each reported with its line even if that step was not inspected."""

from __future__ import annotations

import copy
import linecache
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from scripts import line_of, run
from torch import nn

import backprobe
from backprobe.observe.backward.layout_matching import from_names, from_neighbours
from backprobe.records import Site
from backprobe.source.assignments import assigned_in, changes_of, gives
from backprobe.source.dataflow import singular_before

STEPS, WHEN = 80, 40


class Shift(torch.autograd.Function):
    """Adds a parameter, and forgets its gradient: not given at all, or zeros in its place."""

    @staticmethod
    def forward(ctx, x, shift, zeros):
        ctx.zeros, ctx.shape = zeros, shift.shape
        return x + shift

    @staticmethod
    def backward(ctx, grad):
        return grad, torch.zeros(ctx.shape) if ctx.zeros else None, None


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 2)
        self.shift = nn.Parameter(torch.full((6,), 0.1))
        self.way = "plain"

    def forward(self, x):
        h = self.first(x)
        if self.way == "number":
            h = h + self.shift.max().item()  # a number
        elif self.way == "plain":
            h = h + self.shift
        else:
            h = Shift.apply(h, self.shift, self.way == "zeros")
        return self.last(h.relu())


def train(late=None, after=None, steps=STEPS, net=None):
    """Return the findings of a loop that calls ``late(net)`` in step ``WHEN``, and `after` after each backward."""
    torch.manual_seed(0)
    net = net or Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with backprobe.trace(net, budget=None) as trace:
        for step in range(steps):
            if late is not None and step == WHEN:
                late(net)
            loss = nn.functional.cross_entropy(net(torch.randn(8, 4)), torch.randint(0, 2, (8,)))
            optimizer.zero_grad()
            loss.backward()
            if after is not None:
                after(net, step, loss)
            optimizer.step()
    return trace.findings


def site(finding, role):
    return next(s.site.text for s in finding.sites if s.role == role)


@pytest.mark.parametrize("way, kind", [("nothing", "none-grad"), ("zeros", "zero-grad"), ("number", "none-grad")])
def test_a_line_that_stops_the_training_of_a_parameter(way: str, kind: str) -> None:
    (found,) = train(lambda net: setattr(net, "way", way))
    assert (found.kind, found.parameters) == (kind, ("shift",))
    assert site(found, "cut").startswith("h = h + self.shift.max().item()" if way == "number" else "h = Shift.apply(")
    assert train() == []


@pytest.mark.parametrize("where", ["main", "the module"])
def test_a_cut_in_a_model_that_is_freed_before_the_script_ends(where: str, tmp_path: Path) -> None:
    body = textwrap.dedent("""
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), 0.05)
        for step in range(80):
            scale = net.scale if step < 40 else net.scale.item()  # CUT
            optimizer.zero_grad()
            (scale * net(torch.randn(8, 4))).square().mean().backward()
            optimizer.step()
    """)
    made = textwrap.dedent("""
        class Net(nn.Linear):
            def __init__(self):
                super().__init__(4, 2)
                self.scale = nn.Parameter(torch.ones(()))
    """)
    called = f"def main():{textwrap.indent(body, '    ')}\nmain()\n" if where == "main" else body
    text, found, *_ = run(tmp_path, made + called)
    (one,) = found
    assert (one.kind, one.parameters, one.step) == ("none-grad", ("scale",), 40)
    assert [s.site.line for s in one.sites if s.role == "cut"] == [line_of(text, "# CUT")]


@pytest.mark.parametrize("called", [False, True])
def test_a_hook_in_a_model_that_is_freed_before_the_script_ends(called: bool, tmp_path: Path) -> None:
    """Of a module that is called in the last of twelve steps alone, or in none."""
    text, found, *_ = run(
        tmp_path,
        f"""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 2)
            def forward(self, x, calls):
                return self.fc(x) if calls else F.linear(x, self.fc.weight, self.fc.bias)
        def main():
            net = Net()
            optimizer = torch.optim.SGD(net.parameters(), 0.05)
            net.fc.register_forward_hook(lambda module, given, made: None)  # HOOK
            for step in range(12):
                optimizer.zero_grad()
                net(torch.randn(8, 4), {called} and step == 11).square().mean().backward()
                optimizer.step()
        main()
        """,
    )
    assert [f.kind for f in found if f.severity != "info"] == ([] if called else ["hook-never-fires"])
    assert called or [s.site.line for s in found[0].sites] == [line_of(text, "# HOOK")]


def test_a_part_that_is_frozen_as_the_teacher_of_another() -> None:
    """The same module in two places: what was to be frozen is to learn too. A part that is only frozen is meant."""

    def freeze(net):
        for p in net.first.parameters():
            p.requires_grad_(False)

    def twin(net):
        freeze(net)
        net.way = "twin"

    net = Net()
    net.forward = lambda x: _twice(net, x) if net.way == "twin" else Net.forward(net, x)  # type: ignore[method-assign]
    (found,) = train(twin, net=net)
    assert (found.kind, found.step, set(found.parameters)) == ("none-grad", WHEN, {"first.weight", "first.bias"})
    assert site(found, "cut") == "p.requires_grad_(False)"
    assert train(freeze) == []


def test_a_trained_copy_that_the_optimizer_does_not_hold() -> None:
    """The same where it has an optimizer of its own is no finding."""

    def run(again: bool) -> list:
        torch.manual_seed(0)
        net = nn.Linear(4, 2)
        with backprobe.trace(budget=None) as trace:
            optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
            for step in range(STEPS):
                if step == WHEN:
                    net = copy.deepcopy(net)
                    if again:
                        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
                loss = net(torch.randn(8, 4)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return trace.findings

    (found,) = run(again=False)
    assert (found.kind, found.step) == ("parameter-not-in-optimizer", WHEN)
    assert site(found, "optimizer").startswith("optimizer = torch.optim.SGD(")
    assert run(again=True) == []


@pytest.mark.parametrize("late", [False, True])
def test_statistics_that_change_between_an_eval_forward_and_its_backward(late: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with backprobe.trace(net, budget=None) as trace:
        for step in range(20):
            x = torch.randn(8, 4)
            clean = net.eval()(x)
            if step < 10 and late:
                clean = clean.detach()
            noisy = net.train()(x + 0.1)
            loss = (noisy - clean).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    (found,) = trace.findings
    assert (found.kind, found.tensor, found.step) == ("silent-mutation", "1.running_mean", 10 * late)
    assert site(found, "mutated").startswith("noisy = ") and site(found, "saved").startswith("clean = ")


def test_an_array_that_is_refilled_from_a_late_step_on() -> None:
    """The session compares memory only in steps that it inspects closely, which it chooses now and then."""
    array = np.ones((8, 4), dtype=np.float32)

    def step_of(net, step):
        x = torch.from_numpy(array if step >= WHEN else array.copy())
        loss = net(x).square().mean()
        array[:] = step
        return loss

    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-5)
    with backprobe.trace(net, budget=None) as trace:
        for step in range(STEPS):
            loss = step_of(net, step)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    (found,) = trace.findings
    assert (found.kind, site(found, "mutated")) == ("silent-mutation", "array[:] = step")


def _twice(net, x):
    net.way = "plain"
    try:
        return Net.forward(net, x) + 0 * net.first(x).sum()
    finally:
        net.way = "twin"


class Quantised(nn.Linear):
    rounds = False

    def forward(self, x):
        weight = torch.round(self.weight * 8) / 8 if self.rounds else self.weight  # ROUNDED
        return nn.functional.linear(x, weight, self.bias)


def test_an_op_with_zero_derivative_from_a_late_step_on() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(Quantised(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with backprobe.trace(net, budget=None) as trace:
        for step in range(60):
            net[0].rounds = step >= 30
            optimizer.zero_grad()
            net(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
    (found,) = trace.findings
    assert (found.kind, found.confidence, found.parameters) == ("zero-grad", "likely", ("0.weight",))
    assert found.sites[0].site.text.endswith("# ROUNDED") and "though they did before" in found.title


def test_gradients_that_the_script_assigns_are_not_missing() -> None:
    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with backprobe.trace(net, budget=None) as trace:
        for _ in range(12):
            weights = {name: p.detach().requires_grad_() for name, p in net.named_parameters()}
            loss = torch.func.functional_call(net, weights, (torch.randn(8, 4),)).square().mean()
            grads = torch.autograd.grad(loss, list(weights.values()))
            for p, g in zip(net.parameters(), grads, strict=True):
                p.grad = g
            optimizer.step()
    assert trace.findings == []


class Keeper:
    def __init__(self) -> None:
        self.curves, self.carried = {"loss": [], "other": []}, None
        self.count, self.pending = [0.0], []

    def put(self, loss):
        self.count.append(0.0)
        self.curves["other"].append(loss.item())
        self.curves["loss"].append(loss)

    def defer(self, loss):
        self.pending.append(lambda: loss.item())

    def carry(self, loss):
        self.carried = scaled(loss, self.carried)


def scaled(loss, before):
    out = loss * 0.1 if before is None else before * 0.9 + loss
    return out


@pytest.mark.parametrize(
    "how, holder, line",
    [
        ("put", "curves['loss']", 'self.curves["loss"].append(loss)'),
        ("carry", "carried", "self.carried = scaled(loss, self.carried)"),
        ("defer", "pending", "self.pending.append(lambda: loss.item())"),
    ],
)
def test_the_holder_of_retained_graphs_has_its_name_in_the_script(how: str, holder: str, line: str) -> None:
    keeper = Keeper()
    found = train(after=lambda net, step, loss: getattr(keeper, how)(loss) if step >= WHEN else None)
    assert [f.kind for f in found] == ["graph-retained"]
    assert (found[0].tensor, site(found[0], "held")) == (holder, line)


def test_a_hook_on_calls_of_a_module_that_is_never_called() -> None:
    class Direct(Net):
        def forward(self, x):
            return self.last(self.first.forward(x).relu() + self.shift)

    def hook(module, args, out):
        return None

    def late(net):
        net.first.register_forward_hook(hook)

    net = Direct()
    (found,) = train(late, net=net)
    assert (found.kind, found.module) == ("hook-never-fires", "first")
    assert site(found, "hook") == "net.first.register_forward_hook(hook)"
    assert train(late) == []  # called as a module: it fires


class _Frames:
    def __init__(self, file: Path) -> None:
        self.file = str(file)

    def users_files(self) -> list[str]:
        return [self.file]


SOURCE = """
class Norm(nn.Module):
    def forward(self, x):
        with torch.no_grad():
            self.scale.copy_(self.total / self.count)
        return (x - self.mean) * self.scale.rsqrt()

class Net(nn.Module):
    def __init__(self):
        self.norm, self.body = Norm(), nn.Linear(2, 2)

    def forward(self, x):
        return self.body(self.norm(x))

def weights(labels):
    count = labels.sum()
    share = len(labels) / count
    wide = share + 1
    return labels * wide

def own(model, x, n):
    y = x / 2
    return model((y - y.mean()) / y.std())

def nothing(model, x):
    z = x + 1
    return model(z)
"""


def test_earlier_lines_that_can_have_made_a_value(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(SOURCE)
    frames, lines = _Frames(file), SOURCE.splitlines()

    def before(text: str, variable: str = "") -> str | None:
        at = next(n for n, line in enumerate(lines, 1) if text in line)
        found = singular_before(Site(str(file), at, "f"), frames, variable)  # type: ignore[arg-type]
        return None if found is None else found.text

    assert before("return self.body(") == "return (x - self.mean) * self.scale.rsqrt()"
    assert before("return (x - self.mean)") == "self.scale.copy_(self.total / self.count)"
    assert before("return labels") == "share = len(labels) / count"
    assert before("return labels", "count") is None
    assert before("return model((y") == "return model((y - y.mean()) / y.std())"
    assert before("return model(z)") is None
    linecache.clearcache()


PUTS = """
class A:
    def __init__(self):
        self.state = None

    def act(self, x):
        out, self.state = self.net(x, self.state)

    def clear(self):
        self.rows.append(0.0)
        self.rows, other[2] = [], x
        self.rows[3] = x

def loop(h):
    h = step(h)
"""


def test_lines_that_assign_or_mutate(tmp_path: Path) -> None:
    file = tmp_path / "puts.py"
    file.write_text(PUTS)
    frames, lines = _Frames(file), PUTS.splitlines()

    def text(found: Site | None) -> str | None:
        return None if found is None else found.text

    assert text(assigned_in(frames, "state")) == "out, self.state = self.net(x, self.state)"  # type: ignore[arg-type]
    assert text(changes_of(frames, "rows")) == "self.rows.append(0.0)"  # type: ignore[arg-type]
    assert text(changes_of(frames, "rows", graphs=True)) == "self.rows[3] = x"  # type: ignore[arg-type]
    act = Site(str(file), next(n for n, line in enumerate(lines, 1) if "out, self" in line), "act")
    assert gives(act, "state")
    assert not gives(act, "out")  # that is a variable, no attribute


def test_a_custom_function_called_by_one_line_is_identified_by_name() -> None:
    one, other = test_lines_that_assign_or_mutate.__code__, train.__code__
    known = [("ShiftBackward", (one, 1, None, None, None)), ("ShiftBackward", (one, 1, None, None, None))]
    assert from_names({7: "ShiftBackward", 8: "MulBackward0"}, known) == {7: known[0][1]}  # type: ignore[arg-type]
    two = [*known, ("ShiftBackward", (other, 1, None, None, None)), ("MulBackward0", (one, 4, None, None, None))]
    assert from_names({7: "ShiftBackward", 8: "MulBackward0"}, two) == {}  # type: ignore[arg-type]


class Rounded(torch.autograd.Function):
    """Rounds; where it is asked to stop, it gives no gradient."""

    @staticmethod
    def forward(ctx, x, stops):
        ctx.stops = stops
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return None if ctx.stops else grad, None


class Stepped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.ReLU())
        self.head, self.way = nn.Linear(6, 2), "plain"

    def forward(self, x):
        return self.head(Rounded.apply(self.features(x), self.way != "plain"))


@pytest.mark.parametrize("when", [0, WHEN])
def test_a_custom_function_that_returns_none_for_its_inputs(when: int) -> None:
    def late(net):
        net.way = "stops"

    net = Stepped()
    if when == 0:
        late(net)
    found = [f for f in train(late, net=net) if f.kind == "none-grad"]
    (one,) = found
    assert one.node == "RoundedBackward" and one.confidence == "certain"
    assert {name.removeprefix("features.") for name in one.parameters} == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert "the backward of Rounded returns None on the way to them" in one.title
    assert ("learned before" in one.title) == (when > 0)
    assert site(one, "cut").startswith("return self.head(Rounded.apply")


def test_nodes_between_nodes_of_one_line_belong_to_it() -> None:
    code, other = test_a_custom_function_that_returns_none_for_its_inputs.__code__, train.__code__

    class Lines:
        def site(self, spot):
            return Site("f.py", spot[1] // 10, "f", "")

    gru, add, far = (code, 12, "gru", None, None), (code, 14, "add", None, None), (code, 31, "relu", None, None)
    made = {1: add, 3: gru, 4: gru, 6: far, 8: (other, 31, "relu", None, None)}
    names = ["ExpBackward0"] * 10
    assert from_neighbours([1, 2, 3, 4, 5, 6, 7, 8, 9], names, made, Lines()) == {2: gru}
    inside = (code, 13, "mul", ("module",), None)
    assert from_neighbours([0, 1, 2, 3], names, {1: add, 3: inside}, Lines()) == {2: (code, 13, "exp", None, None)}


def test_a_state_carried_over_from_a_late_step_that_is_not_recorded() -> None:
    torch.manual_seed(0)
    net = nn.GRU(4, 6, batch_first=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    state = None
    with pytest.raises(RuntimeError), backprobe.trace(net, budget=1e-9) as trace:
        for step in range(STEPS):
            if step < WHEN:
                state = None
            out, state = net(torch.randn(3, 5, 4), state)
            optimizer.zero_grad()
            out.square().mean().backward()
            optimizer.step()
    (found,) = trace.findings
    assert (found.kind, found.step) == ("second-backward", WHEN)
    assert found.sites[0].site.text.startswith("out, state = net(")
