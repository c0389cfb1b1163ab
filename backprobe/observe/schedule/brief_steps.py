"""Passes on brief steps (Note [Brief steps]). Without torch, as sinks are."""

from __future__ import annotations

from typing import Any

from ...records import BriefSteps


def pass_brief(sink: Any, steps: BriefSteps, session: Any) -> None:
    """Pass `steps` to `sink`: all at once if it has a method for that, ``brief_steps``, and one by one otherwise."""
    take = getattr(sink, "brief_steps", None)
    if take is not None:
        take(steps, session)
        return
    for step in steps:
        sink.step(step, session)
