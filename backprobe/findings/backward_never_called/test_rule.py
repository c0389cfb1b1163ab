"""The rule on hand-written records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import at, kinds, only, traced
from learning import DEAD, STEP, flat, sites_of_only

from backprobe.records import ModuleBackward

REVERSE = ModuleBackward(("reverse",), "Reverse", 0, 300, at(18), at(40), (14, 16), True)

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "backward-never-called": (traced(STEP, seen=[REVERSE]), [("cause", 18), ("called", 40)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_what_the_title_says() -> None:
    found = only(traced(STEP, seen=[REVERSE]))
    assert found.title == (
        "Reverse.backward (reverse) was not called in 300 steps: Reverse is an nn.Module, and autograd calls the "
        "backward of a torch.autograd.Function only"
    )
    assert (found.severity, found.confidence, found.module) == ("warning", "certain", "reverse")
    several = only(traced(STEP, seen=[replace(REVERSE, modules=("a", "b"))]))
    assert several.module is None and "(a, b)" in several.title
    unnamed = only(traced(STEP, seen=[replace(REVERSE, modules=("",), called=None)]))
    assert unnamed.title.startswith("Reverse.backward was not") and len(unnamed.sites) == 1


def test_lines_that_may_call_it_make_it_likely() -> None:
    found = only(traced(STEP, seen=[replace(REVERSE, is_certain=False, possible=(at(70),))]))
    assert found.confidence == "likely" and found.evidence["other_calls"] == ["train.py:70"]


def test_zeros_of_the_forward_are_its_consequence() -> None:
    rounds = replace(REVERSE, class_name="Round", forward=(10, 12))
    assert kinds(traced(flat(), flat(index=1), flat(index=2), parameters=DEAD)) == ["zero-grad"]
    with_method = traced(flat(), flat(index=1), flat(index=2), parameters=DEAD, seen=[rounds])
    assert kinds(with_method) == ["backward-never-called"]
    elsewhere = replace(rounds, forward=(20, 24))
    other = traced(flat(), flat(index=1), flat(index=2), parameters=DEAD, seen=[elsewhere])
    assert sorted(kinds(other)) == ["backward-never-called", "zero-grad"]
