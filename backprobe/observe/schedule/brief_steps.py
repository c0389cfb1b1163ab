"""Passes on brief steps (Note [Brief steps]). Without torch, as sinks are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records import BriefSteps

if TYPE_CHECKING:
    from ..record_delivery import Sink
    from ..session import Session


def pass_brief(sink: Sink, steps: BriefSteps, session: Session) -> None:
    """Pass `steps` to `sink`: all at once if it has a method for that, ``brief_steps``, and one by one otherwise."""
    take = getattr(sink, "brief_steps", None)
    if take is not None:
        take(steps, session)
        return
    for step in steps:
        sink.step(step, session)
