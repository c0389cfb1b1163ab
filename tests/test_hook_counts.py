"""Hooks that are registered again and again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector

Register = Callable[[nn.Module, torch.optim.Optimizer, int], Any]


def watched(register: Register, steps: int = 14) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    collector = Collector()
    session = Session(collector, Settings(budget=None))
    session.start()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for n in range(steps):
        register(model, optimizer, n)
        loss = model(torch.randn(16, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    session.stop()
    assert session.error is None, repr(session.error)
    return [f for f in collector.trace(session).findings if f.kind == "hooks-pile-up"]


def same(grad: torch.Tensor) -> torch.Tensor:
    return grad


class Callable_:
    def __call__(self, *args: Any) -> None:
        return None


def on_tensor(model: Any, optimizer: Any, n: int) -> Any:
    return model[0].weight.register_hook(same)


def on_tensor_partial(model: Any, optimizer: Any, n: int) -> Any:
    return model[0].weight.register_hook(functools.partial(same))


def after_accumulation(model: Any, optimizer: Any, n: int) -> Any:
    return model[0].weight.register_post_accumulate_grad_hook(lambda p: None)


def on_forward(model: Any, optimizer: Any, n: int) -> Any:
    return model[0].register_forward_hook(Callable_())


def before_forward(model: Any, optimizer: Any, n: int) -> Any:
    return model[1].register_forward_pre_hook(lambda m, x: None)


def on_backward(model: Any, optimizer: Any, n: int) -> Any:
    return model[1].register_full_backward_hook(lambda m, i, o: None)


def on_step(model: Any, optimizer: Any, n: int) -> Any:
    return optimizer.register_step_post_hook(lambda o, a, k: None)


def on_state(model: Any, optimizer: Any, n: int) -> Any:
    return model.register_load_state_dict_pre_hook(lambda *args: None)


REGISTRATIONS: tuple[Register, ...] = (
    *(on_tensor, on_tensor_partial, after_accumulation, on_forward, before_forward, on_backward, on_step, on_state),
)


@pytest.mark.parametrize("register", REGISTRATIONS)
def test_a_hook_that_is_registered_in_every_step(register: Register) -> None:
    (found,) = watched(register)
    assert found.severity == "warning" and found.evidence["hooks"] == 14
    assert found.sites[0].role == "hook" and register.__name__.startswith(found.sites[0].site.function)


@pytest.mark.parametrize("register", [on_tensor, on_forward, on_step])
def test_hooks_that_are_registered_once_or_removed(register: Register) -> None:
    handles: list[Any] = []

    def for_a_while(model: Any, optimizer: Any, n: int) -> None:
        if n == 6:
            for handle in handles:
                handle.remove()
        handles.append(register(model, optimizer, n))

    def many_at_once(model: Any, optimizer: Any, n: int) -> None:
        for _ in range(9 if n == 2 else 0):
            register(model, optimizer, n)

    def one_at_a_time(model: Any, optimizer: Any, n: int) -> None:
        for handle in handles:
            handle.remove()
        handles[:] = [register(model, optimizer, n)]

    for healthy in (for_a_while, many_at_once, one_at_a_time):
        handles.clear()
        assert watched(healthy) == []


def test_hooks_with_different_masks_are_for_information() -> None:
    def register(model: Any, optimizer: Any, n: int) -> None:
        mask = torch.ones(8, 4)
        model[0].weight.register_hook(lambda grad: grad * mask)

    assert [f.severity for f in watched(register)] == ["info"]


def test_functions_that_are_equal_and_not_the_same() -> None:
    def register(model: Any, optimizer: Any, n: int) -> None:
        space: dict[str, Any] = {}
        exec("def hook(grad):\n    return grad\n", space)
        model[0].weight.register_hook(space["hook"])

    assert [f.evidence["hooks"] for f in watched(register)] == [14]
