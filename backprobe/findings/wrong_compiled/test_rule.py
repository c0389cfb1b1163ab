"""The rule on hand-written records."""

from __future__ import annotations

import pytest
from handmade import at, traced
from learning import STEP, sites_of_only

from backprobe.records import (
    CompiledWrong,
)

MISCOMPILED = CompiledWrong("forward", "gelu", at(12), "act", "forward", 1e-2, 1e-7, True, "", 0, at(10))

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "wrong-compiled": (traced(STEP, seen=[MISCOMPILED], ask="compiled"), [("cause", 12), ("compiled", 10)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites
