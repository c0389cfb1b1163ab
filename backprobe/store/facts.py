"""Encodes the facts of a run as rows by the name of their kind, and decodes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any

from .. import records
from ..records import KINDS, Aside, Facts, Unseen
from .codec import Decoder, own_fields, to_plain

#: Entry point group of other packages: each entry has the name of a kind of record, and loads the class.
PLUGINS = "backprobe.records"
_OURS = frozenset(records.__all__)


def facts_plain(facts: Facts, texts: bool = True) -> tuple[dict[str, list[Any]], dict[str, Sequence[str]]]:
    """Return the records of `facts` by kind, and the field names of every kind.

    Records that cannot be stored are counted as unseen.
    """
    rows: dict[str, list[Any]] = {"Parameter": to_plain(facts.parameters, texts=texts)}
    fields = own_fields()
    aside = facts.of(Aside)
    lost: dict[str, int] = {}
    for one in facts.seen:
        kind = type(one)
        if KINDS.get(kind.__name__) is kind:
            rows.setdefault(kind.__name__, []).append(to_plain(one, texts=texts))
        elif kind is not Aside:
            why = f"{kind.__module__}.{kind.__qualname__} is not known by its name: put @record above the class"
            lost[why] = lost.get(why, 0) + 1
    for one in aside:
        if all(tuple(names) == tuple(fields.get(kind, names)) for kind, names in one.fields.items()):
            rows.setdefault(one.kind, []).extend(one.rows)
            fields = {**one.fields, **fields}
        else:
            lost[f"{one.kind} was stored by another backprobe: {one.why}"] = len(one.rows)
    told = [one.unseen for one in aside]  # they are added again when the run is read
    unseen = [seen for seen in facts.unseen if seen not in told]
    unseen += [Unseen("records that could not be stored", count, why) for why, count in lost.items()]
    rows["Unseen"] = to_plain(unseen)
    return {kind: found for kind, found in rows.items() if found}, fields


def facts_from(rows: Mapping[str, Sequence[object]], asked: Iterable[str], decoder: Decoder) -> Facts:
    """Decode the facts that ``facts_plain`` encoded as `rows`.

    :raises ValueError, TypeError, KeyError: `rows` are no facts.
    """
    made: dict[str, list[Any]] = {"Parameter": [], "Unseen": []}
    for kind, found in rows.items():
        made[kind] = _made(kind, found, decoder)
    parameters, unseen = made.pop("Parameter"), made.pop("Unseen")
    seen = tuple(one for found in made.values() for one in found)
    unseen += [one.unseen for one in seen if isinstance(one, Aside)]
    return Facts(tuple(parameters), tuple(unseen), tuple(asked), seen)


def _made(kind: str, rows: Sequence[object], decoder: Decoder) -> list[Any]:
    """Decode the records of one kind.

    If the package that defines it is missing or cannot read them, they are kept undecoded, as one ``Aside``.
    """
    if kind in _OURS:
        return [decoder(KINDS[kind], row) for row in rows]
    try:
        found = KINDS.get(kind)
        if found is None:
            for entry in metadata.entry_points(group=PLUGINS, name=kind):
                entry.load()
            found = KINDS.get(kind)
        if found is not None:
            return [decoder(found, row) for row in rows]
        why = "kept as they are: they are of a package that is not installed here, or of a newer backprobe"
    except Exception as error:  # any error of another package
        why = f"kept as they are: what is installed here cannot read them: {type(error).__name__}: {error}"
    return [Aside(kind, tuple(rows), decoder.fields or {}, why)]
