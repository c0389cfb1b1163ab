"""Whether optimizers use each gradient of a backward call exactly once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector

Step = Callable[[nn.Module, torch.optim.Optimizer, int], None]


def loss_of(model: nn.Module) -> torch.Tensor:
    x = torch.randn(16, 4)
    return (model(x) - x.sum(1, keepdim=True)).square().mean()


def watched(
    step: Step, steps: int = 30, settings: Settings | None = None, kind: Any = torch.optim.SGD, **options: Any
) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    collector = Collector()
    session = Session(collector, settings or Settings(budget=None))
    session.start()
    optimizer = kind(model.parameters(), lr=1e-3, **options)
    for n in range(steps):
        step(model, optimizer, n)
    session.stop()
    assert session.error is None, repr(session.error)
    return collector.trace(session)


def enough(settings: Settings) -> int:
    """Return a number of steps in which enough are observed: with a budget, not all steps are."""
    return 200 if settings.budget is None else 1200


def told(trace: Any) -> list[tuple[str, int | None]]:
    return [(f.kind, f.step) for f in trace.findings]


def never_cleared(model: nn.Module, optimizer: Any, n: int) -> None:
    loss_of(model).backward()
    optimizer.step()


def clipped_and_never_cleared(model: nn.Module, optimizer: Any, n: int) -> None:
    loss_of(model).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()


def several_batches_and_never_cleared(model: nn.Module, optimizer: Any, n: int) -> None:
    for _ in range(3):
        loss_of(model).backward()
    optimizer.step()


def another_is_cleared(model: nn.Module, optimizer: Any, n: int) -> None:
    torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0).zero_grad()
    never_cleared(model, optimizer, n)


@pytest.mark.parametrize(
    "step", [never_cleared, clipped_and_never_cleared, several_batches_and_never_cleared, another_is_cleared]
)
def test_gradients_that_are_used_again(step: Step) -> None:
    trace = watched(step)
    assert told(trace) == [("gradient-not-cleared", 1)]
    stepped, backward, made = trace.findings[0].sites
    assert [stepped.site.text, made.site.function] == ["optimizer.step()", "watched"]
    assert backward.site.text == "loss_of(model).backward()" and stepped.site.function == backward.site.function


def test_that_begins_late() -> None:
    def step(model: nn.Module, optimizer: Any, n: int) -> None:
        if n < 40:
            optimizer.zero_grad()
        never_cleared(model, optimizer, n)

    ((kind, begins),) = told(watched(step, 80))
    assert kind == "gradient-not-cleared" and begins is not None and 40 <= begins <= 66


def cleared_first(model: nn.Module, optimizer: Any, n: int) -> None:
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()


def cleared_last(model: nn.Module, optimizer: Any, n: int) -> None:
    loss_of(model).backward()
    optimizer.step()
    model.zero_grad(set_to_none=False)


def cleared_behind_autograd(model: nn.Module, optimizer: Any, n: int) -> None:
    loss_of(model).backward()
    optimizer.step()
    for p in model.parameters():
        p.grad.data.zero_()  # type: ignore[union-attr]


def cleared_between(model: nn.Module, optimizer: Any, n: int) -> None:
    """A loop that computes one backward for inspection, clears it, and trains on a second one."""
    loss_of(model).backward()
    optimizer.zero_grad(set_to_none=n % 2 == 0)
    loss_of(model).backward()
    optimizer.step()


def put_by_hand(model: nn.Module, optimizer: Any, n: int) -> None:
    grads = torch.autograd.grad(loss_of(model), list(model.parameters()))
    for p, g in zip(model.parameters(), grads, strict=True):
        p.grad = g
    optimizer.step()


def scaled_after(model: nn.Module, optimizer: Any, n: int) -> None:
    """A loop that intentionally halves the gradients after each step, so that they accumulate and fade."""
    loss_of(model).backward()
    optimizer.step()
    for p in model.parameters():
        p.grad.mul_(0.5)  # type: ignore[union-attr]


def accumulated(model: nn.Module, optimizer: Any, n: int) -> None:
    loss_of(model).backward()
    if n % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()


def with_a_closure(model: nn.Module, optimizer: Any, n: int) -> None:
    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        return loss

    optimizer.step(closure)


def frozen_now_and_then(model: Any, optimizer: Any, n: int) -> None:
    """Some steps reach only a part of what the optimizer holds."""
    optimizer.zero_grad()
    (loss_of(model) if n % 2 else model[2](torch.randn(4, 8)).square().mean()).backward()
    optimizer.step()


@pytest.mark.parametrize(
    "step",
    [
        cleared_first,
        cleared_last,
        cleared_behind_autograd,
        cleared_between,
        put_by_hand,
        scaled_after,
        accumulated,
        with_a_closure,
        frozen_now_and_then,
    ],
)
def test_other_ways_to_clear_them_are_silent(step: Step) -> None:
    assert told(watched(step)) == []


def cleared_too_early(model: nn.Module, optimizer: Any, n: int) -> None:
    loss_of(model).backward()
    optimizer.zero_grad()
    optimizer.step()


def zeroed_too_early(model: nn.Module, optimizer: Any, n: int) -> None:
    loss_of(model).backward()
    optimizer.zero_grad(set_to_none=False)
    optimizer.step()


def steps_before_the_backward(model: nn.Module, optimizer: Any, n: int) -> None:
    optimizer.zero_grad()
    optimizer.step()
    loss_of(model).backward()


@pytest.mark.parametrize("step", [cleared_too_early, zeroed_too_early, steps_before_the_backward])
def test_an_optimizer_that_finds_none(step: Step) -> None:
    trace = watched(step)
    assert told(trace) == [("gradient-not-used", None)]
    (found,) = trace.findings
    assert found.evidence["reason"] == "cleared" and found.confidence == "certain"
    cleared = {} if step is steps_before_the_backward else {"cleared": "optimizer.zero_grad"}
    assert {s.role: s.site.text.partition("(")[0] for s in found.sites} == {
        "stepped": "optimizer.step",
        "backward": "loss_of",
        "optimizer": "optimizer = kind",
        **cleared,  # several lines of this file clear gradients: that of this function
    }
    assert all(s.site.function == step.__name__ for s in found.sites if s.role == "cleared")


@pytest.mark.parametrize("often", [4, 8])
def test_one_that_finds_some_now_and_then_is_silent(often: int) -> None:
    def step(model: nn.Module, optimizer: Any, n: int) -> None:
        (cleared_too_early if n % often else cleared_first)(model, optimizer, n)

    assert told(watched(step, 8 * 4 + 1)) == []


class Recorder:
    """Looks at gradients, and clears them."""

    def __call__(self, model: nn.Module) -> None:
        model.zero_grad()


@pytest.mark.parametrize(
    "settings", [Settings(budget=None), Settings("minimal"), Settings(budget=1e-9), Settings(budget=0.05)]
)
@pytest.mark.parametrize("at", [20, 70])
def test_an_optimizer_that_finds_none_any_more(at: int, settings: Settings) -> None:
    """Also where nodes are recorded in few steps, or in none."""
    recorder = Recorder()

    def step(model: nn.Module, optimizer: Any, n: int) -> None:
        optimizer.zero_grad()
        loss_of(model).backward()
        if n >= at:
            recorder(model)
        optimizer.step()

    (found,) = [f for f in watched(step, enough(settings), settings=settings).findings if f.kind == "gradient-not-used"]
    assert found.confidence == "certain" and found.step is not None
    assert at <= found.step < at + (64 if settings.budget is None else 1024)
    assert f"from step {found.step} on" in found.title


def closure_never_clears(model: nn.Module, optimizer: Any, n: int) -> None:
    def closure() -> torch.Tensor:
        loss = loss_of(model)
        loss.backward()
        return loss

    optimizer.step(closure)


@pytest.mark.parametrize("settings", [Settings(budget=None), Settings("minimal"), Settings(budget=1e-9)])
@pytest.mark.parametrize("at", [0, 40])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.LBFGS])
def test_a_closure_that_clears_nothing(kind: Any, at: int, settings: Settings) -> None:
    def step(model: nn.Module, optimizer: Any, n: int) -> None:
        (closure_never_clears if n >= at else with_a_closure)(model, optimizer, n)

    options = {"max_iter": 2} if kind is torch.optim.LBFGS else {}
    found = told(watched(step, enough(settings), settings=settings, kind=kind, **options))
    (begins,) = [at for what, at in found if what == "gradient-not-cleared"]
    assert begins is not None and max(at, 1) <= begins < at + (64 if settings.budget is None else 1024)


@pytest.mark.parametrize("settings", [Settings(budget=None), Settings("minimal"), Settings(budget=1e-9)])
def test_a_closure_whose_gradients_are_cleared_before_they_are_used(settings: Settings) -> None:
    recorder = Recorder()

    def step(model: nn.Module, optimizer: Any, n: int) -> None:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model)
            loss.backward()
            if n >= 70:
                recorder(model)
            return loss

        optimizer.step(closure)

    (found,) = [f for f in watched(step, enough(settings), settings=settings).findings if f.kind == "gradient-not-used"]
    assert found.step is not None and 70 <= found.step < 70 + (64 if settings.budget is None else 1024)


class ClearsItself(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        self.zero_grad()
        return loss


def test_an_optimizer_that_clears_used_gradients_has_no_finding() -> None:
    assert told(watched(with_a_closure, 200, kind=ClearsItself)) == []
    assert (
        told(watched(lambda model, optimizer, n: closure_never_clears(model, optimizer, n), 200, kind=ClearsItself))
        == []
    )


CLEARS = """
class Recorder:
    def __call__(self, model):
        model.zero_grad()

