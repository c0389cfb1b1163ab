"""Grouping of many runs by which of them agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass
class Group:
    """Runs that compute the same.

    :ivar runs: their indices; the others were compared with the first.
    :ivar bits: the same runs, in parts whose results have the same bits.
    """

    runs: list[int]
    bits: list[list[int]] = field(default_factory=list)


def groups(count: int, verdict: Callable[[int, int], str]) -> list[Group]:
    """Group runs that compute the same: each is compared with the first of every group until it agrees with one.

    :param count: the number of runs.
    :param verdict: returns the verdict of comparing two of the runs, given by their indices.
    """
    found: list[Group] = []
    for run in range(count):
        for group in found:
            said = verdict(group.runs[0], run)
            if said not in ("identical", "rounding"):
                continue
            group.runs.append(run)
            if said == "identical":
                group.bits[0].append(run)
            else:
                same = next((part for part in group.bits[1:] if verdict(part[0], run) == "identical"), None)
                if same is None:
                    group.bits.append([run])
                else:
                    same.append(run)
            break
        else:
            found.append(Group([run], [[run]]))
    return found


def describe_groups(found: Sequence[Group], names: Sequence[str]) -> list[str]:
    """Return the groups as lines of text."""
    lines = ["Which agree:"]
    for number, group in enumerate(found, 1):
        for k, part in enumerate(group.bits):
            how = f"{number}. " if not k else "   and but for rounding: "
            same = "  (the same bits)" if len(part) > 1 else ""
            lines.append(f"  {how}{', '.join(names[run] for run in part)}{same}")
    if len(found) == 1:
        lines.append("All runs calculate the same.")
    else:
        lines.append(f"{len(found)} groups calculate different things.")
    return lines
