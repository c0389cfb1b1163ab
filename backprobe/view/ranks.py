"""The processes of a run as a text table: a row for each, or for several with equal cells."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from ..basics.text import counted, number, plural
from ..records import Finding, Process
from ..traces import Trace
from ..traces.coverage import ranks_text

#: Number of processes up to which each has a row of its own.
MAX_SINGLE_ROWS = 4
COLUMNS = ("rank", "pid", "steps", "recorded", "last loss", "ended", "first finding")


def several(trace: Trace) -> list[Process]:
    """Return the processes of a multi-process run, ranks first; empty for a single process."""
    ran = trace.processes
    if len(ran) < 2 and not (ran and ran[0].part):
        return []
    return sorted(ran, key=lambda one: one.rank is None)


def summary(ran: Sequence[Process]) -> str:
    """Return the number of ranks, steps and backward calls of a run of several processes as a short text."""
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
    """Return the overhead data of the process that was slowed down most, since the others wait for it; empty if none
    has any.

    A launcher, which trains nothing, does not count.
    """
    told = [one.took for one in ran if (one.steps or one.backwards) and "own" in one.took]
    return max(told, key=_added, default={})


def _added(took: Mapping[str, Any]) -> float:
    """Return the seconds of overhead in one process."""
    told = took.get("overhead")
    return float(took["first_cost"] + took["own"] if told is None else told["added"])


def of(finding: Finding) -> str:
    """Return the ranks of a finding as text: the first, then those that came later; empty if it has none."""
    ranks = [int(rank) for rank in finding.evidence.get("ranks", ())]
    if finding.rank is None:
        process = finding.evidence.get("process")
        return "" if process is None else f"none (process {process})"
    rest = [rank for rank in ranks if rank != finding.rank]
    return f"{finding.rank}, then {ranks_text(rest)}" if rest else str(finding.rank)


def chosen(trace: Trace, ran: Sequence[Process]) -> str:
    """Return the name of the process whose steps are in a trace, such as ``rank 0``."""
    mine = next((one for one in ran if one.part == trace.info.get("part")), None)
    if mine is None:
        return "no process: none has recorded a step"
    return f"rank {mine.rank}" if mine.rank is not None else f"process {mine.pid}"


def titled(name: str, trace: Trace) -> str:
    """Return the title of a run: its name, and for several processes the one whose steps are shown."""
    ran = several(trace)
    return f"{name} ({chosen(trace, ran)} of {len(ran)} processes)" if trace.info.get("part") else name


def table(ran: Sequence[Process], findings: Sequence[Finding]) -> tuple[Sequence[str], list[list[str]]]:
    """Return the table of the processes: its columns, and a row for each process or group of equal ones."""
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
    """Yield groups of consecutive ranks whose rows are equal except for the loss."""
    if len(ran) <= MAX_SINGLE_ROWS:
        yield from ([one] for one in ran)
        return

    def said(one: Process) -> tuple[object, ...]:
        """Return the cells of a process by which it is grouped."""
        return one.rank is None, one.steps, one.recorded, ended(one), one.restart, first(one, findings)

    for _, same in groupby(ran, key=said):
        yield list(same)


def ended(one: Process) -> str:
    """Return how a process ended, in one or two words."""
    if one.ended == "killed":
        return signal.Signals(one.signal).name if one.signal else "killed"
    if one.ended != "failed":
        return one.ended
    name = one.error.partition(":")[0].partition("\n")[0]
    return name[:30] if name else f"exit code {one.code}"


def first(one: Process, findings: Sequence[Finding]) -> str:
    """Return the number and kind of the first finding about a process, such as ``2. none-grad``; empty if there is
    none.
    """
    for at, finding in enumerate(findings, 1):
        ranks = finding.evidence.get("ranks") or [finding.rank]
        process = finding.evidence.get("process", None if one.part else one.pid)
        mine = one.rank in ranks if one.rank is not None else finding.rank is None and process == one.pid
        if mine:
            return f"{at}. {finding.kind}"
    return ""
