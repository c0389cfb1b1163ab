"""Finds the rank that the others wait for, from the last report of each process, during a run or from its records.

Note [Who is absent]: ranks meet in the collective operations of a process group, and each rank numbers them from 1. A
    rank that waits in operation N waits for the ranks that have not called N, or called it late. If the last operations
    of two ranks have the same number but differ, they diverged there. If they are equal but belong to two steps, one
    rank called fewer or more operations in the earlier step than usual: they diverged in that step, although equal
    operations met. Without numbers, places in the script decide.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import thresholds
from ..basics.text import counted
from ..basics.torch_texts import COLLECTIVE, INTERRUPTED, OF_CHILDREN
from ..records import Collective, RankSeen, RankWait, Site
from ..records.places import at_line, lasting
from .coverage import is_there, ranks_text

#: Operations whose inputs may differ from rank to rank.
_UNEVEN = ("scatter", "gather", "alltoall", "all_to_all")
#: Start of the error of a process that an error in C++ ended, for example unequal shapes.
CRASHED = "Fatal Python error: Aborted"


@dataclass(frozen=True)
class Other:
    """A rank that others wait for.

    :ivar why: what it did instead, in words.
    :ivar site: where it was, or the operation that it left out. ``step``: the step, if known.
    """

    seen: RankSeen
    why: str
    site: Site | None
    step: int | None = None


@dataclass(frozen=True)
class Held:
    """The ranks that wait, and the ranks that they wait for."""

    waiting: tuple[tuple[RankSeen, RankWait], ...]
    others: tuple[Other, ...]

    @property
    def wait(self) -> RankWait:
        """The longest wait."""
        return min((wait for _, wait in self.waiting), key=lambda wait: wait.began)


#: Starts of errors of processes that only launched the others.
OF_LAUNCHERS = (*OF_CHILDREN, *INTERRUPTED)


def stuck(ranks: Iterable[RankSeen]) -> list[tuple[RankSeen, RankWait]]:
    """Return the ranks that wait, with their waits, the longest wait first."""
    found = [(seen, wait) for seen in ranks for wait in seen.waits if wait.ended != "returned"]
    return sorted(found, key=lambda pair: pair[1].began)


def held(ranks: Sequence[RankSeen], live: bool = False) -> Held | None:
    """Return which ranks wait in a collective operation, and which ranks they wait for; ``None`` if no rank waits.

    Note [Who is absent] explains how these are found.

    :param live: the run is going on: report where ranks are now, not where they were.
    """
    ranks = [seen for seen in ranks if seen.rank is not None or not seen.error.startswith(OF_LAUNCHERS)]
    waits = [(seen, wait) for seen, wait in stuck(ranks) if not _met(seen, wait, ranks)]
    if not waits:
        return None
    wait = waits[0][1]
    slip = None if live else slipped(ranks)
    if slip is None and wait.number is None and not live and any(seen.error.startswith(CRASHED) for seen in ranks):
        slip = _gaps(ranks) or None
        if slip is None and (torn := _diverged_before_crash(ranks)) is not None:
            return torn
    if slip is not None:
        others = tuple(slip)
        rest = tuple(pair for pair in waits if not any(pair[0] is one.seen for one in others)) or tuple(waits)
        return Held(rest, others)
    groups = [wait.group] if wait.number is not None else _groups(ranks)
    odd = next((found for group in groups if (found := _parted(ranks, group)) is not None), None)
    if odd is not None:
        differs, usual = odd
        others = tuple(Other(seen, _called(own, usual), own.site) for seen, own in differs)
        rest = tuple(pair for pair in waits if not any(pair[0] is one.seen for one in others)) or tuple(waits)
        return Held(rest, tuple(_counted(one, rest[0][0]) for one in others))
    first = waits[0][0]
    absent = [seen for seen in ranks if seen is not first and _behind(seen, wait)]
    absent = absent or [seen for seen in ranks if seen is not first and _late(seen, wait)]
    same = tuple(pair for pair in waits if _meet(pair[1], wait) and not any(pair[0] is one for one in absent))
    apart = [seen for seen in ranks if not any(seen is one for one, _ in same)]
    if absent:
        return Held(same, tuple(Other(one, _instead(one, wait, live), _where(one, wait, live)) for one in absent))
    return Held(same, tuple(_elsewhere(seen, wait, live) for seen in apart))


def said(found: Held, now: float | None = None) -> str:
    """Return one line of text about a hang while it lasts: who waits how long and where, and what the others do.

    :param now: the time of day in seconds, by the clock of the waits.
    """
    wait, at = found.wait, time.time() if now is None else now
    have = "has" if len(found.waiting) == 1 else "have"
    who = listed([seen for seen, _ in found.waiting])
    text = f"{who} {have} waited {max(at - wait.began, 0):.0f} s in {what(wait)}{_at(wait.site)}"
    return "; ".join([text, *describe_others(found)])


def describe_others(found: Held) -> list[str]:
    """Return texts about the ranks that are waited for; ranks with the same text share one, and at most three are
    listed.
    """
    words: dict[str, list[RankSeen]] = {}
    for one in found.others:
        words.setdefault(one.why, []).append(one.seen)
    texts = [f"{listed(seen)} {why}" for why, seen in words.items()]
    return texts if len(texts) < 5 else [*texts[:3], f"and {len(texts) - 3} more"]


def what(wait: RankWait | Collective) -> str:
    """Return a collective operation as text: name, inputs, number and group, as far as known."""
    inside = f" inside {wait.inside}" if wait.inside else ""
    if wait.number is None:
        return f"{wait.op}{inside}"
    inputs = f" of {wait.inputs}" if wait.inputs else ""
    return f"{wait.op}{inputs}{inside} (number {wait.number} of {_group(wait.group)})"


def name(seen: RankSeen) -> str:
    """Return ``rank 3``, or ``process 1234`` if it has no rank."""
    return f"rank {seen.rank}" if seen.rank is not None else f"process {seen.pid}"


def listed(ranks: Sequence[RankSeen]) -> str:
    """Format ranks as "ranks 0, 1 and 3"."""
    numbers = sorted(seen.rank for seen in ranks if seen.rank is not None)
    return ranks_text(numbers) if len(numbers) == len(ranks) else " and ".join(name(seen) for seen in ranks)


def _at(site: Site | None) -> str:
    """Return a line as the text `` at file.py:12``; empty if it is not known."""
    return "" if site is None else f" at {at_line(lasting(site.file).rpartition('/')[2], site.line)}"


def _group(group: str) -> str:
    """Return a process group as text; its name has a number and a description."""
    return "the default group" if group.endswith("(default_pg)") else f"group {group}"


def _meet(one: RankWait, other: RankWait) -> bool:
    """Return whether two ranks wait in the same operation."""
    if one.number is None or other.number is None:
        return one.site == other.site
    return (one.group, one.number) == (other.group, other.number)


def _parted(ranks: Sequence[RankSeen], group: str) -> tuple[list[tuple[RankSeen, Collective]], Collective] | None:
    """Return the ranks that called another operation than most under the same number, and the usual operation.

    The first such number is used; ``None`` if there is none. In a tie, the operation that followed the previous one
    more often is the usual one.
    """
    by_number: dict[int, list[tuple[RankSeen, Collective]]] = {}
    for seen in ranks:
        lines = {wait.number: wait.site for wait in seen.waits if wait.group == group}
        for one in seen.collectives:
            if one.group == group:
                known = one if one.site is not None else replace(one, site=lines.get(one.number))
                by_number.setdefault(one.number, []).append((seen, known))
    followed: Counter[tuple[Any, Any]] = Counter()
    before = None
    for number in sorted(by_number):
        there = by_number[number]
        counts = Counter(_alike(one) for _, one in there)
        most = max(counts, key=lambda op: (counts[op], followed[before, op]))
        followed[before, most] += 1
        before = most
        if counts[most] < len(there):
            odd = [(seen, one) for seen, one in there if _alike(one) != most]
            return odd, next(one for _, one in there if _alike(one) == most)
    return None


def _groups(ranks: Iterable[RankSeen]) -> list[str]:
    """Return the names of the process groups in which the ranks called operations."""
    return list(dict.fromkeys(one.group for seen in ranks for one in seen.collectives))


def apart(ranks: Sequence[RankSeen]) -> bool:
    """Return whether ranks called collective operations that do not match, which crashes a rank if their
    shapes differ.
    """
    differ = any(_parted(ranks, group) is not None for group in _groups(ranks))
    return differ or bool(slipped(ranks)) or bool(_gaps(ranks))


def slipped(ranks: Sequence[RankSeen]) -> list[Other] | None:
    """Return the ranks that called fewer or more operations in a step than others, although later operations matched.

    ``None`` if steps and operations agree, or if too little is known to say.
    """
    for group in _groups(ranks):
        calls = {n: [one for one in seen.collectives if one.group == group] for n, seen in enumerate(ranks)}
        calls = {n: own for n, own in calls.items() if own}
        if len(calls) < 2 or any(one.step is None for own in calls.values() for one in own):
            continue
        steps = {n: {one.number: one.step for one in own} for n, own in calls.items()}
        common = sorted(set.intersection(*(set(own) for own in steps.values())))
        apart = [number for number in common if len({own[number] for own in steps.values()}) > 1]
        if not apart:
            continue
        each = max(max(Counter(own.values()).values()) for own in steps.values())
        # A rank that is behind stays behind: in each step some operation meets one of the next step.
        behind = {min(steps, key=lambda n: steps[n][number] or 0) for number in apart}
        gaps = [after - one for one, after in zip(apart, [*apart[1:], common[-1]], strict=True)]
        if len(behind) > 1 or max(gaps) > each:
            continue
        agreed = [own[number] for number in common if number < apart[0] for own in steps.values()]
        low = min(own[apart[0]] or 0 for own in steps.values())
        before = {step for step in agreed if step is not None and step != low}
        if len(before) < thresholds.RANKS_MIN_AGREED_STEPS or max(before) - min(before) + 1 != len(before):
            continue  # if some steps have no operation, ranks may run any number of steps between two operations
        return _who_slipped(ranks, calls, low)
    return None


def _who_slipped(ranks: Sequence[RankSeen], calls: dict[int, list[Collective]], low: int) -> list[Other]:
    """Return the ranks that called the wrong number of operations in step `low`.

    Some ranks called an operation there that others did not. If the others called it more often in an earlier step,
    they left it out; otherwise the ranks that called it are wrong.

    :param calls: the operations in one group, by position of the rank.
    """
    there = {n: [one for one in own if one.step == low] for n, own in calls.items()}
    most, least = max(there, key=lambda n: len(there[n])), min(there, key=lambda n: len(there[n]))
    pairs = zip(there[most], [*there[least], *[None] * len(there[most])], strict=False)
    odd = next((one for one, other in pairs if other is None or _place(one) != _place(other)), None)
    if odd is None:
        return []
    each = Counter(one.step for one in calls[least] if _place(one) == _place(odd))
    known = each[low] < max((count for step, count in each.items() if step is not None and step < low), default=0)
    found = []
    for n, own in there.items():
        if (len(own) < len(there[most])) == known:
            other = most if known else least
            why = f"{'left out' if known else 'called'} {_with_inputs(odd)}{_at(odd.site)} in step {low}: it called "
            why += f"{counted(len(own), 'operation')} there, {name(ranks[other])} {len(there[other])}"
            found.append(Other(ranks[n], f"{why}, and from then on operations of two steps met", odd.site, low))
    return found


def _gaps(ranks: Sequence[RankSeen]) -> list[Other]:
    """Return the ranks that left out an operation in their last step, judged by the complete steps of all ranks.

    Used if a crash left no record of a rank's last call.
    """
    for group in _groups(ranks):
        steps = [_by_step(seen, group) for seen in ranks]
        begins = {calls[0].number for own in steps for calls in list(own.values())[1:]}
        whole = [
            [_called_with(one) for one in calls]
            for own in steps
            for calls in list(own.values())[1:]  # the beginning of the first may be missing
            if any(at > calls[-1].number and (at - calls[-1].number - 1) % len(calls) == 0 for at in begins)
        ]
        if not whole or any(one != whole[0] for one in whole):
            continue
        usual, found = whole[0], []
        for seen, own in zip(ranks, steps, strict=True):
            if len(own) < 2 or seen.step not in own:
                continue
            last = own[seen.step]
            pairs = zip(usual, [*map(_called_with, last), *[None] * len(usual)], strict=False)
            at = next((at for at, (one, other) in enumerate(pairs) if one != other), len(usual))
            rest = [_called_with(one) for one in last[at:]]
            # It begins like the usual step and continues like a later part of it: inputs may differ between steps.
            if at and rest and any(usual[later : later + len(rest)] == rest for later in range(at + 1, len(usual))):
                op, inputs, site = usual[at]
                why = f"left out {op} of {inputs}{_at(site)} in step {seen.step}, which steps before called there"
                found.append(Other(seen, why, site, seen.step))
        if found and len(found) < len(ranks):
            return found
    return []


def _diverged_before_crash(ranks: Sequence[RankSeen]) -> Held | None:
    """Return the ranks that diverged before one crashed, and those that wait; ``None`` if all were at one line.

    Call it only if a rank crashed. The diverged ranks are those at a line where no rank has called an operation before,
    or else the ranks that crashed. The records of earlier calls may be missing.
    """
    last = {n: wait for n, seen in enumerate(ranks) if (wait := _last(seen)) is not None and wait.site is not None}
    if len({wait.site for wait in last.values()}) < 2:
        return None
    before = {one.site for n in last for one in ranks[n].collectives if one.began < last[n].began}
    odd = [n for n, wait in last.items() if wait.site not in before]
    if not 0 < len(odd) < len(last):
        odd = [n for n in last if ranks[n].error.startswith(CRASHED)]
    rest = tuple((ranks[n], wait) for n, wait in last.items() if n not in odd)
    if not odd or not rest:
        return None
    step = max((seen.step for seen in ranks if seen.step is not None), default=None)  # a rank's last report may be old
    crash = {n: ", and crashed there" if ranks[n].error.startswith(CRASHED) else "" for n in odd}
    return Held(
        tuple(sorted(rest, key=lambda pair: pair[1].began)),
        tuple(Other(ranks[n], f"called {what(last[n])}{_at(last[n].site)}{crash[n]}", last[n].site, step) for n in odd),
    )


def _last(seen: RankSeen) -> RankWait | None:
    """Return the operation that a rank did not return from, if its line is known, or else its last one."""
    stays = next((wait for wait in reversed(seen.waits) if wait.ended != "returned" and wait.site is not None), None)
    if stays is not None or not seen.collectives:
        return stays
    one = seen.collectives[-1]
    return RankWait(one.op, one.site, one.began, 0.0, "raised", group=one.group, number=one.number, inputs=one.inputs)


def _by_step(seen: RankSeen, group: str) -> dict[int, list[Collective]]:
    """Return the operations that a rank called in a group, by step."""
    found: dict[int, list[Collective]] = {}
    for one in seen.collectives:
        if one.group == group and one.step is not None:
            found.setdefault(one.step, []).append(one)
    return found


def _called_with(one: Collective) -> tuple[str, str, Site | None]:
    """Return what tells operations in a sequence apart: name, inputs and line."""
    return one.op, one.inputs, one.site


def _place(one: Collective) -> tuple[str, Site | None]:
    """Return name and line of an operation."""
    return one.op, one.site


def _alike(one: Collective) -> tuple[str, str]:
    """Return the properties of an operation that have to be equal on all ranks under one number."""
    return one.op, "" if one.op.startswith(_UNEVEN) else one.inputs


def _with_inputs(one: Collective) -> str:
    """Return an operation as text: its name, and its inputs if known."""
    return f"{one.op} of {one.inputs}" if one.inputs else one.op


def last_in_common(found: Held) -> Collective | None:
    """Return the last operation before the hang that the first absent rank called like the waiting ranks.

    ``None`` if there is none or operations are not numbered.
    """
    if not found.others or found.wait.number is None:
        return None
    usual = {one.number: one for one in found.waiting[0][0].collectives if one.group == found.wait.group}
    own = [one for one in found.others[0].seen.collectives if one.group == found.wait.group]
    common = [one for one in own if one.number in usual and _alike(one) == _alike(usual[one.number])]
    return max((one for one in common if one.number < found.wait.number), key=lambda one: one.number, default=None)


def _called(own: Collective, usual: Collective) -> str:
    """Return in words which operation a rank called where the others called `usual` under the same number."""
    mine, theirs = _with_inputs(own), _with_inputs(usual)
    where = _at(usual.site) if usual.site != own.site else ""
    number = f"number {own.number} of {_group(own.group)}"
    return f"called {mine}{_at(own.site)} as {number}, where others called {theirs}{where}"


def _counted(other: Other, usual: RankSeen) -> Other:
    """Return `other` with its number of backward calls added to the text, if it differs from that of `usual`."""
    mine, theirs = other.seen.backwards, usual.backwards
    if mine == theirs:
        return other
    return replace(other, why=f"{other.why}; it has made {counted(mine, 'backward call')}, {name(usual)} {theirs}")


def _of(seen: RankSeen, group: str) -> Collective | None:
    """Return the last operation that a rank called in a group; ``None`` if it called none."""
    return next((one for one in reversed(seen.collectives) if one.group == group), None)


def _behind(seen: RankSeen, wait: RankWait) -> bool:
    """Return whether a rank has not called the numbered operation that another rank waits in."""
    if wait.number is None:
        return False
    last = _of(seen, wait.group)
    if last is None:  # not in the group if it has called others; every rank is in the first group
        return not seen.collectives or wait.group.startswith("0 ")
    return last.number < wait.number


def _met(seen: RankSeen, wait: RankWait, ranks: Sequence[RankSeen]) -> bool:
    """Return whether a wait ended unobserved: all ranks arrived, and the rank went on to the next operation."""
    last = _of(seen, wait.group)
    went_on = wait.number is not None and last is not None and last.number > wait.number
    return went_on and not any(_behind(one, wait) for one in ranks if one is not seen)


def _late(seen: RankSeen, wait: RankWait) -> bool:
    """Return whether a rank called the operation long after another began to wait in it."""
    last = _of(seen, wait.group)
    return last is not None and last.number == wait.number and last.began > wait.began + thresholds.RANK_LATE_AFTER_S


def _instead(seen: RankSeen, wait: RankWait, live: bool) -> str:
    """Return in words what a rank does, or did, instead of joining the operation in which another waits.

    :param live: the run is going on.
    """
    last = _of(seen, wait.group)
    if last is not None and wait.number is not None and last.number >= wait.number:
        before = _where(seen, wait, live)
        was = f": it was{_at(before)}" + (f": {before.text}" if before.text else "") if before is not None else ""
        return f"came to it {last.began - wait.began:.0f} s later{was}"
    missing = "has not called it" if live else "did not call it"
    if last is not None:
        missing += f" (its last there is number {last.number}, {last.op})"
    state = _state(seen, wait, live)
    return f"{missing}: it {state}" if state else missing


def _state(seen: RankSeen, wait: RankWait, live: bool) -> str:
    """Return in words what a rank does, or did: another wait, an exception, its end, or its last known line.

    Empty if nothing is known.
    """
    own = next((one for one in reversed(seen.waits) if one.ended != "returned" and not _alike_place(one, wait)), None)
    if own is not None:
        return f"{'waits' if live else 'waited'} in {what(own)}{_at(own.site)}"
    error = seen.error.strip().partition("\n")[0]
    if error and not _of_collective(error):
        return f"raised {error}{_at(seen.raised)}"
    # The trail does not grow while a process stays on one line: the time of its last report counts.
    ended_before = not seen.said or seen.said < wait.began + wait.seconds / 2
    was_seen = any(at >= wait.began for at, _ in seen.trail)
    if seen.over and not error and not seen.signal and ended_before and not was_seen:
        return "had come to its end"
    site = _where(seen, wait, live)
    place = _at(site) + (f": {site.text}" if site is not None and site.text else "")
    if not live:
        return f"was{place}" if place else ""
    if is_there(seen.pid, seen.machine) is False:
        return f"is gone; last seen{place}" if place else "is gone"
    if seen.said and time.time() - seen.said > thresholds.RANK_SILENT_AFTER_S:
        return f"has not answered for {time.time() - seen.said:.0f} s; last seen{place}"
    doing = "is" if seen.busy is None else "computes" if seen.busy >= thresholds.RANK_BUSY_USAGE else "stands still"
    return f"{doing}{place}" if place else ""


def _alike_place(one: RankWait, other: RankWait) -> bool:
    """Return whether two waits are at the same line and in the same group, as far as the groups are known."""
    return one.site == other.site and (one.group == other.group or not one.group or not other.group)


def _of_collective(error: str) -> bool:
    """Return whether the text of an error is about a collective operation, and so a consequence of another
    rank's end.
    """
    return any(word in error.lower() for word in COLLECTIVE)


def _where(seen: RankSeen, wait: RankWait, live: bool) -> Site | None:
    """Return the line of a rank while another waited: of another wait, of its exception, or the last one observed."""
    for own in seen.waits:
        if (
            not _alike_place(own, wait)
            and own.began < wait.began + wait.seconds
            and own.began + own.seconds > wait.began
        ):
            return own.site
    if seen.raised is not None and not _of_collective(seen.error):
        return seen.raised
    trail = seen.trail if live else [(at, site) for at, site in seen.trail if at <= wait.began + wait.seconds]
    before = [site for _, site in trail if site != wait.site]
    return before[-1] if before else None


def _elsewhere(seen: RankSeen, wait: RankWait, live: bool) -> Other:
    """Return a rank, and in words where it is or was, if it is not in the operation in which another waits."""
    for own in seen.waits:
        if own.began + own.seconds > wait.began and own.site != wait.site:
            return Other(seen, f"{'waits' if live else 'waited'} in {what(own)}{_at(own.site)}", own.site)
    return Other(seen, _instead(seen, wait, live), _where(seen, wait, live))
