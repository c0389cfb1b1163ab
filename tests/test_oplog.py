"""The log of ops: which op made a node, which nodes are older than the log, and what it dropped."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from hypothesis import given
from hypothesis import strategies as st

import backprobe
from backprobe.observe.forward.node_places import makers
from backprobe.observe.forward.oplog import Entry, OpLog


def entry(number: int) -> Entry:
    return (None, number, None, None)


def by_hand(log: OpLog, known: dict[int, Entry], low: int, high: int) -> list[Entry]:
    """The entries of the nodes `low` to `high` that are known, each once."""
    found = [known[seq] for seq in range(low, high + 1) if seq in known]
    return list(dict.fromkeys(found))


@given(
    first=st.integers(0, 5),
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=40),
    trims=st.sets(st.integers(0, 40)),
    low=st.integers(0, 60),
    more=st.integers(0, 20),
)
def test_what_is_left_is_known_and_nothing_else(
    first: int, sizes: list[int], trims: set[int], low: int, more: int
) -> None:
    log = OpLog(limit=6)
    log.first = at = first
    known: dict[int, Entry] = {}
    for number, size in enumerate(sizes):
        known.update(dict.fromkeys(range(at, at + size), entry(number)))
        at += size
        log.ends.append(at)
        log.entries.append(entry(number))
        if number in trims:
            log.trim()
            known = {seq: made for seq, made in known.items() if made in log.entries}
    assert log.slice(low, low + more)[1] == by_hand(log, known, low, low + more)
    seqs = list(range(low, low + more + 1))
    ends, entries = log.slice(seqs[0], seqs[-1])
    assert {seqs[i]: made for i, made in makers(seqs, ends, entries, log.first)} == {
        seq: known[seq] for seq in seqs if seq in known
    }


def nodes(trace: backprobe.Trace) -> Iterator[tuple[str, int | None]]:
    for call in trace.backwards:
        for run in call.nodes:
            yield run.name, run.site.line if run.site else None


def test_nodes_made_before_the_trace_have_no_line() -> None:
    weight = torch.randn(3, requires_grad=True)
    before = weight.exp().sum()
    with backprobe.trace() as trace:
        after = weight.sin()
        (before + after.sum()).backward()
    found = dict(nodes(trace))
    assert found["ExpBackward0"] is None
    assert found["AddBackward0"] == found["SinBackward0"] + 1
