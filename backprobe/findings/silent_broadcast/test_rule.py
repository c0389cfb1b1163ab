"""The rule on hand-written records."""

from __future__ import annotations

import pytest
from handmade import at, only, traced
from learning import STEP, sites_of_only

from backprobe.records import SilentBroadcast, Site

SHAPES = (8, 1), (8,)


def seen(site: Site, step: int = 0) -> SilentBroadcast:
    return SilentBroadcast("sub", SHAPES, (8, 8), site, "head", step, at(32))


#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "silent-broadcast": (
        traced(STEP, seen=[seen(at(20), 3), seen(at(24)), seen(at(20))]),
        [("cause", 20), ("cause", 24), ("failed", 32)],
    )
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_the_shapes_are_named() -> None:
    found = only(FIRES["silent-broadcast"][0])
    assert found.title.startswith("sub broadcasts shapes (8, 1) and (8,) to (8, 8)")
    assert (found.step, found.module) == (3, "head")
    assert found.evidence == {"op": "sub", "shapes": [[8, 1], [8]], "result": [8, 8]}
