"""The rule on hand-written records."""

from __future__ import annotations

import pytest
from handmade import at, call, kinds, leaf, only, roles, run, traced
from learning import reached, sites_of_only

from backprobe import Trace
from backprobe.records import MisalignedTargets

CALL = call(run("NllLossBackward0", 1, line=20, module="lm"), run("AddmmBackward0", 2, line=19), leaf("head.weight"))


def of(offset: int, *lines: int, calls: tuple = (CALL,)) -> Trace:
    seen = MisalignedTargets(offset, 1.0, 1200, 5, 0, tuple(map(at, lines)))
    return traced(*calls, parameters=reached("head.weight"), seen=[seen])


#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {"targets-misaligned": (of(2, 7), [("shifted", 7), ("cause", 20), ("failed", 90)])}


def test_one_run_one_finding() -> None:
    trace, sites = FIRES["targets-misaligned"]
    assert sites_of_only("targets-misaligned", trace) == sites
    found = only(trace)
    assert (found.module, found.node, found.step, found.confidence) == ("lm", "NllLossBackward0", 0, "certain")
    assert found.title == (
        "the target of each position is the token after the next one, for 100% of the 1,200 targets that were "
        "compared: they were shifted twice"
    )


@pytest.mark.parametrize(
    ("offset", "why"), [(0, "they were not shifted"), (-1, "shifted the wrong way"), (3, "they were shifted too far")]
)
def test_the_reason_by_offset(offset: int, why: str) -> None:
    found = only(of(offset, 7))
    assert found.title.endswith(why)
    assert ("shifted", 7) in roles(found) or offset == 0


def test_a_loss_that_was_not_recorded_has_no_line() -> None:
    other = call(run("MeanBackward0", 1, line=20), leaf("head.weight"))
    assert roles(only(of(2, 7, calls=(other,)))) == [("shifted", 7)]
    assert kinds(traced(CALL, parameters=reached("head.weight"))) == []
