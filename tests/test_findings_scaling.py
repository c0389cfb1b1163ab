"""Run time of rules on many parameters: linear, not quadratic, in the number of parameters."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from handmade import at, call, leaf, parameter, run, traced

from backprobe import Trace
from backprobe.records import Cut, OptimizerSeen, Parameter, StoppedLearning

PARAMETER_COUNT = 400
UNREACHED = {"reached": 0, "alive": False, "calls": 0}


def used() -> list[Parameter]:
    return [parameter("used.weight")]


def in_a_list(count: int) -> list[Parameter]:
    return [parameter(f"dead.{i}.weight", **UNREACHED) for i in range(count)]


def as_attributes(count: int) -> list[Parameter]:
    return [parameter(f"layer{i}.weight", **UNREACHED) for i in range(count)]


def called_in_vain(count: int) -> list[Parameter]:
    return [parameter(f"layer{i}.weight", reached=0, alive=False) for i in range(count)]


def without_gradient_mode(count: int) -> list[Parameter]:
    return [
        parameter(f"dead.{i}.weight", **(UNREACHED | {"quiet_calls": 3, "turned_off": at(9)})) for i in range(count)
    ]


def thawed(count: int) -> list[Parameter]:
    return [parameter(f"layer{i}.weight", trained=False, thawed=at(7)) for i in range(count)]


def of_many_models(count: int) -> list[Parameter]:
    return [parameter(f"model{i}.weight", root=f"model{i}", trained=False) for i in range(count)]


def zeros(count: int) -> list[Parameter]:
    return [parameter(f"layer{i}.weight", alive=False) for i in range(count)]


def trace_of(make: Callable[[int], list[Parameter]], count: int) -> Trace:
    parameters = make(count)
    names = tuple(p.name for p in parameters)
    reached = [p.name for p in [*used(), *parameters] if p.reached]
    # Each parameter behind a node of its own, with a line of its own: no two are one cause.
    nodes: list[Any] = [run("AddBackward0", *range(1, len(reached) + 1), came=(1.0,))]
    came = [0.0 if make is zeros and name != "used.weight" else 1.0 for name in reached]
    first = len(reached) + 1
    nodes += [run("MulBackward0", first + i, gave=(norm,), line=100 + i) for i, norm in enumerate(came)]
    nodes += [leaf(name, came=norm) for name, norm in zip(reached, came, strict=True)]
    cuts: list[Any] = [Cut("detach", at(5), "", names[::2], 3), Cut("checkpoint", at(6), "", names[1::2], 3)]
    cuts += [replace(cuts[0], site=at(8), parameters=names)]
    stopped = [StoppedLearning(names, 2, "cut", None, None)] if make is called_in_vain else []
    optimizer = OptimizerSeen("SGD", at(3), len(names) + 1, 0, 1, 0, 0, 0)
    calls = [call(*nodes, index=i, step=i) for i in range(4)]
    return traced(*calls, seen=[*cuts, *stopped, optimizer], parameters=[*used(), *parameters])


def calls_made(trace: Trace) -> int:
    """How many functions, of Python and of C, are called to find what is wrong."""
    count = 0

    def counts(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counts)
    try:
        findings = trace.findings
    finally:
        sys.setprofile(None)
    assert findings
    assert [unseen for unseen in trace.coverage.unseen if unseen.what == "internal error"] == []
    return count


@pytest.mark.parametrize(
    "make",
    [
        *(in_a_list, as_attributes, called_in_vain, without_gradient_mode),
        *(thawed, of_many_models, zeros),
    ],
)
def test_twice_as_many_parameters_take_twice_the_work(make: Callable[[int], list[Parameter]]) -> None:
    calls_made(trace_of(make, 3))  # what is loaded or read once
    once, twice = calls_made(trace_of(make, PARAMETER_COUNT)), calls_made(trace_of(make, 2 * PARAMETER_COUNT))
    assert twice < 2.5 * once
