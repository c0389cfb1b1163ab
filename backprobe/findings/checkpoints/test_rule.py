"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, kinds, only, roles, traced
from learning import STEP, sites_of_only

from backprobe.records import (
    Recomputed,
    RegionDiffers,
    RegionGradient,
)

REGION = RegionDiffers("values", at(50), at(51), at(90), "block.norm", "relu", "1", "2", "", 0, (0,))


RECOMPUTED_BUFFER = Recomputed(("block.norm",), ("block.norm.running_mean",), at(50))


GRADIENT = RegionGradient(at(50), "block", ("block.weight", "input 0"), 0.25, False)

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "checkpoint-mismatch": (traced(STEP, seen=[REGION]), [("cause", 51), ("region", 50), ("failed", 90)]),
    "checkpoint-gradient-differs": (traced(STEP, seen=[GRADIENT], ask="checkpoints"), [("region", 50)]),
    "checkpoint-side-effect": (traced(STEP, seen=[RECOMPUTED_BUFFER]), [("region", 50)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("extra", "relu ran in the recomputation of a checkpoint, and had not run in the forward"),
        ("missing", "relu ran in the forward of a checkpointed region, and not when it was recomputed"),
        ("other", "ran 2 where the forward had run 1"),
        ("unknown", "kept other tensors than the forward"),
        ("arguments", "relu was called with 2 in the recomputation"),
        ("written", "the gradients are those of other weights"),
        ("frozen", "a parameter that relu uses 2 in the recomputation"),
        ("shape", "relu gave a tensor of shape 2"),
        ("dtype", "relu gave a tensor of dtype 2"),
        ("grad", "relu gave a tensor that 2"),
        ("values", "relu gave values of 2"),
    ],
)
def test_how_a_region_differs(how: str, words: str) -> None:
    found = only(traced(STEP, seen=[dataclasses.replace(REGION, how=how, changed=at(55))]))
    assert words in found.title
    assert (found.severity, found.confidence) == ("warning", "likely")
    changed = [("cause", 51), ("changed", 55)] if how == "arguments" else [("cause", 55), ("cause", 51)]
    assert roles(found)[:2] == changed


def test_a_region_that_raised_is_an_error() -> None:
    found = only(traced(STEP, seen=[dataclasses.replace(REGION, raised="CheckpointError: x\nTip: y")]))
    assert (found.severity, found.confidence) == ("error", "certain")
    assert found.evidence["error"] == "CheckpointError: x"


def test_state_that_changes_twice_is_the_finding_not_its_values() -> None:
    assert kinds(traced(STEP, seen=[REGION, RECOMPUTED_BUFFER])) == ["checkpoint-side-effect"]
    shape = dataclasses.replace(REGION, how="shape")
    assert kinds(traced(STEP, seen=[shape, RECOMPUTED_BUFFER])) == ["checkpoint-mismatch", "checkpoint-side-effect"]
    elsewhere = dataclasses.replace(REGION, module="head")
    assert kinds(traced(STEP, seen=[elsewhere, RECOMPUTED_BUFFER])) == ["checkpoint-mismatch"]
    momentum = only(traced(STEP, seen=[RECOMPUTED_BUFFER])).advice
    assert "halve its momentum" in momentum
    assert only(traced(STEP, seen=[dataclasses.replace(RECOMPUTED_BUFFER, buffers=("count",))])).advice != momentum


def test_what_a_checkpoint_does_to_gradients_when_it_is_asked() -> None:
    asked = traced(STEP, seen=[REGION, GRADIENT], ask="checkpoints")
    assert kinds(asked) == ["checkpoint-gradient-differs"]
    assert only(asked).title.startswith("the gradients are not those of the forward: relu gave values")
    assert only(asked).sites[0].role == "region"
    raising = dataclasses.replace(REGION, raised="CheckpointError")
    assert kinds(traced(STEP, seen=[raising, GRADIENT], ask="checkpoints")) == ["checkpoint-mismatch"]
    missing = only(traced(STEP, seen=[dataclasses.replace(GRADIENT, missing=True)], ask="checkpoints"))
    assert "of block.weight, input 0 by up to 25 % (one of them is missing)" in missing.title
    assert missing.parameters == ("block.weight",)


def test_a_random_number_before_what_differs() -> None:
    seen = dataclasses.replace(REGION, drawn=at(49), raised="another shape")
    found = only(traced(STEP, seen=(seen,)))
    assert roles(found)[:2] == [("cause", 49), ("cause", 51)] and found.confidence == "likely"
    assert "a random number is drawn before it" in found.title and "torch's own generator" in found.advice
