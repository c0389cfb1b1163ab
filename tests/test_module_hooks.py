"""Global module hooks that are added and removed between recorded steps: other hooks stay unaffected."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import backprobe
from backprobe.torch_internals.module_hooks import ModuleHooks


def numbers() -> list[list[int]]:
    every = nn.modules.module
    dicts = (every._global_forward_pre_hooks, every._global_forward_hooks, every._global_forward_hooks_always_called)
    return [list(one) for one in dicts]


def test_they_come_back_under_their_numbers_in_their_order() -> None:
    called: list[str] = []
    before = numbers()
    first, second = (
        ModuleHooks(lambda *_, n=n: called.append(f"{n} in"), lambda *_, n=n: called.append(f"{n} out"))
        for n in ("a", "b")
    )
    users = nn.modules.module.register_module_forward_hook(lambda *_: called.append("user"))
    first.on()
    second.on()
    nn.Identity()(torch.ones(1))
    known, said = numbers(), list(called)
    assert said == ["a in", "b in", "user", "a out", "b out"]
    for one in (first, second, first):
        one.off()
        one.off()
        one.on()
        one.on()
        assert numbers() == known
    called.clear()
    nn.Identity()(torch.ones(1))
    assert called == said
    first.off()
    second.off()
    users.remove()
    assert numbers() == before


def test_module_hooks_get_calls_that_raise() -> None:
    left: list[Any] = []
    hooks = ModuleHooks(lambda *_: None, lambda *_: left.append(1))
    for _ in range(2):
        hooks.on()
        with pytest.raises(TypeError):
            nn.Linear(1, 1)(None)
        hooks.off()
    assert left == [1, 1]


@pytest.mark.parametrize("options", [{}, {"layer_stats": 3}, {"save_batch": True}])
def test_a_compiled_model_is_compiled_a_few_times_however_often_steps_pass(options: dict[str, Any]) -> None:
    dynamo = pytest.importorskip("torch._dynamo")
    dynamo.reset()
    compiled: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(graph)
        return graph

    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    fast = torch.compile(model, backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with backprobe.trace(model, every=2, budget=None, **options) as trace:
        for _ in range(40):
            optimizer.zero_grad()
            fast(torch.ones(2, 3)).square().mean().backward()
            optimizer.step()
    assert len(list(trace.backwards)) >= 10
    assert len(compiled) <= 5


def test_tracing_during_compilation_is_no_module_call() -> None:
    pytest.importorskip("torch._dynamo").reset()
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    fast = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with backprobe.trace(model, every=3, budget=None) as trace:
        for _ in range(12):
            optimizer.zero_grad()
            fast(torch.ones(2, 3)).square().mean().backward()
            optimizer.step()
    assert sum(row.calls for row in trace.step_rows()) == trace.info["backwards"] == 12


def test_a_view_that_autograd_refuses_to_read_is_no_internal_error() -> None:
    """An op on a module's input that was written in place under a full backward hook raises in ``grad_fn`` too."""

    class Keeps(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.x = x
            return x.clone()

    model = Keeps()
    model.register_full_backward_hook(lambda *_: None)
    with backprobe.trace() as trace:
        x = torch.rand(3, requires_grad=True).clone()
        model(x)
        x[0] *= 1
        with pytest.raises(RuntimeError, match="a view and its base or another view"):
            model.x + 2
    assert [u for u in trace.facts.unseen if u.what == "internal error"] == []
