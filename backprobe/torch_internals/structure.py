"""Finds tensors in nested values: tuples, named tuples, lists, mappings, dataclasses.

A module may return any of these. The outputs of transformers' models are both mappings and dataclasses, and count as
mappings. Containers that contain themselves, or are nested deeper than `depth`, are not searched.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

#: The most levels of containers that are searched.
DEPTH = 16


class Part(NamedTuple):
    """An element of a container."""

    #: Its index, its key in a mapping, or the field name in a dataclass.
    key: Any
    #: The field name, in a dataclass or a named tuple.
    field: str | None
    value: object


def is_a(value: object, kinds: type | tuple[type, ...]) -> bool:
    """Return whether the class of `value` is a subclass of `kinds`.

    Unlike this, ``isinstance`` also reads the object's ``__class__``: a proxy of the script's might load its target, or
    raise.
    """
    return issubclass(type(value), kinds)


def attributes_of(value: object) -> dict[str, object]:
    """Return the attributes of one of the user's objects; empty if they cannot be read."""
    try:
        return dict(getattr(value, "__dict__", {}))
    except Exception:
        return {}


def parts(value: Any) -> list[Part] | None:
    """Return the elements of a container, in order; ``None`` if `value` is not a container."""
    if is_a(value, (tuple, list)):
        fields = getattr(value, "_fields", None)
        return [Part(i, fields[i] if fields else None, one) for i, one in enumerate(value)]
    if is_a(value, Mapping):
        return [Part(key, None, one) for key, one in value.items()]
    if dataclasses.is_dataclass(type(value)):
        return [Part(f.name, f.name, getattr(value, f.name, None)) for f in dataclasses.fields(value)]
    return None


def as_python(part: Part) -> str:
    """Return the access to a part in Python syntax: ``[0]``, ``['key']``, ``.field``."""
    return f".{part.field}" if part.field is not None else f"[{part.key!r}]"


def leaves(
    value: object, path: str = "", spelled: Callable[[Part], str] = as_python, depth: int = DEPTH
) -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of everything that is not a container, or is one that is not searched, in order."""
    stack: list[tuple[str, Any, tuple[int, ...]]] = [(path, value, ())]
    while stack:
        at, one, around = stack.pop()
        closed = is_a(one, torch.Tensor) or len(around) >= depth or id(one) in around
        inside = None if closed else parts(one)
        if inside is None:
            yield at, one
        else:
            stack += [(at + spelled(part), part.value, (*around, id(one))) for part in reversed(inside)]


def tensors_in(
    value: object, most: int | None = None, depth: int = DEPTH, attributes: bool = False
) -> list[torch.Tensor]:
    """Return the tensors in `value`, in order.

    :param most: the most tensors to return.
    :param attributes: search the attributes of plain objects too; none of their code runs, so mappings other than dicts
        are treated as plain objects.
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
    """Return the elements of a container; nothing for other values.
    :param attributes: whether plain objects count as containers of their attributes.
    """
    if is_a(value, (tuple, list)):
        return value
    if is_a(value, dict):
        return value.values()
    if not attributes:
        return [part.value for part in parts(value) or ()]
    return () if is_a(value, (type, nn.Module)) or callable(value) else attributes_of(value).values()


def mapped(value: object, change: Callable[[object], object]) -> Any:
    """Return `value` with `change` applied to everything that is not a container, in new containers.

    A mapping becomes a dict.
    """
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
        object.__setattr__(new, part.key, one)  # works for frozen ones too
    return new


def expands_to(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Return whether `shape` can be expanded to the shape `to`."""
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(to), strict=False))
