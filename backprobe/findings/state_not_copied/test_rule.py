"""The rule on hand-written records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import at, only, traced
from learning import STEP, sites_of_only

from backprobe.records import ReferenceNotCopied, StateNotCopied

KEPT_STATE = StateNotCopied("Net", 60, 2, 22, 38, False, False, (at(15),), True, at(16))
SHARED_STATE = StateNotCopied("Net", 60, 9, 0, 50, False, True, (at(8),), False, at(20))
OWN_STATE = StateNotCopied("Target", 25, 7, 25, 150, False, False, (at(20),), True, at(20), own=True)
COMPUTED_STATE = StateNotCopied("Net", 7, 40, 0, 8, False, False, (at(78),), True, at(81), computed=True)
REFERENCE = ReferenceNotCopied("sub", 12, 5, ("fc.weight", "fc.bias", "out.weight"), at(50), (at(44),))
#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "state-not-copied": (traced(STEP, seen=[KEPT_STATE]), [("cause", 15), ("loaded", 16)]),
    "reference-not-copied": (traced(STEP, seen=[REFERENCE]), [("cause", 44), ("cause", 50)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_an_observed_state_is_certain_and_a_copy_of_the_dict_is_not() -> None:
    found = only(traced(STEP, seen=[KEPT_STATE]))
    assert (found.confidence, found.step) == ("certain", 60) and "of step 22 changes nothing" in found.title
    assert found.evidence == {"loads": 2, "steps": 38, "taken_at": 22}
    found = only(traced(STEP, seen=[replace(KEPT_STATE, exact=False, taken=(at(15), at(30)))]))
    assert found.confidence == "likely" and "a state dict that was kept" in found.title
    assert found.evidence["candidates"] == ["train.py:15", "train.py:30"]


def test_a_state_that_was_loaded_over() -> None:
    found = only(traced(STEP, seen=[replace(KEPT_STATE, steps=0, loaded_over=True)]))
    assert "after another state had been loaded" in found.title


def test_a_model_that_has_the_memory_of_another_one() -> None:
    found = only(traced(STEP, seen=[SHARED_STATE]))
    assert [(one.role, one.site.line) for one in found.sites] == [("cause", 8), ("loaded", 20)]
    assert found.confidence == "likely" and "copy.deepcopy(model)" in found.advice and "taken_at" not in found.evidence
    assert only(traced(STEP, seen=[replace(SHARED_STATE, exact=True)])).confidence == "likely"


def test_a_module_that_is_loaded_with_its_own_state() -> None:
    found = only(traced(STEP, seen=[OWN_STATE]))
    assert [(one.role, one.site.line) for one in found.sites] == [("cause", 20)]
    assert found.confidence == "certain"
    assert found.title == (
        "Target is loaded with its own state, taken in the same line, 7 times: nothing changes, and what other models "
        "have learned in 150 steps does not get there"
    )


def test_a_state_that_is_computed_from_the_kept_one() -> None:
    found = only(traced(STEP, seen=[COMPUTED_STATE]))
    assert (found.confidence, [site.role for site in found.sites]) == ("likely", ["cause", "loaded"])
    assert "loaded 40 times with a state dict that was computed from a kept one" in found.title


def test_terms_whose_references_were_kept_at_one_line() -> None:
    found = only(traced(STEP, seen=[REFERENCE, replace(REFERENCE, parameters=("in.weight",), site=at(52))]))
    assert [one.site.line for one in found.sites] == [44, 50, 52] and found.step == 12
    assert found.title == (
        "the loss compares fc.weight, fc.bias and 2 more with tensors in the same memory: this term is 0 in all 5 "
        "observed steps, and has no effect"
    )


def test_a_reference_whose_line_is_not_known() -> None:
    found = only(traced(STEP, seen=[replace(REFERENCE, kept=(), parameters=("fc.weight",))]))
    assert [one.site.line for one in found.sites] == [50] and "candidates" not in found.evidence
    assert found.title.startswith("the loss compares fc.weight with a tensor in the same memory")
    found = only(traced(STEP, seen=[replace(REFERENCE, kept=(at(44), at(46)))]))
    assert found.evidence["candidates"] == ["train.py:44", "train.py:46"]
