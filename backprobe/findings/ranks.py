"""Rules for runs of several processes: findings of each process, failed ranks, and ranks that wait for a missing
one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..collective_desync import CRASHED, Held, Other, apart, describe_others, held, last_in_common, listed, name, what
from ..coverage import NOT_HERE, missing, ranks_text
from ..records import Finding, FindingSite, RankSeen
from ..torch_texts import COLLECTIVE, COLLECTIVE_OPS, INTERRUPTED
from .rules import WRONG, Kind, rule

if TYPE_CHECKING:
    from ..traces import Trace


def of_children(trace: Trace) -> list[Finding]:
    """Return the findings of other processes."""
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
    """Return `found` with the rank of this process, if it has one."""
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
    """Merge equal findings of several processes: the one of the earliest step, with all ranks."""
    ranks = sorted({rank for one in same for rank in (*one.evidence.get("ranks", ()), one.rank) if rank is not None})
    if len(ranks) < 2:
        return same[0]
    first = min(same, key=lambda one: (_moment(one), _when(one)))
    return dataclasses.replace(first, evidence={**first.evidence, "ranks": ranks})


def _when(finding: Finding) -> tuple[float, int]:
    return math.inf if finding.step is None else finding.step, -1 if finding.rank is None else finding.rank


#: The most exits from the loop of the missing rank that are named.
MAX_BRANCHES = 3
#: The most callers of a collective that are named.
MAX_CALLERS = 2
#: Kinds that spread to all other ranks a step later, when gradients are averaged.
_SPREADS = ("nonfinite-forward", "nonfinite-backward")


def _spreads(finding: Finding) -> bool:
    return finding.kind in _SPREADS and finding.rank is not None and finding.step is not None


def _moment(finding: Finding) -> tuple[float, int, bool, bool]:
    """Sort key for the moment values became bad.

    A result precedes what an update or a collective brought, the forward precedes the backward, and a node's own result
    precedes other changes of a gradient, such as an average over ranks.
    """
    op = str(finding.evidence.get("op", finding.title.partition(" ")[0]))
    brought = 2 if op in COLLECTIVE_OPS else int("written_by" in finding.evidence)
    backward = finding.kind == "nonfinite-backward"
    return _when(finding)[0], brought, backward, backward and finding.node is None


def in_time(found: Sequence[Finding]) -> list[Finding]:
    """Return `found` with non-finite values ordered by step over all ranks.

    Later ones on other ranks are consequences of the first and are listed in its evidence.
    """
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


@rule(
    Kind("rank-failed", "error", "a rank raised, exited or was killed, and the others cannot go on", rank=WRONG + 48),
    invalidates_gradients=True,
    silences=("rank-desync",),  # a rank that waits then waits for one that is gone
)
def failed(trace: Trace) -> list[Finding]:
    """Report ranks that ended by themselves before the others, unless a finding of that rank explains it."""
    ranks = trace.facts.of(RankSeen)
    if trace.info.get("part") or (len([one for one in ranks if one.rank is not None]) < 2 and not missing(ranks)):
        return []
    # A killed rank closes its connections: if the others ran into a timeout, it was killed because of that.
    waited = any(word in one.error.lower() for one in ranks for word in ("timed out", "timeout"))
    failed = [one for one in ranks if one.rank is not None and _by_itself(one) and (one.over or not waited)]
    if held(ranks) is not None and apart(ranks):
        failed = [one for one in failed if one.over]
    if _stopped(ranks, str(trace.info.get("error") or "")):
        failed = [one for one in failed if one.over and not one.error.startswith(INTERRUPTED)]
    return [_failed(one) for one in failed if not _explained(one)]


def _stopped(ranks: Sequence[RankSeen], error: str) -> bool:
    """Return whether a person, an alarm or the system ended all ranks.

    Then the starting script or several ranks were interrupted, and a launcher kills ranks that do not leave in time.

    :param error: the error of the script that started them.
    """
    interrupted = [one for one in ranks if one.error.startswith(INTERRUPTED)]
    return error.startswith(INTERRUPTED) or len(interrupted) > 1 or any(one.rank is None for one in interrupted)


def _failed(seen: RankSeen) -> Finding:
    killed = not seen.over and not seen.error
    if not seen.over and seen.error:
        how, role, site = f"crashed: {seen.error}", "raised", seen.raised
    elif killed:
        how, role, site = "was killed: it ended without a word", "last", seen.trail[-1][1] if seen.trail else None
    else:
        error = seen.error.strip().partition("\n")[0]
        how, role, site = f"ended with {error}" if error else f"exited with {seen.code}", "raised", seen.raised
    return Finding(
        kind="rank-failed",
        severity="error",
        title=f"{name(seen)} {how}",
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
            else "The system kills a worker of a data loader mostly for memory: look at its log (dmesg). The error "
            "comes up wherever the rank is just then."
            if "DataLoader worker (pid" in seen.error
            else "It crashed in C++ code, which says why on standard error. A collective operation that the ranks call "
            "with different shapes, or in another order, does that."
            if not seen.over
            else "Mend it where it was raised, or let all ranks leave together."
        ),
    )


def _by_itself(seen: RankSeen) -> bool:
    """Return whether a process failed or was killed for a reason of its own, not because others were gone."""
    if any(word in seen.error.lower() for word in COLLECTIVE) or any(w.ended == "raised" for w in seen.waits):
        return False
    return bool(seen.error or seen.code) and not seen.signal if seen.over else not seen.alive


@rule(
    Kind("rank-desync", "error", "a process of a distributed run waits for one that does not come", rank=WRONG + 50),
    invalidates_gradients=True,
    silences=("backward-error",),  # The error that a collective raised.
)
def desync(trace: Trace) -> list[Finding]:
    """Report a collective operation that failed or never ended because not every rank called it."""
    ranks = trace.facts.of(RankSeen)
    if trace.info.get("part"):  # This is one of several runs, alone.
        return []
    found = held(ranks)
    if found is None or any(_explained(r) for r in ranks):
        return []
    found = _turned(found)
    wait = found.wait
    who = listed([seen for seen, _ in found.waiting])
    how = "until it failed" if wait.ended == "raised" else "to the end of the run"
    waited = f"waited {wait.seconds:.0f} s in {what(wait)}, {how}" if wait.seconds >= 1 else f"failed in {what(wait)}"
    absent = missing(ranks)
    unknown = f"nothing is known of {ranks_text(absent)}, {NOT_HERE}" if absent else ""
    others = "; ".join(describe_others(found)) or unknown
    sites = [FindingSite("waiting", wait.site)] if wait.site else []
    sites += [FindingSite("skipping", one.site) for one in found.others[:1] if one.site is not None]
    common = last_in_common(found)
    sites += [FindingSite("common", common.site)] if common is not None and common.site is not None else []
    culprit = found.others[0].seen if found.others else found.waiting[0][0]
    rank = absent[0] if len(absent) == 1 and not found.others else culprit.rank
    sites += [FindingSite("called", site) for wait in culprit.waits[-1:] for site in wait.callers[:MAX_CALLERS]]
    branches = dict.fromkeys(culprit.branches if found.others and len(culprit.branches) <= MAX_BRANCHES else ())
    ways = dict(way for seen in ranks for way in seen.ways)
    for line in (found.others[0].site if found.others else None, wait.site):
        around = ways.get(line, ()) if line is not None else ()
        branches |= dict.fromkeys(around if len(around) <= MAX_BRANCHES else ())
    heads = dict(pair for seen in ranks for pair in seen.conditions)
    named = list(branches)[: 2 * MAX_BRANCHES]
    sites += [FindingSite("branch", site) for site in named]
    conditions = dict.fromkeys(heads[site] for site in named if site in heads)
    sites += [FindingSite("condition", site) for site in conditions if site not in branches]
    return [
        Finding(
            kind="rank-desync",
            severity="error",
            title=f"{who} {waited}: {others or 'no other rank was seen to call it'}",
            confidence="possible" if not found.others else "likely" if wait.number is None else "certain",
            step=_step(found),
            rank=rank,
            sites=tuple(sites),
            evidence={
                "collective": wait.op,
                **({} if wait.number is None else {"group": wait.group, "number": wait.number, "inputs": wait.inputs}),
                **({} if common is None else {"last_in_common": {"number": common.number, "op": common.op}}),
                "waiting": [seen.rank for seen, _ in found.waiting],
                "seconds": round(wait.seconds, 1),
                "ranks_seen": sorted(r.rank for r in ranks if r.rank is not None),
                "errors": {str(r.rank): r.error for r in ranks if r.error},
            },
            advice="Every rank must call the same collective operations in the same order. Look for a branch or a loop "
            "that depends on a rank's own data or number (continue, break, an uneven last batch, validation on rank 0 "
            "through the wrapped model), and let all ranks take it together.",
        )
    ]


def _step(found: Held) -> int | None:
    """Return the step in which the ranks diverged: the missing rank may have gone on since, or be behind."""
    if not found.others or found.others[0].step is not None:
        return found.others[0].step if found.others else None
    steps = [found.others[0].seen.step, *(seen.step for seen, _ in found.waiting if not seen.between)]
    return min((step for step in steps if step is not None), default=None)


def _turned(found: Held) -> Held:
    """Swap the waiting and the missing rank if two ranks wait for each other and the order is unknown.

    The rank whose loop has a branch around its operation is taken as the missing one if the other's loop has none. A
    crash settles the order.
    """
    if found.wait.number is not None or len(found.waiting) != 1 or len(found.others) != 1:
        return found
    (first, wait), other = found.waiting[0], found.others[0]
    if first.error.startswith(CRASHED) or other.seen.error.startswith(CRASHED):
        return found
    own = next((one for one in other.seen.waits if one.ended != "returned" and one.number is None), None)
    if own is None or other.seen.branches or not first.branches:
        return found
    return Held(((other.seen, own),), (Other(first, f"waited in {what(wait)}", wait.site),))


def _explained(seen: RankSeen) -> bool:
    """Return whether a finding explains the error with which a rank ended: the others wait for a rank that is gone."""
    own = seen.error and not any(word in seen.error.lower() for word in COLLECTIVE)
    return bool(own) and any(f.severity == "error" for f in seen.findings)
