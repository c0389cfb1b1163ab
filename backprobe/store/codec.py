"""Records to JSON and back, by their types; layouts and signatures in a compact form."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from .. import records
from ..packed import Layout, Measured, Signature
from ..records import Facts, Node, Parameter, Site, Unseen

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """`value` as lists and dicts that JSON can hold; a dataclass becomes the list of its fields."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)]
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_plain(v) for v in value]
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    return str(value)


def from_plain(kind: type[T], value: Any) -> T:
    """The record of type `kind` that ``to_plain`` made `value` of."""
    return typing.cast(T, _build(kind, value))


@cache
def _fields(kind: type) -> list[tuple[str, Any]]:
    hints = typing.get_type_hints(kind)
    return [(f.name, hints[f.name]) for f in dataclasses.fields(kind)]


def _build(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _build(next(a for a in typing.get_args(kind) if a is not type(None)), value)
    if origin is tuple:
        args = typing.get_args(kind)
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(_build(args[0], v) for v in value)
        return tuple(_build(a, v) for a, v in zip(args, value, strict=True))
    if dataclasses.is_dataclass(kind):
        # Fields may be added at the end of a record: an older run has fewer.
        fields = _fields(typing.cast(type, kind))
        make: Any = kind
        return make(**{name: _build(hint, v) for (name, hint), v in zip(fields, value, strict=False)})
    return value


def facts_plain(facts: Facts) -> dict[str, Any]:
    """The facts of a run, with what was seen by the name of its kind."""
    seen: dict[str, list[Any]] = {}
    for record in facts.seen:
        seen.setdefault(type(record).__name__, []).append(to_plain(record))
    plain = {name: to_plain(getattr(facts, name)) for name in ("parameters", "unseen", "asked")}
    return {**plain, "seen": seen}


def facts_from(plain: Mapping[str, Any]) -> Facts:
    """The facts that ``facts_plain`` made `plain` of."""
    parameters = tuple(from_plain(Parameter, p) for p in plain["parameters"])
    unseen = tuple(from_plain(Unseen, u) for u in plain["unseen"])
    seen = [from_plain(getattr(records, kind), r) for kind, rows in plain["seen"].items() for r in rows]
    return Facts(parameters, unseen, tuple(plain["asked"]), tuple(seen))


def dumps(value: Any) -> str:
    return json.dumps(to_plain(value), separators=(",", ":"))


def squeeze(value: Any) -> bytes:
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 1)


def unsqueeze(data: bytes) -> Any:
    return json.loads(zlib.decompress(data))


def layout_bytes(layout: Layout) -> bytes:
    """Strings and sites once each, nodes as numbers."""
    strings: dict[str | None, int] = {}
    sites: dict[Site | None, int] = {}

    def of(table: dict[Any, int], value: Any) -> int:
        return table.setdefault(value, len(table))

    rows = []
    for n in layout.nodes:
        edges = [x for e in n.edges for x in (e if e is not None else (-1, 0))]
        texts = [of(strings, s) for s in (n.name, n.module, n.op, n.parameter)]
        # A sequence number of 2**64 - 1 is more than readers of JSON agree on.
        seq = -1 if n.seq >= 2**63 else n.seq
        rows.append([*texts, seq, n.call, of(sites, n.site), edges, n.leaf_shape])
    needed = None if layout.needed is None else sorted(layout.needed)
    return squeeze([list(strings), [to_plain(s) for s in sites], rows, needed])


def layout_from(data: bytes) -> Layout:
    strings, plain_sites, rows, needed = unsqueeze(data)
    sites = [from_plain(Site, s) for s in plain_sites]
    nodes = []
    for i, (name, module, op, parameter, seq, call, site, edges, leaf_shape) in enumerate(rows):
        pairs = tuple(None if a < 0 else (a, b) for a, b in zip(edges[0::2], edges[1::2], strict=True))
        nodes.append(
            Node(
                i,
                strings[name],
                2**64 - 1 if seq < 0 else seq,
                strings[module],
                call,
                sites[site],
                strings[op],
                strings[parameter],
                pairs,
                None if leaf_shape is None else tuple(leaf_shape),
            )
        )
    return Layout(tuple(nodes), None if needed is None else frozenset(needed))


def signature_bytes(signature: Signature) -> bytes:
    kinds: dict[tuple[tuple[int, ...], str], int] = {}

    def rows(measured: Sequence[Measured]) -> list[list[int]]:
        return [[i, k, s, kinds.setdefault((shape, dtype), len(kinds))] for i, k, s, shape, dtype in measured]

    out, came = rows(signature.out), rows(signature.came)
    return squeeze([list(signature.order), out, came, [[list(shape), dtype] for shape, dtype in kinds]])


def signature_from(data: bytes) -> Signature:
    order, out, came, plain_kinds = unsqueeze(data)
    kinds = [(tuple(shape), dtype) for shape, dtype in plain_kinds]

    def rows(measured: list[list[int]]) -> tuple[Measured, ...]:
        return tuple((i, k, s, *kinds[kind]) for i, k, s, kind in measured)

    return Signature(tuple(order), rows(out), rows(came))
