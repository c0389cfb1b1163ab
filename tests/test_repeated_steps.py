"""Steps of which the backward alone is recorded: Note [Steps that repeat]."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from test_budget import AT, SPOILS, STEPS, Net, train, watched
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from watching import Ops

from backprobe.observe.schedule import budget as budgets
from backprobe.observe.schedule.budget import Budget
from backprobe.observe.session import Session, Settings
from backprobe.records import GradStat
from backprobe.source.new_lines import SHOWS

# What decides


def spend(budget: Budget, steps: int, alone: float, whole: float, backward: float) -> list[str]:
    """Return how each of `steps` steps was recorded, if any of them may repeat."""
    budget.can_record_backward_only = True
    kinds = []
    for _ in range(steps):
        kind = "" if not budget.wants_record() else "backward" if budget.next_is_backward_only else "whole"
        mine = {"": 0.0, "backward": backward, "whole": whole}[kind]
        budget.charge_step(alone + mine, mine, bool(kind), False, backward_only=kind == "backward")
        kinds.append(kind)
    return kinds


def test_the_budget_is_split_between_backward_only_and_complete_records() -> None:
    budget = Budget(0.05)
    kinds = spend(budget, 20_000, alone=0.01, whole=0.014, backward=0.006)
    whole, backward = 0.014 * kinds.count("whole"), 0.006 * kinds.count("backward")
    assert (
        set(kinds[:40]) == {"whole"}
        and abs(whole - budgets.FREE_SECONDS * (1 - budgets.RESERVED_FRACTION) - backward) <= 0.04
    )
    assert (
        0.9 * (budgets.FREE_SECONDS + 0.05 * budget.script_seconds)
        <= budget.spent
        <= budgets.FREE_SECONDS + 0.05 * budget.script_seconds + 0.04
    )
    assert budget.backward_only_steps == kinds.count(
        "backward"
    ) and budget.recorded_steps == budget.backward_only_steps + kinds.count("whole")
    late = [i for i, kind in enumerate(kinds) if kind == "whole" and i > 2000]
    for phases in range(2, 6):
        counts = [sum(i % phases == phase for i in late) for phase in range(phases)]
        assert min(counts) > 0.5 * len(late) / phases, (phases, counts)


def test_all_steps_are_recorded_completely_if_the_budget_allows() -> None:
    assert set(spend(Budget(0.05), 2000, alone=0.01, whole=0.0004, backward=0.0002)) == {"whole"}
    assert set(spend(Budget(None), 2000, alone=0.01, whole=1.0, backward=0.1)) == {"whole"}


def test_one_step_in_a_thousand_is_recorded_completely_whatever_the_cost() -> None:
    kinds = spend(Budget(1e-9), 10_000, alone=0.001, whole=10.0, backward=0.0)
    assert kinds.count("whole") >= 9


def test_new_graphs_increase_the_wait_until_the_next_attempt() -> None:
    budget = Budget(0.05)
    budget.can_record_backward_only = True
    tries: list[int] = []
    for step in range(3000):
        budget.charge_step(0.02, 0.01, True, False)
        if budget.next_is_backward_only:
            budget.note_unmatched_graph()
            tries.append(step)
    gaps = [b - a for a, b in itertools.pairwise(tries)]
    assert 4 < len(tries) < 12 and gaps == sorted(gaps)


# What is recorded


@pytest.fixture
def repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is recorded; of all but one in ten the backward alone, where that may be."""

    def may(budget: Budget) -> bool:
        known = budget.share is not None and budget.can_record_backward_only and budget.full_record_cost is not None
        return known and budget.steps >= budget._full_records_until and budget._steps_since_full_record < 9

    monkeypatch.setattr(Budget, "next_is_backward_only", property(may))
    monkeypatch.setattr(Budget, "wants_record", lambda budget: True)
    monkeypatch.setattr(budgets, "MAX_STEPS_BETWEEN_RECORDED", 10**9)


