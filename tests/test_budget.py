"""The choice of recorded steps under a budget, and the findings of steps that are not recorded."""

from __future__ import annotations

import ast
import itertools
import json
import math
import random
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from budgeted import AT, SPOILS, STEPS, Net, spend, train, watched
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.overrides import TorchFunctionMode

import backprobe
from backprobe.basics.errors import BackprobeError
from backprobe.graphs.plan import ACCUMULATE, Plan
from backprobe.observe.backward.layout_matching import matching_positions
from backprobe.observe.backward.line_inference import first_bad_node
from backprobe.observe.forward.oplog import UNKNOWN, OpLog
from backprobe.observe.schedule import budget as budgets
from backprobe.observe.schedule.budget import Budget
from backprobe.observe.schedule.settings import budget_of
from backprobe.observe.session import Session, Settings
from backprobe.records import Watched
from backprobe.source.frames import Frames
from backprobe.source.line_ops import operations_on, writes_on
from backprobe.source.new_lines import SHOWS, FirstRuns
from backprobe.torch_internals import engine_calls

# What decides


def test_overhead_stays_within_the_share_and_the_first_second() -> None:
    budget = Budget(0.05)
    which = spend(budget, 20_000, alone=0.01, recorded=0.02, passing=0.0001)
    assert budget.spent <= budgets.FREE_SECONDS + 0.05 * budget.script_seconds + 0.04
    assert budget.spent >= 0.9 * (budgets.FREE_SECONDS + 0.05 * budget.script_seconds)
    assert all(which[:25]) and not all(which[:60])


def test_every_step_is_recorded_if_that_fits_or_there_is_no_budget() -> None:
    assert all(spend(Budget(0.05), 5000, alone=0.01, recorded=0.0004))
    assert all(spend(Budget(None), 5000, alone=0.01, recorded=1.0))


def test_steps_that_are_recorded_meet_every_phase_of_training() -> None:
    which = spend(Budget(0.05), 60_000, alone=0.01, recorded=0.01)
    late = [i for i, wanted in enumerate(which) if wanted and i > 10_000]
    for phases in range(2, 9):
        counts = [sum(i % phases == phase for i in late) for phase in range(phases)]
        assert min(counts) > 0.7 * len(late) / phases, (phases, counts)


def test_one_step_in_a_thousand_is_recorded_whatever_it_costs() -> None:
    which = spend(Budget(1e-9), 10_000, alone=0.001, recorded=10.0)
    assert sum(which) >= 9


def test_first_steps_are_not_paid_from_it() -> None:
    budget = Budget(0.05)
    budget.charge_step(101.0, 100.0, True, True, at_start=True)
    assert budget.spent == 0.0 and budget.wants_record()
    assert (budget.recorded_steps, budget.steps) == (1, 1)


@pytest.mark.parametrize(
    ("said", "share"), [("5%", 0.05), ("0.1", 0.1), (0.02, 0.02), ("none", None), (None, None), ("200%", 2.0)]
)
def test_what_a_person_says(said: Any, share: float | None) -> None:
    assert budget_of(said, Settings()) == share


@pytest.mark.parametrize("said", ["0", "-5%", "much", "nan", "inf", 0.0, -1.0])
def test_an_invalid_share_is_rejected(said: Any) -> None:
    with pytest.raises(BackprobeError, match=r"such as 5% or 0\.05"):
        budget_of(said, Settings())


def test_the_default_budget_applies_only_without_a_recording_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BACKPROBE_BUDGET", raising=False)
    assert budget_of("default", Settings()) == budget_of("default", Settings(quiet=True)) == 0.05
    for chosen in (Settings("full"), Settings(every=2), Settings(first=5), Settings(checks=frozenset({"memory"}))):
        assert budget_of("default", chosen) is None
        assert budget_of("3%", chosen) == 0.03
    monkeypatch.setenv("BACKPROBE_BUDGET", "10%")
    assert budget_of("default", Settings()) == 0.1
    with pytest.raises(BackprobeError):
        backprobe.trace(budget="a lot")


