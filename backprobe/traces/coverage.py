"""Computes which parts of a run backprobe observed, and whether "no findings" is conclusive."""

from __future__ import annotations

import os
import platform
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol

from ..basics.process_clock import process_status
from ..basics.text import few
from ..basics.torch_texts import COLLECTIVE
from ..records import Facts, Process, RankSeen, Unseen, Watched

#: Keys of a run's info that state the cost of observing it.
_TOOK = ("cost", "first_steps", "first_cost", "own", "overhead")


class Coverage:
    """The parts of a run that backprobe observed: ``trace.coverage``."""

    def __init__(self, trace: Observed) -> None:
        self._trace = trace

    @property
    def observed(self) -> Watched:
        """The observed steps, those whose nodes were recorded, the budget, and the step at which recording stopped."""
        return watched(self._trace.facts, self._trace.info, self._trace.unfinished_steps)

    @property
    def unseen(self) -> Sequence[Unseen]:
        """The work that backprobe did not observe, with counts; includes failed rules once the findings are known."""
        return self._trace.facts.unseen

    @property
    def gaps(self) -> tuple[str, ...]:
        """The reasons why "no findings" is not conclusive; empty if coverage was complete.

        Recording stopped, work was not observed, or a process failed.
        """
        found = gaps(self.observed, self._after_rules(), self._trace.processes)
        return (*found, *elsewhere(self._trace.facts, self._trace.info.get("pid"), found))

    @property
    def own_gaps(self) -> tuple[str, ...]:
        """The gaps of this process, without those that come from how processes ended."""
        return hidden(self.observed, self._after_rules())

    @property
    def summary(self) -> str:
        """In how many steps nodes were recorded, in words; empty if every requested step was."""
        return sampled(self.observed)

    def _after_rules(self) -> Sequence[Unseen]:
        """Return what was not observed, after computing the findings: rules that fail add to it."""
        _ = self._trace.findings  # a rule that fails adds to what is unseen
        return self.unseen


class Observed(Protocol):
    """The part of a trace that coverage is computed from."""

    @property
    def facts(self) -> Facts: ...
    @property
    def info(self) -> Mapping[str, Any]: ...

    @property
    def findings(self) -> Sequence[Any]: ...
    @property
    def processes(self) -> Sequence[Process]: ...
    @property
    def unfinished_steps(self) -> Sequence[int]: ...


def watched(facts: Facts, info: Mapping[str, Any], steps: Sequence[int]) -> Watched:
    """Return which steps were observed, as recorded at the end of the run, or derived from `info` and `steps`.

    :param steps: the numbers of the recorded steps, for a run that has not ended.
    """
    known = facts.one(Watched)
    found = known or Watched(level=str(info.get("level") or "nodes"))
    if known is None and info.get("steps"):
        return replace(found, first=0, last=int(info["steps"]) - 1)
    if steps and (found.last is None or steps[-1] > found.last):
        return replace(found, first=steps[0] if found.first is None else found.first, last=steps[-1])
    return found


def processes(facts: Facts, info: Mapping[str, Any], over: bool) -> tuple[Process, ...]:
    """Return the processes of a run and how each ended; that of the script first, or equal ranks by number.

    :param over: whether the recording is complete; otherwise the process is looked up on this machine.
    """
    if info.get("part"):  # of equals
        seen = sorted(facts.of(RankSeen), key=lambda one: (one.rank is None, one.rank or 0, one.restart, one.pid))
        return tuple(map(_other, seen))
    own, code = info.get("pid"), info.get("code")
    others = [seen for seen in facts.of(RankSeen) if seen.pid != own]
    mine = next((seen for seen in facts.of(RankSeen) if seen.pid == own), None)
    error = str(info.get("error") or "")
    by = info.get("signal")
    ended = "killed" if by else "failed" if error or code else "finished"
    if not over and "started" in info:
        there = runs(info)
        ended = "unknown" if there is None else "running" if there else "killed"
    counts = int(info.get("steps") or 0), int(info.get("backwards") or 0)
    recorded = known.recorded if (known := facts.one(Watched)) is not None else None
    rank = mine.rank if mine is not None else None
    took = {name: info[name] for name in _TOOK if name in info}
    first = Process(rank, own, ended, error, code, *counts, by, recorded, took=took)
    return (first, *map(_other, others))


