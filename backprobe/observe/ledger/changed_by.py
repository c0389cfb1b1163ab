"""Finds the line of the script, and the call in it, that changes a tensor."""

from __future__ import annotations

from typing import Any, TypeAlias

from ...source.frames import CodeLocation, Frames

#: Functions of torch and Python around the one that the script calls.
WRAPPERS = frozenset({"decorate_context", "wrapper", "inner", "profile_hook_step"})
#: A line of the script that changed a tensor, and the name of what it called to do so.
Change: TypeAlias = tuple[CodeLocation, str]


def change_by(frames: Frames, frame: Any, name: str) -> Change | None:
    """Return the change that `frame` makes; ``None`` if no code of the script called it.

    :param name: what makes the change; if `frame` is of a library, the function that the script called counts.
    """
    user = frames.first(frame)
    if user is None:
        return None
    while frame is not user:
        called = frame.f_code.co_name
        name = name if called in WRAPPERS or called.startswith("_") else called
        frame = frame.f_back
    return (user.f_code, user.f_lasti), name
