"""Which rank the others wait for, from what each process said of itself last: while a run goes on, and of its records.

Note [Who is absent]: ranks meet in the collective operations of a process group, which each of them numbers from 1. Who
    waits in number N waits for those that have not come to N, or came late. Where the last operations of two ranks have
    one number and are not alike, that is where they parted. Where they are alike, and are of two steps, one rank called
    fewer in the earlier step than it does in others, or one called more: they parted there, though what met was alike.
    Without numbers, places in the script decide.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .coverage import is_there, ranks_text
from .records import Collective, RankSeen, RankWait, Site
from .records.places import at_line, lasting
from .text import counted
from .torch_texts import COLLECTIVE, INTERRUPTED, OF_CHILDREN

#: Seconds after which a rank that comes is late; seconds without a word after which one does not answer.
_LATE, _SILENT = 5.0, 15.0
#: Operations whose inputs may differ from rank to rank.
_UNEVEN = ("scatter", "gather", "alltoall", "all_to_all")
#: How the error of a process begins that an error in C++ ended, as unequal shapes do.
CRASHED = "Fatal Python error: Aborted"
#: Share of a processor from which on a process computes: one that sleeps uses none to speak of.
_BUSY = 0.1


@dataclass(frozen=True)
class Other:
    """A rank that the others wait for.

    :ivar why: what it did instead, in words.
    :ivar site: where it was, or what it left out. ``step``: in which step, where that is known.
    """

    seen: RankSeen
    why: str
    site: Site | None
    step: int | None = None


@dataclass(frozen=True)
class Held:
    """Ranks that wait, and those that they wait for."""

    waiting: tuple[tuple[RankSeen, RankWait], ...]
    others: tuple[Other, ...]

    @property
    def wait(self) -> RankWait:
        """What the one that waits longest waits in."""
        return min((wait for _, wait in self.waiting), key=lambda wait: wait.began)


#: How errors of processes begin that only started the others.
OF_LAUNCHERS = (*OF_CHILDREN, *INTERRUPTED)


def stuck(ranks: Iterable[RankSeen]) -> list[tuple[RankSeen, RankWait]]:
    """Who waits, the first of them first."""
    found = [(seen, wait) for seen in ranks for wait in seen.waits if wait.ended != "returned"]
    return sorted(found, key=lambda pair: pair[1].began)


def held(ranks: Sequence[RankSeen], live: bool = False) -> Held | None:
    """Who waits for whom; ``None`` where nobody waits.

    :param live: the run goes on: where a rank is now counts, not where it was.
    """
    ranks = [seen for seen in ranks if seen.rank is not None or not seen.error.startswith(OF_LAUNCHERS)]
    waits = [(seen, wait) for seen, wait in stuck(ranks) if not _met(seen, wait, ranks)]
    if not waits:
        return None
    wait = waits[0][1]
    slip = None if live else slipped(ranks)
    if slip is None and wait.number is None and not live and any(seen.error.startswith(CRASHED) for seen in ranks):
        slip = _gaps(ranks) or None
        if slip is None and (torn := _crashed(ranks)) is not None:
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
    """A hang in words, while it lasts.

    :param now: the time of day, by the clock that the waits were taken with.
    """
    wait, at = found.wait, time.time() if now is None else now
    have = "has" if len(found.waiting) == 1 else "have"
    who = listed([seen for seen, _ in found.waiting])
    text = f"{who} {have} waited {max(at - wait.began, 0):.0f} s in {what(wait)}{_at(wait.site)}"
    return "; ".join([text, *told(found)])


def told(found: Held) -> list[str]:
    """What the others did, or do: those of whom the same is to be said together."""
    words: dict[str, list[RankSeen]] = {}
    for one in found.others:
        words.setdefault(one.why, []).append(one.seen)
    texts = [f"{listed(seen)} {why}" for why, seen in words.items()]
    return texts if len(texts) < 5 else [*texts[:3], f"and {len(texts) - 3} more"]


def what(wait: RankWait | Collective) -> str:
    """The operation that is waited for."""
    inside = f" inside {wait.inside}" if wait.inside else ""
    if wait.number is None:
        return f"{wait.op}{inside}"
    inputs = f" of {wait.inputs}" if wait.inputs else ""
    return f"{wait.op}{inputs}{inside} (number {wait.number} of {_group(wait.group)})"


def name(seen: RankSeen) -> str:
    return f"rank {seen.rank}" if seen.rank is not None else f"process {seen.pid}"


def listed(ranks: Sequence[RankSeen]) -> str:
    """ "ranks 0, 1 and 3"."""
    numbers = sorted(seen.rank for seen in ranks if seen.rank is not None)
    return ranks_text(numbers) if len(numbers) == len(ranks) else " and ".join(name(seen) for seen in ranks)


def _at(site: Site | None) -> str:
    return "" if site is None else f" at {at_line(lasting(site.file).rpartition('/')[2], site.line)}"


def _group(group: str) -> str:
    return "the default group" if group.endswith("(default_pg)") else f"group {group}"


def _meet(one: RankWait, other: RankWait) -> bool:
    """Whether two ranks wait in the same operation."""
    if one.number is None or other.number is None:
        return one.site == other.site
    return (one.group, one.number) == (other.group, other.number)


def _parted(ranks: Sequence[RankSeen], group: str) -> tuple[list[tuple[RankSeen, Collective]], Collective] | None:
    """The ranks whose operation is not that of most others, under the first number of which that is so; and that of the
    others. Where as many called one as another, that is usual which has come after the operation before more often."""
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
    return list(dict.fromkeys(one.group for seen in ranks for one in seen.collectives))


def apart(ranks: Sequence[RankSeen]) -> bool:
    """Whether ranks called operations that do not fit each other: shapes that meet wrongly crash a rank."""
    differ = any(_parted(ranks, group) is not None for group in _groups(ranks))
    return differ or bool(slipped(ranks)) or bool(_gaps(ranks))


#: Steps in which ranks have to have agreed before.
AGREED = 2


def slipped(ranks: Sequence[RankSeen]) -> list[Other] | None:
    """The ranks that called fewer operations in a step than others did, or more, where all that met later was alike."""
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
        # Who is behind stays behind: in each step some operation meets one of the next.
        behind = {min(steps, key=lambda n: steps[n][number] or 0) for number in apart}
        gaps = [after - one for one, after in zip(apart, [*apart[1:], common[-1]], strict=True)]
        if len(behind) > 1 or max(gaps) > each:
            continue
        agreed = [own[number] for number in common if number < apart[0] for own in steps.values()]
        low = min(own[apart[0]] or 0 for own in steps.values())
        before = {step for step in agreed if step is not None and step != low}
        if len(before) < AGREED or max(before) - min(before) + 1 != len(before):
            continue  # where there are steps without one, the ranks may make as many as they like between two
        return _who_slipped(ranks, calls, low)
    return None


def _who_slipped(ranks: Sequence[RankSeen], calls: dict[int, list[Collective]], low: int) -> list[Other]:
    """In step `low` some called an operation that others did not: those are odd that left out what they had called so
    often in a step before, or, where they called it no less than before, those that called it."""
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
    """The ranks that left out an operation in the step in which they ended, as their own steps and those of others were
    before. For where a crash left no word of what a rank called last."""
    for group in _groups(ranks):
        steps = [_by_step(seen, group) for seen in ranks]
        begins = {calls[0].number for own in steps for calls in list(own.values())[1:]}
        whole = [
            [_called_with(one) for one in calls]
            for own in steps
            for calls in list(own.values())[1:]  # of the first the beginning may be gone
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
            # It begins as they do, and goes on as they do later: inputs alone may differ from step to step.
            if at and rest and any(usual[later : later + len(rest)] == rest for later in range(at + 1, len(usual))):
                op, inputs, site = usual[at]
                why = f"left out {op} of {inputs}{_at(site)} in step {seen.step}, which steps before called there"
                found.append(Other(seen, why, site, seen.step))
        if found and len(found) < len(ranks):
            return found
    return []


def _crashed(ranks: Sequence[RankSeen]) -> Held | None:
    """Who parted where a rank crashed in an operation, as its stack says, and others were in another: those that are
    where no rank has called one before, or else those that crashed. Of what they called before, no word may be left."""
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
    step = max((seen.step for seen in ranks if seen.step is not None), default=None)  # the last word may be an old one
    crash = {n: ", and crashed there" if ranks[n].error.startswith(CRASHED) else "" for n in odd}
    return Held(
        tuple(sorted(rest, key=lambda pair: pair[1].began)),
        tuple(Other(ranks[n], f"called {what(last[n])}{_at(last[n].site)}{crash[n]}", last[n].site, step) for n in odd),
    )


def _last(seen: RankSeen) -> RankWait | None:
    """The operation that a rank did not come out of, where its line is known, or that it called last."""
    stays = next((wait for wait in reversed(seen.waits) if wait.ended != "returned" and wait.site is not None), None)
    if stays is not None or not seen.collectives:
        return stays
    one = seen.collectives[-1]
    return RankWait(one.op, one.site, one.began, 0.0, "raised", group=one.group, number=one.number, inputs=one.inputs)


def _by_step(seen: RankSeen, group: str) -> dict[int, list[Collective]]:
    found: dict[int, list[Collective]] = {}
    for one in seen.collectives:
        if one.group == group and one.step is not None:
            found.setdefault(one.step, []).append(one)
    return found


def _called_with(one: Collective) -> tuple[str, str, Site | None]:
    return one.op, one.inputs, one.site


def _place(one: Collective) -> tuple[str, Site | None]:
    return one.op, one.site


def _alike(one: Collective) -> tuple[str, str]:
    """What all ranks have to call under one number."""
    return one.op, "" if one.op.startswith(_UNEVEN) else one.inputs


def _with_inputs(one: Collective) -> str:
    return f"{one.op} of {one.inputs}" if one.inputs else one.op


def last_in_common(found: Held) -> Collective | None:
    """The last operation, of the group that is waited in, that the first of those waited for called as the others did
    who wait."""
    if not found.others or found.wait.number is None:
        return None
    usual = {one.number: one for one in found.waiting[0][0].collectives if one.group == found.wait.group}
    own = [one for one in found.others[0].seen.collectives if one.group == found.wait.group]
    common = [one for one in own if one.number in usual and _alike(one) == _alike(usual[one.number])]
    return max((one for one in common if one.number < found.wait.number), key=lambda one: one.number, default=None)


def _called(own: Collective, usual: Collective) -> str:
    mine, theirs = _with_inputs(own), _with_inputs(usual)
    where = _at(usual.site) if usual.site != own.site else ""
    number = f"number {own.number} of {_group(own.group)}"
    return f"called {mine}{_at(own.site)} as {number}, where others called {theirs}{where}"


def _counted(other: Other, usual: RankSeen) -> Other:
    """With how many backward calls it has made, where others have made more or fewer."""
    mine, theirs = other.seen.backwards, usual.backwards
    if mine == theirs:
        return other
    return replace(other, why=f"{other.why}; it has made {counted(mine, 'backward call')}, {name(usual)} {theirs}")


def _of(seen: RankSeen, group: str) -> Collective | None:
    """The last that a rank called in a group."""
    return next((one for one in reversed(seen.collectives) if one.group == group), None)


def _behind(seen: RankSeen, wait: RankWait) -> bool:
    """Whether a rank has not come to where another waits, as numbers say it."""
    if wait.number is None:
        return False
    last = _of(seen, wait.group)
    if last is None:  # not of the group, where it knows of others; all are of the first
        return not seen.collectives or wait.group.startswith("0 ")
    return last.number < wait.number


def _met(seen: RankSeen, wait: RankWait, ranks: Sequence[RankSeen]) -> bool:
    """Whether a wait was over though nobody saw its end: all came, and the rank went on to the next operation."""
    last = _of(seen, wait.group)
    went_on = wait.number is not None and last is not None and last.number > wait.number
    return went_on and not any(_behind(one, wait) for one in ranks if one is not seen)


def _late(seen: RankSeen, wait: RankWait) -> bool:
    """Whether a rank came to where another waits long after it."""
    last = _of(seen, wait.group)
    return last is not None and last.number == wait.number and last.began > wait.began + _LATE


def _instead(seen: RankSeen, wait: RankWait, live: bool) -> str:
    """What a rank that is behind does, or did."""
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
    """What a rank does, or where it was while the other waited."""
    own = next((one for one in reversed(seen.waits) if one.ended != "returned" and not _alike_place(one, wait)), None)
    if own is not None:
        return f"{'waits' if live else 'waited'} in {what(own)}{_at(own.site)}"
    error = seen.error.strip().partition("\n")[0]
    if error and not _of_collective(error):
        return f"raised {error}{_at(seen.raised)}"
    # A trail has no more to say while a process stays on one line: what counts is when it said its last word.
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
    if seen.said and time.time() - seen.said > _SILENT:
        return f"has not answered for {time.time() - seen.said:.0f} s; last seen{place}"
    doing = "is" if seen.busy is None else "computes" if seen.busy >= _BUSY else "stands still"
    return f"{doing}{place}" if place else ""


def _alike_place(one: RankWait, other: RankWait) -> bool:
    """One line may call operations of several groups."""
    return one.site == other.site and (one.group == other.group or not one.group or not other.group)


def _of_collective(error: str) -> bool:
    return any(word in error.lower() for word in COLLECTIVE)


def _where(seen: RankSeen, wait: RankWait, live: bool) -> Site | None:
    """Where a rank was while another waited: in another operation, where it raised, or where it was seen last."""
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
    """One that is not where a rank waits, as far as places in the script can tell."""
    for own in seen.waits:
        if own.began + own.seconds > wait.began and own.site != wait.site:
            return Other(seen, f"{'waits' if live else 'waited'} in {what(own)}{_at(own.site)}", own.site)
    return Other(seen, _instead(seen, wait, live), _where(seen, wait, live))
