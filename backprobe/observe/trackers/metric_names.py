"""Finds the name by which a library, or the user's code, looked up a metric that it gives to a scheduler."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import FrameType

import torch

from ...source.frames import Frames, variables

#: Parts of the names of variables in which libraries hold the name of a metric: ``monitor_key`` in Lightning,
#: ``metric_to_check`` in the Trainer, ``monitor`` in skorch, ``metric_name`` in Ignite.
NAMES_OF_NAMES = ("monitor", "metric")
#: The most frames that are read: Lightning has four between the lookup and the scheduler. The longest such name.
MAX_FRAMES, MAX_LENGTH = 8, 80


def name_of_metric(frame: FrameType | None, metric: float, frames: Frames) -> str:
    """Return the name by which one of the callers of a scheduler's step looked up `metric`; empty if none is known.

    A name counts if a dictionary beside it has the metric under it, or if a library's code holds it in a variable for
    names of metrics, as the only one, and the metric in another variable. Without such a name, an attribute of the
    object counts whose method gives the metric to the scheduler: it may have read the metric from elsewhere.

    :param frame: the frame that calls the scheduler.
    """
    likeliest = ""
    for depth in range(MAX_FRAMES):
        if frame is None:
            break
        local = variables(frame)
        attributes = getattr(local.get("self"), "__dict__", None)
        own = attributes if type(attributes) is dict else {}
        key = _key_of(metric, local.values(), {*_texts(own).values(), *_texts(local).values()})
        is_library = not frames.is_user(frame.f_code)
        if not key and is_library and any(_is_equal(one, metric) for one in local.values()):
            key = _only_name(local)
        if key:
            return key
        likeliest = _only_name(own) if depth == 0 and is_library else likeliest
        frame = frame.f_back
    return likeliest


def _texts(held: Mapping[str, object]) -> dict[str, str]:
    """Return the short strings among variables or attributes."""
    return {key: one for key, one in held.items() if isinstance(one, str) and len(one) <= MAX_LENGTH}


def _only_name(held: Mapping[str, object]) -> str:
    """Return the string in variables or attributes for names of metrics; empty if there are several."""
    names = {text for key, text in _texts(held).items() if any(part in key for part in NAMES_OF_NAMES)}
    return names.pop() if len(names) == 1 else ""


def _key_of(metric: float, values: Collection[object], names: Collection[str]) -> str:
    """Return the first of `names` under which a dictionary among `values` has `metric`; empty if none has."""
    tables = [one for one in values if type(one) is dict]
    return next((name for one in tables for name in names if name in one and _is_equal(one[name], metric)), "")


def _is_equal(value: object, metric: float) -> bool:
    """Return whether a value is the number `metric`; one on an accelerator is not read, as that would wait for it."""
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and value.is_cpu and float(value) == metric
    return isinstance(value, (int, float)) and value == metric
