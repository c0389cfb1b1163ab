"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, only, traced
from learning import STEP, sites_of_only

from backprobe.records import CollapsedPosterior, GrownFactor, Site

COLLAPSED_POSTERIOR = CollapsedPosterior(90, 130, 2e-5, 8, "mse_loss", 64, 64.0, at(21), at(20), at(90))

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "posterior-collapsed": (traced(STEP, seen=[COLLAPSED_POSTERIOR]), [("cause", 20), ("term", 21), ("failed", 90)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites
    found = only(trace)
    assert found.title == (
        "the codes carry nothing: at the end of the run the posterior of each sample is the prior; beside mse_loss the "
        "divergence counts 64 times as much as in the evidence lower bound"
    )
    assert "divided by the 64 elements of a sample" in found.advice and "by 0.016" in found.advice


def test_a_weight_that_the_script_chose() -> None:
    found = only(traced(STEP, seen=[dataclasses.replace(COLLAPSED_POSTERIOR, ratio=200.0)]))
    assert found.advice.startswith("Multiply the divergence by 0.005") and found.severity == "warning"


GROWN = dataclasses.replace(
    COLLAPSED_POSTERIOR, ratio=3.9, grown=GrownFactor(240, 1.41, 1.0, 3.96, True, at(30), at(10))
)


def test_a_factor_that_grew_until_the_codes_were_lost() -> None:
    found = only(traced(STEP, seen=[GROWN]))
    assert [(site.role, site.site.line) for site in found.sites] == [
        ("cause", 10),
        ("multiplied", 30),
        ("term", 21),
        ("failed", 90),
    ]
    assert (found.severity, found.confidence) == ("warning", "likely")
    assert found.title == (
        "the factor of the divergence keeps growing, from 1 to 3.96: at step 240 the codes still carried 1.4 nats, and "
        "now the posterior of each sample is the prior"
    )
    assert found.advice.startswith("Let the warm-up end: min(1.0, ...)")
    assert found.evidence["factor"] == [1.0, 3.96]


@pytest.mark.parametrize(("multiplied", "cause"), [(at(30), 30), (None, 21)])
def test_a_factor_whose_line_is_not_known(multiplied: Site | None, cause: int) -> None:
    assert GROWN.grown is not None
    grown = dataclasses.replace(GROWN.grown, is_growing=False, computed=None, multiplied=multiplied)
    found = only(traced(STEP, seen=[dataclasses.replace(GROWN, grown=grown)]))
    assert (found.sites[0].role, found.sites[0].site.line) == ("cause", cause)
    assert found.title.startswith("the factor of the divergence grew too far, from 1 to 3.96")


@pytest.mark.parametrize("ratio", [None, 1.0, 5.9])
def test_a_collapse_that_the_weights_do_not_explain_is_an_info(ratio: float | None) -> None:
    found = only(traced(STEP, seen=[dataclasses.replace(COLLAPSED_POSTERIOR, ratio=ratio)]))
    assert (found.severity, found.confidence, found.sites[0].role) == ("info", "possible", "compared")
    assert found.title.endswith("is the prior") and "decoder" in found.advice


@pytest.mark.parametrize(
    ("ratio", "severity", "explained"),
    [(5.9, "info", False), (6.1, "warning", False), (31.0, "warning", False), (33.0, "warning", True)],
)
def test_how_much_the_divergence_has_to_count(ratio: float, severity: str, explained: bool) -> None:
    """A sample has 64 elements: a mean over them makes the divergence count 64 times as much."""
    found = only(traced(STEP, seen=[dataclasses.replace(COLLAPSED_POSTERIOR, ratio=ratio)]))
    assert (found.severity, "divided by the 64 elements" in found.advice) == (severity, explained)
