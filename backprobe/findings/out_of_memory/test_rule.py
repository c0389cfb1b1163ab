"""The rule on hand-written records."""

from __future__ import annotations

import pytest
from handmade import at, call, leaf, raised, run, traced
from learning import one_finding

from backprobe.records import (
    BackwardCall,
    FailedAllocation,
)

NODES = (
    run("SumBackward0", 1, op="sum", line=13),
    run("LogBackward0", 2, op="log", line=12, module="head"),
    run("MulBackward0", 3, op="mul", line=11),
    leaf("weight"),
)


def wrong(text: str = "no backward here", index: int = 0, node: int = 2, **more) -> BackwardCall:
    return call(*NODES, index=index, raised=raised(text, node, at(30)), **more)


OOM = "CUDA out of memory. Tried to allocate 4.00 KiB."

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "out-of-memory": (
        traced(wrong(OOM, allocation=FailedAllocation(4096, ((0, 3000), (1, 1000)), 500, 400))),
        [("saved", 13), ("saved", 12), ("allocated", 11), ("backward", 30), ("failed", 90)],
    ),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    one_finding(kind, *FIRES[kind])
