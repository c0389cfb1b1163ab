"""Rules for runs of several processes: failed ranks, and ranks that wait for a missing one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...basics.torch_texts import COLLECTIVE, INTERRUPTED
from ...records import Finding, FindingSite, RankSeen
from ...traces.collective_desync import (
    CRASHED,
    Held,
    Other,
    apart,
    describe_others,
    held,
    last_in_common,
    listed,
    name,
    what,
)
from ...traces.coverage import NOT_HERE, missing, ranks_text
from ..rules import WRONG, Kind, Question, rule
from ..several_processes import failed_by_itself

if TYPE_CHECKING:
    from ...traces import Trace


#: The most exits from the loop of the missing rank that are named.
MAX_BRANCHES = 3
#: The most callers of a collective that are named.
MAX_CALLERS = 2


@rule(
    Kind(
        "rank-failed",
        "error",
        "a rank raised, exited or was killed, and the others cannot go on",
        rank=WRONG + 48,
        questions=(Question.RANKS,),
        points_to="the rank, and the line that raised",
    ),
    invalidates_gradients=True,
    silences=("rank-desync",),  # a rank that waits then waits for one that is gone
)
def failed(trace: Trace) -> list[Finding]:
    """Report ranks that failed by themselves before the others, unless a finding of that rank explains it.

    Not if everything was interrupted from outside, or if a rank that others wait for is reported instead.
    """
    ranks = trace.facts.of(RankSeen)
    if trace.info.get("part") or (len([one for one in ranks if one.rank is not None]) < 2 and not missing(ranks)):
        return []
    # A killed rank closes its connections: if the others ran into a timeout, it was killed because of that.
    waited = any(word in one.error.lower() for one in ranks for word in ("timed out", "timeout"))
    failed = [one for one in ranks if one.rank is not None and failed_by_itself(one) and (one.over or not waited)]
    if held(ranks) is not None and apart(ranks):
        failed = [one for one in failed if one.over]
    if _stopped(ranks, str(trace.info.get("error") or "")):
        failed = [one for one in failed if one.over and not one.error.startswith(INTERRUPTED)]
    return [_failed(one) for one in failed if not _explained(one)]


def _stopped(ranks: Sequence[RankSeen], error: str) -> bool:
    """Return whether a person, an alarm or the system ended all ranks.

    Then the starting script or several ranks were interrupted, and a launcher kills ranks that do not leave in time.

    :param error: the error of the script that started the ranks.
    """
    interrupted = [one for one in ranks if one.error.startswith(INTERRUPTED)]
    return error.startswith(INTERRUPTED) or len(interrupted) > 1 or any(one.rank is None for one in interrupted)


def _failed(seen: RankSeen) -> Finding:
    """Return the finding for a rank that crashed, was killed, raised an error or exited."""
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


@rule(
    Kind(
        "rank-desync",
        "error",
        "a process of a distributed run waits for one that does not come",
        rank=WRONG + 50,
        questions=(Question.RANKS,),
        points_to="the line that waits, and the one that the other rank is at",
    ),
    invalidates_gradients=True,
    silences=("backward-error",),  # The error that a collective raised.
)
def desync(trace: Trace) -> list[Finding]:
    """Report a collective operation that failed or never ended because not every rank called it.

    The finding names who waited where, where the missing rank was instead, the last operation that both called, and
    branches that may have led it elsewhere.
    """
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
    """Return the step in which the ranks diverged; ``None`` if unknown. The missing rank may have gone on, or be
    behind.
    """
    if not found.others or found.others[0].step is not None:
        return found.others[0].step if found.others else None
    steps = [found.others[0].seen.step, *(seen.step for seen, _ in found.waiting if not seen.between)]
    return min((step for step in steps if step is not None), default=None)


def _turned(found: Held) -> Held:
    """Return `found` with the waiting and the missing rank swapped, if two ranks wait for each other in unknown order.

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
