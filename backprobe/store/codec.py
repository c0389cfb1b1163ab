"""Records to lists that JSON can hold, and back by the names of their fields."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from ..records import KINDS, Site
from ..records.places import lasting

T = TypeVar("T")
Make = Callable[[Any], Any]
#: What a list in JSON becomes, by the origin of a type.
_MANY: dict[Any, Make] = {Sequence: tuple, **{kind: kind for kind in (tuple, list, set, frozenset)}}
_SCALARS = frozenset({str, int, float, bool, type(None)})


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(kind))


def own_fields() -> dict[str, Sequence[str]]:
    """The names of the fields of every kind of record that is known here."""
    return {name: _names(kind) for name, kind in KINDS.items()}


def to_plain(value: Any, without: str = "") -> Any:
    """`value` as lists and dicts that JSON can hold.

    A record becomes the list of its fields. A dataclass that is no ``@record`` becomes a dict, with their names.

    :param without: a field of the record `value`, of several values, that is left empty.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is tuple or kind is list:
        return [to_plain(v) for v in value]
    if kind is Site:
        return [lasting(value.file), value.line, value.function, value.text]
    if dataclasses.is_dataclass(kind):
        if KINDS.get(kind.__name__) is not kind:
            return {name: to_plain(getattr(value, name)) for name in _names(kind)}
        return [to_plain(getattr(value, name)) if name != without else [] for name in _names(kind)]
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_plain(v) for v in value]
    return value if isinstance(value, (str, int, float)) else str(value)


class Decoder:
    """Makes records again of what ``to_plain`` gave.

    :param fields: by kind, the names that the places in its lists stand for. A name that is not known here is passed
        over, and a field without a place gets its default. ``None``: the fields as they are here.
    :param short: lists may end early.
    """

    def __init__(self, fields: Mapping[str, Sequence[str]] | None = None, short: bool = False) -> None:
        self.fields = fields
        self._short = short
        self._makers: dict[Any, Make | None] = {}

    def __call__(self, kind: type[T], plain: Any) -> T:
        """The record of type `kind`, or ``None`` for ``None``.

        :raises ValueError, TypeError, KeyError: `plain` is no such record.
        """
        return typing.cast(T, _apply(self._maker(kind), plain))

    def _maker(self, hint: Any) -> Make | None:
        """What makes a value of that type; ``None``: it stays as it is."""
        if hint not in self._makers:
            self._makers[hint] = self._new_maker(hint)
        return self._makers[hint]

    def _new_maker(self, hint: Any) -> Make | None:
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            return self._maker(next(a for a in args if a is not type(None)))
        if origin is tuple and args[1:] != (Ellipsis,):
            each = [self._maker(a) for a in args]
            return lambda plain: tuple(_apply(one, v) for one, v in zip(each, plain, strict=True))
        if origin in _MANY:
            many, one = _MANY[origin], self._maker(args[0])
            return many if one is None else lambda plain: many(_apply(one, v) for v in plain)
        if origin in (dict, Mapping):
            value = self._maker(args[1])
            return None if value is None else lambda plain: {k: _apply(value, v) for k, v in plain.items()}
        if hint is tuple:
            return tuple
        return self._record(hint) if dataclasses.is_dataclass(hint) else None

    def _record(self, kind: Any) -> Make:
        makers: dict[str, Make | None] = {}
        names: list[str] = []

        def make(plain: Any) -> Any:
            if not makers:  # not before: a record may hold others of its kind
                hints = typing.get_type_hints(kind)
                names.extend(_names(kind) if self.fields is None else self.fields.get(kind.__name__, ()))
                makers.update((name, self._maker(hints[name])) for name in _names(kind))
            if isinstance(plain, list) and (len(plain) == len(names) or (self._short and len(plain) < len(names))):
                plain = dict(zip(names, plain, strict=False))
            elif not isinstance(plain, dict):
                raise ValueError(f"a {kind.__name__} has {len(names)} fields, not as in {str(plain)[:80]}")
            return kind(**{name: _apply(makers[name], value) for name, value in plain.items() if name in makers})

        return make


def _apply(make: Make | None, plain: Any) -> Any:
    return plain if make is None or plain is None else make(plain)


_decoder = Decoder()


def from_plain(kind: type[T], plain: Any) -> T:
    """The record that ``to_plain`` made `plain` of, in this process or another with the same backprobe.

    :raises ValueError, TypeError: it did not.
    """
    return _decoder(kind, plain)


dumps = json.JSONEncoder(separators=(",", ":"), default=str).encode


def squeeze(value: Any) -> bytes:
    return zlib.compress(dumps(value).encode(), 1)


def unsqueeze(data: bytes) -> Any:
    return json.loads(zlib.decompress(data))


def checksum(*values: int | str | bytes | None) -> int:
    """CRC-32 of a table's name and the values of a row: what SQLite reads without complaint is what was written."""
    found = 0
    for value in values:
        data = value if isinstance(value, bytes) else str(value).encode()
        found = zlib.crc32(data, zlib.crc32(b" ", found))
    return found
