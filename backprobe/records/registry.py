"""Registers kinds of records by class name, as stored runs name them: built-in ones and those of plugins."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

_T = TypeVar("_T")
_kinds: dict[str, type] = {}
#: Every registered kind of record, by name.
KINDS: Mapping[str, type] = MappingProxyType(_kinds)


def record(kind: type[_T]) -> type[_T]:
    """Register a kind of record under its class name, so that it can be stored and read again.

    Apply it above ``@dataclass(frozen=True)``. A class that is defined again replaces the earlier definition.

    :raises TypeError: the class is no frozen dataclass, or another class has its name.
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
