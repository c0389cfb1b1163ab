"""The rule on hand-written records."""

from __future__ import annotations

import pytest
from handmade import at, call, leaf, run, traced
from learning import one_finding

from backprobe.records import (
    CompiledWrong,
)

STEP = call(run("SumBackward0", 1, op="sum"), leaf("weight"))


MISCOMPILED = CompiledWrong("forward", "gelu", at(12), "act", "forward", 1e-2, 1e-7, True, "", 0, at(10))

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "wrong-compiled": (traced(STEP, seen=[MISCOMPILED], ask="compiled"), [("cause", 12), ("compiled", 10)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    one_finding(kind, *FIRES[kind])
