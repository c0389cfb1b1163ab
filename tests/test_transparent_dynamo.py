"""Dynamo sees neither the function mode nor the hooks on modules: graphs are those of plain torch, compiled once.

Each case gives a plain result, which is compared with the result under a trace and under a debugger that steps."""

from __future__ import annotations

import gc
import importlib
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from compiling import dynamo, reset_dynamo
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn.modules import module as torch_module
from torch.utils.checkpoint import checkpoint
from watching import same

import backprobe as bp
from backprobe.records import RegionRun
from backprobe.torch_internals import compiled_graphs, dynamo_activity, private

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("fresh_dynamo")]

Case = Callable[[], Any]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


class Graphs:
    """A back-end that runs each graph as it is, and keeps the names and targets of its nodes."""

    def __init__(self) -> None:
        self.seen: list[list[tuple[str, str, str]]] = []

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.seen.append(
            [(node.op, node.name, str(getattr(node.target, "__name__", node.target))) for node in graph.graph.nodes]
        )
        return graph.forward


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def inputs() -> torch.Tensor:
    return torch.linspace(-1.0, 1.0, 6).reshape(2, 3)


def trained(function: Callable[[torch.Tensor], torch.Tensor], steps: int = 4) -> list[Any]:
    found = []
    for _ in range(steps):
        x = inputs().requires_grad_()
        function(x).sum().backward()
        found.append(x.grad)
    return found


@case
def operators() -> Any:
    graphs = Graphs()
    return trained(torch.compile(lambda x: (x * 2 + x - 1) @ x.T, backend=graphs)), graphs.seen


@case
def modules() -> Any:
    graphs = Graphs()
    return trained(torch.compile(model(), backend=graphs)), graphs.seen


@case
def module_compiled_in_place() -> Any:
    graphs, net = Graphs(), model()
    net[0].compile(backend=graphs)
    return trained(net), graphs.seen


@case
def graph_breaks() -> Any:
    graphs, net = Graphs(), model()

    def broken(x: torch.Tensor) -> torch.Tensor:
        y = net(x * 2)
        dynamo.graph_break()
        return torch.tanh(y) + net(x)

    return trained(torch.compile(broken, backend=graphs)), graphs.seen


@case
def function_that_dynamo_leaves_alone() -> Any:
    graphs, net = Graphs(), model()
    alone = dynamo.disable(lambda x: net(x) * 2)
    return trained(torch.compile(lambda x: alone(x + 1).sin(), backend=graphs)), graphs.seen


@case
def guards_that_run_a_dispatch_mode() -> Any:
    """The guards ask a fake tensor for its sizes under its mode, whose ``__torch_dispatch__`` is Python code."""
    graphs = Graphs()
    compiled = torch.compile(torch.sin, backend=graphs, fullgraph=True)
    with FakeTensorMode(shape_env=ShapeEnv()) as fake:
        shapes = [tuple(compiled(fake.from_tensor(torch.zeros(n, 4), static_shapes=True)).shape) for n in (3, 4, 5)]
    return shapes, graphs.seen


@case
def whole_step() -> Any:
    graphs, net = Graphs(), model()

    def step() -> None:
        net(inputs()).square().sum().backward()

    compiled = torch.compile(step, backend=graphs)
    for _ in range(3):
        compiled()
    return [p.grad for p in net.parameters()], graphs.seen


@case
def inside_a_checkpoint() -> Any:
    graphs = Graphs()
    compiled = torch.compile(model(), backend=graphs)
    return trained(lambda x: checkpoint(compiled, x, use_reentrant=False)), graphs.seen


@case
def checkpoint_inside() -> Any:
    graphs, net = Graphs(), model()
    function = torch.compile(lambda x: checkpoint(net, x, use_reentrant=False), backend=graphs)
    return trained(function), graphs.seen


@case
def hook_for_accumulated_gradients() -> Any:
    seen = []

    @torch.compile(fullgraph=True, backend="aot_eager")
    def hooked(x: torch.Tensor) -> torch.Tensor:
        x.register_post_accumulate_grad_hook(hook)
        return x * 2

    def hook(tensor: torch.Tensor) -> None:
        seen.append(tensor.grad.clone())  # type: ignore[union-attr]

    return trained(hooked), seen


@case
def mode_of_the_script() -> Any:
    graphs = Graphs()
    function = torch.compile(lambda x: x * 2 + torch.ones(3), backend=graphs)
    with torch.device("cpu"):
        return trained(function), graphs.seen


@case
def strict_export() -> Any:
    with torch.no_grad():
        program = torch.export.export(model(), (inputs(),), strict=True)
        return [node.name for node in program.graph.nodes], program.module()(inputs())


@case
def export_of_any_batch() -> Any:
    program = torch.export.export(model(), (inputs(),), dynamic_shapes=({0: torch.export.Dim("b")},), strict=True)
    return [node.name for node in program.graph.nodes], program.module()(torch.ones(5, 3))


@case
def raises_while_it_compiles() -> Any:
    def backend(graph: Any, given: Any) -> Any:
        raise ValueError("no such back-end")

    function = torch.compile(lambda x: x * 2, backend=backend)
    try:
        return trained(function)
    except Exception as error:
        return type(error).__name__, str(error).splitlines()[0]


@case
def raises_where_it_is_called() -> Any:
    graphs, told = Graphs(), []
    function = torch.compile(lambda x: x.reshape(2, 3) * 2, backend=graphs)
    for size in (6, 7, 6):
        try:
            told.append(function(torch.ones(size)))
        except Exception as error:
            told.append(type(error).__name__)
    return told, graphs.seen


