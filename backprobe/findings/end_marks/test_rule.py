"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

from handmade import at, call, kinds, leaf, only, roles, run, traced
from learning import reached, sites_of_only

from backprobe import Trace
from backprobe.records import EndNeverLearned

CALL = call(run("NllLossBackward0", 1, line=20, module="lm"), run("AddmmBackward0", 2, line=19), leaf("head.weight"))
NEVER_LEARNED = EndNeverLearned(2, -100, at(7), (), at(30), True, 64, 4, 0)


def of(seen: EndNeverLearned = NEVER_LEARNED, calls: tuple = (CALL,)) -> Trace:
    return traced(*calls, parameters=reached("head.weight"), seen=[seen])


#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {"end-never-learned": (of(), [("cause", 7), ("compared", 20), ("stops", 30), ("failed", 90)])}


def test_one_run_one_finding() -> None:
    trace, sites = FIRES["end-never-learned"]
    assert sites_of_only("end-never-learned", trace) == sites
    found = only(trace)
    assert (found.module, found.node, found.step, found.confidence) == ("lm", "NllLossBackward0", 0, "certain")
    assert found.title == (
        "token 2 ends all 64 rows that were compared and pads the shorter ones, and the loss ignores it everywhere: "
        "the model never learns to stop"
    )
    assert found.evidence == {"token": 2, "ignored": -100, "rows": 64, "calls": 4, "mask": True}


def test_only_a_mask_and_the_line_make_it_certain() -> None:
    assert only(of(dataclasses.replace(NEVER_LEARNED, masked=False))).confidence == "likely"
    found = only(of(dataclasses.replace(NEVER_LEARNED, blanked=None, candidates=(at(3), at(5)))))
    assert found.confidence == "likely" and found.evidence["candidates"] == ["train.py:3", "train.py:5"]
    assert roles(found)[:3] == [("cause", 3), ("cause", 5), ("compared", 20)]


def test_without_a_line_it_is_that_of_the_loss() -> None:
    assert roles(only(of(dataclasses.replace(NEVER_LEARNED, blanked=None, stop=None)))) == [
        ("cause", 20),
        ("failed", 90),
    ]
    # The line of the loss gives ``ignore_index``.
    found = only(of(dataclasses.replace(NEVER_LEARNED, ignored=2, blanked=None, candidates=(at(20),), stop=None)))
    assert roles(found) == [("cause", 20), ("failed", 90)]


def test_a_loss_that_was_not_recorded_has_no_line() -> None:
    other = call(run("MeanBackward0", 1, line=20), leaf("head.weight"))
    assert roles(only(of(calls=(other,)))) == [("cause", 7), ("stops", 30)]
    assert kinds(traced(CALL, parameters=reached("head.weight"))) == []
