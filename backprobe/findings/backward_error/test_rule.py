"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from failing import MUTATED, NODES, TWICE, failed
from handmade import at, call, kinds, leaf, only, raised, roles, run, traced
from learning import sites_of_only

from backprobe.basics.torch_texts import REENTRANT_NODE
from backprobe.records import (
    Derivative,
    Finding,
    RankSeen,
    RankWait,
    RegionDiffers,
    StaleRead,
)

REGION = RegionDiffers("extra", at(50), at(51), at(90), "block", "relu", "", "", "", 0, (0,))

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "backward-error": (traced(failed()), [("cause", 11), ("backward", 30), ("failed", 90)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_a_loss_that_is_no_scalar() -> None:
    found = only(traced(failed("grad can be implicitly created only for scalar outputs", node=0)))
    assert (found.kind, roles(found)[0]) == ("backward-error", ("cause", 13))
    assert found.title.startswith("the backward was started from sum, which gives more than one number")


def test_an_error_of_a_node_that_no_line_made() -> None:
    seen = call(run("torch::autograd::Error", 1), leaf("weight"), raised=raised("twice", 0))
    found = only(traced(seen))
    assert roles(found) == [("failed", 90)]
    assert "No line of the forward made this node" in found.advice


def test_an_error_in_a_derivative_of_a_derivative_is_about_the_forward() -> None:
    failing = dataclasses.replace(raised("not implemented", 2), of=Derivative("cdist", at(7), "lift"))
    found = only(traced(call(*NODES, raised=failing)))
    assert (found.kind, found.module, roles(found)) == (
        "backward-error",
        "lift",
        [("cause", 7), ("derived", 11), ("failed", 90)],
    )
    assert "which is the derivative of cdist" in found.title


def test_an_error_without_text() -> None:
    found = only(traced(failed("")))
    assert found.title == "MulBackward0 made by mul raised RuntimeError in the backward"


def test_reentrant_checkpoints_that_share_parameters() -> None:
    """Each calls backward for its region."""
    regions = [run(REENTRANT_NODE, number, op="Function.apply", line=12) for number in (3, 4)]
    found = only(traced(call(*NODES, *regions, raised=raised(TWICE, 2, at(30)))))
    assert roles(found) == [("failed", 90), ("checkpointed", 12)]
    assert found.title.startswith(
        "2 reentrant checkpoints of one forward, each with a backward call of its own, reach "
    )
    assert "use_reentrant=False" in found.advice


def test_an_explained_error_is_not_reported_again() -> None:
    explained = failed(mutation=MUTATED)
    assert kinds(traced(explained)) == ["inplace"]
    # In that call only.
    assert kinds(traced(explained, failed(index=1))) == ["inplace", "backward-error"]
    assert kinds(traced(failed(), seen=[REGION])) == ["checkpoint-mismatch"]
    assert kinds(traced(failed(index=1), seen=[REGION])) == ["backward-error", "checkpoint-mismatch"]
    stale = StaleRead("weight", "tensor", at(30), None, True, 0)
    assert kinds(traced(failed(), seen=[stale])) == ["hook-order"]
    elsewhere = dataclasses.replace(stale, stale=at(31))
    assert kinds(traced(failed(), seen=[elsewhere])) == ["backward-error", "hook-order"]


def test_the_error_of_a_collective_is_its_consequence() -> None:
    stuck = RankWait("all_reduce", at(60), 50.0, 4.0, "raised")
    child = Finding("backward-error", "error", "in a child", "certain")
    ranks = [RankSeen(0, 100, (stuck,)), RankSeen(1, 101, findings=(child,))]
    assert kinds(traced(failed(), seen=ranks)) == ["rank-desync"]
    calm = dataclasses.replace(ranks[0], waits=(dataclasses.replace(stuck, ended="returned"),))
    assert kinds(traced(failed(), seen=[calm, ranks[1]])) == ["backward-error", "backward-error"]


def test_the_same_finding_in_several_calls_is_reported_once() -> None:
    assert kinds(traced(*(failed(index=i) for i in range(3)))) == ["backward-error"]
