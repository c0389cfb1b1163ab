"""What is known of a run as a whole."""

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
    """Work that was not observed: ``what``, how often, and what that means for the reader.

    :ivar hides: something wrong may have gone unnoticed there.
    """

    what: str
    count: int
    note: str
    hides: bool = True


@dataclass(frozen=True)
class Aside:
    """Records of a stored run that could not be made here: kept as they are, and written again with the run.

    :ivar fields: of every kind of record in that run, by name: what the places in its rows stand for.
    :ivar why: what is missing here, in words.
    """

    kind: str
    rows: tuple[Any, ...]
    fields: Mapping[str, Sequence[str]]
    why: str

    @property
    def unseen(self) -> Unseen:
        """The same for those who read what was not observed."""
        return Unseen(f"stored records of the kind {self.kind}", len(self.rows), self.why)


@dataclass(frozen=True)
class Facts:
    """What is known of a run as a whole, apart from its steps.

    :ivar asked: topics that were asked for (``--check``).
    :ivar seen: what those who look for one thing have recorded, of any kind of record; ask for one kind with ``of``.
    """

    parameters: tuple[Parameter, ...] = ()
    unseen: tuple[Unseen, ...] = ()
    asked: tuple[str, ...] = ()
    seen: tuple[Any, ...] = ()

    def of(self, kind: type[_Seen]) -> tuple[_Seen, ...]:
        """The records of one kind, in the order in which they were made."""
        return self._by_kind.get(kind, ())

    def one(self, kind: type[_Seen]) -> _Seen | None:
        """The record of a kind of which there is one at most."""
        found = self.of(kind)
        return found[0] if found else None

    @cached_property
    def _by_kind(self) -> dict[type, tuple[Any, ...]]:
        found: dict[type, list[Any]] = {}
        for one in self.seen:
            found.setdefault(type(one), []).append(one)
        return {kind: tuple(records) for kind, records in found.items()}
