"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, only, roles, traced
from learning import STEP, sites_of_only

from backprobe.records import (
    Divergence,
)

DIVERGED = Divergence("act", "LeakyReLU", 0.5, ("negative_slope: 0.1 and 0.2",), ("a",), at(8))

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "first-divergence": (traced(STEP, seen=[DIVERGED], ask="divergence"), [("cause", 8)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_a_divergence_names_the_differing_settings() -> None:
    found = only(traced(STEP, seen=[DIVERGED], ask="divergence"))
    assert "two models of one structure first differ at act, a LeakyReLU (negative_slope: 0.1 and 0.2)" in found.title
    bare = only(traced(STEP, seen=[dataclasses.replace(DIVERGED, site=None, attributes=())], ask="divergence"))
    assert bare.sites == ()


def test_divergence_from_float64() -> None:
    lost = Divergence("norm", "", 3.0, site=at(8), against="float64", what="what it adds up cancels", op="sub.Tensor")
    found = only(traced(STEP, seen=(lost,), ask="divergence"))
    assert found.title == "departs from float64 at sub.Tensor in norm: what it adds up cancels, off by 3"
    assert roles(found) == [("cause", 8)] and "log1p" in found.advice and found.evidence["against"] == "float64"
    wrong = dataclasses.replace(lost, op="FBackward", node="FBackward", phase="backward", other=at(9))
    found = only(traced(STEP, seen=(wrong,), ask="divergence"))
    assert roles(found) == [("cause", 8), ("op", 9)] and "--check functions" in found.advice
    assert (found.node, found.evidence["direction"]) == ("FBackward", "backward")
