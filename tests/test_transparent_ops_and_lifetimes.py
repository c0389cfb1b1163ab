"""Promises 1 and 2 under observation: dropped objects are freed at once, and modes and profilers see no op of ours."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import profile
from watching import Ops, watched

import backprobe
from backprobe.observe.session import Settings

#: A session in its first steps, one that is used to the script, and one that looks closest.
LEVELS = ("first", "used", "explain")


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Only reference counts free things."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Mark:
    """Lies in a node's metadata: gone with the node."""


def under(level: str, step: Callable[[], Any]) -> Any:
    """Return the result of `step` under a session; at level ``used``, after the close inspection of the first steps."""
    session, _ = watched(Settings("full" if level == "explain" else "nodes"))
    session.start()
    try:
        if level == "used":
            for _ in range(6):
                step()
            assert not session.forward.recorder.inspecting
        found = step()
    finally:
        session.stop()
    assert session.error is None, session.error
    return found


def trainer() -> Callable[[], None]:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 3)), torch.randn(5, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    step()
    return step


@pytest.mark.parametrize("level", LEVELS)
def test_a_dropped_graph_is_freed_at_once(level: str, no_collector: None) -> None:
    step = trainer()

    def dropped() -> tuple[bool, bool]:
        step()
        x = torch.randn(4, requires_grad=True)
        y = x.sin().exp()
        mark = Mark()
        y.grad_fn.metadata["mark"] = mark
        node, tensor = weakref.ref(mark), weakref.ref(y)
        del mark
        z = y * 2
        assert node() is not None
        del y
        before = tensor() is None
        del z
        return before, node() is None

    assert under(level, dropped) == (True, True)


@pytest.mark.parametrize("call", ["grad", "backward"])
def test_a_debugger_that_is_over_keeps_nothing(call: str, no_collector: None) -> None:
    """Neither the gradients that it returned, which hold the graph, nor what the caller had put on its thread."""

    class Pack:
        def __call__(self, value: Any) -> Any:
            return value

    def debugged() -> list[weakref.ref[Any]]:
        x, mark, pack, unpack = torch.randn(3, requires_grad=True), Mark(), Pack(), Pack()
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = x.sin()
            y.grad_fn.metadata["mark"] = mark
            given = (x, torch.ones(3)) if call == "grad" else (torch.ones(3),)
            debugger = backprobe.debug(y, *given, call=call, create_graph=call == "grad", retain_graph=True)
            while not debugger.done:
                debugger.step("into")
        assert call != "grad" or debugger.result[0].grad_fn is not None
        return [weakref.ref(mark), weakref.ref(pack), weakref.ref(unpack)]

    for _ in range(20):
        assert [ref() for ref in debugged()] == [None, None, None]


@pytest.mark.parametrize("level", LEVELS)
def test_a_dispatch_mode_sees_the_scripts_own_ops(level: str) -> None:
    def ops() -> list[str]:
        with Ops() as mode:
            step()
        return mode.seen

    step = trainer()
    alone = ops()
    step = trainer()
    assert len(alone) > 20
    assert under(level, ops) == alone


@pytest.mark.parametrize("level", LEVELS)
def test_a_profiler_sees_the_scripts_own_ops(level: str) -> None:
    def ops() -> list[str]:
        with profile() as found:
            step()
        return [e.name for e in found.events() if not e.name.startswith("[")]

    step = trainer()
    alone = ops()
    step = trainer()
    assert len(alone) > 50
    assert under(level, ops) == alone


def test_gradients_are_measured_under_a_mode_and_a_profiler() -> None:
    """The measurements are hidden from modes and profilers, but they do run."""
    norms = []
    for around in (None, Ops, profile):
        step = trainer()
        with backprobe.trace() as trace:
            if around is None:
                step()
            else:
                with around():
                    step()
        assert trace.session is not None and trace.session.error is None
        norms.append(
            [g.norm for run in next(iter(trace.backwards)).nodes for g in (run.grad_inputs or ()) if g is not None]
        )
        stats = trace.steps[0].parameters.values()
        assert len(stats) == 4 and all(s.weight and s.grad and s.update for s in stats)
    assert len(norms[0]) > 5 and all(n is not None and n > 0 for n in norms[0])
    assert norms[1] == norms[0] and norms[2] == norms[0]


@pytest.mark.filterwarnings("ignore:`torch.jit", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("level", LEVELS)
def test_a_traced_function_has_the_scripts_own_ops(level: str) -> None:
    def ops() -> list[str]:
        step()
        traced = torch.jit.trace(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), torch.ones(2, 3))  # twice, and compared
        return [node.kind() for node in traced.inlined_graph.nodes()]

    step = trainer()
    alone = ops()
    assert "aten::relu" in alone
    assert under(level, ops) == alone


class Pass(torch.autograd.Function):
    """Gives the gradient that comes in to both inputs, as it is."""

    came = 0

    @staticmethod
    def forward(ctx, a, b):
        return a + b

    @staticmethod
    def backward(ctx, g):
        Pass.came = g.data_ptr()
        return g, g


@pytest.mark.parametrize("level", LEVELS)
def test_an_accumulator_takes_over_the_same_gradients_as_alone(level: str) -> None:
    """Torch copies a gradient that another object holds, so a session must not hold it."""

    def taken() -> bool:
        a, b = (torch.randn(3, 4, requires_grad=True) for _ in range(2))
        Pass.apply(a, b)[1][0].backward()
        assert a.grad is not None and b.grad is not None
        return Pass.came in (a.grad.data_ptr(), b.grad.data_ptr())

    assert taken()
    assert under(level, taken)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("level", LEVELS)
def test_nested_tensors_do_not_end_the_watching(level: str) -> None:
    def grads() -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        for padded in (False, True):
            x = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], requires_grad=True)
            y = x * 2
            if padded:
                torch.nested.to_padded_tensor(y, 0.0).square().sum().backward()
            else:
                y.backward(x.detach())
            found += [g.clone() for g in x.grad.unbind()]
        return found

    assert all(map(torch.equal, under(level, grads), grads()))
    with backprobe.trace(level="full" if level == "explain" else "nodes") as trace:
        for _ in range(6 if level == "used" else 1):
            grads()
    assert trace.session is not None and trace.session.error is None
    counted = {unseen.what: unseen.note for unseen in trace.facts.unseen}
    assert counted["gradients"] == "nested tensors without a shape were not measured"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_the_debugger_steps_over_nested_tensors() -> None:
    x = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], requires_grad=True)
    y = x * 2
    debugger = backprobe.debug(y, x.detach())
    shown = []
    while not debugger.done:
        shown.append((str(debugger.node), repr(debugger.stop), debugger.grad_outputs[0].is_nested))
        debugger.step()
    assert len(shown) == 2 and all(nested for *_, nested in shown)
    assert all(torch.equal(g, torch.full(g.shape, 2.0)) for g in x.grad.unbind())


