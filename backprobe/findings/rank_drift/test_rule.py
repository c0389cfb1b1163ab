"""The rule on hand-written records."""

from __future__ import annotations

import pytest
from handmade import at, call, leaf, run, traced
from learning import one_finding

from backprobe.records import (
    Replica,
    Replicas,
    ReplicaState,
)

STEP = call(run("SumBackward0", 1, op="sum"), leaf("weight"))


def drifting(rank: int) -> Replicas:
    """A rank with a gradient of its own."""
    state = ReplicaState(0, 0, (1,), (rank + 5,), (rank + 7,), at(62))
    return Replicas(rank, 2, (Replica("weight", (2,), "ddp"),), (state,))


#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "rank-drift": (traced(STEP, seen=[drifting(0), drifting(1)]), [("backward", 62)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    one_finding(kind, *FIRES[kind])
