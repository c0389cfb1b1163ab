"""Compares the parts of an optimizer's steps with updates that are computed element by element in plain Python.

The reference keeps a state of its own from the first step on, and knows of each number which part of it comes from the
gradient of this step, from earlier ones and from weight decay.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from handmade import traced
from hypothesis import given, settings
from hypothesis import strategies as st
from learning import STEP
from ledgers import optimizer as recorded_optimizer
from ledgers import row
from test_ledger import of_loop, plain, small_model
from torch import optim

from backprobe.observe.ledger import changes
from backprobe.observe.ledger.account import Account
from backprobe.observe.ledger.changes import MAX_MEASURED_ELEMENTS, MeasuredChange, StepChanges, add_change
from backprobe.records import LedgerChanges, WeightChange
from backprobe.traces.ledger import change_cells


@dataclass(frozen=True)
class Parts:
    """A number whose parts are known."""

    gradient: float = 0.0
    momentum: float = 0.0
    decay: float = 0.0

    @property
    def whole(self) -> float:
        return self.gradient + self.momentum + self.decay

    @property
    def earlier(self) -> Parts:
        """Return the same number one step later."""
        return Parts(momentum=self.whole)

    def __add__(self, other: Parts) -> Parts:
        return Parts(self.gradient + other.gradient, self.momentum + other.momentum, self.decay + other.decay)

    def __mul__(self, by: float) -> Parts:
        return Parts(self.gradient * by, self.momentum * by, self.decay * by)


Element = dict[str, Any]
Step = Callable[[Element, Parts, dict[str, Any], int], Parts]


def sgd(s: Element, g: Parts, h: dict[str, Any], t: int) -> Parts:
    if not h["momentum"]:
        return g * -h["lr"]
    s["b"] = s["b"].earlier * h["momentum"] + g * (1 - h["dampening"]) if "b" in s else g
    return (g + s["b"] * h["momentum"] if h["nesterov"] else s["b"]) * -h["lr"]


def first_moment(s: Element, g: Parts, h: dict[str, Any]) -> Parts:
    s["m"] = s.get("m", Parts()).earlier * h["betas"][0] + g * (1 - h["betas"][0])
    return s["m"]


def second_moment(s: Element, g: Parts, beta: float) -> float:
    s["v"] = beta * s.get("v", 0.0) + (1 - beta) * g.whole**2
    return s["v"]


def adam(s: Element, g: Parts, h: dict[str, Any], t: int) -> Parts:
    m, v = first_moment(s, g, h), second_moment(s, g, h["betas"][1])
    if h["amsgrad"]:
        v = s["max"] = max(s.get("max", 0.0), v)
    root = math.sqrt(v / (1 - h["betas"][1] ** t)) + h["eps"]
    return m * (-h["lr"] / (1 - h["betas"][0] ** t) / root)


def nadam(s: Element, g: Parts, h: dict[str, Any], t: int) -> Parts:
    def mu(k: int) -> float:
        return h["betas"][0] * (1 - 0.96 ** (k * h["momentum_decay"]) / 2)

    s["product"] = s.get("product", 1.0) * mu(t)
    m, v = first_moment(s, g, h), second_moment(s, g, h["betas"][1])
    mean = m * (mu(t + 1) / (1 - s["product"] * mu(t + 1))) + g * ((1 - mu(t)) / (1 - s["product"]))
    return mean * (-h["lr"] / (math.sqrt(v / (1 - h["betas"][1] ** t)) + h["eps"]))


def radam(s: Element, g: Parts, h: dict[str, Any], t: int) -> Parts:
    beta = h["betas"][1]
    m, v = first_moment(s, g, h) * (1 / (1 - h["betas"][0] ** t)), second_moment(s, g, beta)
    end = 2 / (1 - beta) - 1
    now = end - 2 * t * beta**t / (1 - beta**t)
    if now <= 5:
        return m * -h["lr"]
    r = math.sqrt((now - 4) * (now - 2) * end / ((end - 4) * (end - 2) * now))
    return m * (-h["lr"] * r * math.sqrt(1 - beta**t) / (math.sqrt(v) + h["eps"]))


def adamax(s: Element, g: Parts, h: dict[str, Any], t: int) -> Parts:
    s["u"] = max(h["betas"][1] * s.get("u", 0.0), abs(g.whole) + h["eps"])
    return first_moment(s, g, h) * (-h["lr"] / (1 - h["betas"][0] ** t) / s["u"])


def rmsprop(s: Element, g: Parts, h: dict[str, Any], t: int) -> Parts:
    v = second_moment(s, g, h["alpha"])
    if h["centered"]:
        s["mean"] = h["alpha"] * s.get("mean", 0.0) + (1 - h["alpha"]) * g.whole
        v -= s["mean"] ** 2
    s["b"] = s.get("b", Parts()).earlier * h["momentum"] + g * (1 / (math.sqrt(v) + h["eps"]))
    return s["b"] * -h["lr"]


def adagrad(s: Element, g: Parts, h: dict[str, Any], t: int) -> Parts:
    s["sum"] = s.get("sum", h["initial_accumulator_value"]) + g.whole**2
    return g * (-h["lr"] / (1 + (t - 1) * h["lr_decay"]) / (math.sqrt(s["sum"]) + h["eps"]))


def adadelta(s: Element, g: Parts, h: dict[str, Any], t: int) -> Parts:
    v = second_moment(s, g, h["rho"])
    ratio = math.sqrt(s.get("deltas", 0.0) + h["eps"]) / math.sqrt(v + h["eps"])
    s["deltas"] = h["rho"] * s.get("deltas", 0.0) + (1 - h["rho"]) * (g.whole * ratio) ** 2
    return g * (-h["lr"] * ratio)


def between(low: float, high: float) -> Any:
    return st.floats(low, high)


FLAG, SMOOTHING = st.booleans(), between(0.05, 0.95)
DECAY = st.sampled_from([0.0, 1e-3, 0.3])
BETAS = st.tuples(between(0.1, 0.95), between(0.5, 0.999))
ADAM = {"lr": between(1e-4, 0.1), "betas": BETAS, "eps": st.sampled_from([1e-8, 1e-3]), "weight_decay": DECAY}
MAXIMIZE = {"maximize": FLAG, "foreach": st.sampled_from([None, False, True, "fused"])}
KINDS: dict[type, tuple[Step, dict[str, Any]]] = {
    optim.SGD: (
        sgd,
        {"lr": between(1e-3, 1), "momentum": st.sampled_from([0.0, 0.5, 0.9]), "weight_decay": DECAY, **MAXIMIZE}
        | {"dampening": st.sampled_from([0.0, 0.4]), "nesterov": FLAG},
    ),
    optim.Adam: (adam, {**ADAM, "amsgrad": FLAG, **MAXIMIZE}),
    optim.AdamW: (adam, {**ADAM, "amsgrad": FLAG, **MAXIMIZE}),
    optim.NAdam: (nadam, {**ADAM, "momentum_decay": between(1e-3, 0.1), "decoupled_weight_decay": FLAG, **MAXIMIZE}),
    optim.RAdam: (radam, {**ADAM, "decoupled_weight_decay": FLAG, **MAXIMIZE}),
    optim.Adamax: (adamax, {**ADAM, **MAXIMIZE}),
    optim.RMSprop: (
        rmsprop,
        {"lr": between(1e-4, 0.1), "alpha": SMOOTHING, "eps": st.sampled_from([1e-8, 1e-3]), "weight_decay": DECAY}
        | {"momentum": st.sampled_from([0.0, 0.7]), "centered": FLAG, **MAXIMIZE},
    ),
    optim.Adagrad: (
        adagrad,
        {"lr": between(1e-3, 1), "lr_decay": st.sampled_from([0.0, 0.1]), "weight_decay": DECAY, **MAXIMIZE}
        | {"initial_accumulator_value": st.sampled_from([0.0, 0.2]), "eps": st.sampled_from([1e-10, 1e-3])},
    ),
    optim.Adadelta: (
        adadelta,
        {
            "lr": between(0.1, 1),
            "rho": SMOOTHING,
            "eps": st.sampled_from([1e-6, 1e-3]),
            "weight_decay": DECAY,
            **MAXIMIZE,
        },
    ),
}


FUSED = (optim.SGD, optim.Adam, optim.AdamW, optim.Adagrad)


def options_for(kind: type, fused: tuple[type, ...] = FUSED) -> Any:
    def possible(options: dict[str, Any]) -> dict[str, Any]:
        if options.get("nesterov") and (not options["momentum"] or options["dampening"]):
            options["nesterov"] = False
        if options["foreach"] == "fused":
            options["foreach"] = None
            if kind in fused:
                options["fused"] = True
        return options

    return st.fixed_dictionaries(KINDS[kind][1]).map(possible)


def measured(optimizer: Any, parameters: list[Any], act: Callable[[], None], step: int = 0) -> list[MeasuredChange]:
    """Return the changes that `act`, which steps the optimizer, makes."""
    accounts = [Account(p, None) for p in parameters]  # type: ignore[arg-type]
    began = StepChanges(optimizer, accounts)
    act()
    found = began.measure(step)
    return [found[account] for account in accounts if account in found]


def norm(values: list[float]) -> float:
    return math.sqrt(sum(value * value for value in values))


@pytest.mark.parametrize("rate", [1e-4, 1e-2, 1.0])
def test_the_share_of_elements_that_rounding_leaves_as_they_are(rate: float) -> None:
    """Computed element by element, in Python and in exact numbers."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(200).to(torch.bfloat16))
    weight.grad = torch.randn(200).to(torch.bfloat16) * (torch.arange(200) % 4 > 0)  # a quarter has no update
    before, optimizer = weight.detach().clone(), optim.SGD([weight], lr=rate)
    (found,) = measured(optimizer, [weight], optimizer.step)
    pairs = list(zip(before.tolist(), weight.tolist(), weight.grad.tolist(), strict=True))
    stayed = sum(old == new for old, new, grad in pairs if grad)
    assert found.change.rounded == pytest.approx(stayed / 150)
    assert {1e-4: stayed > 100, 1e-2: 0 < stayed < 100, 1.0: stayed < 10}[rate]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_the_parts_are_those_of_the_reference(kind: Any, data: Any) -> None:
    step, options = KINDS[kind][0], data.draw(options_for(kind))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 999)))
    weight = torch.randn(5, generator=generator, dtype=torch.float64).requires_grad_()
    optimizer = kind([weight], **options)
    h = optimizer.param_groups[0]
    values: list[float] = weight.tolist()
    states: list[Element] = [{} for _ in values]
    for t in range(1, 9):
        weight.grad = torch.randn(5, generator=generator, dtype=torch.float64)
        decoupled = kind is optim.AdamW or h.get("decoupled_weight_decay", False)
        expected = []
        for w, g, state in zip(values, weight.grad.tolist(), states, strict=True):
            gradient = Parts(-g if h["maximize"] else g, 0.0, 0.0 if decoupled else h["weight_decay"] * w)
            update = step(state, gradient, h, t)
            expected.append(update + Parts(decay=-h["lr"] * h["weight_decay"] * w) if decoupled else update)
        (found,) = measured(optimizer, [weight], optimizer.step, t)
        change = found.change
        assert change.explained and change.step == t
        assert change.weight == pytest.approx(norm(values), rel=1e-6)
        whole = [one.whole for one in expected]
        assert change.change == pytest.approx(norm(whole), rel=1e-5)
        for name in ("gradient", "momentum", "decay"):
            part = [getattr(one, name) for one in expected]
            assert getattr(change, name) == pytest.approx(norm(part), rel=1e-5, abs=1e-12)
            along = sum(a * b for a, b in zip(part, whole, strict=True)) / norm(whole) ** 2
            assert getattr(change, f"{name}_share") == pytest.approx(along, rel=1e-4, abs=1e-4)
        values = [w + one for w, one in zip(values, whole, strict=True)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_rounding_explains_what_is_left_in_other_precisions(kind: Any, dtype: torch.dtype, data: Any) -> None:
    # Fused SGD without momentum leaves most elements of 16 bits as they are on the CPU (torch 2.13).
    fused = FUSED if dtype is torch.float32 else FUSED[1:]
    options, scale = data.draw(options_for(kind, fused)), 10.0 ** data.draw(st.integers(-3, 3))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 999)))
    parameters = [torch.randn(size, generator=generator).to(dtype).requires_grad_() for size in (300, 7)]
    optimizer = kind(parameters, **options)
    for _ in range(6):
        for p in parameters:
            p.grad = (scale * torch.randn(p.shape, generator=generator)).to(dtype)
        for found in measured(optimizer, parameters, optimizer.step):
            assert found.change.explained, found


