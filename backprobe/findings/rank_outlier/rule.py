"""The rule for one rank that is far from the others: in its gradients before reduction, or in its pace."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.text import counted, number
from ...records import Finding, FindingSite, RankSeen, Replicas, Site
from ...traces.collective_desync import listed, name
from ..rules import GRADIENTS_INVALID, MEANT, Kind, Question, rule

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "rank-outlier",
        "warning",
        "the gradients or the pace of one rank are far from those of the others",
        rank=MEANT - 5,
        questions=(Question.RANKS,),
        points_to="the rank, and its backward call",
    ),
    silenced_by=(GRADIENTS_INVALID,),
)
def outliers(trace: Trace) -> list[Finding]:
    """Report a rank that is far from the others in its gradients or its pace, if all ranks ended without an error."""
    ranks = [one for one in trace.facts.of(RankSeen) if one.rank is not None]
    if trace.info.get("part") or len(ranks) < 2 or not all(one.over and not one.error for one in ranks):
        return []
    return [*_norms(ranks), *_slow(ranks)]


def _norms(ranks: Sequence[RankSeen]) -> list[Finding]:
    """Return the finding for the rank whose gradients, before reduction, have a norm far from that of the others.

    From some step on, in all steps, or in a single one, checked in this order; empty if there is none.
    """
    mine = [one for one in ranks if one.norms and one.replicas]
    if len(mine) < 2 or not all(_same(mine[0].replicas[0], one.replicas[0]) for one in mine):
        return []
    norms = {one.pid: {step: math.log(norm) for step, norm in one.norms if 0 < norm < math.inf} for one in mine}
    steps = sorted(set.intersection(*(set(one) for one in norms.values())))
    if len(steps) < thresholds.RANK_OUTLIER_MIN_STEPS:
        return []
    away = {
        one.pid: [norms[one.pid][s] - median(n[s] for pid, n in norms.items() if pid != one.pid) for s in steps]
        for one in mine
    }
    for one in mine:
        values = away[one.pid]
        at = _since(values, [norms[one.pid][step] for step in steps])
        if at is not None:
            far, when = median(values[at:]) - median(values[:at]), f"from step {steps[at]} on"
            return [_norm(one, mine, math.exp(far), far / _width(values[:at]), steps[at:], when, sure=True)]
    usual = {pid: median(values) for pid, values in away.items()}
    spread = max(thresholds.RANK_OUTLIER_MIN_SPREAD, *(_spread(values) for values in away.values()))
    most = max(mine, key=lambda one: usual[one.pid] if len(mine) == 2 else abs(usual[one.pid]))
    far = usual[most.pid]
    if abs(far) > max(thresholds.RANK_OUTLIER_SIGMAS * spread, math.log(thresholds.RANK_OUTLIER_MIN_FACTOR)):
        when = f"in {counted(len(steps), 'step')} that were compared"
        return [_norm(most, mine, math.exp(far), far / spread, steps, when, sure=len(mine) > 2)]
    single = [(values[at] - usual[pid], at, pid) for pid, values in away.items() for at in range(len(steps))]
    far, at, pid = max(single)
    if far > max(thresholds.RANK_OUTLIER_SIGMAS * spread, math.log(thresholds.RANK_OUTLIER_MIN_FACTOR_ONCE)):
        # Require that its own norm rose: a fall in another rank looks the same from here.
        own = norms[pid]
        if own[steps[at]] - median(own.values()) > math.log(thresholds.RANK_OUTLIER_MIN_FACTOR_ONCE) / 2:
            most = next(one for one in mine if one.pid == pid)
            found = _norm(most, mine, math.exp(far), far / spread, steps, f"in step {steps[at]}", sure=True)
            return [replace(found, step=steps[at])]
    return []


def _norm(
    one: RankSeen, ranks: Sequence[RankSeen], times: float, sigmas: float, steps: Sequence[int], when: str, sure: bool
) -> Finding:
    """Return the finding for a rank with gradients of another size.

    :param times: its norm over that of the others; `sigmas`: the same in units of the spread.
    :param when: in which steps, as text.
    """
    others = listed([other for other in ranks if other is not one])
    return Finding(
        kind="rank-outlier",
        severity="warning",
        title=f"the gradients of {name(one)} are {number(times)} times those of {others} {when}, before they are "
        "reduced",
        confidence="likely" if sure else "possible",
        rank=one.rank,
        step=steps[0],
        sites=_backward(one),
        evidence={"of": "gradient norm", "times": times, "sigmas": round(abs(sigmas), 1), "steps": len(steps)},
        advice="The average over ranks is that of this one. Look at what it reads: data of another scale or another "
        "file, a sum in place of a mean over a batch of another size, a loss that is weighted on this rank only.",
    )


def _since(away: Sequence[float], own: Sequence[float]) -> int | None:
    """Return the position from which on a rank is far from the others in all steps, and was not before; ``None`` if
    none.

    :param away: by step, how far the logarithm of its norm is from that of the others; `own`: the logarithm itself.
    """
    for at in range(thresholds.RANK_OUTLIER_MIN_STEPS // 2, len(away) - thresholds.RANK_OUTLIER_MIN_STEPS // 2 + 1):
        before, after = away[:at], away[at:]
        usual = median(before)
        if (
            min(after) - usual <= math.log(thresholds.RANK_OUTLIER_MIN_FACTOR)
            or max(before) - usual > math.log(thresholds.RANK_OUTLIER_MIN_FACTOR) / 2
        ):
            continue
        # Require that its own norm rose: a fall in another rank looks the same from here.
        if median(own[at:]) - median(own[:at]) > math.log(thresholds.RANK_OUTLIER_MIN_FACTOR) / 2:
            return at if median(after) - usual > thresholds.RANK_OUTLIER_SIGMAS * _width(before) else None
    return None


def _width(values: Sequence[float]) -> float:
    """Return the spread of `values`, but at least ``RANK_OUTLIER_MIN_SPREAD``."""
    return max(thresholds.RANK_OUTLIER_MIN_SPREAD, _spread(values))


def _backward(one: RankSeen) -> tuple[FindingSite, ...]:
    """Return the line of the rank's backward call before an optimizer step."""
    sites = [state.backward for state in one.replicas[0].states if state.backward is not None]
    return (FindingSite("backward", sites[0]),) if sites else ()


