"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, call, leaf, only, raised, roles, run, traced
from learning import one_finding

from backprobe.records import (
    BackwardCall,
    Mutation,
)

NODES = (
    run("SumBackward0", 1, op="sum", line=13),
    run("LogBackward0", 2, op="log", line=12, module="head"),
    run("MulBackward0", 3, op="mul", line=11),
    leaf("weight"),
)


def wrong(text: str = "no backward here", index: int = 0, node: int = 2, **more) -> BackwardCall:
    return call(*NODES, index=index, raised=raised(text, node, at(30)), **more)


MUTATED = Mutation("hidden", (8,), 0, 1, "add_", at(20, "hidden += 1"), "", None)

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "inplace": (traced(wrong(mutation=MUTATED)), [("mutated", 20), ("saved", 11), ("failed", 90)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    one_finding(kind, *FIRES[kind])


def test_an_in_place_write_is_shown_as_in_the_source() -> None:
    assert only(traced(wrong(mutation=MUTATED))).title.startswith("'hidden += 1' (add_) changed hidden that mul")
    unseen = dataclasses.replace(MUTATED, op="", site=None)
    found = only(traced(wrong(mutation=unseen)))
    assert (found.confidence, found.sites[0].role) == ("likely", "saved")
    assert "did not see" in found.title
    advice = {
        op: only(traced(wrong(mutation=dataclasses.replace(MUTATED, op=op)))).advice
        for op in ("SGD.step", "embedding", "__setitem__", "relu_")
    }
    assert len(set(advice.values())) == 4
    kept = only(traced(wrong(mutation=dataclasses.replace(MUTATED, region=at(8)))))
    assert "that the checkpoint had saved" in kept.title
    assert ("saved", 8) in roles(kept)