def with_gradient(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(0)
    weight = torch.randn(*shape, dtype=dtype).requires_grad_()
    weight.grad = torch.randn(*shape, dtype=dtype)
    return weight


def test_a_change_that_something_else_makes_in_the_step_is_not_explained() -> None:
    weight = with_gradient(4, 8)
    optimizer = optim.AdamW([weight], lr=1e-2)

    def step_and_write() -> None:
        optimizer.step()
        with torch.no_grad():
            weight[2, 3] += 1e-4

    (found,) = measured(optimizer, [weight], step_and_write)
    assert not found.change.explained and found.change.rest == pytest.approx(1e-4, rel=1e-2)
    assert change_cells(found.change)[-1] == "0.0001: not explained"


class Halved(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        with torch.no_grad():
            for p in self.param_groups[0]["params"]:
                p.sub_(p.grad / 2)


class Renamed(torch.optim.SGD):
    pass


@pytest.mark.parametrize("kind", [Halved, optim.Rprop, optim.ASGD], ids=lambda kind: kind.__name__)
def test_the_parts_of_other_optimizers_are_not_known(kind: Any) -> None:
    weight = with_gradient(6)
    before = weight.detach().clone()
    optimizer = kind([weight], lr=1e-2)
    (found,) = measured(optimizer, [weight], optimizer.step)
    assert found.change.gradient is None and found.change.momentum is None and found.change.decay is None
    assert found.change.change == pytest.approx((weight - before).norm().item(), rel=1e-6)


def test_a_subclass_that_keeps_the_step_is_known() -> None:
    weight = with_gradient(6)
    optimizer = Renamed([weight], lr=1e-2)
    (found,) = measured(optimizer, [weight], optimizer.step)
    assert found.change.gradient == pytest.approx(1e-2 * weight.grad.norm().item(), rel=1e-6)  # type: ignore[union-attr]


def test_the_gradient_of_a_closure_is_the_one_that_counts() -> None:
    weight = with_gradient(6)
    optimizer = optim.SGD([weight], lr=0.1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (3 * weight).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    (found,) = measured(optimizer, [weight], lambda: optimizer.step(closure))
    assert found.change.explained and found.change.gradient == pytest.approx(0.3 * math.sqrt(6), rel=1e-6)


@pytest.mark.parametrize("cleared", [False, True])
def test_a_gradient_that_the_step_writes_to_or_that_is_cleared_after_it(cleared: bool) -> None:
    weight = with_gradient(6)
    norm_before = weight.grad.norm().item()  # type: ignore[union-attr]
    optimizer = optim.SGD([weight], lr=0.1, momentum=0.9, nesterov=True, foreach=True)
    if cleared:
        optimizer.register_step_post_hook(lambda *_: optimizer.zero_grad())
    (found,) = measured(optimizer, [weight], optimizer.step)
    assert found.change.explained and found.change.gradient == pytest.approx(0.19 * norm_before, rel=1e-5)


def test_rates_in_tensors_and_several_groups() -> None:
    one, other = with_gradient(3), with_gradient(2, 2)
    groups = [{"params": [one], "lr": torch.tensor(0.5)}, {"params": [other], "lr": 0.25, "weight_decay": 0.1}]
    optimizer = optim.SGD(groups, lr=1.0)
    first, second = measured(optimizer, [one, other], optimizer.step)
    assert first.change.gradient == pytest.approx(0.5 * one.grad.norm().item(), rel=1e-6)  # type: ignore[union-attr]
    assert second.change.gradient == pytest.approx(0.25 * other.grad.norm().item(), rel=1e-6)  # type: ignore[union-attr]
    assert first.change.decay == 0 and second.change.decay == pytest.approx(0.025 * second.change.weight, rel=1e-6)


def test_large_tensors_are_sampled() -> None:
    weight = with_gradient(70, 80)
    assert weight.numel() > MAX_MEASURED_ELEMENTS
    optimizer = optim.SGD([weight], lr=0.1)
    (found,) = measured(optimizer, [weight], optimizer.step)
    assert found.change.gradient == pytest.approx(0.1 * weight.grad.norm().item(), rel=0.1)  # type: ignore[union-attr]
    assert found.change.explained and found.change.gradient_share == pytest.approx(1, abs=1e-4)


def test_parameters_that_are_not_measured() -> None:
    weight, unused, bad = with_gradient(3), with_gradient(3), with_gradient(3)
    unused.grad = None
    bad.grad = torch.full((3,), math.inf)
    sparse = torch.nn.Embedding(5, 3, sparse=True)
    sparse(torch.tensor([1])).sum().backward()
    optimizer = optim.SGD([weight, unused, bad, sparse.weight], lr=0.1)
    found = measured(optimizer, [weight, unused, bad, sparse.weight], optimizer.step)
    assert [one.change.gradient is None for one in found] == [False, True, True]
    assert found[1].change.change == 0


def test_a_step_of_zero_and_one_that_rounds_away() -> None:
    weight = with_gradient(40)
    optimizer = optim.SGD([weight], lr=1e-12)
    (found,) = measured(optimizer, [weight], optimizer.step)
    assert found.rounds_away and found.change.change == 0 and 0 < found.largest < 1
    assert found.largest_of_gradient == found.largest and found.change.explained
    optimizer.param_groups[0]["lr"] = 1e-2
    (found,) = measured(optimizer, [weight], optimizer.step)
    assert not found.rounds_away and found.largest > 1


def test_changes_are_kept_in_a_bounded_number() -> None:
    account = Account(with_gradient(3), None)  # type: ignore[arg-type]
    for step in range(10_000):
        add_change(account, WeightChange(step, 1.0, 1.0), 4)
        assert len(account.changes) <= changes.MAX_CHANGES_EACH
    assert account.changes[0].step == 0 and account.changes[-1].step == 9999
    many = Account(with_gradient(3), None)  # type: ignore[arg-type]
    for step in range(100):
        add_change(many, WeightChange(step, 1.0, 1.0), 5000)
    assert [one.step for one in many.changes] == [0, 99]


def test_which_steps_of_a_loop_are_measured() -> None:
    found = of_loop(plain, steps=140).facts.of(LedgerChanges)
    assert [one.parameter for one in found] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert all([change.step for change in one.changes] == [1, 2, 4, 8, 65, 129] for one in found)


def test_many_parameters_are_measured_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backprobe.observe.trackers.ledger.MAX_MEASURED_PARAMETERS", 3)
    found = {one.parameter: [c.step for c in one.changes] for one in of_loop(plain).facts.of(LedgerChanges)}
    assert found == {"0.weight": [1, 2, 4], "0.bias": [1, 2, 8], "2.weight": [1, 4, 8], "2.bias": [2, 4, 8]}


def test_nothing_is_kept_alive_of_a_step_that_raises() -> None:
    import weakref

    model = small_model()
    optimizer = optim.Adam(model.parameters())
    began = StepChanges(optimizer, [Account(p, None) for p in model.parameters()])  # type: ignore[arg-type]
    gone = [weakref.ref(p) for p in model.parameters()]
    del model, optimizer
    assert [one() for one in gone] == [None] * 4 and began.measure(0) == {}


CHANGE = WeightChange(3, 2.0, 0.1, 0.08, 0.05, 0.0, 0.75, 0.25, 0.0, 1e-9)


def test_the_cells_of_a_change() -> None:
    assert change_cells(CHANGE) == ("3", "0.1 (5%)", "0.08 (75%)", "0.05 (25%)", "0", "")
    assert change_cells(WeightChange(3, 2.0, 0.1)) == ("3", "0.1 (5%)", "not known", "not known", "not known", "")
    stayed = WeightChange(4, 2.0, 0.0, 1e-9, 0.0, 0.0, rest=1e-9)
    assert change_cells(stayed) == ("4", "0", "1e-09", "0", "0", "1e-09: rounding")


def test_the_table_of_changes() -> None:
    known = LedgerChanges("a.weight", 0, (CHANGE,))
    trace = traced(STEP, seen=[recorded_optimizer(), row(), known])
    text = repr(trace.ledger("a.weight"))
    assert "a.weight: how much steps of SGD changed it\nstep  change (of the weight)  gradient" in text
    assert trace.ledger("a").changes == [known]
    other = LedgerChanges("a.weight", 0, (WeightChange(3, 2.0, 0.1),))
    text = repr(traced(STEP, seen=[recorded_optimizer(), row(), other]).ledger("a"))
    assert text.endswith("changed it; the parts are not known\nstep  change (of the weight)\n   3  0.1 (5%)")
    many = [LedgerChanges(f"a.{i}", 0, (CHANGE,)) for i in range(9)]
    assert "how much" not in repr(traced(STEP, seen=[recorded_optimizer(), row(), *many]).ledger("a"))