class All:
    """A sink that keeps records of all."""

    def __init__(self) -> None:
        self.calls: dict[int, Any] = {}
        self.steps: list[Any] = []

    def backward(self, recorded: Any) -> None:
        self.calls[recorded.index] = recorded.record()

    def step(self, step: Any, session: object) -> None:
        self.steps.append((step.index, step.loss, step.backwards, step.calls))


def recorded(loop: Callable[[], Any], budget: float | None) -> tuple[All, Session]:
    sink = All()
    session = Session(sink, Settings(budget=budget))
    torch.manual_seed(0)
    random.seed(0)
    session.start()
    try:
        loop()
    finally:
        session.stop()
    assert session.error is None, repr(session.error)
    return sink, session


def loop_of(model: nn.Module, loss: Callable[[nn.Module], torch.Tensor], steps: int = 50) -> Callable[[], Any]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def loop() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            loss(model).backward()
            optimizer.step()

    return loop


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside, self.again, self.out = nn.Linear(3, 5), nn.Linear(5, 5), nn.Linear(5, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(x.shape[1], 5)
        for frame in x:
            h = torch.tanh(self.inside(frame) + self.again(h))
        return self.out(h)


def mlp() -> Callable[[], Any]:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    return loop_of(model, lambda m: F.cross_entropy(m(torch.randn(6, 4)), torch.randint(3, (6,))))


def rnn() -> Callable[[], Any]:
    return loop_of(Recurrent(), lambda m: m(torch.randn(20, 4, 3)).square().mean())


def attention() -> Callable[[], Any]:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return loop_of(model, lambda m: m(torch.randn(2, 5, 16)).square().mean())


def shared_and_branching() -> Callable[[], Any]:
    model = nn.ModuleDict({"one": nn.Linear(4, 4), "two": nn.Linear(4, 4)})

    def loss(m: Any) -> torch.Tensor:
        x = torch.randn(3, 4)
        h = m["one"](x)
        first, second = m["two"](h).chunk(2, dim=1)
        return (m["one"](h).tanh().mean() + first.sigmoid().sum() * second.exp().mean()).square()

    return loop_of(model, loss)


def two_of_each() -> Callable[[], Any]:
    """A generator and its critic: two calls a step, and two steps in turn."""
    maker, critic = nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 5), nn.LeakyReLU(), nn.Linear(5, 1))
    first = torch.optim.Adam(maker.parameters(), 1e-3)
    second = torch.optim.Adam(critic.parameters(), 1e-3)

    def loop() -> None:
        for _ in range(40):
            made = maker(torch.randn(5, 3))
            second.zero_grad()
            F.softplus(-critic(torch.randn(5, 4))).mean().backward()
            F.softplus(critic(made.detach())).mean().backward()
            second.step()
            first.zero_grad()
            F.softplus(-critic(made)).mean().backward()
            first.step()

    return loop


MAKE = (mlp, rnn, attention, shared_and_branching, two_of_each)


def same_gradient(a: GradStat | None, b: GradStat | None) -> bool:
    """Whether two measurements are of one gradient: its norm is summed in another order at another place in memory."""
    if a is None or b is None:
        return a is b
    return replace(a, norm=None) == replace(b, norm=None) and a.norm == pytest.approx(b.norm, rel=1e-6, nan_ok=True)


@pytest.mark.parametrize("make", MAKE)
def test_a_backward_only_record_equals_that_of_a_complete_step(
    make: Callable[[], Callable[[], Any]], repeats: None
) -> None:
    sinks = []
    for budget in (None, 1e9):
        torch.manual_seed(0)
        sink, session = recorded(make(), budget)
        sinks.append(sink)
    whole, some = sinks
    assert session.budget.backward_only_steps > 0.5 * session.budget.steps
    assert whole.steps == some.steps and whole.calls.keys() == some.calls.keys()
    for index, call in whole.calls.items():
        other = some.calls[index]
        assert (call.step, call.kind, call.site, call.roots) == (other.step, other.kind, other.site, other.roots)
        for a, b in zip(call.nodes, other.nodes, strict=True):
            assert a.node == b.node  # its line, its module, its op
            assert a.order == b.order
            assert all(map(same_gradient, (*a.grad_inputs, *a.grad_outputs), (*b.grad_inputs, *b.grad_outputs)))
            assert len(a.grad_inputs) == len(b.grad_inputs) and len(a.grad_outputs) == len(b.grad_outputs)
            assert (a.seconds is None) == (b.seconds is None)


