"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from failing import MUTATED, failed
from handmade import at, only, roles, traced
from learning import sites_of_only

from backprobe.records import Reuse

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "inplace": (traced(failed(mutation=MUTATED)), [("mutated", 20), ("saved", 11), ("failed", 90)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_a_graph_of_an_earlier_iteration() -> None:
    step = dataclasses.replace(MUTATED, op="SGD.step", site=at(20), tensor="cell.weight")
    earlier = Reuse(0, at(91), 0, 1, 2, carried=at(14), assigned=at(22))
    found = only(traced(failed(mutation=dataclasses.replace(step, carried=earlier))))
    assert roles(found)[:3] == [("carried", 22), ("reused", 12), ("reused", 14)]
    assert (found.confidence, "read from the source" in found.evidence["carried_line"]) == ("likely", True)
    assert found.title.startswith("log took a result of mul with its graph from an earlier iteration")
    assert "SGD.step has changed cell.weight since" in found.title and "state.detach()" in found.advice
    written = dataclasses.replace(MUTATED, carried=earlier)  # the write itself is the mistake
    assert only(traced(failed(mutation=written))) == only(traced(failed(mutation=MUTATED)))


def test_an_in_place_write_is_shown_as_in_the_source() -> None:
    assert only(traced(failed(mutation=MUTATED))).title.startswith("'hidden += 1' (add_) changed hidden that mul")
    unseen = dataclasses.replace(MUTATED, op="", site=None)
    found = only(traced(failed(mutation=unseen)))
    assert (found.confidence, found.sites[0].role) == ("likely", "saved")
    assert "did not see" in found.title
    advice = {
        op: only(traced(failed(mutation=dataclasses.replace(MUTATED, op=op)))).advice
        for op in ("SGD.step", "embedding", "__setitem__", "relu_")
    }
    assert len(set(advice.values())) == 4
    kept = only(traced(failed(mutation=dataclasses.replace(MUTATED, region=at(8)))))
    assert "that the checkpoint had saved" in kept.title
    assert ("saved", 8) in roles(kept)
