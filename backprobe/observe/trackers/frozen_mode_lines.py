"""Judges from source lines which frozen parts are in training mode by mistake: Note [Frozen parts]."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch

from ... import thresholds
from ...records import FrozenInTraining, Site
from ...source.assignments import freezes
from ...source.calls import calls_of_method
from ...source.sites import is_before
from ...torch_internals import private
from ...torch_internals.async_scalars import fetch
from ..tracker_context import TrackerContext

if TYPE_CHECKING:
    from .frozen_modes import Part

#: Maximum number of lines of one role in a record.
MAX_LINES = 3
#: A call that switches to training mode, not back to an earlier mode.
_TRAIN_CALL = re.compile(r"\.train\((True|mode=True)?\)")
#: Names of variables that may stand for any model.
_COMMON_NAMES = frozenset({"", "model", "net", "network", "module", "m", "self"})


def judge(followed: list[Part], context: TrackerContext) -> tuple[FrozenInTraining, ...]:
    """Return a record of the parts that are in training mode by mistake, as far as the source tells."""
    parts = [
        part for part in followed if part.is_long_enough and (part.is_updated if part.norms else _is_teacher(part))
    ]
    parts = [part for part in parts if not _follows(part)]
    if not parts:
        return ()
    frames = context.frames
    evals = [one.site for one in calls_of_method(frames, "eval")]
    trains = [one.site for one in calls_of_method(frames, "train") if _TRAIN_CALL.search(one.site.text)]
    frozen = freezes(frames)
    switched: list[tuple[Part, tuple[Site, ...]]] = []
    for part in parts:
        name = _name(context, part).rpartition(".")[2]
        own = tuple(one for one in evals if name not in _COMMON_NAMES and _names(one, name, "eval"))
        meant = [one for one in trains if name and _names(one, name, "train")]
        if any(not any(is_before(one, other) for other in (*own, *frozen)) for one in meant):
            continue  # the script puts it into training mode itself, not only before it freezes it
        if not part.evaluation:
            stepped = frames.site(part.stepped)
            own = tuple(one for one in own if stepped is not None and _prepares(one, stepped))
        if part.evaluation >= thresholds.FROZEN_MODE_MIN_EVALUATION_STEPS or (own and not part.evaluation):
            switched.append((part, own))
    if switched:
        # What switches it back is likeliest a call after another evaluation.
        after = [one for one in trains if any(is_before(other, one) for other in evals)]
        first, own = switched[0]
        return (_record(context, [part for part, _ in switched], own, (after if first.evaluation else []) or trains),)
    moving = [part for part in parts if part.norms and part.called is not None and not part.graphs]
    moving = [part for part in moving if _number(part.learned)]
    # As a call after a line that freezes, in its function.
    after = [one for one in trains if any(is_before(other, one) for other in frozen)]
    return (_record(context, moving, (), after or trains),) if moving else ()


def _record(
    context: TrackerContext, parts: list[Part], evaluated: tuple[Site, ...], trains: list[Site]
) -> FrozenInTraining:
    """Return the record of frozen parts that belong together, about the first of them.

    :param evaluated: the calls that put it in evaluation mode; `trains`: those that put it in training mode.
    """
    part, frames = parts[0], context.frames
    return FrozenInTraining(
        _name(context, part),
        part.class_name,
        tuple(_name(context, one) for one in parts[1:]),
        part.since,
        part.last,
        part.evaluation,
        sum(len(one.norms) for one in parts),
        next((one.norm_class for one in parts if one.norms), ""),
        max(_number(one.moved) for one in parts),
        sum(one.dropouts for one in parts),
        any(one.trained for one in parts),
        evaluated[:MAX_LINES],
        tuple(dict.fromkeys(trains))[:MAX_LINES],
        tuple(freezes(frames))[:MAX_LINES],
        frames.site(part.called),
    )


def _name(context: TrackerContext, part: Part) -> str:
    """Return the full name of a part, or the label of its outermost module."""
    return context.modules.full_name(part.root, part.path) or part.root.label


def _follows(part: Part) -> bool:
    """Return whether the parameters of a part on an accelerator had changed at a look."""
    if not part.changed:
        return False
    with private.measuring():
        return any(fetch(part.changed))


def _is_teacher(part: Part) -> bool:
    """Return whether a part ran in training mode and without gradients."""
    return part.quiet >= thresholds.FROZEN_DROPOUT_MIN_CALLS and not part.loud


def _number(value: torch.Tensor | float) -> float:
    """Return the value of a number that may be on an accelerator."""
    if not isinstance(value, torch.Tensor):
        return float(value)
    with private.measuring():
        return fetch([value.float()])[0]


def _names(call: Site, name: str, method: str) -> bool:
    """Return whether the text of a call's line calls `method` of something called `name`."""
    return re.search(rf"\b{re.escape(name)}\.{method}\(", call.text) is not None


def _prepares(call: Site, stepped: Site) -> bool:
    """Return whether a call of ``eval`` stands where a model is made, or before the step in its function."""
    return call.function.rpartition(".")[2] in ("__init__", "setup") or is_before(call, stepped)