@pytest.mark.parametrize("make", MAKE)
def test_bits_are_the_same_and_nothing_remains(make: Callable[[], Callable[[], Any]], repeats: None) -> None:
    weights = []

    for watch in (False, True):
        torch.manual_seed(0)
        loop = make()
        if watch:
            _, session = recorded(loop, 1e9)
            assert session.budget.backward_only_steps and not session.schedule.state.attached
        else:
            torch.manual_seed(0)
            loop()
        weights.append([v for cell in loop.__closure__ or () for v in _tensors(cell.cell_contents)])
        weights[-1].append(torch.rand(3))
    assert weights[0] and all(map(torch.equal, *weights))
    assert torch._C._len_torch_function_stack() == 0
    assert not nn.modules.module._global_forward_hooks


def _tensors(held: Any) -> list[torch.Tensor]:
    if isinstance(held, torch.optim.Optimizer):
        return [p.detach() for group in held.param_groups for p in group["params"]]
    return [p.detach() for p in held.parameters()] if isinstance(held, nn.Module) else []


# What goes wrong in them


@pytest.mark.parametrize("kind", [*SPOILS, "second-backward"])
def test_failures_are_reported_like_with_complete_records(kind: str, repeats: None) -> None:
    every, _, alone = watched(None, lambda: train(Net(), kind))
    some, session, raised = watched(1e9, lambda: train(Net(), kind))
    assert session.budget.backward_only_steps > 20
    assert type(alone) is type(raised) and str(alone) == str(raised)
    best, found = every.findings[0], some.findings[0]
    assert (found.kind, found.step) == (best.kind, best.step) == (kind, AT)
    if SHOWS:
        wanted = {(site.role, site.site.line) for site in best.sites}
        assert {(site.role, site.site.line) for site in found.sites} == wanted
        assert found.module == best.module and best.node in (None, found.node)


def test_a_healthy_run_has_no_findings_and_counts_its_repeating_steps(repeats: None) -> None:
    trace, session, raised = watched(1e9, lambda: train(Net()))
    assert raised is None and trace.findings == [] and not trace.coverage.gaps
    known = trace.coverage.observed
    assert known.recorded == known.steps == STEPS and known.repeated == session.budget.backward_only_steps > 20


def test_a_gradient_that_turns_nonfinite_with_the_same_graph_has_its_line(repeats: None) -> None:
    def loop() -> None:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for i in range(40):
            x = torch.randn(5, 3)
            distance = (model(x) * (i != 35)).square().sum(1)
            root = distance.sqrt()
            optimizer.zero_grad()
            root.mean().backward()
            optimizer.step()

    trace, session, _ = watched(1e9, loop)
    found = trace.findings[0]
    assert session.budget.backward_only_steps > 10
    assert (found.kind, found.step) == ("nonfinite-backward", 35)
    assert found.sites[0].site.text == "root = distance.sqrt()"


# Where nothing may be left out


def other_line_of_the_same_graph() -> Callable[[], Any]:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def loop() -> None:
        for i in range(60):
            optimizer.zero_grad()
            if i % 3:
                model(torch.randn(4, 3)).square().mean().backward()
            else:
                model(torch.ones(4, 3)).square().mean().backward()
            optimizer.step()

    return loop


