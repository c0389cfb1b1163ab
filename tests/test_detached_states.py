"""Hidden states of recurrent modules that are detached at every step of a sequence: which are reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import DetachedState

TIME, BATCH, WIDTH = 6, 4, 8
STATES = torch.zeros(BATCH, WIDTH)


def trained(make: Callable[[], nn.Module], step: Callable[[nn.Module, nn.Module], Any]) -> list[DetachedState]:
    """Return what is reported of three steps, each of which calls `step` with a module and a head and trains both."""
    torch.manual_seed(0)
    collector = Collector()
    session = Session(collector, Settings(budget=None))
    session.start()
    module, head = make(), nn.Linear(WIDTH, 1)
    optimizer = torch.optim.SGD([*module.parameters(), *head.parameters()], lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        loss = step(module, head)
        if loss is not None:
            loss.backward()
        optimizer.step()
    session.stop()
    assert session.error is None, repr(session.error)
    return list(collector.trace(session).facts.of(DetachedState))


def over_time(pass_on: Callable[[Any], Any], state: Any = STATES) -> Callable[[nn.Module, nn.Module], torch.Tensor]:
    """Return a step that calls a cell for each step of time, and gives it what `pass_on` makes of its state."""

    def step(cell: nn.Module, head: nn.Module) -> torch.Tensor:
        h, outs = state, []
        for x in torch.randn(TIME, BATCH, WIDTH):
            h = cell(x, pass_on(h))
            outs.append(head(h[0] if isinstance(h, tuple) else h))
        return torch.stack(outs).square().mean()

    return step


def modules_over_time(pass_on: Callable[[Any], Any]) -> Callable[[nn.Module, nn.Module], torch.Tensor]:
    """The same for a module over sequences, called with one step of time."""

    def step(module: nn.Module, head: nn.Module) -> torch.Tensor:
        h, outs = None, []
        for x in torch.randn(TIME, BATCH, 1, WIDTH):
            out, h = module(x, h if h is None else pass_on(h))
            outs.append(head(out))
        return torch.stack(outs).square().mean()

    return step


def detached(state: Any) -> Any:
    return tuple(one.detach() for one in state) if isinstance(state, tuple) else state.detach()


def cell() -> nn.Module:
    return nn.GRUCell(WIDTH, WIDTH)


def lstm_cell() -> nn.Module:
    return nn.LSTMCell(WIDTH, WIDTH)


def lstm() -> nn.Module:
    return nn.LSTM(WIDTH, WIDTH, batch_first=True)


@pytest.mark.parametrize(
    ("make", "step"),
    [
        (cell, over_time(detached)),
        (lambda: nn.RNNCell(WIDTH, WIDTH), over_time(lambda h: h.data)),
        (cell, over_time(lambda h: h.reshape(BATCH, 1, WIDTH).detach().squeeze(1))),
        (lstm_cell, over_time(detached, (STATES, STATES))),
        (lambda: nn.GRU(WIDTH, WIDTH, batch_first=True), modules_over_time(detached)),
        (lstm, modules_over_time(detached)),
    ],
    ids=["gru cell", "data", "reshaped", "lstm cell", "gru", "lstm"],
)
def test_states_that_are_detached_at_each_step_of_time(make: Any, step: Any) -> None:
    (found,) = trained(make, step)
    assert (found.name, found.pairs, found.backwards, found.step) == (type(make()).__name__, TIME - 1, 3, 0)
    assert found.detached is not None and ("detach" in found.detached.text or "data" in found.detached.text)
    assert found.called is not None and "pass_on" in found.called.text


def truncated(cell: nn.Module, head: nn.Module) -> None:
    """A backward call for each step of time."""
    h = STATES
    for x in torch.randn(TIME, BATCH, WIDTH):
        h = cell(x, h.detach())
        head(h).square().mean().backward()


def every_third_step(cell: nn.Module, head: nn.Module) -> torch.Tensor:
    h, outs = STATES, []
    for t, x in enumerate(torch.randn(4 * TIME, BATCH, WIDTH)):
        h = cell(x, h.detach() if t % 3 == 0 else h)
        outs.append(head(h))
    return torch.stack(outs).mean()


def chunks(module: nn.Module, head: nn.Module) -> torch.Tensor:
    """Calls with several steps of time each."""
    h, outs = None, []
    for x in torch.randn(TIME, BATCH, 5, WIDTH):
        out, h = module(x, h if h is None else detached(h))
        outs.append(head(out))
    return torch.stack(outs).mean()


def refinement(cell: nn.Module, head: nn.Module) -> torch.Tensor:
    """Coordinates are detached, and the state is not."""
    h, at, outs = STATES, torch.zeros(BATCH, 1), []
    for _ in range(TIME):
        at = at.detach()
        h = cell(at.expand(BATCH, WIDTH), h)
        at = at + head(h)
        outs.append(at)
    return torch.stack(outs).square().mean()


def rollout(cell: nn.Module, head: nn.Module) -> torch.Tensor:
    """States of a rollout without gradients are given to a second pass."""
    xs, states = torch.randn(TIME, BATCH, WIDTH), [STATES]
    with torch.no_grad():
        for x in xs:
            states.append(cell(x, states[-1]))
    return torch.stack([head(cell(x, h.detach())) for x, h in zip(xs, states, strict=False)]).mean()


@pytest.mark.parametrize(
    ("make", "step"),
    [
        (cell, over_time(lambda h: h)),
        (cell, truncated),
        (cell, every_third_step),
        (lstm, chunks),
        (cell, refinement),
        (cell, rollout),
        (lstm_cell, over_time(lambda state: (state[0].detach(), state[1]), (STATES, STATES))),
        (cell, over_time(lambda h: torch.zeros_like(h).detach())),
    ],
    ids=["kept", "truncated", "now and then", "chunks", "refinement", "rollout", "output of a cell", "fresh states"],
)
def test_other_states_are_silent(make: Any, step: Any) -> None:
    assert trained(make, step) == []
