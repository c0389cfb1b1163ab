"""The processes of a run side by side, as text: a row for each, or for all of which the same is to be said."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from ..coverage import ranks_text
from ..records import Finding, Process
from ..text import counted, number, plural
from ..traces import Trace

#: Processes that have a row each, even where the same is to be said of several.
FEW = 4
COLUMNS = ("rank", "pid", "steps", "recorded", "last loss", "ended", "first finding")


def several(trace: Trace) -> list[Process]:
    """The processes of a run of several, ranks first; empty for one that is alone."""
    ran = trace.processes
    if len(ran) < 2 and not (ran and ran[0].part):
        return []
    return sorted(ran, key=lambda one: one.rank is None)


def summary(ran: Sequence[Process]) -> str:
    """What they did, in a few words."""
    trained = [one for one in ran if one.backwards or one.steps]
    ranks = sorted({one.rank for one in ran if one.rank is not None})
    who = ranks_text(ranks) if ranks else f"{len(trained)} {plural(trained, 'process', 'processes')}"
    if not trained:
        return f"{who}, no backward call"
    most = max(trained, key=lambda one: one.backwards)
    few = min(trained, key=lambda one: one.backwards)
    steps = counted(most.steps, "step")
    same = len(trained) == 1 or most.backwards == few.backwards
    each = "" if len(trained) == 1 else " each" if same else " at most"
    return f"{who}, {steps}, {counted(most.backwards, 'backward call')}{each}"


def took(ran: Sequence[Process]) -> Mapping[str, Any]:
    """What watching took, as it is stored with a run, in that process which it slowed down most: the others wait for
    it. Not that of a launcher, which trains nothing."""
    told = [one.took for one in ran if (one.steps or one.backwards) and "own" in one.took]
    return max(told, key=_added, default={})


def _added(took: Mapping[str, Any]) -> float:
    """Seconds that watching added to one process."""
    told = took.get("overhead")
    return float(took["first_cost"] + took["own"] if told is None else told["added"])


def of(finding: Finding) -> str:
    """The rank, or ranks, that a finding is about: the first of them, where the others came later."""
    ranks = [int(rank) for rank in finding.evidence.get("ranks", ())]
    if finding.rank is None:
        process = finding.evidence.get("process")
        return "" if process is None else f"none (process {process})"
    rest = [rank for rank in ranks if rank != finding.rank]
    return f"{finding.rank}, then {ranks_text(rest)}" if rest else str(finding.rank)


def chosen(trace: Trace, ran: Sequence[Process]) -> str:
    """The process that a trace has the steps of."""
    mine = next((one for one in ran if one.part == trace.info.get("part")), None)
    if mine is None:
        return "no process: none has recorded a step"
    return f"rank {mine.rank}" if mine.rank is not None else f"process {mine.pid}"


def titled(name: str, trace: Trace) -> str:
    """What to call a run, with the process whose steps are shown where it is one of several."""
    ran = several(trace)
    return f"{name} ({chosen(trace, ran)} of {len(ran)} processes)" if trace.info.get("part") else name


def table(ran: Sequence[Process], findings: Sequence[Finding]) -> tuple[Sequence[str], list[list[str]]]:
    """Columns and rows."""
    rows = []
    for same in _groups(ran, findings):
        one = same[0]
        ranks = [each.rank for each in same if each.rank is not None]
        name = ranks_text(ranks).partition(" ")[2] if ranks else ""
        name += f" (restart {one.restart})" if one.restart else ""
        losses = sorted(each.loss for each in same if each.loss is not None)
        ends = sorted({number(loss) for loss in losses[:1] + losses[-1:]})
        rows.append(
            [
                *(name, str(one.pid) if len(same) == 1 else f"{len(same)} processes"),
                *(str(one.steps), "" if one.recorded is None else str(one.recorded)),
                *(" to ".join(ends), ended(one), first(one, findings)),
            ]
        )
    return COLUMNS, rows


def _groups(ran: Sequence[Process], findings: Sequence[Finding]) -> Iterator[list[Process]]:
    """Ranks in a row of which the same is to be said, their losses apart."""
    if len(ran) <= FEW:
        yield from ([one] for one in ran)
        return

    def said(one: Process) -> tuple[object, ...]:
        return one.rank is None, one.steps, one.recorded, ended(one), one.restart, first(one, findings)

    for _, same in groupby(ran, key=said):
        yield list(same)


def ended(one: Process) -> str:
    """How a process ended, in a word or two."""
    if one.ended == "killed":
        return signal.Signals(one.signal).name if one.signal else "killed"
    if one.ended != "failed":
        return one.ended
    name = one.error.partition(":")[0].partition("\n")[0]
    return name[:30] if name else f"exit code {one.code}"


def first(one: Process, findings: Sequence[Finding]) -> str:
    """The number and kind of the first finding about a process; empty where there is none."""
    for at, finding in enumerate(findings, 1):
        ranks = finding.evidence.get("ranks") or [finding.rank]
        process = finding.evidence.get("process", None if one.part else one.pid)
        mine = one.rank in ranks if one.rank is not None else finding.rank is None and process == one.pid
        if mine:
            return f"{at}. {finding.kind}"
    return ""
