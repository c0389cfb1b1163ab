"""Callers and arguments of custom functions, read from the stack of the forward, with or without ``apply`` on it."""

from __future__ import annotations

import functools
import sys

import pytest
import torch

import backprobe
from backprobe.source.frames import variables
from backprobe.torch_internals import code_objects
from backprobe.torch_internals.custom_calls import CustomCalls

CALLS = CustomCalls(variables)
NOTED: list = []


@pytest.fixture(params=["as it is", "not Python"], autouse=True)
def apply(request, monkeypatch) -> None:
    """On a torch whose ``Function.apply`` is Python also as if it were not: its frame is passed over then."""
    if request.param == "not Python":
        monkeypatch.setattr(code_objects, "FUNCTION_APPLY", None)


def note(*_) -> None:
    """Note the caller and the arguments of the innermost and the outermost custom function that run."""
    inner, outer = CALLS.innermost(sys._getframe(1)), CALLS.outermost(sys._getframe(1))
    NOTED.append([None if found is None else (caller(found), CALLS.arguments_of(found)) for found in (inner, outer)])


def caller(frame) -> str:
    while frame.f_back.f_code.co_filename.startswith(code_objects.TORCH):
        frame = frame.f_back
    return frame.f_back.f_code.co_name


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale=2.0, *more):
        note()
        return x * scale

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2, None


class ByHand(Scaled):
    @staticmethod
    def forward(ctx, x, scale=2.0, *more):
        return Scaled.forward(ctx, x * 1, 5.0)


class WithoutContext(torch.autograd.Function):
    @staticmethod
    def forward(x, scale):
        note()
        return (x * scale).abs()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class Decorated(Scaled):
    forward = staticmethod(torch.no_grad()(Scaled.forward))


class DecoratedWithoutContext(WithoutContext):
    forward = staticmethod(torch.no_grad()(WithoutContext.forward))


class Amp(Scaled):
    forward = staticmethod(torch.amp.custom_fwd(Scaled.forward, device_type="cpu"))


class Trains(Scaled):
    """Builds a graph of its own in its forward."""

    @staticmethod
    def forward(ctx, x, scale=2.0, *more):
        with torch.enable_grad():
            return inside(x.detach().requires_grad_()).detach()


def inside(x):
    return Scaled.apply(x, 7.0)


def closed(scale: float):
    class Closed(WithoutContext):
        @staticmethod
        def forward(x, unused):
            note()
            return x * scale

    return Closed


class Held:
    def __call__(self, ctx, x, scale):
        note()
        return x * scale


class Partial(Scaled):
    forward = staticmethod(functools.partial(lambda one, ctx, x, *more: (note(), x * one)[1], 2.0))


class Object(Scaled):
    forward = staticmethod(Held())


FUNCTIONS = [
    Scaled,
    ByHand,
    WithoutContext,
    Decorated,
    DecoratedWithoutContext,
    Amp,
    Partial,
    Object,
    closed(3.0),
    closed(4.0),
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=[one.__name__ for one in FUNCTIONS])
def test_the_caller_and_arguments_of_a_function(function) -> None:
    def calls(x):
        return function.apply(x, 3.0)

    x = torch.ones(2, requires_grad=True)
    NOTED.clear()
    calls(x)
    ((inner, outer),) = NOTED
    assert inner[0] == outer[0] == "calls"
    assert inner[1][0] is outer[1][0] is x and inner[1][1:] == outer[1][1:] == [3.0]


def test_a_call_inside_a_forward_is_distinguished_from_the_outer_one() -> None:
    x = torch.ones(2, requires_grad=True)
    NOTED.clear()
    Trains.apply(x)
    ((inner, outer),) = NOTED
    assert (inner[0], inner[1][1:]) == ("inside", [7.0])
    assert outer[1][0] is x and outer[0].startswith("test_")


def test_a_function_that_shares_the_code_of_a_forward_is_no_call() -> None:
    x = torch.ones(2, requires_grad=True)
    Decorated.apply(x, 3.0)
    DecoratedWithoutContext.apply(x, 3.0)
    NOTED.clear()
    torch.no_grad()(note)()
    torch.no_grad()(note)(x)
    Scaled.forward(None, x)  # no ctx of torch's
    assert NOTED == [[None, None]] * 3


def test_a_class_of_a_function_that_was_called_before() -> None:
    def forward(ctx, x):
        note()
        return x * 2

    x = torch.ones(2, requires_grad=True)
    NOTED.clear()
    forward(None, x)
    Late = type("Late", (torch.autograd.Function,), {"forward": staticmethod(forward)})
    Late.apply(x)
    assert NOTED[0] == [None, None] and all(found is not None and found[1][0] is x for found in NOTED[1])


def test_arguments_of_a_function_are_not_kept_alive() -> None:
    x = torch.ones(2, requires_grad=True)
    count = sys.getrefcount(x)
    for function in FUNCTIONS:
        NOTED.clear()
        function.apply(x, 3.0)
        NOTED.clear()
    assert sys.getrefcount(x) == count


def test_nodes_have_the_lines_of_the_calls() -> None:
    w = torch.ones(2, requires_grad=True)
    with backprobe.trace(budget=None) as trace:
        for _ in range(2):
            x = w
            for function in (*FUNCTIONS, Trains):
                x = function.apply(x, 3.0)  # HERE
            x.sum().backward()
    for call in trace.backwards:
        if len(call.nodes) > 3:
            runs = [run for run in call.nodes if run.node.op == "Function.apply"]
            assert len(runs) == len(FUNCTIONS) + 1
            assert all(run.site.text.endswith("# HERE") for run in runs)
    assert not trace.coverage.gaps


def test_a_profiler_in_python_may_work_with_tensors_while_a_forward_begins() -> None:
    def profile(frame, event, arg):
        if event == "call" and frame.f_code is Scaled.forward.__code__:
            torch.ones(2).add(1)

    w = torch.ones(2, requires_grad=True)
    with backprobe.trace(budget=None) as trace:
        sys.setprofile(profile)
        try:
            Scaled.apply(w).sum().backward()
        finally:
            sys.setprofile(None)
    assert trace.coverage.gaps == () and w.grad.tolist() == [2.0, 2.0]


def test_a_debugger_in_python_may_read_the_variables_of_a_frame_that_goes_on() -> None:
    def trace(frame, event, arg):
        if frame.f_code is called.__code__:
            variables(frame)
            return trace
        return None

    def called(x):
        y = x + 1
        return x + y

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        found = called(1)
    finally:
        sys.settrace(before)
    assert found == 3