# The log, and what is put into it afterwards


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 4)), max_size=12), st.data())
def test_what_is_told_later_stands_where_nothing_was_noted(parts: list[tuple[bool, int]], data: st.DataObject) -> None:
    """Against one entry for each node."""
    log, truth, at = OpLog(), {}, 0
    for noted, count in parts:
        if noted:
            entry, begin = (None, at, "noted", None, None), at if log.ends else 0  # the first stands for all before
            log.ends.append(at + count)
            log.entries.append(entry)
            truth |= dict.fromkeys(range(begin, at + count), entry)
        else:
            log.mark_unrecorded(at + count)
        at += count
    chosen = data.draw(st.lists(st.integers(0, at + 3), unique=True).map(sorted))
    told = [(seq, (None, seq, "told", None, None)) for seq in chosen]
    log.fill_in(told)
    for seq, entry in told:
        truth.setdefault(seq, entry)
    assert log.ends == sorted(set(log.ends)) and len(log.ends) == len(log.entries)
    for seq in range(at + 3):
        ends = [end for end in log.ends if end > seq]
        found = log.entries[log.ends.index(ends[0])] if ends else UNKNOWN
        if seq in truth:
            assert found is truth[seq] or found == truth[seq], seq
        assert log.is_unknown(seq) == (found is UNKNOWN)


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
def test_what_is_alike_in_two_lists(one: list[str], other: list[str]) -> None:
    pairs = matching_positions(one, other)
    assert all(one[a] == other[b] for a, b in pairs)
    assert all(a < c and b < d for (a, b), (c, d) in itertools.pairwise(pairs))
    assert len(matching_positions(one, one)) == len(one)
    longer = [*one, "x", *one]
    assert len(matching_positions(longer, [*one, *one])) == 2 * len(one)


# Lines that ran for the first time


@pytest.mark.skipif(not SHOWS, reason="this Python does not show what it has adapted")
def test_lines_that_run_for_the_first_time_are_known_from_the_code_object(tmp_path: Path) -> None:
    text = """
        def helper(h):
            h.mul_(2)

        def step(i, h):
            total = 0
            for j in range(3):
                total += j
            if i == 60:
                h.add_(1)
            z = h.clone() if i == 70 else h
            if i == 80:
                helper(z)
            return z
    """
    path = tmp_path / "loop.py"
    path.write_text(textwrap.dedent(text))
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    frames = Frames((str(tmp_path),))
    assert frames.is_user(names["step"].__code__) and frames.is_user(names["helper"].__code__)
    runs = FirstRuns(frames)
    new: dict[int, list[int]] = {}
    for i in range(100):
        names["step"](i, torch.ones(2))
        found = [frames.site(spot) for spot in runs.called_from(runs.look())]
        new[i] = [site.line for site in found if site is not None]
    assert [i for i in range(30, 100) if new[i]] == [60, 70, 80]
    assert (new[60], new[70]) == ([10], [11])
    assert new[80][0] == 13 and 3 in new[80]  # the call, and what it calls


@pytest.mark.skipif(not SHOWS, reason="this Python does not show what it has adapted")
def test_a_line_that_ran_before_the_first_scan_is_not_new(tmp_path: Path) -> None:
    """The interpreter goes on changing it: it counts how often it cannot specialise it, or gives up what it did."""
    text = """
        def step(h, late):
            z = h * 2 + h.t().clone()
            if late:
                z = z.clone()
            return z.sum()
    """
    path = tmp_path / "loop.py"
    path.write_text(textwrap.dedent(text))
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    frames = Frames((str(tmp_path),))
    assert frames.is_user(names["step"].__code__)
    for _ in range(100):
        names["step"](torch.ones(2, 2), False)
    runs, lines = FirstRuns(frames), []
    for late in (False, False, True):
        found = [frames.site(spot) for spot in runs.look()]
        lines.append([site.line for site in found if site is not None])
        for _ in range(40):
            names["step"](nn.Parameter(torch.ones(2, 2)), late)
    assert lines == [[], [], []]
    assert 5 in [site.line for spot in runs.look() if (site := frames.site(spot)) is not None]


