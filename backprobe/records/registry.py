"""Records by the name of their class, as a stored run calls them: ours, and those that plugins add."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

_T = TypeVar("_T")
_kinds: dict[str, type] = {}
#: Every kind of record that is known, by name.
KINDS: Mapping[str, type] = MappingProxyType(_kinds)


def record(kind: type[_T]) -> type[_T]:
    """Make a kind of record known by the name of its class, so that it can be stored and read again.

    Stands above ``@dataclass(frozen=True)``. A class that is defined again takes the place of what it was.

    :raises TypeError: the class is no frozen dataclass, or another has its name.
    """
    name, home = kind.__name__, f"{kind.__module__}.{kind.__qualname__}"
    if not dataclasses.is_dataclass(kind) or not kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise TypeError(f"{home} is no record: put @record above @dataclass(frozen=True)")
    known = _kinds.get(name, kind)
    if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise TypeError(
            f"two kinds of records are called {name}: {known.__module__}.{known.__qualname__} and {home}; a stored run "
            "tells them apart by that name, so give yours another"
        )
    _kinds[name] = kind
    return kind
