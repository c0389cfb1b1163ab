"""Hand-written records of runs in which some parameters do not learn. No torch."""

from __future__ import annotations

import dataclasses

from handmade import at, call, kinds, leaf, only, parameter, roles, run

from backprobe import Trace
from backprobe.records import BackwardCall, NoGradient, OptimizerSeen

STEP = call(run("SumBackward0", 1, op="sum"), leaf("a.weight"))
DEAD = [parameter("a.weight", alive=False)]
OPTIMIZER = OptimizerSeen("SGD", at(6), 4, 0)
OFF = NoGradient("grad-mode", at(3), at(90), "", "")


def reached(*names: str, **more) -> list:
    return [parameter(name, **more) for name in names]


def lost(*names: str, **more) -> list:
    return [parameter(name, **({"reached": 0, "alive": False} | more)) for name in names]


def flat(name: str = "ReluBackward0", **more) -> BackwardCall:
    """A node at line 11 turns the gradient of ``a.weight`` into zero."""
    return call(
        run("SumBackward0", 1, op="sum", line=12),
        run(name, 2, op="relu", line=11, module="act", gave=(0.0,)),
        leaf("a.weight", came=0.0),
        **more,
    )


def sites_of_only(kind: str, trace: Trace) -> list[tuple[str, int]]:
    """Return the roles and lines of the only finding of `trace`, which is of `kind` and has advice.

    If the kind is checked on request only, it is not found without the request.
    """
    assert kinds(trace) == [kind]
    found = only(trace)
    assert found.advice or kind == "rank-desync"
    if trace.facts.asked:
        assert kind not in kinds(Trace(trace.steps, dataclasses.replace(trace.facts, asked=())))
    return roles(found)
