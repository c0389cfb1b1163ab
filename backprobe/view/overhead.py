"""Describes the overhead of a run: a share of the script's time, what came at the start, and the causes if it is above
the budget. Needs no torch.

The numbers are those of Note [The overhead].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..basics.text import counted, listed, seconds

#: Minimum share of the script's own time in the total for which a percentage is given, and maximum overhead that is
#: given as one.
LEAST_ALONE, MAX_SHARE = 0.01, 10.0
#: Minimum share of the overhead for naming a cause, and minimum share of a run's time for mentioning waiting.
NAMED, QUEUED = 0.1, 0.1


def overhead(info: Mapping[str, Any], parts: bool = True) -> str:
    """Return the overhead of a run in words, such as ``overhead 4%, plus 1.2 s at the start``; empty if it was not
    measured.

    :param info: the data about the run.
    :param parts: name the causes if the overhead is above the budget.
    """
    told = info.get("overhead")
    if told is None:
        return _of_steps(info)
    at_start = told["start"] + told["first_steps"]
    share = share_of(info)
    if share is None:
        text = f"overhead {seconds(told['added'])}"
    else:
        text = f"overhead {100 * share:.0f}%" if share >= 0.005 else "overhead under 1%"
        text += f", plus {seconds(at_start)} at the start" if at_start else ""
    if parts:
        named = _parts(told, info.get("first_steps", 0), above=share is None or share > (told["budget"] or 0.0))
        text += f" ({listed(named)})" if named else ""
    queued = told["waited"]
    if queued > QUEUED * (told["added"] + told["alone"] + queued):
        text += f"; the script waited {seconds(queued)} for a processor"
    return text


def overhead_line(info: Mapping[str, Any]) -> str:
    """Return the overhead of a run and its causes as a line of a report, which begins with a capital; empty
    if unknown.
    """
    text = overhead(info)
    return text[:1].upper() + text[1:]


def seconds_added(info: Mapping[str, Any]) -> str:
    """Return the time that backprobe itself took, as text; empty if it was not measured."""
    told = info.get("overhead")
    if told is None:
        first = info.get("first_cost")
        return "" if first is None else f"at least {seconds(first + info.get('own', 0.0))}"
    return seconds(told["added"])


def share_of(info: Mapping[str, Any]) -> float | None:
    """Return the overhead after the start, which is what a budget bounds, relative to the script's own time.

    ``None`` if that time is too short for a ratio.
    """
    told = info.get("overhead")
    if told is None:
        return None
    later, alone = told["added"] - told["start"] - told["first_steps"], told["alone"]
    if not alone > LEAST_ALONE * (told["added"] + alone):
        return None
    return max(later, 0.0) / alone if later <= MAX_SHARE * alone else None


def _parts(told: Mapping[str, Any], first_steps: int, above: bool) -> list[str]:
    """Return the parts of the overhead to name, each with its seconds.

    These are the time for explaining failures, and if the overhead is `above` the budget, each part that made a
    difference.
    """
    when = "later steps" if first_steps else "steps"
    causes = [
        ("start", "before the script"),
        ("first_steps", f"in the first {counted(first_steps, 'step')}" if first_steps > 1 else "in the first step"),
        ("later_steps", f"in the {when}"),
        ("explaining", "to explain failures"),
        ("end", "at the end"),
    ]
    named = [name for name, _ in causes if above and told[name] >= NAMED * told["added"]]
    return [f"{seconds(told[name])} {words}" for name, words in causes if told[name] and name in (*named, "explaining")]


def _of_steps(info: Mapping[str, Any]) -> str:
    """Return the overhead of a run of an older version, which measured only its steps."""
    return f"overhead {added}" if (added := seconds_added(info)) else ""
