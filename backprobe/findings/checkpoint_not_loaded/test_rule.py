"""The rule on hand-written records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import at, only, traced
from learning import STEP, sites_of_only

from backprobe.records import NothingLoaded

LOADED = NothingLoaded("Net", 7, 2, 4, ("module.a.weight", "module.a.bias"), ("a.weight",), "module.", True, 4, at(9))
#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {"checkpoint-not-loaded": (traced(STEP, seen=[LOADED]), [("cause", 9)])}


def test_one_run_one_finding() -> None:
    trace, sites = FIRES["checkpoint-not-loaded"]
    assert sites_of_only("checkpoint-not-loaded", trace) == sites
    found = only(trace)
    assert (found.confidence, found.step) == ("certain", 7)
    assert "none of its 4 tensors has a name that the model knows" in found.title
    assert found.title.endswith("(its names begin with 'module.', and without it 4 names would fit)")


@pytest.mark.parametrize(
    ("in_state", "prefix", "title", "advice"),
    [
        (False, "module.", "the model's begin with 'module.'", "put 'module.' before the names"),
        (True, "", "(module.a.weight, module.a.bias for a.weight)", "Compare both lists of names"),
    ],
)
def test_what_is_said_of_the_names(in_state: bool, prefix: str, title: str, advice: str) -> None:
    found = only(traced(STEP, seen=[replace(LOADED, prefix=prefix, in_state=in_state)]))
    assert title in found.title and advice in found.advice
