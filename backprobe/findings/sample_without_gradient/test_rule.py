"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, kinds, only, traced
from learning import STEP, sites_of_only

from backprobe.records import CollapsedPosterior, SampleWithoutGradient

SAMPLE = SampleWithoutGradient("sample", "Normal", at(12), at(30), ("mean.bias", "mean.weight"), 0)
COLLAPSED = CollapsedPosterior(90, 130, 2e-5, 8, "mse_loss", 64, 1.0, at(21), at(20), at(30))

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {"sample-without-gradient": (traced(STEP, seen=[SAMPLE]), [("cut", 12), ("failed", 30)])}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


@pytest.mark.parametrize(
    ("change", "title"),
    [
        (
            {},
            "Normal.sample() draws without a graph: the loss uses the sample, and trains mean.bias and mean.weight by "
            "a divergence or an entropy only",
        ),
        (
            {"how": "torch.normal", "distribution": "", "parameters": ()},
            "torch.normal has no derivative: the loss uses the sample, and trains its distribution by a divergence or "
            "an entropy only",
        ),
        (
            {"parameters": ("a", "b", "c", "d")},
            "Normal.sample() draws without a graph: the loss uses the sample, and trains parameters such as a, b and c "
            "by a divergence or an entropy only",
        ),
    ],
)
def test_titles(change: dict, title: str) -> None:
    found = only(traced(STEP, seen=[dataclasses.replace(SAMPLE, **change)]))
    assert found.title == title and found.evidence["op"] in found.advice.replace("rsample", "sample")


def test_it_explains_a_collapsed_posterior() -> None:
    assert kinds(traced(STEP, seen=[SAMPLE, COLLAPSED])) == ["sample-without-gradient"]