@pytest.mark.skipif(not SHOWS, reason="this Python does not show what it has adapted")
def test_imports_of_a_user_module_are_not_user_code() -> None:
    frames = Frames()
    assert frames.is_user(watched.__code__)  # this module has the names of our own classes, and of torch's
    runs = FirstRuns(frames)
    runs.look()
    for _ in range(50):
        frames.is_user(watched.__code__)
        nn.Linear(1, 1)(torch.ones(1))
    sites = [frames.site(spot) for spot in runs.called_from(runs.look())]
    assert {site.file for site in sites if site is not None} <= {__file__}


@pytest.mark.parametrize(
    ("line", "written", "computed"),
    [
        ("h.add_(1)", ("add_", "h"), ["add_"]),
        ("x[0] = y * 2", ("__setitem__", "x"), ["mul"]),
        ("self.h -= 1", ("__isub__", "self.h"), ["sub"]),
        ("torch.add(a, b, out=c)", ("add", "c"), ["add"]),
        ("nn.init.zeros_(layer.weight)", ("zeros_", "layer.weight"), ["zeros_"]),
        ("y = torch.sqrt(-x)", None, ["sqrt", "neg"]),
        ("self.__init__(x)", None, ["__init__"]),
        ("y = Scale.apply(x)", None, ["Scale.apply", "apply"]),
    ],
)
def test_what_a_line_writes_and_computes(tmp_path: Path, line: str, written: Any, computed: list[str]) -> None:
    path = tmp_path / "line.py"
    path.write_text(line + "\n")
    ast.parse(line)
    writes = [(write.op, write.target) for write in writes_on(str(path), 1)]
    assert writes == ([] if written is None else [written])
    assert sorted(operations_on(str(path), 1)) == sorted(computed)


def test_the_variable_of_a_write(tmp_path: Path) -> None:
    path = tmp_path / "writes.py"
    path.write_text("x.add_(1)\nx[0].data.add_(1)\nself.h[1] += 1\nlayer.weight.fill_(0)\n")
    assert [writes_on(str(path), line)[0].variable for line in (1, 2, 3, 4)] == ["x", "x", "h", "layer"]


# The node behind bad gradients


def test_the_node_follows_from_which_leaves_are_bad() -> None:
    #: 0 Add -> 1 Sqrt -> 2 Mul -> leaves 4, 5; 0 Add -> 3 Log -> leaf 6
    names = ["AddBackward0", "SqrtBackward0", "MulBackward0", "LogBackward0", *[ACCUMULATE] * 3]
    plan = Plan(names, [2, 1, 2, 1, 0, 0, 0], [1, 3, 2, 4, 5, 6], [0] * 6)
    order = [0, 1, 2, 3, 4, 5, 6]
    assert first_bad_node(plan, order, {4: True, 5: True, 6: False}, set(), set()) == 1
    assert first_bad_node(plan, order, {4: False, 5: False, 6: True}, set(), set()) == 3
    assert first_bad_node(plan, order, {4: False, 5: True, 6: False}, set(), set()) == 2
    assert first_bad_node(plan, order, {4: False, 5: False, 6: False}, set(), set()) is None
    assert first_bad_node(plan, order, {4: True, 5: True, 6: False}, set(), {2}) == 2  # it was not there before


# Steps that are not recorded