def _other(seen: RankSeen) -> Process:
    """Return a process of the run other than the script's, and how it ended."""
    if seen.over:
        ended = "killed" if seen.signal else "failed" if seen.error or seen.code else "finished"
    elif seen.alive:
        ended = "unknown" if seen.machine not in ("", platform.node()) else "running"
    else:
        ended = "killed"
    counts = seen.steps, seen.backwards, seen.signal, seen.recorded, seen.loss, seen.restart, seen.part, seen.took
    return Process(seen.rank, seen.pid, ended, seen.error, seen.code, *counts)


def runs(info: Mapping[str, object]) -> bool | None:
    """Return whether the process that records the run is still running; ``None`` if this machine cannot tell."""
    process = info.get("pid")
    return is_there(process, str(info.get("machine"))) if isinstance(process, int) else None


def is_there(pid: int, machine: str) -> bool | None:
    """Return whether a process is running on this machine; a zombie is not. ``None`` if this machine cannot tell.

    :param machine: the name of the machine of the process.
    """
    if machine != platform.node() or os.name != "posix":
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's process
        return True
    except OverflowError:  # no process has such a number
        return False
    try:  # one that is over, and whose parent has not asked for it
        return process_status(pid)[0] not in "ZX"
    except (OSError, IndexError):
        return True


def gaps(what: Watched, unseen: Sequence[Unseen], ran: Sequence[Process]) -> tuple[str, ...]:
    """Return why "no findings" is inconclusive, in sentences; empty if coverage was complete and no process failed.

    :param what: the observed steps; `unseen`: work that was not observed; `ran`: the processes.
    """
    first, *rest = hidden(what, unseen) or ("",)
    early = [first] if what.stopped is not None else []
    return (*early, *endings(ran), *([] if early or not first else [first]), *rest)


def hidden(what: Watched, unseen: Sequence[Unseen]) -> tuple[str, ...]:
    """Return which work of a process was not observed, in sentences; the step at which recording stopped
    comes first.
    """
    found = []
    if what.stopped is not None:
        found.append(f"recording stopped at step {what.stopped.step}: {what.stopped.reason}")
    if what.level == "minimal":
        found.append("nodes were not looked at (level minimal)")
    elif what.every > 1 or what.begin or what.end is not None:
        each = "every step" if what.every == 1 else f"one step in {what.every}"
        end = "" if what.end is None else f" up to step {what.end - 1}"
        found.append(f"nodes were looked at in {each} from step {what.begin} on{end}")
    hides = [f"{one.count:,} {one.what}" for one in unseen if one.hides]
    if hides:
        found.append(f"not seen: {few(hides, 3)}")
    return tuple(found)


def sampled(what: Watched) -> str:
    """Return in sentences in how many steps nodes were recorded, if the budget did not allow all; empty if it did."""
    if what.budget is None or what.recorded is None or what.recorded >= what.steps:
        return ""
    budget = f"{100 * what.budget:g}% budget; --budget none checks all"
    more = f", {what.repeated:,} more in their backward" if what.repeated else ""
    text = f"{what.recorded - what.repeated:,} of {what.steps:,} steps fully checked{more} ({budget})."
    if what.passed:
        text += f" {what.passed:,} were too short: their losses were checked and not kept."
    return text


def endings(ran: Sequence[Process]) -> list[str]:
    """Return sentences about how processes failed; equal failures share one.

    Processes that failed by themselves come first, then those that the launcher ended.
    """
    script = ran[0] if ran and not ran[0].part else None
    others = [one for one in ran if one is not script]
    causes = [one for one in others if failed_by_itself(one)]
    same: dict[str, list[Process]] = {}
    for one in sorted(others, key=lambda one: 0 if one in causes else 1 if one.error else 2):
        how = _how(one)
        if how:
            same.setdefault(how, []).append(one)
    found = [_names(of) + " " + (how if len(of) == 1 else how.replace("was ", "were ")) for how, of in same.items()]
    own = ending(script) if script is not None else ""
    first = any(one.ended in ("failed", "killed") for one in others)  # the script knows of it, and ends too
    return [*found, own] if own and first else [own, *found] if own else found


