"""Converts records to lists that JSON can hold, and back by the names of their fields."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

from ..basics.privacy import at_home, masked_source, private
from ..basics.untrusted import decompress
from ..records import KINDS, Site
from ..records.places import lasting

T = TypeVar("T")
Make = Callable[[Any], Any]
#: The type that a JSON list becomes, by the origin of the annotation.
_COLLECTIONS: dict[Any, Make] = {Sequence: tuple, **{kind: kind for kind in (tuple, list, set, frozenset)}}
_SCALARS = frozenset({str, int, float, bool, type(None)})
#: The JSON types allowed for each scalar type.
_ALLOWED: dict[Any, frozenset[type]] = {
    str: frozenset({str}),
    bool: frozenset({bool}),
    int: frozenset({int, bool}),
    float: frozenset({float, int, bool}),
}
#: The allowed range of integers: the highest is that of an accumulator (``ACCUMULATE_SEQ``).
_INTEGERS = range(-(2**63), 2**64)
#: Fields that hold names, and the most characters of a name: work grows with the square of its length.
_NAMES, MAX_NAME = frozenset({"name", "module", "path", "class_name", "parameter", "tensor"}), 10_000
#: Upper limits of fields that loops count up to.
_COUNTED_UP_TO = {"world": 1 << 20, "order": 1 << 22}


@cache
def _names(kind: type) -> tuple[str, ...]:
    """Return the field names of a dataclass."""
    return tuple(f.name for f in dataclasses.fields(kind))


def own_fields() -> dict[str, Sequence[str]]:
    """Return the field names of every registered kind of record."""
    return {name: _names(kind) for name, kind in KINDS.items()}


def to_plain(value: Any, without: str = "", texts: bool = True) -> Any:
    """Return `value` as lists and dicts that JSON can hold.

    A record becomes the list of its fields. A dataclass that is no ``@record`` becomes a dict by field name.

    :param without: a field of the record `value` that holds several values and is left empty.
    :param texts: keep the text of source lines.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is tuple or kind is list:
        return [to_plain(v, texts=texts) for v in value]
    if kind is Site:
        return [lasting(value.file), value.line, value.function, masked_source(value.text) if texts else ""]
    if dataclasses.is_dataclass(kind):
        if KINDS.get(kind.__name__) is not kind:
            return {name: to_plain(getattr(value, name), texts=texts) for name in _names(kind)}
        return [to_plain(getattr(value, name), texts=texts) if name != without else [] for name in _names(kind)]
    if isinstance(value, Mapping):
        return {str(k): to_plain(v, texts=texts) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_plain(v, texts=texts) for v in value]
    return value if isinstance(value, (str, int, float)) else str(value)


class Decoder:
    """Decodes the output of ``to_plain`` into records.

    :param fields: by kind, the field names of its lists. An unknown name is ignored, and a field that the list lacks
        gets its default. ``None``: the current fields.
    """

    def __init__(self, fields: Mapping[str, Sequence[str]] | None = None) -> None:
        self.fields = fields
        self._makers: dict[Any, Make | None] = {}

    def __call__(self, kind: type[T], plain: object) -> T:
        """Return the record of type `kind`, or ``None`` for ``None``.

        :raises ValueError, TypeError, KeyError: `plain` is no such record.
        """
        return typing.cast(T, None if plain is None else _apply(self._maker(kind), plain))

    def _maker(self, hint: object) -> Make | None:
        """Return the function that decodes a value of that type; ``None`` if the value stays as it is."""
        if hint not in self._makers:
            self._makers[hint] = self._new_maker(hint)
        return self._makers[hint]

    def _new_maker(self, hint: Any) -> Make | None:
        """Build the function that decodes a value of a type, from its annotation; ``None`` if the value
        stays as it is.
        """
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            inner = self._maker(next(a for a in args if a is not type(None)))
            return lambda plain: None if plain is None else _apply(inner, plain)
        if origin is tuple and args[1:] != (Ellipsis,):
            each = [self._maker(a) for a in args]
            return lambda plain: tuple(_apply(one, v) for one, v in zip(each, _listed(plain), strict=True))
        if origin in _COLLECTIONS:
            many, one = _COLLECTIONS[origin], self._maker(args[0])
            return lambda plain: many(_apply(one, v) for v in _listed(plain))
        if origin in (dict, Mapping):
            value = self._maker(args[1])
            return lambda plain: {k: _apply(value, v) for k, v in _mapped(plain).items()}
        if hint is tuple:
            return lambda plain: tuple(_listed(plain))
        if hint in _ALLOWED:
            return lambda plain: _scalar(hint, plain)
        return self._record(hint) if dataclasses.is_dataclass(hint) else None

    def _record(self, kind: Any) -> Make:
        """Return the function that decodes a record from the list of its fields, or from a dict."""
        makers: dict[str, Make | None] = {}
        names: list[str] = []

        def make(plain: Any) -> Any:
            """Decode one record; fields that this version does not know are ignored.

            :raises ValueError: the number of fields is wrong, or a value would cause unbounded work.
            """
            if not makers:  # only now: a record may contain others of its kind
                hints = typing.get_type_hints(kind)
                names.extend(_names(kind) if self.fields is None else self.fields.get(kind.__name__, ()))
                makers.update((name, self._maker(hints[name])) for name in _names(kind))
            if isinstance(plain, list) and len(plain) == len(names):
                plain = dict(zip(names, plain, strict=True))
            elif not isinstance(plain, dict):
                raise ValueError(f"a {kind.__name__} has {len(names)} fields, not as in {str(plain)[:80]}")
            given = {name: _apply(makers[name], value) for name, value in plain.items() if name in makers}
            _check_sizes(given)
            return kind(**given)

        return make if kind is not Site else lambda plain: site_at_home(make(plain))