@pytest.fixture
def nothing_to_spend(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step is recorded but the first three, and those that trouble asks for; none passes."""
    monkeypatch.setattr(budgets, "FREE_SECONDS", 0.0)
    monkeypatch.setattr(budgets, "MAX_STEPS_BETWEEN_RECORDED", 10**9)
    monkeypatch.setattr(budgets, "UNRECORDED_STEP_FRACTION", math.inf)


@pytest.mark.parametrize("kind", [*SPOILS, "second-backward"])
def test_failures_are_reported_like_with_every_step_recorded(kind: str, nothing_to_spend: None) -> None:
    every, _, alone = watched(None, lambda: train(Net(), kind))
    some, session, raised = watched(1e-9, lambda: train(Net(), kind))
    assert session.budget.recorded_steps < 20
    assert type(alone) is type(raised) and str(alone) == str(raised)
    best, found = every.findings[0], some.findings[0]
    assert (found.kind, found.step) == (best.kind, best.step) == (kind, AT)
    if SHOWS:
        wanted = {(site.role, site.site.line) for site in best.sites}
        assert {(site.role, site.site.line) for site in found.sites} == wanted
        assert found.module == best.module and best.node in (None, found.node)


def test_a_healthy_run_is_silent_and_its_bits_are_the_same(nothing_to_spend: None) -> None:
    torch.manual_seed(0)
    plain = train(Net())
    after = torch.rand(1), random.random()
    random.seed(1)
    kept: list[torch.Tensor] = []
    trace, session, raised = watched(1e-9, lambda: kept.extend(train(Net())))
    assert raised is None and trace.findings == []
    assert all(torch.equal(a, b) for a, b in zip(plain, kept, strict=True))
    assert torch.equal(torch.rand(1), after[0])
    assert 3 <= session.budget.recorded_steps < 20 and session.budget.steps == STEPS
    assert trace.coverage.observed == Watched(
        0, STEPS - 1, budget=1e-9, recorded=session.budget.recorded_steps, steps=STEPS
    )
    assert "steps fully checked" in trace.coverage.summary and not trace.coverage.gaps


def test_steps_and_losses_are_those_of_a_run_that_is_recorded(nothing_to_spend: None) -> None:
    class All:
        def __init__(self) -> None:
            self.steps: list[Any] = []

        def backward(self, recorded: object) -> None: ...

        def step(self, step: Any, session: object) -> None:
            self.steps.append((step.index, step.loss, step.backwards, step.calls))

    seen = []
    for budget in (None, 1e-9):
        sink = All()
        session = Session(sink, Settings(budget=budget))
        torch.manual_seed(0)
        session.start()
        train(Net())
        session.stop()
        assert session.error is None
        seen.append(sink.steps)
    assert seen[0] == seen[1] and len(seen[0]) == STEPS


def test_nothing_stays_when_watching_ends(nothing_to_spend: None) -> None:
    own = torch.autograd._engine_run_backward  # type: ignore[attr-defined]
    _, session, _ = watched(1e-9, lambda: train(Net()))
    assert torch.autograd._engine_run_backward is own is engine_calls.own  # type: ignore[attr-defined]
    assert torch._C._len_torch_function_stack() == 0
    assert not nn.modules.module._global_forward_hooks and not nn.modules.module._global_forward_pre_hooks
    assert not session.schedule.state.attached


def test_modes_of_the_users_keep_their_places_while_ours_goes_and_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "FREE_SECONDS", 0.0)
    monkeypatch.setattr(budgets, "MAX_STEPS_BETWEEN_RECORDED", 5)

    class Counts(TorchFunctionMode):
        seen = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen += func.__name__ != "__get__"
            return func(*args, **(kwargs or {}))

    counts = []
    for budget in (0.0, 1e-9):
        outer = Counts()

        def loop(mode: Counts = outer) -> None:
            model = Net()
            optimizer = torch.optim.SGD(model.parameters(), 1e-3)
            for i in range(40):
                with mode:
                    loss = model(torch.ones(2, 4)).square().mean()
                    optimizer.zero_grad()
                    loss.backward()
                    if i % 2:
                        optimizer.step()  # ours goes or comes in here, below theirs
                if not i % 2:
                    optimizer.step()
            assert torch._C._len_torch_function_stack() <= 1

        watched(budget, loop) if budget else loop()
        counts.append(outer.seen)
    assert counts[0] == counts[1] > 0
    assert torch._C._len_torch_function_stack() == 0


def test_a_script_without_an_optimizer_has_steps_that_are_not_recorded(nothing_to_spend: None) -> None:
    def loop() -> None:
        model = Net()
        for _ in range(40):
            model(torch.randn(5, 4)).square().mean().backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 1e-3 * p.grad  # type: ignore[operator]
                    p.grad = None

    trace, session, _ = watched(1e-9, loop)
    assert session.schedule.steps.index == 40 and session.budget.recorded_steps < 20
    assert trace.findings == []


@pytest.mark.parametrize("cleared", [None, "zero"])
def test_a_script_without_modules_and_optimizers_is_without_our_modes_too(
    cleared: str | None, nothing_to_spend: None
) -> None:
    depths: list[int] = []

    def loop() -> None:
        w = torch.randn(4, requires_grad=True)
        for _ in range(40):
            depths.append(torch._C._len_torch_function_stack())
            (w * 2).square().mean().backward()
            with torch.no_grad():
                w -= 1e-3 * w.grad  # type: ignore[operator]
                if cleared is None:
                    w.grad = None
                else:
                    w.grad.zero_()  # type: ignore[union-attr]

    trace, session, _ = watched(1e-9, loop)
    assert session.schedule.steps.index == 40 and session.budget.recorded_steps < 10 and trace.findings == []
    assert depths[:3] == [1] * 3 and depths[5:] == [0] * 35
    assert torch.overrides._push_mode.__module__ == "torch.overrides"  # type: ignore[attr-defined]


def test_a_script_that_only_asks_for_gradients_has_steps_too(nothing_to_spend: None) -> None:
    depths: list[int] = []

    def loop() -> None:
        w = torch.randn(4, requires_grad=True)
        for _ in range(40):
            depths.append(torch._C._len_torch_function_stack())
            (grad,) = torch.autograd.grad((w * 2).square().mean(), w)
            with torch.no_grad():
                w -= 1e-3 * grad

    trace, session, _ = watched(1e-9, loop)
    assert session.schedule.steps.index == 40 and session.budget.recorded_steps < 10 and trace.findings == []
    assert depths[8:] == [0] * 32


def test_a_part_that_stops_learning_where_nothing_is_recorded_is_found(nothing_to_spend: None) -> None:
    model = Net()

    def loop() -> None:
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        for i in range(200):
            x = torch.randn(5, 4)
            loss = model(x, "none-grad" if i >= AT else "").square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    trace, session, _ = watched(1e-9, loop)
    assert session.budget.recorded_steps < 40
    found = trace.findings[0]
    assert found.kind == "none-grad" and "first.weight" in found.parameters
    assert AT <= (found.step or 0) <= AT + 2
    assert any("h.detach()" in site.site.text for site in found.sites)


def test_a_second_listener_of_the_engines_calls_hears_them_too() -> None:
    heard: list[str] = []

    def one(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        heard.append("one")
        return call(*args, **kwargs)

    def other(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        heard.append("other")
        return call(*args, **kwargs)

    assert engine_calls.listen(one) and engine_calls.listen(other)
    try:
        torch.ones(2, requires_grad=True).sum().backward()
        engine_calls.unlisten(one)
        torch.ones(2, requires_grad=True).sum().backward()
    finally:
        engine_calls.unlisten(one)
        engine_calls.unlisten(other)
    torch.ones(2, requires_grad=True).sum().backward()
    assert heard == ["other", "one", "other"]


def test_another_tools_replacement_function_stays_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    own = engine_calls.own
    assert own is not None

    def theirs(*args: Any, **kwargs: Any) -> Any:
        return own(*args, **kwargs)

    monkeypatch.setattr(torch.autograd, "_engine_run_backward", theirs)
    assert not engine_calls.listen(lambda call, *args, **kwargs: call(*args, **kwargs))
    trace, session, _ = watched(1e-9, lambda: train(Net()))
    assert torch.autograd._engine_run_backward is theirs  # type: ignore[attr-defined]
    assert trace.findings == [] and session.schedule.state.attached is False


def test_parameters_of_a_model_that_is_gone_when_they_are_reported(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.body, self.codes = torch.nn.Linear(64, 64), torch.nn.Embedding(8, 64)\n"
        "    def forward(self, x):\n"
        "        for _ in range(60):\n"
        "            x = x + 0.01 * self.body(x).tanh()\n"
        "        return x + self.codes(torch.zeros(len(x), dtype=torch.long)).detach()\n"
        "def main():\n"
        "    net = Net()\n"
        "    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)\n"
        "    for _ in range(150):\n"
        "        optimizer.zero_grad()\n"
        "        net(torch.randn(64, 64)).square().mean().backward()\n"
        "        optimizer.step()\n"
        "main()\n"
    )
    findings = tmp_path / "findings.json"
    command = [sys.executable, "-m", "backprobe", "run", "--no-keep", "--budget", "1%", "--findings", str(findings)]
    subprocess.run([*command, str(script)], check=True, capture_output=True, timeout=600)
    found = json.loads(findings.read_text())
    assert [one["kind"] for one in found["findings"]] == ["none-grad"]
    assert found["findings"][0]["parameters"] == ["codes.weight"]