def failed_by_itself(one: Process) -> bool:
    """Return whether a process failed or was killed, and not because other processes were gone."""
    gone = any(word in one.error.lower() for word in COLLECTIVE)
    return not gone and (one.ended == "failed" or (one.ended == "killed" and not one.signal))


def ending(own: Process) -> str:
    """Return how the script ended, in words; empty if it ended normally."""
    if own.part:
        return next(iter(endings([own])), "")
    if own.signal:
        return f"the script {_how(own)}"
    if own.ended == "failed":
        return f"the script ended with {_line(own.error)}" if own.error else f"the script exited with {own.code}"
    if own.ended == "finished":
        return ""
    return "the run still goes on" if own.ended == "running" else "the run was cut off"


def _how(one: Process) -> str:
    """Return how a process ended, without its name; empty if it ended normally or does not count, such as a helper
    process.
    """
    if one.ended == "failed":
        return f"ended with {_line(one.error)}" if one.error else f"exited with {one.code}"
    part = one.rank is not None or one.backwards
    if one.ended == "killed":
        if one.signal:
            return f"was ended by {signal.Signals(one.signal).name}" if part else ""
        return "ended without a word (killed)"
    if one.ended == "unknown" and part:
        return "was not seen to end"
    return "was still running" if one.ended == "running" and part else ""


def _names(several: Sequence[Process | RankSeen]) -> str:
    """Return the names of processes: ranks, or process ids if one has no rank."""
    if any(one.rank is None for one in several):
        names = [f"rank {one.rank}" if one.rank is not None else f"process {one.pid}" for one in several]
        return few(names, 4)
    return ranks_text(sorted({one.rank for one in several if one.rank is not None}))


def ranks_text(ranks: Sequence[int]) -> str:
    """Return sorted ranks in words: ``rank 3``, ``ranks 0 to 6 and 8``."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    texts = [one for run in runs for one in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run))]
    most, last = ", ".join(texts[:-1]), "".join(texts[-1:])
    return ("rank " if len(ranks) == 1 else "ranks ") + (f"{most} and {last}" if most else last)


#: Why nothing is known of a rank that the launcher started.
NOT_HERE = "not part of this run, as where each machine has its own"


def missing(ranks: Sequence[RankSeen]) -> list[int]:
    """Return the ranks that exist according to a launcher and of which no process is known, after the last restart."""
    last = max((one.restart for one in ranks), default=0)
    known = {one.rank for one in ranks}
    worlds = [one.world for one in ranks if one.restart == last and one.world is not None]
    return [rank for rank in range(max(worlds, default=0)) if rank not in known]


def elsewhere(facts: Facts, own: object, said: Sequence[str]) -> list[str]:
    """Return sentences about what was not observed in processes other than `own`, without the gaps that are in `said`.

    :param own: the id of this process.
    """
    same: dict[str, list[RankSeen]] = {}
    for seen in facts.of(RankSeen):
        for gap in seen.gaps if seen.pid != own else ():
            if gap not in said:
                same.setdefault(gap, []).append(seen)
    return [f"{_names(of)}: {gap}" for gap, of in same.items()]


def _line(text: str, most: int = 120) -> str:
    """Return the first line of a text, cut to `most` characters."""
    first = text.strip().partition("\n")[0].removesuffix(": ")
    return first if len(first) <= most else first[: most - 3] + "..."


def contract(what: Watched, unseen: Sequence[Unseen], ran: Sequence[Process]) -> dict[str, Any]:
    """Return the coverage as the dictionary that is written beside the findings in JSON."""
    stopped = what.stopped
    return {
        "watched": {
            "first": what.first,
            "last": what.last,
            "level": what.level,
            "nodes": {"first": what.begin, "end": what.end, "every": what.every, "budget": what.budget},
            "recorded": what.recorded,
            "repeated": what.repeated,
            "only_counted": what.only_counted,
        },
        "stopped": None if stopped is None else {"step": stopped.step, "reason": stopped.reason},
        "unseen": [asdict(one) for one in unseen],
        "ranks": [asdict(one) for one in ran],
    }
