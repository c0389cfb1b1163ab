"""The rule on hand-written records."""

from __future__ import annotations

from handmade import call, kinds, leaf, only, roles, run, traced
from learning import reached, sites_of_only

from backprobe import Trace
from backprobe.records import BackwardCall, BlankTargets

CALL = call(run("CtcLossBackward0", 1, line=20), run("LogSoftmaxBackward0", 2, line=19), leaf("head.weight"))


def of(*calls: BackwardCall) -> Trace:
    seen = BlankTargets(0, 40, 1200, 3, 0)
    return traced(*calls, parameters=reached("head.weight"), seen=[seen])


#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {"blank-in-targets": (of(CALL), [("cause", 20), ("failed", 90)])}


def test_one_run_one_finding() -> None:
    trace, sites = FIRES["blank-in-targets"]
    assert sites_of_only("blank-in-targets", trace) == sites
    assert only(trace).title.startswith("40 of 1,200 targets of ctc_loss are 0, its blank: ")


def test_a_loss_that_was_not_recorded_has_no_line() -> None:
    other = call(run("MeanBackward0", 1, line=20), leaf("head.weight"))
    assert roles(only(of(other))) == []
    assert kinds(traced(CALL, parameters=reached("head.weight"))) == []