def test_a_graph_that_several_lines_can_make_has_no_backward_only_record(repeats: None) -> None:
    sink, session = recorded(other_line_of_the_same_graph(), 1e9)
    whole, _ = recorded(other_line_of_the_same_graph(), None)
    assert session.budget.backward_only_steps <= 3  # before the second line was seen there was one
    for index, call in sink.calls.items():
        if index > 10:
            assert [run.node.site for run in call.nodes] == [run.node.site for run in whole.calls[index].nodes]


def with_a_checkpoint() -> Callable[[], Any]:
    part, last = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), nn.Linear(3, 1)
    model = nn.ModuleList([part, last])
    return loop_of(model, lambda m: m[1](checkpoint(m[0], torch.randn(4, 3), use_reentrant=False)).square().mean())


def with_a_second_derivative() -> Callable[[], Any]:
    def loss(m: nn.Module) -> torch.Tensor:
        x = torch.randn(4, 3, requires_grad=True)
        (grad,) = torch.autograd.grad(m(x).sum(), x, create_graph=True)
        return (grad.square().sum() - 1).square()

    return loop_of(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), loss)


def with_a_hook_on_a_tensor() -> Callable[[], Any]:
    def loss(m: nn.Module) -> torch.Tensor:
        h = m[0](torch.randn(4, 3))  # type: ignore[index]
        h.register_hook(lambda grad: grad * 2)
        return m[1](h).square().mean()  # type: ignore[index]

    return loop_of(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1)), loss)


def by_hand() -> Callable[[], Any]:
    model = nn.Linear(3, 1)

    def loop() -> None:
        for _ in range(40):
            model.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            with torch.no_grad():
                for p in model.parameters():
                    p.sub_(p.grad, alpha=1e-3)

    return loop


@pytest.mark.parametrize("make", [with_a_checkpoint, with_a_second_derivative, with_a_hook_on_a_tensor, by_hand])
def test_loops_that_need_the_forward_have_complete_records(
    make: Callable[[], Callable[[], Any]], repeats: None
) -> None:
    sink, session = recorded(make(), 1e9)
    assert session.budget.backward_only_steps == 0 and session.budget.recorded_steps == session.budget.steps
    assert len(sink.calls) == session.calls


def test_a_graph_that_always_changes_is_tried_less_and_less_often(repeats: None) -> None:
    lengths = iter(range(3, 200))
    model = Recurrent()
    loop = loop_of(model, lambda m: m(torch.randn(next(lengths), 4, 3)).square().mean(), steps=100)
    sink, session = recorded(loop, 1e9)
    assert session.budget.backward_only_steps == 0
    assert session.budget.recorded_steps > 60 and len(sink.calls) == session.budget.recorded_steps


def test_settings_that_need_the_forward_have_complete_records(repeats: None) -> None:
    sink = All()
    session = Session(sink, Settings(budget=1e9, checks=frozenset({"memory"})))
    session.start()
    mlp()()
    session.stop()
    assert session.error is None and session.budget.backward_only_steps == 0


def test_no_step_repeats_under_a_mode_of_the_script(repeats: None) -> None:
    seen = []
    for budget in (0.0, 1e9):
        torch.manual_seed(0)
        model, mode = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), Ops()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        def loop(model: Any = model, mode: Ops = mode, optimizer: Any = optimizer) -> None:
            for _ in range(30):
                optimizer.zero_grad()
                loss = model(torch.ones(4, 3)).square().mean()
                with mode:
                    loss.backward()
                optimizer.step()

        if budget:
            _, session = recorded(loop, budget)
            assert session.budget.backward_only_steps == 0
        else:
            loop()
        seen.append(mode.seen)
    assert seen[0] and seen[0] == seen[1]


def test_a_start_that_fails_leaves_nothing_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(All(), Settings())

    def fails(*_: Any) -> bool:
        raise ValueError("not today")

    monkeypatch.setattr(session.schedule.policy.inspections, "wants_record", fails)
    with pytest.raises(ValueError, match="not today"):
        session.start()
    assert torch._C._len_torch_function_stack() == 0
    assert not nn.modules.module._global_forward_hooks and not nn.modules.module._global_forward_pre_hooks
    session.stop()
