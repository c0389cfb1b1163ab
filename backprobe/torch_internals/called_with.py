"""What a module is called with by keyword. A hook for all modules is not told: torch calls it from a function that has
it in a variable."""

from __future__ import annotations

from types import CodeType
from typing import Any

from . import code_objects

#: Inside ``Module.__call__``: what calls hooks and ``forward``.
CALLS = frozenset(
    code
    for code in getattr(code_objects.MODULE_CALL, "co_consts", ())
    if isinstance(code, CodeType) and {"args", "kwargs"} <= {*code.co_freevars}
)


def keywords(frame: Any) -> dict[str, Any] | None:
    """The keyword arguments of the call that `frame`, which calls a hook for all modules, is of; ``None`` where that
    cannot be told."""
    found = frame.f_locals.get("kwargs") if frame.f_code in CALLS else None
    return found if isinstance(found, dict) else None
