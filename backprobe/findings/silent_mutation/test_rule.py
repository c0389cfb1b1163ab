"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, only, traced
from learning import STEP, sites_of_only

from backprobe.records import (
    SilentWrite,
)

WRITE = SilentWrite("mask", "mul_", at(20), "mul", at(11), at(90), "", "MulBackward0", 0)

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "silent-mutation": (traced(STEP, seen=[WRITE]), [("mutated", 20), ("saved", 11), ("failed", 90)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_memory_that_was_written_from_outside() -> None:
    found = only(traced(STEP, seen=[dataclasses.replace(WRITE, op="", site=None)]))
    assert (found.confidence, found.sites[0].role) == ("likely", "saved")
    assert "a NumPy array shares it" in found.title


def test_statistics_that_a_normalisation_changes() -> None:
    seen = dataclasses.replace(WRITE, tensor="norm.running_mean", op="batch_norm", saver="batch_norm")
    found = only(traced(STEP, seen=(seen,)))
    assert found.title.startswith("batch_norm in train mode changed norm.running_mean, which batch_norm in eval mode")
    assert "train mode again" in found.advice and "through .data" not in found.title
