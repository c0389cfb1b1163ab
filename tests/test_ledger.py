"""The ledger on real training loops: the events of a period, and the lines of what changed gradients and weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from ledgers import row as row_with
from torch import nn

from backprobe.basics.errors import UnknownName
from backprobe.observe.ledger.account import MAX_SAMPLED_ELEMENTS, sample_norms
from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import LedgerRow, LedgerStay
from backprobe.records import ledger as events
from backprobe.traces.ledger import movement

Loop = Callable[[nn.Module, torch.optim.Optimizer, int], None]


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def loss_of(model: nn.Module) -> torch.Tensor:
    x = torch.randn(16, 4)
    return (model(x) - x.sum(1, keepdim=True)).square().mean()


def recorded(run: Callable[[], None], settings: Settings | None = None) -> Any:
    collector = Collector()
    session = Session(collector, settings or Settings(budget=None))
    session.start()
    run()
    session.stop()
    assert session.error is None, repr(session.error)
    return collector.trace(session)


def of_loop(loop: Loop, steps: int = 12, kind: Any = torch.optim.SGD, **options: Any) -> Any:
    def run() -> None:
        model = small_model()
        optimizer = kind(model.parameters(), **{"lr": 1e-2, **options})
        for n in range(steps):
            loop(model, optimizer, n)

    return recorded(run)


def row_of(**more: Any) -> LedgerRow:
    return row_with(**{"moved": 0, **more})


def whats(row: LedgerRow) -> list[str]:
    return [event.what for event in row.events]


def only_row(trace: Any) -> LedgerRow:
    (row,) = trace.facts.of(LedgerRow)
    return row


def plain(model: nn.Module, optimizer: torch.optim.Optimizer, n: int) -> None:
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()


def test_the_periods_of_an_ordinary_loop() -> None:
    row = only_row(of_loop(plain))
    assert whats(row) == [events.CLEARED, events.GRADIENT, events.USED]
    cleared, gave, _ = row.events
    assert [cleared.site.text, gave.site.text] == ["optimizer.zero_grad()", "loss_of(model).backward()"]
    assert (row.periods, row.first, row.last, row.moved, row.kept) == (11, 1, 11, 11, 0)
    assert row.parameters == ("0.weight", "0.bias", "2.weight", "2.bias")


def zeros_in_place(model: nn.Module, optimizer: torch.optim.Optimizer, n: int) -> None:
    optimizer.zero_grad(set_to_none=False)
    loss_of(model).backward()
    optimizer.step()


def zeros_through_data(model: nn.Module, optimizer: torch.optim.Optimizer, n: int) -> None:
    for p in model.parameters():
        if p.grad is not None:
            p.grad.data.zero_()
    loss_of(model).backward()
    optimizer.step()


def gives_zeros(model: nn.Module, optimizer: torch.optim.Optimizer, n: int) -> None:
    optimizer.zero_grad()
    (loss_of(model) * 0).backward()
    optimizer.step()


def accumulates(model: nn.Module, optimizer: torch.optim.Optimizer, n: int) -> None:
    for _ in range(3):
        loss_of(model).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    optimizer.step()
    optimizer.zero_grad()


def never_clears(model: nn.Module, optimizer: torch.optim.Optimizer, n: int) -> None:
    loss_of(model).backward()
    optimizer.step()


def replaces(model: nn.Module, optimizer: torch.optim.Optimizer, n: int) -> None:
    optimizer.zero_grad()
    loss_of(model).backward()
    for p in model.parameters():
        p.grad = p.grad / 2
    optimizer.step()


def restores(model: nn.Module, optimizer: torch.optim.Optimizer, n: int) -> None:
    optimizer.zero_grad()
    loss_of(model).backward()
    kept = [p.detach().clone() for p in model.parameters()]
    for p in model.parameters():
        p.data.add_(p.grad)
    loss_of(model).backward()
    for p, old in zip(model.parameters(), kept, strict=True):
        p.data.copy_(old)
    optimizer.step()


def with_closure(model: nn.Module, optimizer: torch.optim.Optimizer, n: int) -> None:
    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        return loss

    optimizer.step(closure)


def clamps(model: nn.Module, optimizer: torch.optim.Optimizer, n: int) -> None:
    plain(model, optimizer, n)
    for p in model.parameters():
        p.data.clamp_(-0.05, 0.05)


def without_gradient(model: nn.Module, optimizer: torch.optim.Optimizer, n: int) -> None:
    loss_of(model).backward()
    optimizer.zero_grad()
    optimizer.step()


GAVE = events.GRADIENT
LOOPS = {
    zeros_in_place: [events.ZEROED, GAVE, events.USED],
    zeros_through_data: [events.ZEROED, GAVE, events.USED],
    gives_zeros: [events.CLEARED, GAVE, events.USED_ZERO],
    accumulates: [events.CLEARED, GAVE, events.SCALED, events.USED],
    never_clears: [events.ADDED, events.USED],
    replaces: [events.CLEARED, GAVE, events.REPLACED, events.USED],
    restores: [events.CLEARED, GAVE, events.WRITTEN, GAVE, events.RESTORED, events.USED],
    with_closure: [events.CLEARED, GAVE, events.USED],
    clamps: [events.CLEARED, events.WRITTEN, GAVE, events.USED],
    without_gradient: [GAVE, events.CLEARED, events.SKIPPED],
}


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_the_events_of_a_loop(loop: Loop) -> None:
    rows = of_loop(loop).facts.of(LedgerRow)
    assert max(rows, key=lambda row: row.periods).events, rows
    assert whats(max(rows, key=lambda row: row.periods)) == LOOPS[loop]


def test_equal_calls_are_counted() -> None:
    gave = only_row(of_loop(accumulates)).events[1]
    assert (gave.what, gave.times) == (events.GRADIENT, 3)


def test_the_line_that_writes_through_data() -> None:
    row = only_row(of_loop(restores))
    lines = [event.site.text for event in row.events if event.what in (events.WRITTEN, events.RESTORED)]
    assert lines == ["p.data.add_(p.grad)", "p.data.copy_(old)"]


SAVED: dict[str, Any] = {}


def rewrites(how: str) -> Loop:
    def loop(model: Any, optimizer: torch.optim.Optimizer, n: int) -> None:
        if n == 0:
            average = torch.optim.swa_utils.AveragedModel(model)
            SAVED.update(state={k: v.clone() for k, v in model.state_dict().items()}, average=average)
        plain(model, optimizer, n)
        weight = model[0].weight
        if how == "load_state_dict":
            model.load_state_dict(SAVED["state"])
        elif how == "copy_":
            with torch.no_grad():
                weight.copy_(SAVED["state"]["0.weight"])
        elif how == "assignment to .data":
            weight.data = weight.data * 0.5
        elif how == "mul_":
            weight.data.mul_(0.5)
        elif how == "vector_to_parameters":
            nn.utils.vector_to_parameters(torch.ones(49), model.parameters())
        elif how == "normal_":
            nn.init.normal_(weight)
        elif how == "lerp_":
            weight.detach().lerp_(SAVED["state"]["0.weight"], 0.1)
        elif how == "":
            weight.data.mul_(0.5).add_(0.1)

    return loop


CALLS = ("load_state_dict", "copy_", "assignment to .data", "mul_", "vector_to_parameters", "normal_", "lerp_", "")


@pytest.mark.parametrize("call", CALLS)
def test_the_call_that_writes_to_a_weight(call: str) -> None:
    rows = of_loop(rewrites(call)).facts.of(LedgerRow)
    row = max((row for row in rows if "0.weight" in row.parameters), key=lambda row: row.periods)
    (written,) = [event for event in row.events if event.what in (events.WRITTEN, events.RESTORED)]
    assert written.call == call and written.site is not None


def test_the_call_is_in_the_table() -> None:
    text = repr(of_loop(rewrites("load_state_dict")).ledger("0.weight"))
    assert "weight changed outside of steps by load_state_dict" in text
    assert "changed in place by clip_grad_norm_" in repr(of_loop(accumulates).ledger("0.weight"))


def test_a_closure_that_moves_the_weights_between_its_calls() -> None:
    trace = of_loop(with_closure, kind=torch.optim.LBFGS, max_iter=3)
    row = max(trace.facts.of(LedgerRow), key=lambda row: row.periods)
    whole = whats(row)
    assert (row.moved, row.kept) == (row.periods, 0)
    assert whole[-1] == events.USED and events.MOVED_IN_STEP in whole and events.WRITTEN not in whole
    moved = [row for row in trace.facts.of(LedgerRow) if events.MOVED_IN_STEP in whats(row)]
    assert min(row.first for row in moved) == 0  # the first step calls the closure several times, too


def test_the_other_optimizer_that_a_call_reaches() -> None:
    def run() -> None:
        first, second = small_model(), nn.Linear(1, 1)
        one = torch.optim.SGD(first.parameters(), lr=1e-2)
        two = torch.optim.Adam(second.parameters(), lr=1e-2)
        for _ in range(12):
            one.zero_grad()
            second(first(torch.randn(8, 4))).mean().backward()
            one.step()
            second(torch.randn(8, 1)).mean().backward()
            two.step()
            two.zero_grad()

    rows = {row.parameters[0]: row for row in recorded(run).facts.of(LedgerRow)}
    adam = next(row for row in rows.values() if len(row.parameters) == 2)
    assert whats(adam) == [events.CLEARED, GAVE, events.OTHER_STEP, GAVE, events.USED]
    _, foreign, other, own, _ = adam.events
    assert (foreign.optimizers, other.optimizers, own.optimizers) == ((0, 1), (0,), (1,))
    assert other.site.text == "one.step()"


def test_a_frozen_parameter_that_keeps_its_gradient() -> None:
    def loop(model: nn.Module, optimizer: torch.optim.Optimizer, n: int) -> None:
        if n == 5:
            model[0].requires_grad_(False)
        for p in model.parameters():
            if p.requires_grad:
                p.grad = None
        loss_of(model).backward()
        optimizer.step()

    trace = of_loop(loop)
    (frozen,) = [row for row in trace.facts.of(LedgerRow) if row.frozen]
    assert whats(frozen) == [events.USED_AGAIN] and frozen.parameters == ("0.weight", "0.bias")
    assert (frozen.periods, frozen.moved) == (7, 7)
    assert [site.text for site in frozen.frozen_at] == ["model[0].requires_grad_(False)"]


def test_steps_that_do_not_move_the_weight() -> None:
    row = only_row(of_loop(plain, lr=1e-12))
    assert (row.moved, row.kept, row.dtype) == (0, 11, "float32")
    row = only_row(of_loop(plain, lr=0.0))  # not by rounding
    assert (row.moved, row.kept) == (0, 0)


def test_a_gradient_of_zeros_is_no_update_that_rounds_away() -> None:
    row = only_row(of_loop(gives_zeros))
    assert (row.moved, row.kept) == (0, 0)


def clips_by_norm(bound: float) -> Loop:
    def loop(model: nn.Module, optimizer: torch.optim.Optimizer, n: int) -> None:
        optimizer.zero_grad()
        loss_of(model).backward()
        nn.utils.clip_grad_norm_(model.parameters(), bound)
        optimizer.step()

    return loop


def clips_by_value(model: nn.Module, optimizer: torch.optim.Optimizer, n: int) -> None:
    optimizer.zero_grad()
    loss_of(model).backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.0)
    optimizer.step()


def freezes_first(model: Any, optimizer: torch.optim.Optimizer, n: int) -> None:
    model[0].requires_grad_(False)
    plain(model, optimizer, n)


CAUSES: list[tuple[str, Loop, dict[str, Any], str]] = [
    ("rate", plain, {"lr": 0.0}, events.NO_RATE),
    ("rate in a tensor", plain, {"lr": torch.tensor(0.0)}, events.NO_RATE),
    ("tiny rate", plain, {"lr": 1e-12}, events.ROUNDED),
    ("tiny rate of Adam", plain, {"lr": 1e-12, "kind": torch.optim.Adam}, events.ROUNDED),
    ("clipped to zero", clips_by_norm(0.0), {}, events.CLIPPED),
    ("clipped to little", clips_by_norm(1e-12), {}, events.CLIPPED),
    ("clipped, and a tiny rate", clips_by_norm(1.0), {"lr": 1e-14}, events.ROUNDED),
    ("values clipped", clips_by_value, {}, events.CLIPPED),
    ("zeros", gives_zeros, {}, events.ZERO_GRADIENT),
    ("cleared", without_gradient, {}, events.NO_GRADIENT),
    ("frozen", freezes_first, {}, events.FROZEN),
    ("other optimizer", plain, {"lr": 1e-14, "kind": torch.optim.ASGD, "lambd": 0.0}, events.NOT_KNOWN),
]


@pytest.mark.parametrize(("loop", "options", "cause"), [case[1:] for case in CAUSES], ids=[case[0] for case in CAUSES])
def test_why_steps_leave_a_weight_as_it_was(loop: Loop, options: dict[str, Any], cause: str) -> None:
    row = next(row for row in of_loop(loop, **options).facts.of(LedgerRow) if "0.weight" in row.parameters)
    (stay,) = row.stayed
    assert (stay.cause, stay.periods, row.moved) == (cause, 11, 0)
    if cause == events.ROUNDED:
        assert stay.largest is not None and 0 < stay.largest < 1
    if cause == events.CLIPPED:
        assert (
            stay.norm_before is not None and stay.norm_after is not None and stay.norm_after < 1e-9 < stay.norm_before
        )


def test_some_steps_leave_a_weight_as_it_was() -> None:
    def loop(model: nn.Module, optimizer: torch.optim.Optimizer, n: int) -> None:
        optimizer.param_groups[0]["lr"] = 0.0 if n < 5 else 1e-2
        plain(model, optimizer, n)

    row = only_row(of_loop(loop))
    assert row.moved == 7 and [(stay.cause, stay.periods) for stay in row.stayed] == [(events.NO_RATE, 4)]


def test_why_a_weight_stayed_in_words() -> None:
    rate, rounded = LedgerStay(events.NO_RATE, 4), LedgerStay(events.ROUNDED, 5, 0.25)
    assert movement(row_of(kept=3)) == "it stayed as it was"
    assert movement(row_of(stayed=(LedgerStay(events.NOT_KNOWN, 5),))) == "it stayed as it was"
    assert movement(row_of(moved=5)) == "it moved" and movement(row_of()) == ""
    assert (
        movement(row_of(stayed=(replace(rate, periods=5),))) == "it stayed as it was, because the learning rate was 0"
    )
    some = movement(row_of(moved=7, stayed=(rate,)))
    assert some == "it moved in 7 of 11; it stayed because the learning rate was 0 (4 times)"
    both = movement(row_of(stayed=(rate, rounded), kept=5))
    assert both.startswith(
        "it stayed as it was, because the learning rate was 0 (4 times), because the update rounds away"
    )
    assert both.endswith("at most 0.25 of half a unit in the last place (5 times)")
    clipped = LedgerStay(events.CLIPPED, 5, None, 3.5, 0.0)
    assert movement(row_of(stayed=(clipped,))).endswith("because clipping took the norm of the gradients from 3.5 to 0")


def test_the_statement_that_casts_the_model() -> None:
    def run() -> None:
        model = small_model()
        model = model.to(torch.bfloat16)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        for _ in range(12):
            optimizer.zero_grad()
            model(torch.randn(8, 4).to(torch.bfloat16)).float().square().mean().backward()
            optimizer.step()

    (row, *_) = recorded(run).facts.of(LedgerRow)
    assert [site.text for site in row.cast_at] == ["model = model.to(torch.bfloat16)"]


def cast_lines(make: Callable[[], nn.Module]) -> list[str]:
    """Return the lines that the ledger names for a model that `make` gives in 16 bits."""

    def run() -> None:
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        for _ in range(12):
            optimizer.zero_grad()
            model(torch.randn(8, 4).to(torch.bfloat16)).float().square().mean().backward()
            optimizer.step()

    (row, *_) = recorded(run).facts.of(LedgerRow)
    return [site.text for site in row.cast_at]


def test_a_cast_is_observed_however_it_is_written() -> None:
    class Wrapper:
        def __init__(self, model: nn.Module, dtype: torch.dtype = torch.bfloat16) -> None:
            self.dtype = dtype
            self.model = model.to("cpu", self.dtype)

    def by_data() -> nn.Module:
        model = small_model()
        for p in model.parameters():
            p.data = p.data.to(torch.bfloat16)
        return model

    def in_two_steps() -> nn.Module:
        model = small_model().half()
        return model.to(torch.float32).bfloat16()

    assert cast_lines(lambda: Wrapper(small_model()).model) == ['self.model = model.to("cpu", self.dtype)']
    assert cast_lines(by_data) == ["p.data = p.data.to(torch.bfloat16)"]
    assert cast_lines(in_two_steps) == ["return model.to(torch.float32).bfloat16()"]


def test_a_model_that_is_made_in_16_bits() -> None:
    def given(dtype: torch.dtype = torch.bfloat16) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 4, dtype=dtype), nn.Tanh())

    assert "return nn.Sequential(nn.Linear(4, 4, dtype=dtype), nn.Tanh())" in cast_lines(given)


def test_later_steps_are_accounted_for_in_rows() -> None:
    row = only_row(of_loop(plain, steps=140))
    assert (row.periods, row.first, row.last) == (15 + 4 + 4, 1, 132)


def test_an_optimizer_that_begins_late() -> None:
    def run() -> None:
        model = small_model()
        first = torch.optim.SGD(model.parameters(), lr=1e-2)
        for n in range(40):
            plain(model, first, n)
        second = torch.optim.Adam(model.parameters(), lr=1e-2)
        for n in range(20):
            plain(model, second, n)

    rows = [row for row in recorded(run).facts.of(LedgerRow) if row.optimizer == 1]
    assert sum(row.periods for row in rows) == 7 and min(row.first for row in rows) == 41


def test_fast_path_steps_close_the_accounts() -> None:
    row = max(of_loop_with_budget(300).facts.of(LedgerRow), key=lambda row: row.periods)
    assert whats(row) == [events.CLEARED, events.GRADIENT, events.USED]


def of_loop_with_budget(steps: int) -> Any:
    def run() -> None:
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for n in range(steps):
            plain(model, optimizer, n)

    return recorded(run, Settings(budget=0.05))


def test_the_script_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(results: list[torch.Tensor]) -> Callable[[], None]:
        def train() -> None:
            model = small_model()
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
            for n in range(20):
                restores(model, optimizer, n)
            results.extend([*model.parameters(), torch.get_rng_state()])

        return train

    alone: list[torch.Tensor] = []
    observed: list[torch.Tensor] = []
    run(alone)()
    recorded(run(observed))
    assert all(torch.equal(a, b) for a, b in zip(alone, observed, strict=True))


def test_no_gradient_is_kept_alive() -> None:
    import weakref

    def run() -> None:
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for _ in range(6):
            loss_of(model).backward()
            optimizer.step()
            grad = weakref.ref(model[0].weight.grad)
            optimizer.zero_grad()
            assert grad() is None

    recorded(run)


@pytest.mark.parametrize("shape", [(3,), (70, 80), (MAX_SAMPLED_ELEMENTS,), (MAX_SAMPLED_ELEMENTS + 1,)])
def test_sampled_norms_are_those_of_every_nth_element(shape: tuple[int, ...]) -> None:
    tensor = torch.randn(shape)
    flat = tensor.flatten()
    every = 1 if flat.numel() <= MAX_SAMPLED_ELEMENTS else -(-flat.numel() // MAX_SAMPLED_ELEMENTS)
    assert sample_norms([tensor]) == [pytest.approx(flat[::every].double().norm().item(), rel=1e-12)]
    assert sample_norms([torch.ones(2, dtype=torch.long), tensor.to_sparse(), tensor.to("meta")]) == [None] * 3


def test_the_table_of_a_parameter() -> None:
    trace = of_loop(plain)
    text = repr(trace.ledger("0.weight"))
    first, head, *lines = text.splitlines()
    assert first.startswith("0.weight, in SGD (") and head.split("  ")[0] == "steps"
    assert lines[0].startswith("1 to 11     11  cleared") and "SGD stepped with the gradient: it moved" in lines[2]
    assert "<table>" in trace.ledger("0")._repr_html_()
    assert trace.ledger("0").rows[0].parameters == ("0.weight", "0.bias")
    with pytest.raises(UnknownName, match=r"no parameter '0.wieght' in this trace; names are like '0.weight'"):
        trace.ledger("0.wieght")
