"""Every kind of tracing in PyTorch gives the same graphs, gradients, warnings and errors under backprobe.

Each case gives a plain result, which is compared with the result under a trace and under a debugger that steps."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch
from functorch.compile import aot_function, aot_module, nop
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.two_tensor import TwoTensor
from watching import Ops, same, watched

import backprobe as bp
from backprobe.observe.session import Settings
from backprobe.torch_internals import modes, private

Case = Callable[[], Any]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def inputs() -> torch.Tensor:
    return torch.linspace(-1.0, 1.0, 6).reshape(2, 3)


def nodes(graph: Any) -> list[tuple[str, str, str]]:
    """Names and targets of a graph's nodes."""
    return [(node.op, node.name, str(node.target)) for node in graph.nodes]


def gradients(module: nn.Module) -> list[Any]:
    return [p.grad for p in module.parameters()]


def weighted() -> tuple[torch.Tensor, torch.Tensor]:
    return inputs(), torch.ones(3, 4).requires_grad_()


def plain_names(graph: Any) -> str:
    """A graph of TorchScript, whose classes are numbered through the process."""
    return re.sub(r"___torch_mangle_\d+\.", "", str(graph))


@case
def export() -> Any:
    program = torch.export.export(model(), (inputs(),), strict=False)
    return program.graph_module.code, nodes(program.graph), nodes(program.run_decompositions().graph)


@case
def export_dynamic() -> Any:
    dynamic = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(model(), (inputs(),), dynamic_shapes=dynamic, strict=False)
    return program.graph_module.code, str(program.range_constraints.values())


@case
def export_of_what_reads_a_number() -> Any:
    class Reads(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            size = x.long().sum().item()
            torch._check(size >= 0)
            torch._check(size <= 3)
            return x.new_ones(size)

    return nodes(torch.export.export(Reads(), (torch.ones(2),), strict=False).graph)


@case
def export_that_fails() -> Any:
    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin() if x.sum() > 0 else x.cos()

    try:
        torch.export.export(Branches(), (inputs(),), strict=False)
    except Exception as error:
        return type(error).__name__, str(error).partition("\n")[0]
    raise AssertionError("it is not to be exported")


@case
def jit_trace() -> Any:
    traced = torch.jit.trace(model(), inputs())
    return plain_names(traced.graph), traced.code, plain_names(traced.inlined_graph)


@case
def jit_trace_of_a_function() -> Any:
    traced = torch.jit.trace(lambda x, w: (x @ w).relu().sum(), weighted())
    return plain_names(traced.graph), traced.code


@case
def onnx_of_torchscript() -> Any:
    """The graph that ``torch.onnx.export(dynamo=False)`` begins with: the package onnx need not be there."""
    from torch.onnx._internal.torchscript_exporter import utils

    graph, _, out = utils._model_to_graph(model(), (inputs(),))
    return str(graph), out


@pytest.fixture(autouse=True)
def onnx_export_state() -> Iterator[None]:
    from torch.onnx._internal.torchscript_exporter._globals import GLOBALS

    GLOBALS.export_onnx_opset_version = 17
    yield


def of_module(x: torch.Tensor) -> torch.Tensor:
    return model()(x).sum()


def of_gradient(x: torch.Tensor) -> torch.Tensor:
    x = x.detach().requires_grad_()
    return torch.autograd.grad(model()(x).square().sum(), x)[0]


@case
def make_fx_real() -> Any:
    return [make_fx(function)(inputs()).code for function in (of_module, of_gradient)]


@case
def make_fx_fake() -> Any:
    return [make_fx(function, tracing_mode="fake")(inputs()).code for function in (of_module, of_gradient)]


@case
def make_fx_symbolic() -> Any:
    net = model()
    return make_fx(lambda x: net(x).square().sum(), tracing_mode="symbolic", _allow_non_fake_inputs=True)(inputs()).code


@case
def make_fx_before_dispatch() -> Any:
    net = model()
    return make_fx(lambda x: net(x).square().sum(), pre_dispatch=True)(inputs()).code


@case
def make_fx_of_a_leaf() -> Any:
    net = model()

    def step(x: torch.Tensor) -> Any:
        return torch.autograd.grad(net(x).sum(), [x, *net.parameters()])

    return make_fx(step)(inputs().requires_grad_()).code


@case
def make_fx_of_functional() -> Any:
    net = model()
    return make_fx(torch.func.functionalize(lambda x: net(x).add_(1)))(inputs()).code


@case
def aot_of_a_function() -> Any:
    seen: list[str] = []

    def compiler(graph: Any, _: Any) -> Any:
        seen.append(graph.code)
        return graph

    x, weights = inputs().requires_grad_(), [torch.ones(size).requires_grad_() for size in ((3, 4), (4, 2))]
    function = aot_function(lambda x, *weights: (x @ weights[0]).relu() @ weights[1], compiler, compiler)
    function(x, *weights).square().sum().backward()
    return seen, x.grad, [w.grad for w in weights]


@case
def aot_of_a_module_as_a_function() -> Any:
    """Calls the module's hooks with functional tensors."""

    class Doubles(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    x = inputs().requires_grad_()
    aot_function(Doubles(), nop)(x).square().sum().backward()
    return x.grad


@case
def aot_of_a_module() -> Any:
    net, x = model(), inputs()
    aot_module(net, fw_compiler=nop)(x).square().sum().backward()
    return gradients(net)


@case
def cond() -> Any:
    torch._dynamo.reset()
    x = inputs().requires_grad_()
    torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)).sum().backward()
    return x.grad


