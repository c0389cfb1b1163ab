"""The rule on hand-written records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import at, only, traced
from learning import STEP, sites_of_only

from backprobe.records import NewOptimizers

NEW_OPTIMIZERS = NewOptimizers("Adam", 100, False, 1, 1, 4, at(15), False, at(19))

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "optimizer-made-anew": (traced(STEP, seen=[NEW_OPTIMIZERS]), [("optimizer", 15), ("stepped", 19)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_the_title_has_numbers_of_optimizers_and_steps() -> None:
    finding = only(traced(STEP, seen=[NEW_OPTIMIZERS]))
    assert finding.title == (
        "Adam is made anew 100 times over the same 4 parameters and does only 1 step each time: its running averages "
        "of gradients start at zero each time"
    )
    assert (finding.severity, finding.confidence) == ("warning", "certain")
    some = replace(NEW_OPTIMIZERS, optimizer="SGD", is_least=True, fewest=2, most=3)
    assert only(traced(STEP, seen=[some])).title == (
        "SGD is made anew at least 100 times over the same 4 parameters and does only 2 to 3 steps each time: its "
        "momentum starts at zero each time"
    )


def test_more_steps_are_no_warning_and_an_inferred_line_is_likely() -> None:
    assert only(traced(STEP, seen=[replace(NEW_OPTIMIZERS, most=10)])).severity == "info"
    assert only(traced(STEP, seen=[replace(NEW_OPTIMIZERS, inferred=True)])).confidence == "likely"


@pytest.mark.parametrize(("most", "severity"), [(3, "warning"), (4, "info")])
def test_how_many_steps_are_a_warning(most: int, severity: str) -> None:
    assert only(traced(STEP, seen=[replace(NEW_OPTIMIZERS, most=most)])).severity == severity
