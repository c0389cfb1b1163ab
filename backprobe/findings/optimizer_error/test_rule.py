"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, only, roles, traced
from learning import STEP, sites_of_only

from backprobe.findings.optimizer_error.rule import _TEXTS
from backprobe.records import RefusedUpdate, ScheduleSeen

OVER = RefusedUpdate(
    *("over", "Tried to step 51 times.", "OneCycleLR", "SGD", 50, 51, 50, ("a.weight",), "to"),
    *(at(12), at(9), at(5)),
)
SCHEDULE = ScheduleSeen(
    *("OneCycleLR", "SGD", 51, 51, 0.1, 0.1, 0.1, None, 0, None, True, False),
    *(at(6), at(12), at(5)),
)

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "optimizer-error": (
        traced(STEP, seen=[OVER, SCHEDULE]),
        [("cause", 12), ("made", 9), ("schedule", 6), ("optimizer", 5)],
    ),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


@pytest.mark.parametrize("reason", _TEXTS)
def test_each_reason_has_a_title_and_an_advice(reason: str) -> None:
    found = only(traced(STEP, seen=[dataclasses.replace(OVER, reason=reason)]))
    confidence = "likely" if reason == "resized" else "certain"
    assert (found.severity, found.confidence, found.step) == ("error", confidence, 50)
    assert found.advice == _TEXTS[reason][1] and found.evidence["reason"] == reason
    assert any(word in found.title for word in ("OneCycleLR", "SGD"))


def test_a_reason_without_a_text_of_ours_gives_torchs() -> None:
    found = only(traced(STEP, seen=[dataclasses.replace(OVER, reason="", text="Invalid\nlearning rate: -1")]))
    assert found.title == "OneCycleLR refused a call: Invalid learning rate: -1"


def test_lines_that_are_not_known_are_left_out() -> None:
    other = dataclasses.replace(SCHEDULE, made=at(7))
    bare = dataclasses.replace(OVER, source=None, made=OVER.site)
    assert roles(only(traced(STEP, seen=[bare, SCHEDULE, other]))) == [("cause", 12)]


@pytest.mark.parametrize(
    ("change", "title"),
    [
        ({"reason": "over"}, "OneCycleLR is made for 50 steps, and this is call number 51 of its step()"),
        ({"reason": "groups", "owner": "Adam", "given": 2, "wanted": 4}, "Adam holds 4 parameters, and the loaded"),
        ({"reason": "groups", "owner": "Adam", "given": 4, "wanted": 4}, "the loaded state has other groups of"),
        ({"reason": "sparse", "owner": "Adam"}, "Adam cannot use sparse gradients, and that of a.weight is sparse"),
        ({"reason": "no-leaf", "owner": "Adam"}, "Adam is given the result of to, which is no leaf"),
    ],
)
def test_titles(change: dict, title: str) -> None:
    assert only(traced(STEP, seen=[dataclasses.replace(OVER, **change)])).title.startswith(title)


def test_a_line_that_resizes_is_inferred() -> None:
    found = only(traced(STEP, seen=[dataclasses.replace(OVER, reason="resized")]))
    assert roles(found)[1] == ("replaced", 9) and found.evidence["inferred"] == ["replaced"]
    bare = only(traced(STEP, seen=[dataclasses.replace(OVER, reason="resized", source=None)]))
    assert bare.confidence == "certain" and "inferred" not in bare.evidence