def test_a_freed_nonfinite_result_is_reported_with_its_inputs() -> None:
    """The tensor of ``p.log()`` is dropped in its own line, and no node keeps it."""
    x = torch.rand(3, 4) + 0.5
    weight = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=1e-3)

    def step(p: torch.Tensor) -> None:
        optimizer.zero_grad()
        (-((p * weight).log() + 1).sum()).backward()
        optimizer.step()

    with backprobe.trace() as trace:
        for _ in range(8):
            step(x)
        assert trace.session is not None and not trace.session.forward.recorder.inspecting
        x[1, 2] = 0.0
        step(x)
    found = next(f for f in trace.findings if f.kind == "nonfinite-forward")
    bad = list(trace.backwards)[-1].bad_ops[0]
    assert [stat.zeros for stat in bad.inputs] == [1]
    assert found.sites[0].site.function == "step"


DROPPED = """
import torch, backprobe

def scope():
    x = torch.randn(1, requires_grad=True)
    y = x.clone()
    for _ in range(60_000):
        y = y * 1.5

with backprobe.trace():  # the first steps are looked at closely
    scope()
print("alive")
"""


def test_a_deep_graph_without_a_backward_is_freed_without_a_crash() -> None:
    """Torch frees a graph recursively if Python holds its nodes, so a session must not read every node (N21)."""
    command = [sys.executable, "-c", DROPPED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
