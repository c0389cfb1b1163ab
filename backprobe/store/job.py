"""Reads a run of several processes as one: each process, and the steps of one of them. Never imports torch."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..basics.errors import BackprobeError
from ..findings import explain
from ..records import Facts, Finding, RankSeen, RankWait, Site, Unseen, Watched
from ..records.places import NOT_KEPT, sites_in
from ..traces import Trace, TracedStep
from ..traces.coverage import is_there, missing, runs
from . import FILE
from .crashes import read_crash
from .parts import JOB, PARTS, in_order, read_parts, tells, unwatched
from .reader import open_run
from .sharded import Whole, sharded


def is_run(folder: Path) -> bool:
    """Return whether there is a run in `folder`."""
    return (folder / FILE).is_file() or (folder / JOB).is_file()


def written(folder: Path) -> float:
    """Return when a run was last written, in seconds since 1970."""
    return max(
        path.stat().st_mtime for path in (folder / FILE, folder / JOB, *folder.glob(f"{PARTS}/*")) if path.exists()
    )


def going_on(folder: Path) -> bool:
    """Return whether a process of the run in `folder` is still running, as far as this machine can tell."""
    if any(goes_on(one) for one in read_parts(folder).values()):
        return True
    if not (folder / FILE).is_file():
        return False
    try:
        own = open_run(folder)
    except BackprobeError:
        return False
    try:
        return not own.over and runs(own.info) is True
    finally:
        own.close()


def load_run(folder: str | Path, rank: int | None = None) -> Trace:
    """Load the run in `folder`, with the findings of all its processes.

    The steps are those of the process that ``backprobe run`` started, if it has some; otherwise of the process that the
    first finding is about, or that failed, or of the first rank.

    :param rank: read the steps of this rank.
    :raises BackprobeError: there is no run, or none of that rank; see also ``open_run``.
    """
    folder = Path(folder)
    if not is_run(folder) and not (folder / PARTS).is_dir():
        return open_run(folder)  # raises an error that says which file is missing
    return job_of(folder, open_run(folder) if (folder / FILE).is_file() else None, rank)


def job_of(folder: Path, own: Trace | None, rank: int | None = None) -> Trace:
    """Load a run like ``load_run``, given the trace of the process that ``backprobe run`` started.

    :param own: that trace, which is closed if another process is chosen; ``None`` if each rank was started by itself.
    """
    seen = {part: killed(part, one) for part, one in read_parts(folder).items()}
    if own is not None and not seen and rank is None:
        return own
    told = [one for one in seen.values() if tells(one)]
    findings, facts, failed = _found(own, told)
    failed = (*failed, *_missing(facts))
    if own is not None and rank is None and (len(own.steps) or not any((part / FILE).is_file() for part in seen)):
        facts = dataclasses.replace(facts, unseen=(*facts.unseen, *_missing(facts)))
        return Trace(own.steps, facts, own.info, findings, lambda: _ranks(seen))
    part = _chosen(folder, seen, rank, findings)
    if own is not None:
        told.append(_as_seen(own))
        own.close()
    if part is None:
        facts = Facts(unseen=(*failed, *unwatched(folder)), seen=tuple(told))
        return Trace((), facts, {"part": "none", "started": 0}, findings)
    base = open_run(part)
    steps = _whole(base, [open_run(one) for one in seen if one != part and (one / FILE).is_file()])
    mine = tuple(one for one in base.facts.seen if not isinstance(one, RankSeen))
    facts = dataclasses.replace(
        base.facts, seen=(*mine, *told), unseen=(*base.facts.unseen, *failed, *unwatched(folder))
    )
    return Trace(steps, facts, {**base.info, "part": part.name}, findings, lambda: _ranks(seen))


def _missing(facts: Facts) -> tuple[Unseen, ...]:
    """Return a note on the ranks of the job that are missing in this run; empty if there are none."""
    count = len(missing(facts.of(RankSeen)))
    note = "of the job are not part of this run; of several machines each has its own launcher: the command goes inside"
    return (Unseen("ranks", count, f"{note} of them, and --out is a folder that all share"),) if count else ()


def _ranks(seen: Mapping[Path, RankSeen]) -> dict[int, Trace]:
    """Open the trace of each rank; after a restart the last one."""
    there = {}
    for part, one in sorted(seen.items(), key=lambda item: item[1].restart):
        if one.rank is not None and (part / FILE).is_file():
            there[one.rank] = part
    return {rank: open_run(there[rank]) for rank in sorted(there)}


def _whole(base: Trace, others: Sequence[Trace]) -> Sequence[TracedStep]:
    """Return the steps of one rank; if parameters are sharded, with norms that combine the shards of all ranks.

    Traces that are not needed are closed.
    """
    if sharded([base]):
        return Whole([base, *others])
    for other in others:
        other.close()
    return base.steps


def _found(own: Trace | None, told: Sequence[RankSeen]) -> tuple[Sequence[Finding], Facts, tuple[Unseen, ...]]:
    """Return the findings of all processes, the facts, and the rules that failed.

    :param own: the trace of the process that ``backprobe run`` started, if it has one; `told`: the other processes.
    """
    if own is None:
        return _asked(Trace((), Facts(seen=tuple(told)), findings=explain))
    before = own.facts.of(RankSeen)
    mine = [one for one in own.facts.seen if not isinstance(one, RankSeen) or one.pid == own.info.get("pid")]
    facts = dataclasses.replace(own.facts, seen=(*mine, *told))
    if own.over and all(one.over for one in before) and {one.pid for one in told} <= {one.pid for one in before}:
        return own.findings, facts, ()
    return _asked(Trace(own.steps, facts, own.info, explain))


def _asked(whole: Trace) -> tuple[Sequence[Finding], Facts, tuple[Unseen, ...]]:
    """Return the findings that the rules compute, the facts, and the rules that failed meanwhile."""
    before = len(whole.facts.unseen)
    return whole.findings, whole.facts, whole.facts.unseen[before:]


def killed(part: Path, seen: RankSeen) -> RankSeen:
    """Return `seen`, completed from its finished steps and its crash report if the process was killed."""
    if seen.over or seen.alive:
        return seen
    crash = read_crash(part)
    if crash is not None and crash[1] is not None:
        crash = crash[0], _with_text(crash[1], part, seen), crash[2]
    if crash is not None:
        how, site, op = crash
        seen = dataclasses.replace(seen, error=f"Fatal Python error: {how}", raised=site)
        if op:  # ranks whose operations do not match
            wait = RankWait(op, site, seen.said or time.time(), 0.0, "raised")
            seen = dataclasses.replace(seen, waits=(*seen.waits, wait))
    if not (part / FILE).is_file():
        return seen
    try:
        trace = open_run(part)
        try:
            rows = list(trace.step_rows())
            loss = next((row.loss for row in reversed(rows) if row.loss is not None), seen.loss)
            calls = max(sum(row.calls for row in rows), seen.backwards)
            seen = dataclasses.replace(seen, steps=len(rows), backwards=calls, recorded=None)
            return dataclasses.replace(seen, findings=tuple(trace.findings), loss=loss)
        finally:
            trace.close()
    except BackprobeError as error:
        return dataclasses.replace(seen, gaps=(*seen.gaps, str(error)))


def _with_text(site: Site, part: Path, seen: RankSeen) -> Site:
    """Return `site` with the text of its line, if the process recorded it."""
    same = (one for one in sites_in(seen) if (one.file, one.line) == (site.file, site.line))
    if (known := next(same, None)) is not None:
        return dataclasses.replace(site, text=known.text)
    with contextlib.suppress(BackprobeError):
        trace = open_run(part)
        try:
            lines = trace.sources.get(site.file, "").splitlines()
        finally:
            trace.close()
        if 0 < site.line <= len(lines) and lines[site.line - 1] != NOT_KEPT:
            return dataclasses.replace(site, text=lines[site.line - 1].strip())
    return site


def _chosen(folder: Path, seen: dict[Path, RankSeen], rank: int | None, findings: Sequence[Finding]) -> Path | None:
    """Return the folder of the process whose steps are read; ``None`` if no process has steps.

    That of `rank`; or the one that the first finding is about, that failed, that was killed, or the first.

    :raises BackprobeError: there are no steps of `rank`.
    """
    there = {part: one for part, one in seen.items() if (part / FILE).is_file()}
    if rank is not None:
        mine = [part for part, one in there.items() if one.rank == rank]
        if not mine:
            known = sorted({one.rank for one in there.values() if one.rank is not None})
            raise BackprobeError(f"{folder} has no steps of rank {rank}; it has those of {known or 'no rank'}")
        return mine[-1]  # of the last restart
    first = findings[0] if findings else None
    for fits in (
        lambda one: first is not None and (one.rank, one.pid) == (first.rank, first.evidence.get("process", one.pid)),
        lambda one: bool(one.over and (one.error or one.code)),
        lambda one: not one.over and not one.alive,
        lambda one: True,
    ):
        for part, one in there.items():
            if fits(one):
                return part
    return None


def _as_seen(own: Trace) -> RankSeen:
    """Return the process that ``backprobe run`` started as the record of one of several processes."""
    info = own.info
    return RankSeen(
        *(None, int(info.get("pid") or 0)),
        over=own.over,
        error=str(info.get("error") or ""),
        steps=int(info.get("steps") or 0),
        backwards=int(info.get("backwards") or 0),
        alive=not own.over and runs(info) is not False,
        signal=info.get("signal"),
        code=info.get("code"),
        recorded=None if (watched := own.facts.one(Watched)) is None else watched.recorded,
        machine=str(info.get("machine") or ""),
    )


def others(folder: Path) -> tuple[RankSeen, ...]:
    """Return the processes of a run that have a part, in their current state."""
    found = (killed(part, one) for part, one in read_parts(folder).items())
    return tuple(sorted((one for one in found if tells(one)), key=in_order))


def goes_on(seen: RankSeen) -> bool:
    """Return whether a process is still running, as far as this machine can tell."""
    return not seen.over and is_there(seen.pid, seen.machine) is not False
