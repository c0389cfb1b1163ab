"""How far a trace can be trusted: what of the run was watched, and what it means that nothing was found."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from .records import Facts, Process, RankSeen, Unseen, Watched
from .text import few


def watched(facts: Facts, info: Mapping[str, Any], steps: Sequence[int]) -> Watched:
    """What was watched. `steps`: the numbers of those that were recorded, for a run that did not come to its end."""
    known = facts.one(Watched)
    found = known or Watched(level=str(info.get("level") or "trace"))
    if known is None and info.get("steps"):
        return replace(found, first=0, last=int(info["steps"]) - 1)
    if steps and (found.last is None or steps[-1] > found.last):
        return replace(found, first=steps[0] if found.first is None else found.first, last=steps[-1])
    return found


def processes(facts: Facts, info: Mapping[str, Any], over: bool) -> tuple[Process, ...]:
    """The processes of a run, its own first."""
    own, code = info.get("pid"), info.get("code")
    others = [seen for seen in facts.of(RankSeen) if seen.pid != own]
    mine = next((seen for seen in facts.of(RankSeen) if seen.pid == own), None)
    error = str(info.get("error") or "")
    ended = "failed" if error or code else "finished"
    if not over and "started" in info:
        there = runs(info)
        ended = "unknown" if there is None else "running" if there else "killed"
    counts = int(info.get("steps") or 0), int(info.get("backwards") or 0)
    first = Process(mine.rank if mine is not None else None, own, ended, error, code, *counts)
    return (first, *map(_other, others))


def _other(seen: RankSeen) -> Process:
    ended = ("failed" if seen.error else "finished") if seen.over else "running" if seen.alive else "killed"
    return Process(seen.rank, seen.pid, ended, seen.error, None, seen.steps, seen.backwards)


def runs(info: Mapping[str, Any]) -> bool | None:
    """Whether the process that writes the run is there; ``None`` where this machine cannot tell."""
    process, machine = info.get("pid"), info.get("machine")
    if not isinstance(process, int) or machine != platform.node() or os.name != "posix":
        return None
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


def gaps(what: Watched, unseen: Sequence[Unseen], ran: Sequence[Process]) -> tuple[str, ...]:
    """Why finding nothing does not mean that nothing is wrong; none where everything was watched and no process
    failed."""
    found = []
    if what.stopped is not None:
        found.append(f"watching stopped at step {what.stopped.step}: {what.stopped.reason}")
    found += [text for text in (ending(ran[0]), *map(_ending, ran[1:])) if text]
    if what.level == "watch":
        found.append("nodes were not looked at (level watch)")
    elif what.every > 1 or what.begin or what.end is not None:
        each = "every step" if what.every == 1 else f"one step in {what.every}"
        end = "" if what.end is None else f" up to step {what.end - 1}"
        found.append(f"nodes were looked at in {each} from step {what.begin} on{end}")
    hidden = [f"{one.count:,} {one.what}" for one in unseen if one.hides]
    if hidden:
        found.append(f"not seen: {few(hidden, 3)}")
    return tuple(found)


def sampled(what: Watched) -> str:
    """In how many steps nodes were recorded, where a budget did not pay for all; empty where it did."""
    if what.budget is None or what.recorded is None or what.recorded >= what.steps:
        return ""
    some = f"{what.recorded:,} of {what.steps:,} steps"
    passed = f", and {what.passed:,} were too short to be looked at but for their loss" if what.passed else ""
    return f"nodes were recorded in {some}, as a budget of {100 * what.budget:g}% allows{passed}"


def ending(own: Process) -> str:
    """How the script ended, where that is not as it should be."""
    if own.ended == "failed":
        return f"the script ended with {_line(own.error)}" if own.error else f"the script exited with {own.code}"
    if own.ended == "finished":
        return ""
    return "the run still goes on" if own.ended == "running" else "the run was cut off"


def _ending(other: Process) -> str:
    name = f"rank {other.rank}" if other.rank is not None else f"process {other.pid}"
    if other.ended == "failed":
        return f"{name} ended with {_line(other.error)}"
    if other.ended == "killed":
        return f"{name} did not come to its end"
    return f"{name} was still running" if other.ended == "running" and other.backwards else ""


def _line(text: str, most: int = 120) -> str:
    first = text.strip().partition("\n")[0]
    return first if len(first) <= most else first[: most - 3] + "..."


def contract(what: Watched, unseen: Sequence[Unseen], ran: Sequence[Process]) -> dict[str, Any]:
    """What stands beside the findings in JSON."""
    stopped = what.stopped
    return {
        "watched": {
            "first": what.first,
            "last": what.last,
            "level": what.level,
            "nodes": {"first": what.begin, "end": what.end, "every": what.every, "budget": what.budget},
            "recorded": what.recorded,
        },
        "stopped": None if stopped is None else {"step": stopped.step, "reason": stopped.reason},
        "unseen": [asdict(one) for one in unseen],
        "ranks": [asdict(one) for one in ran],
    }
