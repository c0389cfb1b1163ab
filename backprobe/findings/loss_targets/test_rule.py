"""The rules on hand-written records."""

from __future__ import annotations

import pytest
from handmade import at, only, traced
from learning import STEP, sites_of_only

from backprobe.records import AttachedAdvantage, CollapsedEmbeddings

FIRST_LINE = CollapsedEmbeddings("cosine_similarity", at(20), 64, 0.54, 2, 0.0002, 240)
SECOND_LINE = CollapsedEmbeddings("cosine_similarity", at(21), 64, 0.6, 2, 0.0003, 240)

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "embeddings-collapse": (traced(STEP, seen=[FIRST_LINE, SECOND_LINE, FIRST_LINE]), [("cause", 20), ("cause", 21)]),
    "advantage-not-detached": (
        traced(STEP, seen=[AttachedAdvantage((at(20), at(24)), at(18), at(26), at(32), 3)]),
        [("cause", 20), ("cause", 24), ("cause", 18), ("term", 26), ("failed", 32)],
    ),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_the_spread_is_told() -> None:
    found = only(FIRES["embeddings-collapse"][0])
    assert found.title == (
        "both sides of cosine_similarity collapse: the rows of a batch of 64 differ by 0.02% of their size in step 240 "
        "(by 54% in step 2), and gradient flows into both"
    )
    assert found.step == 2
    assert found.evidence == {"op": "cosine_similarity", "rows": 64, "first": 0.54, "last": 0.0002}


def test_an_advantage_made_where_it_is_used() -> None:
    found = only(traced(STEP, seen=[AttachedAdvantage((at(20),), at(20), at(26), at(32), 3)]))
    assert [(one.role, one.site.line) for one in found.sites] == [("cause", 20), ("term", 26), ("failed", 32)]