def epoch(model, optimizer, after, steps):
    for _ in range(steps):
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for one in after:
            one(model)
        optimizer.step()

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
epoch(model, optimizer, [], 60)
epoch(model, optimizer, [Recorder()], 60)
"""


def test_an_early_clear_is_distinguished_from_clears_before_the_backward(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nfrom torch import nn\n" + CLEARS)
    out = tmp_path / "findings.json"
    subprocess.run(
        [sys.executable, "-m", "backprobe", "run", "--no-keep", "--findings", out, script], check=True, cwd=tmp_path
    )
    (found,) = json.loads(out.read_text())["findings"]
    (cleared,) = [site for site in found["sites"] if site["role"] == "cleared"]
    assert (found["kind"], cleared["text"]) == ("gradient-not-used", "model.zero_grad()")
    assert cleared["function"] == "__call__"


def test_optimizers_of_parts_that_step_in_the_backward() -> None:
    """The whole's finds nothing: those of single parameters used it, and let it go."""
    own: dict[Any, Any] = {}

    def step(model: nn.Module, optimizer: Any, n: int) -> None:
        if not own:
            for p in model.parameters():
                own[p] = torch.optim.SGD([p], lr=1e-3)

                def use(p: Any) -> None:
                    own[p].step()
                    p.grad = None

                p.register_post_accumulate_grad_hook(use)
        loss_of(model).backward()
        optimizer.step()

    assert told(watched(step)) == []


def no_step(model: nn.Module, optimizer: Any, n: int) -> None:
    optimizer.zero_grad()
    loss_of(model).backward()


def test_an_optimizer_that_never_steps() -> None:
    (found,) = watched(no_step).findings
    assert (found.kind, found.evidence["reason"], found.confidence) == ("gradient-not-used", "unused", "likely")
    assert [s.role for s in found.sites] == ["backward", "optimizer"]


def by_hand(model: nn.Module, optimizer: Any, n: int) -> None:
    model.zero_grad()
    loss_of(model).backward()
    for p in model.parameters():
        p.data.sub_(p.grad, alpha=1e-3)  # type: ignore[arg-type]


def test_manual_training_and_partial_gradients_have_no_finding() -> None:
    assert told(watched(by_hand)) == []
    assert told(watched(no_step, 5)) == []


def test_a_loss_that_gives_zeros_is_not_taken_for_cleared_gradients() -> None:
    def step(model: nn.Module, optimizer: Any, n: int) -> None:
        optimizer.zero_grad()
        (loss_of(model) * 0.0).backward()
        optimizer.step()

    assert "gradient-not-used" not in [f.kind for f in watched(step).findings]
