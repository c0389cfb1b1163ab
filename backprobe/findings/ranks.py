"""Several processes: what was found in each, and a rank that waits for one that does not come."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..records import Finding, FindingSite, RankSeen, RankWait, Site
from ..torch_texts import COLLECTIVE
from .questions import WRONG, Kind, question

if TYPE_CHECKING:
    from ..traced import Trace


def of_children(trace: Trace) -> list[Finding]:
    """What was found in other processes."""
    ranks = trace.facts.of(RankSeen)
    gone = any(map(_by_itself, ranks))
    return [
        _of(seen, finding)
        for seen in ranks
        if seen.pid != trace.info.get("pid")
        for finding in seen.findings
        if not (gone and finding.kind == "backward-error" and not _by_itself(seen) and seen.error)
    ]


def of_rank(trace: Trace, found: Sequence[Finding]) -> list[Finding]:
    """`found` in this process, with its rank where it has one."""
    own = trace.info.get("pid")
    mine = next((seen for seen in trace.facts.of(RankSeen) if seen.pid == own and seen.rank is not None), None)
    if mine is None:
        return list(found)
    return [_of(mine, one) if one.rank is None and "process" not in one.evidence else one for one in found]


def _of(seen: RankSeen, finding: Finding) -> Finding:
    if finding.rank is not None or "process" in finding.evidence:
        return finding
    if seen.rank is None:
        return dataclasses.replace(finding, evidence={**finding.evidence, "process": seen.pid})
    return dataclasses.replace(finding, rank=seen.rank)


def merged(same: Sequence[Finding]) -> Finding:
    """Equal findings of several processes as one: that of the earliest step, with all the ranks."""
    ranks = sorted({rank for one in same for rank in (*one.evidence.get("ranks", ()), one.rank) if rank is not None})
    if len(ranks) < 2:
        return same[0]
    first = min(same, key=_when)
    return dataclasses.replace(first, evidence={**first.evidence, "ranks": ranks})


def _when(finding: Finding) -> tuple[float, int]:
    return math.inf if finding.step is None else finding.step, -1 if finding.rank is None else finding.rank


#: What one rank's values become in all others, a step later, when gradients are averaged.
_SPREADS = ("nonfinite-forward", "nonfinite-backward")


def _spreads(finding: Finding) -> bool:
    return finding.kind in _SPREADS and finding.rank is not None and finding.step is not None


def _moment(finding: Finding) -> tuple[float, bool, bool]:
    """When values went bad: a forward before the backward, and a node's own result before what else changed a
    gradient, as an average over ranks does."""
    backward = finding.kind == "nonfinite-backward"
    return _when(finding)[0], backward, backward and finding.node is None


def in_time(found: Sequence[Finding]) -> list[Finding]:
    """`found` with values that are not finite in the order of their steps over all ranks. What came to other ranks
    after the first is its consequence, and said there."""
    spread = sorted((one for one in found if _spreads(one)), key=_moment)
    if len(spread) < 2:
        return list(found)
    first, *later = spread
    came = [one for one in later if _moment(one) > _moment(first)]
    came = [one for one in came if {*one.evidence.get("ranks", ()), one.rank} - {first.rank}]
    if came:
        then = [f"rank {one.rank}, step {one.step}: {one.kind}" for one in came]
        spread[0] = dataclasses.replace(first, evidence={**first.evidence, "then": then})
    kept = iter([one for one in spread if not any(one is other for other in came)])
    places = map(_spreads, found)
    return [one for at, old in zip(places, found, strict=True) if (one := next(kept, None) if at else old) is not None]


@question(
    Kind("rank-failed", "error", "a rank raised, exited or was killed, and the others cannot go on", rank=WRONG + 48),
    spoils=True,
    silences=("rank-desync",),  # who waits then, waits for one that is gone
)
def failed(trace: Trace) -> list[Finding]:
    """A rank that ended by itself before the others, where nothing that was found in it says why."""
    ranks = trace.facts.of(RankSeen)
    if trace.info.get("part") or len([one for one in ranks if one.rank is not None]) < 2:
        return []
    # A rank that is killed closes its connections: where the others ran into a timeout, it was killed for that.
    waited = any(word in one.error.lower() for one in ranks for word in ("timed out", "timeout"))
    failed = [one for one in ranks if one.rank is not None and _by_itself(one) and (one.over or not waited)]
    return [_failed(one) for one in failed if not _explained(one)]


def _failed(seen: RankSeen) -> Finding:
    killed = not seen.over
    if killed:
        how, role, site = "was killed: it ended without a word", "last", seen.trail[-1][1] if seen.trail else None
    else:
        error = seen.error.strip().partition("\n")[0]
        how, role, site = f"ended with {error}" if error else f"exited with {seen.code}", "raised", seen.raised
    return Finding(
        kind="rank-failed",
        severity="error",
        title=f"{_name(seen)} {how}",
        confidence="certain",
        step=seen.steps,
        rank=seen.rank,
        sites=(FindingSite(role, site),) if site is not None else (),
        evidence={"steps": seen.steps, "code": seen.code, "error": seen.error[:300]},
        advice="The errors of the other ranks (a connection that was closed, a timeout) come from this. "
        + (
            "What kills a process so is mostly the system, for memory: look at its log (dmesg) and at the memory of "
            "the steps before."
            if killed
            else "Mend it where it was raised, or let all ranks leave together."
        ),
    )


def _by_itself(seen: RankSeen) -> bool:
    """Whether a process failed or was killed, and not for others that were gone."""
    if any(word in seen.error.lower() for word in COLLECTIVE) or any(w.ended == "raised" for w in seen.waits):
        return False
    return bool(seen.error or seen.code) and not seen.signal if seen.over else not seen.alive


@question(
    Kind("rank-desync", "error", "a process of a distributed run waits for one that does not come", rank=WRONG + 50),
    spoils=True,
    silences=("backward-error",),  # the error that a collective raised
)
def desync(trace: Trace) -> list[Finding]:
    """A collective operation that failed, or never ended, because not every rank called it."""
    ranks = trace.facts.of(RankSeen)
    if trace.info.get("part"):  # one of several alone
        return []
    stuck = [(wait, seen) for seen in ranks for wait in seen.waits if wait.ended != "returned"]
    if not stuck or any(_explained(r) for r in ranks):
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
            title=f"{name} waited {wait.seconds:.0f} s in {wait.op}, {how}: {other}",
            confidence="likely" if absent is not None else "possible",
            rank=seen.rank,
            sites=tuple(sites),
            evidence={
                "collective": wait.op,
                "seconds": round(wait.seconds, 1),
                "ranks_seen": sorted(r.rank for r in ranks if r.rank is not None),
                "errors": {str(r.rank): r.error for r in ranks if r.error},
            },
            advice="Every rank must call the same collective operations in the same order. Look for a branch or a loop "
            "that depends on a rank's own data or number (continue, break, an uneven last batch, validation on rank 0 "
            "through the wrapped model), and let all ranks take it together.",
        )
    ]


def _explained(seen: RankSeen) -> bool:
    """Whether a rank ended by an error of its own that a finding explains: the others wait for one that is gone."""
    own = seen.error and not any(word in seen.error.lower() for word in COLLECTIVE)
    return bool(own) and any(f.severity == "error" for f in seen.findings)


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
