"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from failing import NODES, REUSED, failed
from handmade import at, call, only, roles, traced
from learning import sites_of_only

from backprobe.records import InferredLine

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "second-backward": (traced(failed(reuse=REUSED)), [("reused", 12), ("freed", 91), ("failed", 90)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_a_graph_that_two_losses_share_is_named_where_it_was_made() -> None:
    found = only(traced(failed(reuse=dataclasses.replace(REUSED, node=None, shared=True))))
    assert roles(found) == [("reused", 11), ("freed", 91), ("failed", 90)]
    assert found.title.startswith("two losses share mul")
    again = only(traced(failed(reuse=dataclasses.replace(REUSED, node=None))))
    assert roles(again)[0] == ("reused", 90)


def test_a_graph_that_was_run_already() -> None:
    again = only(traced(failed(reuse=dataclasses.replace(REUSED, node=None))))
    assert "this graph was run and freed already, by the backward of the same step" in again.title
    assert again.sites[0].site == at(90)
    earlier = only(traced(call(*NODES, index=0), failed(index=1, reuse=REUSED)))
    assert "log took a tensor of step 0 (made by mul)" in earlier.title


def test_the_line_that_handed_an_old_tensor_to_a_function() -> None:
    there = dataclasses.replace(at(44), function="train")
    handed = dataclasses.replace(REUSED, carried=there)
    one, other = (only(traced(failed(reuse=reuse))) for reuse in (REUSED, handed))
    assert [role for role, _ in roles(one)].count("reused") == 1
    assert roles(other)[:2] == [roles(one)[0], ("reused", 44)]


def test_a_line_of_a_forward_that_was_not_recorded_is_likely() -> None:
    seen, unseen = (only(traced(failed(reuse=dataclasses.replace(REUSED, inferred=one)))) for one in (False, True))
    assert (seen.confidence, unseen.confidence) == ("certain", "likely")
    assert "inferred" not in seen.evidence
    assert unseen.evidence["inferred"].startswith("the forward of this step was not recorded")


def test_the_lines_that_an_inferred_one_could_be_are_listed() -> None:
    assert REUSED.node is not None
    call_of = failed(reuse=dataclasses.replace(REUSED, inferred=True))
    lines = (
        InferredLine(call_of.index, REUSED.node, (at(12), at(50))),
        InferredLine(call_of.index, REUSED.old, (at(7),)),
    )
    assert only(traced(call_of, seen=lines)).evidence["candidates"] == ["train.py:12", "train.py:50"]