def plain(make: Case) -> Any:
    reset_dynamo()
    found = make()
    return found, dynamo.utils.counters["stats"]["unique_graphs"]


def traced() -> AbstractContextManager[Any]:
    return bp.trace(budget=None)


def stepped() -> AbstractContextManager[Any]:
    return bp.breakpoint_backward(action=lambda stop: "node")


def global_hooks() -> tuple[int, ...]:
    kinds = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_forward_hooks_always_called")
    return tuple(len(getattr(torch_module, kind)) for kind in kinds)


def replaced() -> tuple[Any, ...]:
    """Return the objects of torch and Python that a session replaces or extends."""
    frames, export = sys.modules["torch._dynamo.eval_frame"], sys.modules["torch._dynamo.functional_export"]
    functions = (getattr(frames, "_maybe_set_eval_frame", None), getattr(export, "_compiling_state_context", None))
    return (*functions, torch.autograd._engine_run_backward, private.mode_depth(), *global_hooks(), len(sys.meta_path))


@pytest.mark.parametrize("name", CASES)
def test_compiled_graphs_are_as_without_us(name: str) -> None:
    expected = plain(CASES[name])
    importlib.import_module("torch._dynamo.functional_export")  # loaded now, or by the first export
    before = replaced()
    for watch in (traced, stepped, bp.graph.recording):
        with watch():
            found = plain(CASES[name])
            assert private.mode_depth() == before[3] + 1, watch
        assert same(found[0], expected[0]), (watch, found, expected)
        assert found[1] == expected[1], watch
        assert replaced() == before, watch


def test_eager_code_beside_compiled_code_is_still_observed() -> None:
    """The mode and the hooks are back after each call of a compiled function, and after one that raised."""
    net, graphs = model(), Graphs()
    compiled = torch.compile(lambda x: net(x), backend=graphs)
    wrong = torch.compile(lambda x: net(x), backend=graphs)
    with bp.trace(net, budget=None) as trace:
        for _ in range(3):
            with pytest.raises(Exception, match=r"shape|size|mat1"):
                wrong(torch.ones(2, 5))
            (net(compiled(inputs()) @ torch.ones(2, 3)).exp().sum()).backward()
    call = list(trace.backwards)[-1]
    seen = [(run.name, run.module) for run in call.nodes]
    assert ("ExpBackward0", "") in seen and call.nodes[0].site is not None
    assert ("TanhBackward0", "1") in seen  # the module that ran as it is; the compiled one has no names inside
    assert not [one for one in trace.coverage.unseen if one.what == "internal error"]


def test_a_backward_inside_a_compiled_function_is_recorded() -> None:
    net = model()

    def step() -> None:
        net(inputs()).square().sum().backward()

    compiled = torch.compile(step, backend="eager")
    with bp.trace(net, budget=None) as trace:
        for _ in range(3):
            compiled()
    assert [call.kind for call in trace.backwards] == ["Tensor.backward"] * 3
    assert {call.site.file for call in trace.backwards if call.site is not None} == {__file__}


def test_a_session_that_begins_in_the_middle_compiles_nothing_again() -> None:
    """Nor does one that ends there, or another one after it; and the graph of the first is known to the others."""
    gc.collect()
    before, traces = len(compiled_graphs._graphs_of_earlier_sessions), []
    net = model()
    compiled = torch.compile(net, backend="aot_eager")

    def count() -> int:
        return int(dynamo.utils.counters["stats"]["unique_graphs"])

    with bp.trace(net, budget=None):
        compiled(inputs()).sum().backward()
    for watch in (traced, stepped, traced):
        compiled(inputs()).sum().backward()
        with watch() as watching:
            compiled(inputs()).sum().backward()
        if watch is traced:
            traces.append(watching)
    assert count() == 1
    assert len(compiled_graphs._graphs_of_earlier_sessions) - before == 1
    assert [len(trace.facts.of(RegionRun)) for trace in traces] == [1, 1]
    del compiled, watching, traces  # a session holds what it put a call of its own in the place of
    reset_dynamo()
    gc.collect()
    assert len(compiled_graphs._graphs_of_earlier_sessions) == before


def test_another_thread_changes_nothing_here() -> None:
    compiled = torch.compile(lambda x: x * 2, backend="eager")
    with bp.trace(budget=None):
        other = threading.Thread(target=compiled, args=(inputs(),))
        other.start()
        other.join()
        assert private.mode_depth() == 1 and global_hooks() != (0, 0, 0)
    assert not dynamo_activity._listening


FRESH = """
import importlib.util, sys, torch, backprobe
assert "torch._dynamo" not in sys.modules
finders = list(sys.meta_path)
graphs = []

def backend(graph, inputs):
    graphs.append([(node.op, str(node.target)) for node in graph.graph.nodes])
    return graph.forward

x = torch.ones(3, requires_grad=True)
with backprobe.trace():
    assert importlib.util.find_spec("torch._dynamo")
    torch.export.export(torch.nn.Linear(3, 3), (torch.ones(2, 3),), strict=True)
    torch.compile(lambda x: x * 2 + 1, backend=backend)(x).sum().backward()
assert [op for op, _ in graphs[0]] == ["placeholder", "call_function", "call_function", "output"], graphs
assert sys.meta_path[:len(finders)] == finders
assert "backprobe" not in type(sys.modules["torch._dynamo"].__spec__.loader).__module__
"""


def test_a_session_that_begins_before_dynamo_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FRESH], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
