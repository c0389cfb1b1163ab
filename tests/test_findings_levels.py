"""Levels that announce a divergence: updates, activations, attention, weights, second moments."""

from __future__ import annotations

import pytest
from handmade import kinds, looked, only, traced
from learning import OPTIMIZER, STEP, one_finding

#: Kind -> a run that shows it; the sites of the finding.
FIRES = {
    "update-too-large": (
        looked({"update_ratio|a.weight": [0.3] * 8}, traced(STEP, seen=[OPTIMIZER], ask="levels")),
        [("optimizer", 6)],
    ),
    "divergence-ahead": (
        looked({"attention_logit|a": [2.0] * 8 + [45.0, 60.0, 80.0]}, traced(STEP, seen=[OPTIMIZER], ask="levels")),
        [("optimizer", 6)],
    ),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    one_finding(kind, *FIRES[kind])


def of(quantity: str, values: list[float], **more: list[float]) -> list[str]:
    return kinds(looked({f"{quantity}|a.weight": values, **more}, traced(STEP, seen=[OPTIMIZER], ask="levels")))


def test_an_alarm_says_where_since_when_and_by_how_much() -> None:
    curves = {
        "update_ratio|a.weight": [0.01] * 4 + [0.2] * 8,
        "update_ratio|b.weight": [0.01] * 5 + [0.9] * 7,
    }
    found = only(looked(curves, traced(STEP, seen=[OPTIMIZER], ask="levels")))
    assert (found.kind, found.parameters, found.module, found.step) == ("update-too-large", ("a.weight",), "a", 40)
    assert (found.evidence["since"], found.evidence["noticed"]) == (40, 80)
    assert found.title == "updates of a.weight are 20% of it in step 80, and more than 10% since step 40"


@pytest.mark.parametrize(
    ("quantity", "values"),
    [
        ("update_ratio", [0.3] + [0.01] * 10),  # the first step
        ("update_ratio", [0.01, 0.3, 0.3, 0.3, 0.3, 0.01] * 3),  # never five in a row
        ("attention_logit", [50.0] * 12),  # as it was from the start
        ("attention_logit", [2.0] * 8 + [30.0] * 4),  # grows, and is not large
        ("attention_logit", [2.0] * 8 + [80.0, 80.0, 2.0, 80.0]),
        ("activation_rms", [1.0] * 8 + [9.0] * 4),
        ("weight_rms", [0.01] * 8 + [0.2] * 4),
        ("headroom", [101.0] * 12),
        ("adam_ratio", [30.0] * 12),  # one parameter alone
    ],
)
def test_levels_that_are_no_alarm(quantity: str, values: list[float]) -> None:
    assert of(quantity, values) == []


@pytest.mark.parametrize(
    ("quantity", "values"),
    [
        ("activation_rms", [1.0] * 8 + [40.0] * 3),
        ("weight_rms", [0.1] * 8 + [0.7] * 3),
        ("headroom", [1e4] * 4 + [90.0, 80.0, 60.0]),
    ],
)
def test_levels_that_are_one(quantity: str, values: list[float]) -> None:
    assert of(quantity, values) == ["divergence-ahead"]


def test_gradients_that_are_far_beyond_their_second_moment() -> None:
    curve = [1.0] * 6 + [4.0] * 2
    assert of("adam_ratio", curve, **{"adam_ratio|b.weight": curve}) == ["divergence-ahead"]
    assert of("adam_ratio", curve, **{"adam_ratio|b.weight": [1.0] * 8}) == []
    assert of("adam_ratio", curve[:-1], **{"adam_ratio|b.weight": curve[:-1]}) == []
