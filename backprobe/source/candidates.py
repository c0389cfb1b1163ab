"""Answers of queries to the source index, with what speaks for each, and their order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T")


class Reason(Enum):
    """The evidence for a candidate: its score, and a description."""

    VARIABLE = 9, "the same variable by Python's scoping rules"
    CLASS_ATTRIBUTE = 8, "the same attribute of the same class"
    OWNER_NAMED = 7, "an attribute of this name, of an owner of the right name"
    ATTRIBUTE = 5, "an attribute of this name, of another object"
    PARAMETER = 4, "a parameter of this name, to which the object may be passed"
    NAME = 3, "the same name"
    UNKNOWN_NAME = 1, "a name that is computed when the line runs"

    @property
    def score(self) -> int:
        return self.value[0]


@dataclass(frozen=True, slots=True)
class Candidate(Generic[T]):
    """A possible answer of a query, with the reason for it.

    :ivar preference: orders candidates before their reason does: the number of wishes of the caller that it fulfils.
    :ivar rank: orders candidates with the same reason, lowest first; candidates of equal rank keep their source order.
    """

    answer: T
    reason: Reason
    preference: int = 0
    rank: int = 0

    @property
    def score(self) -> tuple[int, int, int]:
        """Sort key: preference, then the reason's score, then the lowest rank; the largest key is the likeliest."""
        return self.preference, self.reason.score, -self.rank


def ranked(candidates: Iterable[Candidate[T]]) -> list[Candidate[T]]:
    """Return the candidates, the likeliest first; of several with the same answer only the best."""
    best: dict[T, Candidate[T]] = {}
    for one in sorted(candidates, key=lambda one: one.score, reverse=True):  # stable
        best.setdefault(one.answer, one)
    return list(best.values())


def best(candidates: Iterable[Candidate[T]]) -> T | None:
    """Return the likeliest answer, the first of equally likely ones; ``None`` if there are no candidates."""
    return next((one.answer for one in ranked(candidates)), None)


def likeliest(candidates: Iterable[Candidate[T]]) -> list[T]:
    """Return the answers whose score equals that of the best one; empty if there are no candidates."""
    found = ranked(candidates)
    return [one.answer for one in found if one.score == found[0].score]
