"""Records about a run as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from .parameters import Parameter
from .registry import record

_Seen = TypeVar("_Seen")


@record
@dataclass(frozen=True, slots=True)
class Unseen:
    """Work that was not observed: ``what``, how often, and the consequence for the reader.

    :ivar hides: a failure there may have gone unnoticed.
    """

    what: str
    count: int
    note: str
    hides: bool = True


@dataclass(frozen=True)
class Aside:
    """Stored records that this installation cannot decode: kept unchanged, and written again with the run.

    :ivar fields: for every kind of record in that run, the field names of its rows.
    :ivar why: what is missing here, in words.
    """

    kind: str
    rows: tuple[Any, ...]
    fields: Mapping[str, Sequence[str]]
    why: str

    @property
    def unseen(self) -> Unseen:
        """The equivalent ``Unseen`` record."""
        return Unseen(f"stored records of the kind {self.kind}", len(self.rows), self.why)


@dataclass(frozen=True)
class Facts:
    """Facts about a run as a whole, apart from its steps.

    :ivar asked: opt-in checks that were enabled (``--check``).
    :ivar seen: records of any kind that trackers made; select one kind with ``of``.
    """

    parameters: tuple[Parameter, ...] = ()
    unseen: tuple[Unseen, ...] = ()
    asked: tuple[str, ...] = ()
    seen: tuple[Any, ...] = ()

    def of(self, kind: type[_Seen]) -> tuple[_Seen, ...]:
        """Return the records of one kind, in the order in which they were made."""
        return self._by_kind.get(kind, ())

    def one(self, kind: type[_Seen]) -> _Seen | None:
        """Return the record of a kind that occurs at most once; ``None`` if there is none."""
        found = self.of(kind)
        return found[0] if found else None

    @cached_property
    def _by_kind(self) -> dict[type, tuple[Any, ...]]:
        """The records of trackers by their type."""
        found: dict[type, list[Any]] = {}
        for one in self.seen:
            found.setdefault(type(one), []).append(one)
        return {kind: tuple(records) for kind, records in found.items()}
