"""The rule on hand-written records."""

from __future__ import annotations

import pytest
from failing import failed
from handmade import only, roles, traced
from learning import sites_of_only

from backprobe.records import (
    FailedAllocation,
)

OOM = "CUDA out of memory. Tried to allocate 4.00 KiB."

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "out-of-memory": (
        traced(failed(OOM, allocation=FailedAllocation(4096, ((0, 3000), (1, 1000)), 500, 400))),
        [("saved", 13), ("saved", 12), ("allocated", 11), ("backward", 30), ("failed", 90)],
    ),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


@pytest.mark.parametrize(("wanted", "first"), [(15_000, "saved"), (17_000, "allocated")])
def test_a_request_that_is_far_larger_than_what_the_graph_holds_comes_first(wanted: int, first: str) -> None:
    """The graph holds 4,000 bytes."""
    held = FailedAllocation(wanted, ((0, 3000), (1, 1000)), 500, 400)
    assert roles(only(traced(failed(OOM, allocation=held))))[0][0] == first