def _same(one: Replicas, other: Replicas) -> bool:
    """Return whether both ranks compute full gradients of the same parameters, which are reduced later.

    Data-parallel training or the script reduces them. Shards of a parameter may differ in shape.
    """
    mine, theirs = (
        {(t.name, () if t.how == "fsdp" else t.shape) for t in r.tensors if t.how != "buffer"} for r in (one, other)
    )
    kinds = {t.how for r in (one, other) for t in r.tensors} - {"buffer"}
    return mine == theirs and ((bool(kinds) and kinds <= {"ddp", "fsdp"}) or (kinds == {""} and _reduced(one, other)))


def _reduced(one: Replicas, other: Replicas) -> bool:
    """Return whether the gradients of two ranks were equal whenever an optimizer stepped."""
    theirs = {(s.step, s.optimizer): s for s in other.states}
    pairs = [(s, theirs[key]) for s in one.states if (key := (s.step, s.optimizer)) in theirs]
    return bool(pairs) and all(s.gradients == o.gradients and any(s.gradients) for s, o in pairs)


def _spread(values: Sequence[float]) -> float:
    """Return a robust standard deviation (from the median absolute deviation)."""
    middle = median(values)
    return 1.4826 * median(abs(value - middle) for value in values)


def _slow(ranks: Sequence[RankSeen]) -> list[Finding]:
    """Return the finding for a rank that arrives last at nearly all collectives and so holds up the others; empty if
    none.

    Only for ranks on one machine, whose clocks agree.
    """
    if len({one.machine for one in ranks}) > 1:  # clocks of several machines are not compared
        return []
    came = [_arrivals(one) for one in ranks]
    common = sorted(set.intersection(*(set(one) for one in came)), key=lambda key: came[0][key])
    if len(common) < thresholds.SLOW_RANK_MIN_ROUNDS:
        return []
    whole = max(one[common[-1]] for one in came) - min(one[common[0]] for one in came)
    for one, mine in zip(ranks, came, strict=True):
        others = [arrivals for arrivals in came if arrivals is not mine]
        rounds = _rounds([(max(other[key] for other in others), mine[key]) for key in common])
        late = [end - begin for begin, end in rounds]
        if len(late) < thresholds.SLOW_RANK_MIN_ROUNDS or len(late) < thresholds.SLOW_RANK_MIN_LAST_SHARE * _all_rounds(
            came, common
        ):
            continue
        usual = median(late)
        error = 1.25 * _spread(late) / math.sqrt(len(late))
        share = sum(late) / whole if whole > 0 else 0.0
        if (
            usual >= thresholds.SLOW_RANK_MIN_LATE_S
            and sum(late) >= thresholds.SLOW_RANK_MIN_LOST_S
            and share >= thresholds.SLOW_RANK_MIN_WAIT_SHARE
            and usual > thresholds.RANK_OUTLIER_SIGMAS * error
        ):
            return [_late(one, ranks, rounds, usual, share)]
    return []


def _arrivals(seen: RankSeen) -> Mapping[tuple[str, int], float]:
    """Return when a rank called each collective operation, by group and number."""
    return {(group, first + i): at for group, first, times in seen.arrivals for i, at in enumerate(times) if at > 0}


def _rounds(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the intervals in which the others waited; overlapping ones are merged.

    Collectives of one backward are called together.

    :param spans: for each collective, when the last of the others arrived and when the rank itself did.
    """
    found: list[tuple[float, float]] = []
    for begin, end in spans:
        if end <= begin:
            continue
        if found and begin < found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def _all_rounds(came: Sequence[Mapping[tuple[str, int], float]], common: Sequence[tuple[str, int]]) -> int:
    """Return the number of intervals in which any rank waited for any other."""
    spans = [(min(one[key] for one in came), max(one[key] for one in came)) for key in common]
    return len(_rounds(spans))


def _late(
    one: RankSeen, ranks: Sequence[RankSeen], rounds: Sequence[tuple[float, float]], usual: float, share: float
) -> Finding:
    """Return the finding for a rank that others wait for at collectives.

    :param usual: the median wait in seconds; `share`: the part of the run's time that the others waited.
    """
    others = listed([other for other in ranks if other is not one])
    site = _place(one, rounds)
    return Finding(
        kind="rank-outlier",
        severity="warning",
        title=f"{name(one)} is slower: {others} stood still for it {share:.0%} of the time, {number(usual)} s in most "
        "steps",
        confidence="likely",
        rank=one.rank,
        sites=(FindingSite("late", site),) if site is not None else (),
        evidence={"of": "time", "share": round(share, 3), "seconds": usual, "rounds": len(rounds)},
        advice="Look at what this rank does besides: logging, saving or evaluating alone, longer samples, a slower "
        "disk or processor.",
    )


def _place(seen: RankSeen, rounds: Sequence[tuple[float, float]]) -> Site | None:
    """Return the line at which the rank was most often seen while the others waited; ``None`` if it never was."""
    there: Counter[Site] = Counter()
    for begin, end in rounds:
        there.update({site for at, site in seen.trail if begin <= at <= end})
    return there.most_common(1)[0][0] if there else None
