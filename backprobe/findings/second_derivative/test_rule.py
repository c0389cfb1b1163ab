"""The rule on hand-written records."""

from __future__ import annotations

import pytest
from handmade import at, call, kinds, leaf, only, run, traced
from learning import reached, sites_of_only

from backprobe import Trace
from backprobe.records import BackwardCall

TRAINED = reached("0.weight")


def second(last: float = 0.0, middle: str = "ThresholdBackwardBackward0", index: int = 0, **more) -> BackwardCall:
    """A derivative of a derivative, at line 90, of a relu at line 21; the input gets a gradient of norm `last`."""
    nodes = [
        run("SumBackward0", 1, line=80),
        run(middle, None, 2, line=80, gave=(None, last)),
        run("ReluBackward0", 3, line=21, module="act", op="relu", came=(last,), gave=(last,)),
        leaf("", last),
    ]
    return call(*nodes, index=index, kind=more.pop("kind", "autograd.grad"), **more)


def of(*calls: BackwardCall) -> Trace:
    return traced(*calls, parameters=TRAINED)


#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {"second-derivative-zero": (of(second(), second(index=1)), [("cause", 21), ("failed", 90)])}


def test_one_run_one_finding() -> None:
    trace, sites = FIRES["second-derivative-zero"]
    assert sites_of_only("second-derivative-zero", trace) == sites
    found = only(trace)
    assert (found.module, found.node, found.evidence["op"]) == ("act", "ReluBackward0", "relu")
    assert "in all 2 recorded calls: relu (act) is piecewise linear" in found.title


@pytest.mark.parametrize("name", ["LeakyReluBackwardBackward0", "HardtanhBackwardBackward0"])
def test_other_activations(name: str) -> None:
    assert kinds(of(second(middle=name), second(middle=name, index=1))) == ["second-derivative-zero"]


def test_what_is_not_zero_is_silent() -> None:
    assert kinds(of(second())) == []  # a single call
    assert kinds(of(second(), second(0.5, index=1))) == []
    assert kinds(of(second(0.5), second(0.5, index=1))) == []
    smooth = "TanhBackwardBackward0"
    assert kinds(of(second(middle=smooth), second(middle=smooth, index=1))) == []
    assert kinds(of(second(kind="Tensor.backward"), second(kind="Tensor.backward", index=1))) == []
    assert kinds(of(second(), second(0.5, index=1), second(index=2, site=at(91)))) == []
