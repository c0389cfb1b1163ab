"""Shortcuts in recorded steps that lose no information: skipped inspections and modes, batched measurements."""

from __future__ import annotations

import gc
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from watching import watched

from backprobe.torch_internals import private
from backprobe.torch_internals.machine import uncollected
from backprobe.torch_internals.measure import BATCH, Norms
from backprobe.torch_internals.norms import norm

SCALES = (1.0, 1e-22, 0.0, 1e-8, 1e-40, 1e15, math.inf, math.nan)


@pytest.mark.parametrize("before", [0.0, 1e-30, 1.0, math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_the_previous_norm_does_not_change_a_norm(dtype: torch.dtype, before: float) -> None:
    base = torch.linspace(0.5, 1.5, 12).reshape(3, 4)
    tensors = [(base * s).to(dtype) for s in SCALES] * BATCH
    plain, hinted = Norms(), Norms()
    for norms in (plain, hinted):
        norms.values = [0.0] * (2 * len(tensors))
    # Some were tiny before, some were not, in one batch.
    hinted.hints = [before if at % 3 else 1.0 for at in range(2 * len(tensors))]
    for norms in (plain, hinted):
        assert norms.alike(range(len(tensors)), tensors, tensors[0].shape, dtype) == len(tensors)
        for at, tensor in enumerate(tensors):
            norms.into(len(tensors) + at, tensor)
    assert hinted.values == pytest.approx(plain.values, rel=1e-6, abs=0.0, nan_ok=True)
    assert hinted.values[: len(SCALES)] == pytest.approx(list(map(norm, tensors[: len(SCALES)])), rel=1e-5, nan_ok=True)
    assert hinted.bad.keys() == plain.bad.keys()


def test_tensors_of_different_kinds_are_not_batched() -> None:
    norms, many = Norms(), 4 * BATCH
    norms.values = [0.0] * (many + 3)
    tensors: list[Any] = [torch.ones(2)] * many + [torch.ones(3)]
    assert norms.alike(range(len(tensors)), tensors, torch.Size([2]), torch.float32) == many
    assert norms.alike(range(2), [torch.ones(2), torch.ones(2).double()], torch.Size([2]), torch.float32) == 0
    assert norms.alike(range(2), [torch.ones(2), None], torch.Size([2]), torch.float32) == 0
    assert norms.alike(range(1), [None], torch.Size([2]), torch.float32) == 0


def chain(x: torch.Tensor, weight: torch.Tensor, skip: bool) -> torch.Tensor:
    for at in range(200):
        x = torch.tanh(x @ weight) * (0.0 if skip and at == 150 else 1.0)
    return x.sum()


def test_batched_norms_equal_those_measured_one_by_one() -> None:
    weight = nn.Parameter(torch.eye(3) * 0.99)
    session, collector = watched()
    session.start()
    try:
        for at in range(8):
            weight.grad = None
            chain(torch.full((2, 3), 0.1), weight, at % 2 == 1).backward()
    finally:
        session.stop()
    assert session.error is None
    calls = [call for step in collector.trace(session).steps for call in step.backwards]
    inspected, later = calls[0:2], calls[6:8]
    for one, other in zip(inspected, later, strict=True):  # of even and of odd steps
        assert len(one.nodes) == len(other.nodes) > 600
        for a, b in zip(one.nodes, other.nodes, strict=True):
            for left, right in ((a.grad_inputs, b.grad_inputs), (a.grad_outputs, b.grad_outputs)):
                assert [g and pytest.approx(g.norm, rel=1e-6) for g in left] == [g and g.norm for g in right]


class Seen(TorchFunctionMode):
    """The user's own."""

    calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Seen.calls += 1
        return func(*args, **(kwargs or {}))


class Own(torch.optim.SGD):
    pass


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, Own])
def test_recording_pauses_only_in_steps_of_built_in_optimizers(kind: Any) -> None:
    model = nn.Linear(2, 1)
    optimizer = kind(model.parameters(), lr=0.1)
    inside: list[bool] = []
    session, _ = watched()
    session.start()
    optimizer.register_step_post_hook(lambda *_: inside.append(private.depth_of(session.forward.recorder) is None))
    try:
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.ones(3, 2)).sum().backward()
            optimizer.step()
            assert private.depth_of(session.forward.recorder) == 0
    finally:
        session.stop()
    assert session.error is None
    assert inside == [False] * 3 + [kind is not Own] * 3


def test_recording_continues_in_a_closure_and_after_an_error() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session, _ = watched()
    session.start()

    def closure() -> Any:
        optimizer.zero_grad()
        assert private.depth_of(session.forward.recorder) == 0
        loss = model(torch.ones(3, 2)).sum()
        loss.backward()
        return loss

    def fails(*_: Any) -> None:
        raise ValueError("mine")

    try:
        for _ in range(5):
            optimizer.step(closure)
        handle = optimizer.register_step_pre_hook(fails)
        with pytest.raises(ValueError, match="mine"):
            optimizer.step()
        handle.remove()
        with Seen():
            model(torch.ones(3, 2)).sum().backward()
            assert private.function_modes()[0] is session.forward.recorder
        assert Seen.calls
        assert private.depth_of(session.forward.recorder) == 0
    finally:
        session.stop()
    assert session.error is None
    assert private.mode_depth() == 0


@pytest.mark.parametrize("bounded", [torch.tanh, F.relu, F.gelu, torch.sigmoid])
@pytest.mark.parametrize("origin", ["op", "leaf", "view", "function"])
def test_the_origin_of_a_nonfinite_value_before_a_bounded_function(bounded: Any, origin: str) -> None:
    class Custom(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x / x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad

    session, collector = watched()
    session.start()
    try:
        for at in range(8):
            x = torch.full((2, 2), math.nan if at == 7 and origin != "op" else 1.0, requires_grad=True)
            if origin == "op":
                y = x * (math.nan if at == 7 else 1.0)
            elif origin == "leaf":
                y = x
            elif origin == "view":
                y = x.view(4)
            else:
                y = Custom.apply(x)
            (bounded(y) * 2).sum().backward()
    finally:
        session.stop()
    assert session.error is None
    last = [call for step in collector.trace(session).steps for call in step.backwards][-1]
    assert last.bad_ops[0].op == ("mul" if origin == "op" else bounded.__name__)


def test_the_garbage_collector_stays_as_the_script_set_it() -> None:
    was = gc.isenabled()
    try:
        for on in (True, False):
            (gc.enable if on else gc.disable)()
            with uncollected():
                assert not gc.isenabled()
            assert gc.isenabled() is on
    finally:
        (gc.enable if was else gc.disable)()