@case
def symbolic_trace() -> Any:
    class Doubles(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.inner(x) * 2).view(-1) + torch.ones(2).sum()

    traced = torch.fx.symbolic_trace(Doubles())
    return traced.code, nodes(traced.graph), traced(inputs())


@case
def fake_tensors() -> Any:
    with FakeTensorMode():
        net, x = model(), inputs()
        net(x).square().sum().backward()
    outside = net(x).sum()
    outside.backward()
    return [tuple(g.shape) for g in gradients(net)], type(outside).__name__


@case
def meta_tensors() -> Any:
    net = model().to("meta")
    net(inputs().to("meta")).square().sum().backward()
    return [(g.device.type, tuple(g.shape)) for g in gradients(net)]


@case
def vmap_of_a_module() -> Any:
    net = model()
    return torch.vmap(net)(inputs()), torch.vmap(lambda x: net(x).sum(), randomness="error")(inputs())


@case
def gradients_of_torch_func() -> Any:
    net = model()
    values = {name: p.detach() for name, p in net.named_parameters()}

    def loss(values: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(net, values, x).square().sum()

    each = torch.vmap(torch.func.grad(loss), (None, 0))(values, inputs())
    tangent = torch.func.jvp(net, (inputs(),), (torch.ones(2, 3),))
    return each, tangent, torch.func.hessian(lambda x: net(x).square().sum())(inputs()[0])


@case
def functional_tensors() -> Any:
    """Run the model on C++ functional tensors, which the script functionalizes itself."""
    x = torch._to_functional_tensor(inputs())
    torch._enable_functionalization(reapply_views=True)
    try:
        out = model()(x)
    finally:
        torch._disable_functionalization()
    torch._sync(out)
    return torch._from_functional_tensor(out)


@case
def ops_of_a_dispatch_mode() -> Any:
    net, x = model(), inputs().requires_grad_()
    with Ops() as mode:
        net(x).sum().backward()
        torch.autograd.grad(net(x).sum(), [x, *net.parameters()])
        (x * 2).sum().backward(inputs=[x])
    return mode.seen, x.grad


@contextmanager
def traced(**settings: Any) -> Iterator[None]:
    session, collector = watched(Settings(**settings))
    session.start()
    try:
        yield
    finally:
        session.stop()
    assert session.error is None, session.error
    faults = [one for one in collector.trace(session).coverage.unseen if one.what == "internal error"]
    assert not faults, faults


UNDER: dict[str, Callable[[], Any]] = {
    "trace": traced,
    "closest": lambda: traced(level="full", checks=frozenset(("functions", "checkpoints", "memory")), layer_stats=1),
    "compared": lambda: traced(record_ops=True),
    "stepped": lambda: bp.breakpoint_backward(action=lambda stop: "node"),
}


def seen(one: Case) -> Any:
    """The result of a case, and the warnings that it gives."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = one()
    return found, [(w.category.__name__, str(w.message)) for w in said]


@pytest.mark.parametrize("name", CASES)
def test_a_trace_of_pytorchs_is_the_same(name: str) -> None:
    one = CASES[name]
    seen(one)  # torch gives some warnings once
    plain, said = seen(one)
    for under, watch in UNDER.items():
        with watch():
            found, told = seen(one)
        assert same(found, plain), (under, found, plain)
        assert told == said, under


def test_traced_calls_are_counted_and_later_ones_watched() -> None:
    net = model()
    with bp.trace() as trace:
        torch.export.export(net, (inputs(),), strict=False)
        make_fx(lambda x: net(x))(inputs())
        net(inputs()).sum().backward()
    counted = {one.what: (one.count, one.hides) for one in trace.coverage.unseen}
    assert counted["module calls that PyTorch traced"][0] >= 2
    assert not counted["module calls that PyTorch traced"][1]
    assert {run.module for run in trace.steps[0].backwards[0].nodes} >= {"0", "1", "2"}


def test_which_tensors_have_no_values() -> None:
    x = inputs()
    with FakeTensorMode() as fake:
        made = fake.from_tensor(x)
    functional = torch._to_functional_tensor(x)
    wrapped = TwoTensor(made, made)
    for symbolic in (made, functional, wrapped):
        assert modes.is_symbolic(symbolic) and modes.is_unsafe_to_read(symbolic, ignores_our_modes=True)
    plain = TwoTensor(x, x.clone())
    assert not modes.is_symbolic(plain) and modes.has_dispatch(plain) and not modes.has_dispatch(x)
    assert private.local(made) is None and private.local(wrapped) is None and private.local(plain) is plain


@pytest.mark.parametrize("name", ["make_fx_real", "make_fx_fake", "make_fx_of_a_leaf", "fake_tensors"])
def test_a_capture_stands_aside_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, plain_model = CASES[name], model
    seen(one)
    plain, said = seen(one)
    captured = []
    with ExitStack() as block:

        def captured_model() -> nn.Module:
            made = plain_model()
            captured.append(block.enter_context(bp.capture(made)))
            return made

        monkeypatch.setitem(globals(), "model", captured_model)
        found, told = seen(one)
    assert same(found, plain) and told == said
    assert captured and all(list(acts) == [] and len(acts.unseen) == 4 for acts in captured)
