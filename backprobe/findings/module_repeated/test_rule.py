"""The rule on hand-written records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import at, only, roles, traced
from learning import STEP, sites_of_only

from backprobe.records import RepeatedModule

NAMES = ("heads.0.weight", "heads.0.bias")
REPEATED = RepeatedModule("heads", "ModuleList", "Linear", "heads", ("Net", "Module"), 4, 4, NAMES, 66, 0, (at(7),))

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "module-repeated": (traced(STEP, seen=[REPEATED]), [("cause", 7)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_what_the_title_says() -> None:
    found = only(traced(STEP, seen=[REPEATED]))
    assert found.title == (
        "one Linear stands in all 4 places of heads: they share its 2 parameters (66 elements) and add up their "
        "gradients in them; 4 separate modules would have 264 elements"
    )
    assert (found.severity, found.confidence, found.module, found.parameters) == ("warning", "likely", "heads", NAMES)
    outermost = replace(REPEATED, container="", container_class="Sequential", places=8)
    found = only(traced(STEP, seen=[outermost]))
    assert found.title.startswith("one Linear stands in 4 of 8 places of the outermost Sequential: ")


def test_an_attribute_that_is_repeated_is_less_sure() -> None:
    assert only(traced(STEP, seen=[replace(REPEATED, registered=True)])).severity == "info"


def test_several_lines_and_several_containers() -> None:
    found = only(traced(STEP, seen=[replace(REPEATED, lines=(at(7), at(9)))]))
    assert roles(found) == [] and found.evidence["candidates"] == ["train.py:7", "train.py:9"]
    other = replace(REPEATED, container="tails", parameters=("tails.0.weight",))
    found = only(traced(STEP, seen=[REPEATED, other]))
    assert "of heads, tails:" in found.title and found.parameters == (*NAMES, "tails.0.weight")
