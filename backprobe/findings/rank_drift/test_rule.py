"""The rule on hand-written records."""

from __future__ import annotations

import pytest
from handmade import at, traced
from learning import STEP, sites_of_only

from backprobe.records import (
    Replica,
    Replicas,
    ReplicaState,
)


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
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites
