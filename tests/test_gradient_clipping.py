"""Calls that clip: whether an optimizer uses what they did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import UselessClipping
from backprobe.torch_internals import gradient_clipping

Step = Callable[["Loop"], None]


class Loop:
    """The objects of a training loop."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        self.other = nn.Linear(4, 1)
        self.generator: Iterator[Any] = self.model.parameters()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.others = torch.optim.SGD(self.other.parameters(), lr=1e-3)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        self.at = 0

    def backward(self, model: nn.Module | None = None) -> None:
        x = torch.randn(16, 4)
        ((model or self.model)(x) - 10 * x.sum(1, keepdim=True)).square().mean().backward()

    def clip(self, bound: float = 0.1, model: nn.Module | None = None) -> None:
        nn.utils.clip_grad_norm_((model or self.model).parameters(), bound)


def watched(step: Step, steps: int = 30, settings: Settings | None = None) -> Any:
    collector = Collector()
    session = Session(collector, settings or Settings(budget=None))
    session.start()
    loop = Loop()
    for loop.at in range(steps):
        step(loop)
    session.stop()
    assert session.error is None, repr(session.error)
    assert clip_grad._clip_grads_with_norm_ is gradient_clipping._original
    assert clip_grad._group_tensors_by_device_and_dtype is gradient_clipping._original_groups
    return collector.trace(session)


def reasons(trace: Any) -> list[str]:
    return [finding.evidence["reason"] for finding in trace.findings if finding.kind == "clipping-without-effect"]


def used_up(loop: Loop) -> None:
    loop.optimizer.zero_grad()
    loop.backward()
    nn.utils.clip_grad_norm_(loop.generator, 0.1)
    loop.optimizer.step()


def too_early(loop: Loop) -> None:
    loop.optimizer.zero_grad(set_to_none=loop.at % 2 == 0)
    loop.clip()
    loop.backward()
    loop.optimizer.step()


def too_late_by_value(loop: Loop) -> None:
    loop.backward()
    loop.optimizer.step()
    nn.utils.clip_grad_value_(loop.model.parameters(), 0.1)
    loop.optimizer.zero_grad()


def too_late(loop: Loop) -> None:
    loop.backward()
    loop.optimizer.step()
    loop.clip()
    loop.optimizer.zero_grad()


def another_model(loop: Loop) -> None:
    loop.others.zero_grad()
    loop.backward(loop.other)
    loop.others.step()
    loop.optimizer.zero_grad()
    loop.backward()
    loop.backward(loop.other)
    loop.clip(model=loop.other)
    loop.optimizer.step()


def a_copy_without_gradients(loop: Loop) -> None:
    loop.optimizer.zero_grad()
    loop.backward()
    loop.clip(model=loop.other)
    loop.optimizer.step()


def still_scaled(loop: Loop) -> None:
    loop.optimizer.zero_grad()
    loop.scaler.scale(loop.model(torch.ones(2, 4)).square().mean()).backward()
    loop.clip()
    loop.scaler.step(loop.optimizer)
    loop.scaler.update()


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (used_up, "empty"),
        (too_early, "no-gradients"),
        (too_late_by_value, "used"),
        (too_late, "used"),
        (another_model, "other"),
        (a_copy_without_gradients, "other"),
        (still_scaled, "scaled"),
    ],
)
@pytest.mark.filterwarnings("ignore:`parameters` is an empty generator")
def test_a_call_that_does_nothing(step: Step, reason: str) -> None:
    trace = watched(step)
    assert reasons(trace) == [reason]
    (finding,) = trace.findings
    assert finding.sites[0].site.text.startswith(("loop.clip(", "nn.utils.clip_grad")) or (
        finding.sites[0].site.function == "clip"
    )
    assert finding.evidence["norm_before_clipping"] > 0.1
    stepped = [one.site.text for one in finding.sites if one.role == "stepped"]
    assert stepped == (["loop.optimizer.step()"] if reason in ("used", "no-gradients") else [])


def clipped_to(bound: float) -> Step:
    def step(loop: Loop) -> None:
        loop.optimizer.zero_grad()
        loop.backward()
        loop.clip(bound)
        loop.optimizer.step()

    return step


def test_a_bound_that_leaves_next_to_nothing_is_recorded_but_harms_only_some_optimizers() -> None:
    trace = watched(clipped_to(1e-6))
    (seen,) = trace.facts.of(UselessClipping)
    assert (seen.reason, seen.optimizer, seen.bound, seen.calls) == ("tiny-bound", "SGD", 1e-6, 16)  # of observed steps
    assert seen.clipped.function == "clip" and seen.norm > 1.0
    assert reasons(trace) == []
    assert not watched(clipped_to(0.1)).facts.of(UselessClipping)


@pytest.mark.parametrize("settings", [Settings("minimal"), Settings(budget=1e-9), Settings(budget=0.05)])
def test_updates_of_gradients_clipped_to_nothing_are_reported_at_the_call(settings: Settings) -> None:
    (finding,) = watched(clipped_to(1e-9), 400, settings).findings
    assert (finding.kind, finding.sites[0].role, finding.sites[0].site.function) == (
        "update-too-small",
        "cause",
        "clip",
    )


