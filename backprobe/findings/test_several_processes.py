"""Findings of other processes, among those of this one, on hand-written records."""

from __future__ import annotations

import dataclasses

from handmade import at, call, kinds, leaf, run, traced

from backprobe.records import (
    Finding,
    FindingSite,
    RankSeen,
    Retained,
    SavedBytes,
    SilentWrite,
)

STEP = call(run("SumBackward0", 1, op="sum"), leaf("weight"))


BYTES = SavedBytes(at(11), "relu", "act", 2048, 2, ("result",), "float32")


RETAINED = Retained("losses", "a list", at(70), "", 7)


WRITE = SilentWrite("mask", "mul_", at(20), "mul", at(11), at(90), "", "MulBackward0", 0)


MINE = Finding("none-grad", "warning", "nothing", "certain", sites=(FindingSite("cut", at(60)),))


def test_what_a_child_found_stands_among_ours() -> None:
    trace = traced(STEP, seen=[RETAINED, RankSeen(1, 101, findings=(MINE,)), WRITE])
    assert kinds(trace) == ["silent-mutation", "none-grad", "graph-retained"]
    assert [f.rank for f in trace.findings] == [None, 1, None]


def test_a_kind_that_only_the_child_knew_comes_last_of_its_severity() -> None:
    other = dataclasses.replace(MINE, kind="of-a-plugin")
    trace = traced(STEP, seen=[RankSeen(1, 101, findings=(other,)), RETAINED, BYTES], ask="memory")
    assert kinds(trace) == ["graph-retained", "of-a-plugin", "saved-memory"]