def _apply(make: Make | None, plain: object) -> Any:
    """Return `plain` decoded by `make`, or unchanged without one."""
    return plain if make is None else make(plain)


def _scalar(kind: type, plain: object) -> Any:
    """Return `plain` as a scalar of type `kind`.

    :raises TypeError, ValueError: `plain` is no text or number as records have them.
    """
    if type(plain) not in _ALLOWED[kind]:
        raise TypeError(f"{kind.__name__} expected, not {str(plain)[:80]}")
    if kind is int and plain not in _INTEGERS:
        raise ValueError(f"a number has {len(str(plain))} digits")
    return plain


def _listed(plain: object) -> Sequence[Any]:
    """Return `plain` if it is a list.

    :raises TypeError: it is none.
    """
    if not isinstance(plain, (list, tuple)):
        raise TypeError(f"a list expected, not {str(plain)[:80]}")
    return plain


def _mapped(plain: object) -> Mapping[str, Any]:
    """Return `plain` if it is a dict.

    :raises TypeError: it is none.
    """
    if not isinstance(plain, dict):
        raise TypeError(f"names and values expected, not {str(plain)[:80]}")
    return plain


def _check_sizes(given: Mapping[str, object]) -> None:
    """Check names and numbers of a record.

    :raises ValueError: one would cause unbounded work.
    """
    for name, value in given.items():
        if name in _NAMES and isinstance(value, str):
            check_name(value)
        if name in _COUNTED_UP_TO and isinstance(value, int) and value > _COUNTED_UP_TO[name]:
            raise ValueError(f"{name} is {value}")


def check_name(name: str) -> str:
    """Return `name` unchanged.

    :raises ValueError: `name` is too long.
    """
    if len(name) > MAX_NAME:
        raise ValueError(f"a name has {len(name):,} characters")
    return name


_decoder = Decoder()


def from_plain(kind: type[T], plain: object) -> T:
    """Decode the record that ``to_plain`` encoded as `plain`, in this process or another with the same backprobe.

    :raises ValueError, TypeError: `plain` is no such record.
    """
    return _decoder(kind, plain)


_encode = json.JSONEncoder(separators=(",", ":"), default=str).encode


def site_at_home(site: Site) -> Site:
    """Return `site` with a path of the reader's machine (``privacy.at_home``)."""
    return replace(site, file=at_home(site.file)) if site.file.startswith("~") else site


def dumps(value: object) -> str:
    """Return the JSON of `value` as it is stored (Note [Secrets in a run])."""
    return private(_encode(value))


def squeeze(value: object) -> bytes:
    """Return the JSON of a value, compressed, as bytes."""
    return zlib.compress(dumps(value).encode(), 1)


def unsqueeze(data: bytes) -> Any:
    """Decode a value that ``squeeze`` encoded.

    :raises ValueError: it is no JSON, or larger than ``MAX_VALUE_BYTES``.
    :raises zlib.error: it is damaged.
    """
    return json.loads(decompress(data))


def checksum(*values: int | str | bytes | None) -> int:
    """Return the CRC-32 of a table's name and a row's values, which detects damage that SQLite does not report."""
    found = 0
    for value in values:
        data = value if isinstance(value, bytes) else str(value).encode()
        found = zlib.crc32(data, zlib.crc32(b" ", found))
    return found
