"""Tensors in nested values: tuples, named tuples, lists, mappings, dataclasses.

A module may return any of these. What transformers' models return is a mapping and a dataclass at once, and counts as a
mapping. No container is looked into that lies in itself, or deeper than `depth`.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

#: Levels of containers that are looked into.
DEPTH = 16


class Part(NamedTuple):
    """Something in a container."""

    #: Its index, its key in a mapping, or the name of the field of a dataclass.
    key: Any
    #: The name of the field, in a dataclass or a named tuple.
    field: str | None
    value: Any


def is_a(value: Any, kinds: type | tuple[type, ...]) -> bool:
    """Whether the class of `value` is one of `kinds`. ``isinstance`` asks the object for its ``__class__`` too: a proxy
    of the script's would load what it stands for, or raise."""
    return issubclass(type(value), kinds)


def attributes_of(value: Any) -> dict[str, Any]:
    """The attributes of an object of the user's; none where it does not let them be read."""
    try:
        return dict(getattr(value, "__dict__", {}))
    except Exception:
        return {}


def parts(value: Any) -> list[Part] | None:
    """What is in a container, in order; ``None`` for what is none."""
    if is_a(value, (tuple, list)):
        fields = getattr(value, "_fields", None)
        return [Part(i, fields[i] if fields else None, one) for i, one in enumerate(value)]
    if is_a(value, Mapping):
        return [Part(key, None, one) for key, one in value.items()]
    if dataclasses.is_dataclass(type(value)):
        return [Part(f.name, f.name, getattr(value, f.name, None)) for f in dataclasses.fields(value)]
    return None


def as_python(part: Part) -> str:
    """As Python writes it: ``[0]``, ``['key']``, ``.field``."""
    return f".{part.field}" if part.field is not None else f"[{part.key!r}]"


def leaves(
    value: Any, path: str = "", spelled: Callable[[Part], str] = as_python, depth: int = DEPTH
) -> Iterator[tuple[str, Any]]:
    """All that is no container, or one that is not looked into, in order, with the path to it."""
    stack: list[tuple[str, Any, tuple[int, ...]]] = [(path, value, ())]
    while stack:
        at, one, around = stack.pop()
        closed = is_a(one, torch.Tensor) or len(around) >= depth or id(one) in around
        inside = None if closed else parts(one)
        if inside is None:
            yield at, one
        else:
            stack += [(at + spelled(part), part.value, (*around, id(one))) for part in reversed(inside)]


def tensors_in(value: Any, most: int | None = None, depth: int = DEPTH, attributes: bool = False) -> list[torch.Tensor]:
    """The tensors in `value`, in order.

    :param most: no more than so many.
    :param attributes: look into the attributes of plain objects too; no code of theirs runs, so other mappings than
        dicts count as such.
    """
    found: list[torch.Tensor] = []
    stack: list[tuple[Any, tuple[int, ...]]] = [(value, ())]
    while stack and (most is None or len(found) < most):
        one, around = stack.pop()
        if is_a(one, torch.Tensor):
            found.append(one)
        elif len(around) < depth and id(one) not in around:
            inside = list(_values(one, attributes))
            stack += [(inner, (*around, id(one))) for inner in reversed(inside)]
    return found


def _values(value: Any, attributes: bool) -> Any:
    if is_a(value, (tuple, list)):
        return value
    if is_a(value, dict):
        return value.values()
    if not attributes:
        return [part.value for part in parts(value) or ()]
    return () if is_a(value, (type, nn.Module)) or callable(value) else attributes_of(value).values()


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """`value` with `change` of each that is no container, in new containers; a mapping becomes a dict."""
    if isinstance(value, Mapping):
        return {key: mapped(one, change) for key, one in value.items()}
    inside = parts(value)
    if inside is None:
        return change(value)
    made = [mapped(part.value, change) for part in inside]
    if isinstance(value, (tuple, list)):
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    new = copy.copy(value)
    for part, one in zip(inside, made, strict=True):
        object.__setattr__(new, part.key, one)  # frozen ones too
    return new
