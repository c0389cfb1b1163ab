"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, kinds, only, traced
from learning import STEP, sites_of_only

from backprobe.records import (
    Finding,
    SavedBytes,
    SavedMemory,
    SavedModule,
    SavedMoment,
    SavedUnknown,
)

BYTES = SavedBytes(at(11), "relu", "act", 2048, 2, ("result",), "float32")


def saved(*seen) -> Finding:
    return only(traced(STEP, seen=seen, ask="memory"))


#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "saved-memory": (traced(STEP, seen=[BYTES], ask="memory"), [("cause", 11)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_memory_held_anyway_is_separate() -> None:
    held = dataclasses.replace(BYTES, bytes=512, holder="parameter", op="linear")
    found = saved(BYTES, held)
    assert found.title == (
        "2 KiB are kept for backward, 2 KiB of them by relu; what else is saved is held anyway (512 B by parameters)"
    )
    assert found.evidence["held_anyway"] == {"parameter": 512}
    assert saved(held).title == "what is kept for backward is held anyway: 512 B by parameters"
    assert kinds(traced(STEP, seen=[dataclasses.replace(BYTES, bytes=0)], ask="memory")) == []


def test_tables_add_up_to_the_total() -> None:
    rows = [dataclasses.replace(BYTES, op=f"op{i}", site=at(i), bytes=100 + i) for i in range(40)]
    evidence = saved(*rows).evidence
    for table in ("by_op", "by_line", "by_module", "by_dtype"):
        assert sum(evidence[table].values()) == evidence["total_bytes"] == sum(r.bytes for r in rows)
    assert "(rest)" in evidence["by_op"]


def test_memory_that_checkpointing_would_save() -> None:
    start = SavedMoment("", None, 4000, -1)
    blocks = [SavedModule(f"blocks.{i}", "Block", 1, 1000, 100) for i in range(3)]
    whole = SavedModule("blocks", "Sequential", 1, 3200, 100)
    memory = SavedMemory(5, 0, 1, 10, 3, (), (start,), (), (SavedUnknown("tensors", 2, "packed"),), (whole, *blocks))
    found = saved(BYTES, memory)
    assert found.step == 5
    assert "Checkpointing each of the 3 Block (blocks.0, ...) would save about 2.64 KiB" in found.advice
    assert "2 saved tensors could not be measured" in found.advice
    (row,) = found.evidence["checkpoint"]
    assert (row["count"], row["saves_bytes"]) == (3, 2700)
