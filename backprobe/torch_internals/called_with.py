"""Finds the keyword arguments of a module call.

Global module hooks do not receive them, but the torch function that calls the hooks has them in a variable.
"""

from __future__ import annotations

from types import CodeType, FrameType

from . import code_objects

#: Code inside ``Module.__call__`` that calls hooks and ``forward``.
CALLS = frozenset(
    code
    for code in getattr(code_objects.MODULE_CALL, "co_consts", ())
    if isinstance(code, CodeType) and {"args", "kwargs"} <= {*code.co_freevars}
)


def keywords(frame: FrameType) -> dict[str, object] | None:
    """Return the keyword arguments of a module call, given the `frame` that calls a global module hook.

    ``None`` if unknown.
    """
    found = frame.f_locals.get("kwargs") if frame.f_code in CALLS else None
    return found if isinstance(found, dict) else None
