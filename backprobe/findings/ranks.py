"""Several processes: what was found in each, and a rank that waits for one that does not come."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ..records import Finding, FindingSite, RankSeen, RankWait, Site
from ..torch_texts import COLLECTIVE, UNREDUCED
from .first_bad import first_bad
from .questions import WRONG, Kind, question

if TYPE_CHECKING:
    from ..traced import Trace


def of_children(trace: Trace) -> list[Finding]:
    """What was found in other processes; the same in several is said once."""
    found: dict[object, list[Finding]] = {}
    every = [dataclasses.replace(f, rank=seen.rank) for seen in trace.facts.of(RankSeen) for f in seen.findings]
    for one in first_bad(every):
        sites = tuple((s.role, s.site) for s in one.sites)
        found.setdefault((one.kind, one.module, sites), []).append(one)
    merged = []
    for same in found.values():
        ranks = sorted({f.rank for f in same if f.rank is not None})
        first = min(same, key=lambda f: (f.step is None, f.step or 0))
        if len(ranks) > 1:
            first = dataclasses.replace(first, rank=None, evidence={**first.evidence, "ranks": ranks})
        merged.append(first)
    return merged


@question(
    Kind("rank-desync", "error", "a process of a distributed run waits for one that does not come", rank=WRONG + 50),
    spoils=True,
    silences=("backward-error",),  # the error that a collective raised
)
def desync(trace: Trace) -> list[Finding]:
    """A collective operation that failed, or never ended, because not every rank called it."""
    ranks = trace.facts.of(RankSeen)
    stuck = [(wait, seen) for seen in ranks for wait in seen.waits if wait.ended != "returned"]
    if not stuck or any(_own_error(r) for r in ranks):
        return []
    wait, seen = min(stuck, key=lambda pair: pair[0].began)
    others = [r for r in ranks if r is not seen]
    absent = next((r for r in others if not _joined(r, wait)), None)
    sites = [FindingSite("waiting", wait.site)] if wait.site else []
    where = _place(absent, wait) if absent is not None else None
    if where is not None:
        sites.append(FindingSite("skipping", where))
    name = _name(seen)
    how = "until it failed" if wait.ended == "raised" else "to the end of the run"
    waited = f"waited {wait.seconds:.0f} s in {wait.op}, {how}" if wait.seconds >= 1 else f"failed in {wait.op}"
    if absent is None:
        other = "no other rank was seen to call it"
    else:
        elsewhere = next((w for w in absent.waits if w.began + w.seconds > wait.began and w.site != wait.site), None)
        other = (
            f"{_name(absent)} waited in {elsewhere.op} at another line"
            if elsewhere is not None
            else f"{_name(absent)} did not call it"
            + (f" and was at {where.file.rpartition('/')[2]}:{where.line}" if where else "")
        )
    return [
        Finding(
            kind="rank-desync",
            severity="error",
            title=f"{name} {waited}: {other}",
            confidence="likely" if absent is not None else "possible",
            rank=seen.rank if absent is None else absent.rank,
            sites=tuple(sites),
            evidence={
                "collective": wait.op,
                "waiting": seen.rank,
                "seconds": round(wait.seconds, 1),
                "ranks_seen": sorted(r.rank for r in ranks if r.rank is not None),
                "errors": {str(r.rank): r.error for r in ranks if r.error},
            },
            advice="Every rank must call the same collective operations in the same order. Look for a branch or a loop "
            "that depends on a rank's own data or number (continue, break, an uneven last batch, validation on rank 0 "
            "through the wrapped model), and let all ranks take it together.",
        )
    ]


@question(
    Kind(
        "rank-failed", "error", "a process of a distributed run raised an error, and the others lost it", rank=WRONG + 5
    ),
    spoils=True,
)
def failed(trace: Trace) -> list[Finding]:
    """The rank that raised an error of its own, where no finding of that rank explains it."""
    ranks = trace.facts.of(RankSeen)
    found = []
    for seen in sorted(ranks, key=lambda one: (one.step is None, one.step or 0)):
        told = any(f.severity == "error" or UNREDUCED in seen.error for f in seen.findings)
        if len(ranks) > 1 and _own_error(seen) and not told:
            victims = {str(r.rank): r.error for r in ranks if r.error and not _own_error(r)}
            found.append(
                Finding(
                    kind="rank-failed",
                    severity="error",
                    title=f"{_name(seen)} raised {seen.error}",
                    confidence="certain",
                    rank=seen.rank,
                    step=seen.step,
                    sites=(FindingSite("cause", seen.raised),) if seen.raised is not None else (),
                    evidence={"error": seen.error, "victims": victims},
                    advice="What the other ranks raised then (connection closed, a timeout) is a consequence: they "
                    "wait for one that is gone. Look at this rank's own data and line.",
                )
            )
    return found[:1]


def _own_error(seen: RankSeen) -> bool:
    """Whether a rank ended by an error that is not of a collective."""
    return bool(seen.error) and not any(word in seen.error.lower() for word in COLLECTIVE)


def _name(seen: RankSeen) -> str:
    return f"rank {seen.rank}" if seen.rank is not None else f"process {seen.pid}"


def _joined(other: RankSeen, wait: RankWait) -> bool:
    """Whether a rank was stuck at the line of a wait while it lasted."""
    return any(
        w.site == wait.site and w.ended != "returned" and w.began < wait.began + wait.seconds for w in other.waits
    )


def _place(other: RankSeen, wait: RankWait) -> Site | None:
    """Where a rank was while another waited: in another collective, or at the last line it was seen at."""
    for own in other.waits:
        if own.site != wait.site and own.began < wait.began + wait.seconds and own.began + own.seconds > wait.began:
            return own.site
    before = [site for at, site in other.trail if at <= wait.began + wait.seconds and site != wait.site]
    return before[-1] if before else None
