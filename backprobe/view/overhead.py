"""Describes the overhead of a run: one number, and its causes if it is above the budget. Needs no torch.

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
    """Return the overhead of a run in words; empty if it was not measured.

    :param parts: name the causes if the overhead is above the budget.
    """
    told = info.get("overhead")
    if told is None:
        return _of_steps(info)
    added, alone = told["added"], told["alone"]
    text = f"watching added {seconds(added)} to {seconds(alone)}"
    share = share_of(info)
    if share is not None:
        text += f" ({100 * share:.0f}%)" if share >= 0.005 else " (under 1%)"
    if parts:
        named = _parts(told, info.get("first_steps", 0), above=share is None or share > (told["budget"] or 0.0))
        text += f", of which {listed(named)}" if named else ""
    queued = told["waited"]
    if queued > QUEUED * (added + alone + queued):
        text += f", besides {seconds(queued)} of waiting for a processor"
    return text


def share_of(info: Mapping[str, Any]) -> float | None:
    """Return the overhead relative to the script's own time; ``None`` if that time is too short for a ratio."""
    told = info.get("overhead") or {"added": 0.0, "alone": 0.0}
    added, alone = told["added"], told["alone"]
    if not alone > LEAST_ALONE * (added + alone):
        return None
    return added / alone if added <= MAX_SHARE * alone else None


def _parts(told: Mapping[str, Any], first_steps: int, above: bool) -> list[str]:
    """Return the parts of the overhead that are named: the time for explaining failures, and if the overhead is `above`
    the budget, each part that made a difference.
    """
    when = "later steps" if first_steps else "steps"
    causes = [
        ("start", "at the start"),
        ("first_steps", f"in the first {counted(first_steps, 'step')}" if first_steps > 1 else "in the first step"),
        ("later_steps", f"in the {when}"),
        ("explaining", "to explain failures"),
        ("end", "at the end"),
    ]
    named = [name for name, _ in causes if above and told[name] >= NAMED * told["added"]]
    return [f"{seconds(told[name])} {words}" for name, words in causes if told[name] and name in (*named, "explaining")]


def _of_steps(info: Mapping[str, Any]) -> str:
    """Return the overhead of a run of an older version, which measured only its steps."""
    first = info.get("first_cost")
    return "" if first is None else f"watching added at least {seconds(first + info.get('own', 0.0))}"