@pytest.mark.parametrize("settings", [Settings("minimal"), Settings(budget=1e-9), Settings(budget=0.05)])
def test_that_begins_late(settings: Settings) -> None:
    def step(loop: Loop) -> None:
        if loop.at < 40:
            loop.optimizer.zero_grad()
            loop.backward()
            loop.clip()
            loop.optimizer.step()
            loop.optimizer.zero_grad()
        else:
            too_late(loop)

    trace = watched(step, 300 if settings.budget is None else 1200, settings)
    (finding,) = (one for one in trace.findings if one.kind == "clipping-without-effect")
    assert finding.step >= 40


def usual(loop: Loop) -> None:
    loop.optimizer.zero_grad()
    loop.backward()
    loop.clip()
    loop.optimizer.step()


def by_value(loop: Loop) -> None:
    loop.optimizer.zero_grad()
    loop.backward()
    nn.utils.clip_grad_value_(loop.model.parameters(), 0.1)
    loop.optimizer.step()


def unscaled(loop: Loop) -> None:
    loop.optimizer.zero_grad()
    loop.scaler.scale(loop.model(torch.ones(2, 4)).square().mean()).backward()
    loop.scaler.unscale_(loop.optimizer)
    loop.clip()
    loop.scaler.step(loop.optimizer)
    loop.scaler.update()


def scaled_bound(loop: Loop) -> None:
    loop.optimizer.zero_grad()
    loop.scaler.scale(loop.model(torch.ones(2, 4)).square().mean()).backward()
    loop.clip(0.1 * loop.scaler.get_scale())
    loop.scaler.step(loop.optimizer)
    loop.scaler.update()


def accumulated(loop: Loop) -> None:
    loop.backward()
    loop.clip()
    if loop.at % 4 == 3:
        loop.optimizer.step()
        loop.optimizer.zero_grad()


def one_after_the_other(loop: Loop) -> None:
    """Both backward calls first, then both optimizers, one of which is not clipped."""
    loop.optimizer.zero_grad()
    loop.others.zero_grad()
    loop.backward()
    loop.clip()
    loop.backward(loop.other)
    loop.others.step()
    loop.optimizer.step()


def measured_afterwards(loop: Loop) -> None:
    usual(loop)
    loop.clip(1e9)


def clipped_by_two(loop: Loop) -> None:
    """A loop over all parts of a model, one of which has no parameters."""
    loop.optimizer.zero_grad()
    loop.backward()
    for part in loop.model:
        nn.utils.clip_grad_norm_([*part.parameters()], 0.1)
    loop.optimizer.step()


def put_by_hand(loop: Loop) -> None:
    parameters = list(loop.model.parameters())
    grads = torch.autograd.grad(loop.model(torch.randn(4, 4)).square().mean(), parameters)
    for p, g in zip(parameters, grads, strict=True):
        p.grad = g
    loop.clip()
    loop.optimizer.step()


def samples_added_up(loop: Loop) -> None:
    sums = [torch.zeros_like(p) for p in loop.model.parameters()]
    for _ in range(3):
        loop.model.zero_grad()
        loop.backward()
        loop.clip()
        for total, p in zip(sums, loop.model.parameters(), strict=True):
            total += p.grad
    for total, p in zip(sums, loop.model.parameters(), strict=True):
        p.grad = total
    loop.optimizer.step()


def with_a_closure(loop: Loop) -> None:
    def closure() -> None:
        loop.optimizer.zero_grad()
        loop.backward()
        loop.clip()

    loop.optimizer.step(closure)


@pytest.mark.parametrize("settings", [Settings(budget=None), Settings(budget=1e-9)])
def test_a_closure_that_clips_the_gradients_of_the_last_step(settings: Settings) -> None:
    """As in the ``training_step`` of a trainer, which clears the gradients and calls the backward after it."""

    def step(loop: Loop) -> None:
        def closure() -> None:
            loop.clip()
            loop.optimizer.zero_grad()
            loop.backward()

        loop.optimizer.step(closure)

    assert reasons(watched(step, 200, settings)) == ["used"]


@pytest.mark.parametrize(
    "step",
    [
        usual,
        by_value,
        unscaled,
        scaled_bound,
        accumulated,
        one_after_the_other,
        measured_afterwards,
        clipped_by_two,
        put_by_hand,
        samples_added_up,
        with_a_closure,
    ],
)
def test_a_call_with_an_effect_is_silent(step: Step) -> None:
    assert reasons(watched(step)) == []


def test_parameters_and_gradients_are_unchanged_by_the_listener() -> None:
    def weights(observed: bool) -> list[torch.Tensor]:
        session = Session(Collector(), Settings(budget=None))
        if observed:
            session.start()
        loop = Loop()
        for loop.at in range(3):
            usual(loop)
            by_value(loop)
        session.stop()
        return [p.detach() for p in loop.model.parameters()]

    for one, other in zip(weights(True), weights(False), strict=True):
        assert torch.equal(one, other)
