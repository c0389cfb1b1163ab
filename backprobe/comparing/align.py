"""Alignment of the ops of two runs, fast if the sequences are nearly the same.

Note [Aligning]: common beginnings and ends are paired first. In between, ops whose key occurs once on either side and
in the same order are pairs (the "patience" algorithm of Bram Cohen's diff), and the stretches between them are treated
in the same way. A stretch without such ops is aligned by scores (Needleman and Wunsch) if it is short, and by coarser
keys first if it is long.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from ..records import Tape, TapeOp

#: Maximum number of cells in a table of scores.
MAX_CELLS = 200_000
#: The same, if no coarser key is left.
_MAX_CELLS_LAST_KEY = 4_000_000
Key = Callable[[TapeOp], Any]
Pair = tuple[int, int]


class Names:
    """Maps names of modules and parameters in the first run to those in the second.

    :param table: pairs of regular expression and replacement, applied in order.
    """

    def __init__(self, table: Sequence[tuple[str, str]] = ()) -> None:
        self._table = [(re.compile(old), new) for old, new in table]
        self.of = lru_cache(None)(self._of)

    def _of(self, name: str) -> str:
        """Return the name in the second run of what is called `name` in the first: all replacements of the table are
        applied.
        """
        for old, new in self._table:
            name = old.sub(new, name)
        return name


class Aligner:
    """Finds which ops of two runs are the same: ``pairs`` returns pairs of positions in their ops, in order (Note
    [Aligning]).
    """

    def __init__(self, a: Tape, b: Tape, names: Names | None = None) -> None:
        self._a, self._b = a, b
        self._names = names or Names()
        self._keys: list[tuple[list[object], list[object]]] = []
        of = self._names.of
        same: Key = lambda op: op.module  # noqa: E731
        told: Key = lambda op: of(op.module)  # noqa: E731
        one, two = _made(a, of), _made(b, str)
        self._weights = [_weight(op, one) for op in a.ops], [_weight(op, two) for op in b.ops]
        for make in (_whole, _lined, _placed, _valued, _shaped, _named):
            self._keys.append(
                (
                    [_and(make(op, told, a), name) for op, name in zip(a.ops, self._weights[0], strict=True)],
                    [_and(make(op, same, b), name) for op, name in zip(b.ops, self._weights[1], strict=True)],
                )
            )
        self._texts = [_arguments(op) for op in a.ops], [_arguments(op) for op in b.ops]
        self._modules = [told(op) for op in a.ops], [same(op) for op in b.ops]
        self._both = set(self._modules[0]) & set(self._modules[1])

    def pairs(self) -> list[Pair]:
        """Return pairs of positions of ops that are the same in both runs; steps are aligned one by one."""
        found: list[Pair] = []
        begin_a = begin_b = 0
        for steps in zip(_ends(self._a), _ends(self._b), strict=False):
            self._align(begin_a, steps[0], begin_b, steps[1], found)
            begin_a, begin_b = steps
        return sorted(found)

    def _align(self, alo: int, ahi: int, blo: int, bhi: int, found: list[Pair]) -> None:
        """Align a stretch of ops of each run, and add the pairs to `found`.

        :param alo, ahi: the stretch of the first run; ``blo``, ``bhi``: of the second.
        """
        todo = [(alo, ahi, blo, bhi, 0)]
        while todo:
            alo, ahi, blo, bhi, level = todo.pop()
            ka, kb = self._keys[level]
            while alo < ahi and blo < bhi and ka[alo] is not None and ka[alo] == kb[blo]:
                found.append((alo, blo))
                alo, blo = alo + 1, blo + 1
            while alo < ahi and blo < bhi and ka[ahi - 1] is not None and ka[ahi - 1] == kb[bhi - 1]:
                ahi, bhi = ahi - 1, bhi - 1
                found.append((ahi, bhi))
            if alo == ahi or blo == bhi:
                continue
            anchors = _anchors(ka, kb, alo, ahi, blo, bhi)
            if anchors:
                for i, j in [*anchors, (ahi, bhi)]:
                    todo.append((alo, i, blo, j, level))
                    if i < ahi:
                        found.append((i, j))
                    alo, blo = i + 1, j + 1
            elif (ahi - alo) * (bhi - blo) <= MAX_CELLS:
                found += self._scored(alo, ahi, blo, bhi)
            elif level + 1 < len(self._keys):
                todo.append((alo, ahi, blo, bhi, level + 1))
            elif (ahi - alo) * (bhi - blo) <= _MAX_CELLS_LAST_KEY:
                found += self._scored(alo, ahi, blo, bhi)
            else:  # by halves
                i, j = (alo + ahi) // 2, (blo + bhi) // 2
                todo += [(alo, i, blo, j, level), (i, ahi, j, bhi, level)]

    def _scored(self, alo: int, ahi: int, blo: int, bhi: int) -> list[Pair]:
        """Return the pairs of the alignment of two stretches with the highest sum of scores."""
        n, m = ahi - alo, bhi - blo
        rows = [[0.0] * (m + 1)]
        for i in range(n):
            above, row, left = rows[-1], [0.0], 0.0
            for j in range(m):
                score = self._score(alo + i, blo + j)
                best = above[j + 1] if above[j + 1] > left else left
                if score and above[j] + score > best:
                    best = above[j] + score
                row.append(best)
                left = best
            rows.append(row)
        found, i, j = [], n, m
        while i and j:
            here = rows[i][j]
            if here == rows[i][j - 1]:
                j -= 1
            elif here == rows[i - 1][j]:
                i -= 1
            else:
                i, j = i - 1, j - 1
                found.append((alo + i, blo + j))
        return found

    def _elsewhere(self, one: str, two: str) -> bool:
        """Return whether two ops cannot be paired because their modules are different ones that both runs have.

        Modules of which one contains the other do not count as different.
        """
        return one != two and {one, two} <= self._both and not _within(one, two) and not _within(two, one)

    def _score(self, i: int, j: int) -> float:
        """Return the similarity of two ops; 0 if they are not the same op."""
        a, b = self._a.ops[i], self._b.ops[j]
        if a.phase != b.phase or _base(a.name) != _base(b.name):
            return 0.0
        if a.phase == "sink" and self._modules[0][i] != self._modules[1][j]:
            return 0.0
        if self._weights[0][i] != self._weights[1][j] or self._elsewhere(self._modules[0][i], self._modules[1][j]):
            return 0.0
        score: float = 2.0 + (a.name == b.name)
        score += 2.0 * (self._modules[0][i] == self._modules[1][j]) + (a.call == b.call)
        score += 2.0 * (_text(a) == _text(b)) + (a.node == b.node)
        score += 1.5 * (self._texts[0][i] == self._texts[1][j])
        values = self._keys[3][0][i]
        score += 4.0 * bool(values is not None and values == self._keys[3][1][j])
        score += float(self._keys[4][0][i] == self._keys[4][1][j])
        return score


def in_order(a: Tape, b: Tape, pairs: Sequence[Pair]) -> Iterator[tuple[TapeOp | None, TapeOp | None]]:
    """Yield all ops of both runs in order, paired ops together, others with ``None``.

    Between two pairs, the ops of the first run come before those of the second.
    """
    i = j = 0
    for m, n in [*pairs, (len(a.ops), len(b.ops))]:
        for op in a.ops[i:m]:
            yield op, None
        for op in b.ops[j:n]:
            yield None, op
        if m < len(a.ops) and n < len(b.ops):
            yield a.ops[m], b.ops[n]
        i, j = m + 1, n + 1


def _within(one: str, two: str) -> bool:
    """Return whether the module `one` is `two`, or inside it."""
    return f"{one}.".startswith(f"{two}.") if two else True


def _ends(tape: Tape) -> list[int]:
    """Return the index after the last op of each step."""
    return [i + 1 for i, op in enumerate(tape.ops) if i + 1 == len(tape.ops) or tape.ops[i + 1].step != op.step]


def _anchors(ka: list[object], kb: list[object], alo: int, ahi: int, blo: int, bhi: int) -> list[Pair]:
    """Return pairs of positions of keys that occur once in each stretch: the longest chain that ascends in both."""
    ca, cb = Counter(ka[alo:ahi]), Counter(kb[blo:bhi])
    where = {kb[j]: j for j in range(blo, bhi) if cb[kb[j]] == 1}
    both = [(i, where[ka[i]]) for i in range(alo, ahi) if ka[i] is not None and ca[ka[i]] == 1 and ka[i] in where]
    tails: list[int] = []
    at: list[int] = []
    before: list[int] = []
    for n, (_, j) in enumerate(both):
        k = bisect_left(tails, j)
        if k == len(tails):
            tails.append(j)
            at.append(n)
        else:
            tails[k], at[k] = j, n
        before.append(at[k - 1] if k else -1)
    found = []
    n = at[-1] if at else -1
    while n >= 0:
        found.append(both[n])
        n = before[n]
    return found[::-1]


def _made(tape: Tape, of: Callable[[str], str]) -> dict[int, str]:
    """Return the initial values that exactly one weight has, each with the weight's name.

    :param of: maps a name to the one in the other run.
    """
    names: dict[int, list[str]] = {}
    for name, value in tape.start.items():
        names.setdefault(value, []).append(of(name))
    return {value: found[0] for value, found in names.items() if len(found) == 1}


def _weight(op: TapeOp, made: dict[int, str]) -> str:
    """Return the name of the weight that an op initialises; empty for none."""
    if op.phase != "forward" or op.module or not op.outputs or op.outputs[0] is None:
        return ""
    return made.get(op.outputs[0], "")


def _and(key: object, weight: str) -> object:
    """Return a key that also has the name of the weight that the op initialises, if there is one."""
    return (key, weight) if weight and key is not None else key


def _base(name: str) -> str:
    """Return the name of an op without its overload and its in-place mark."""
    return name.partition(".")[0].rstrip("_")


def _text(op: TapeOp) -> str:
    """Return the source text of an op's line; empty if it is not known."""
    place = op.place
    return place.text if place is not None else ""


def _arguments(op: TapeOp) -> str:
    """Return the arguments of an op as text, for comparison."""
    return json.dumps(op.arguments)


def _whole(op: TapeOp, module: Key, tape: Tape) -> object:
    """Key of an op with all that is known of it."""
    return op.phase, module(op), op.call, op.node, op.name, _text(op), _arguments(op)


def _lined(op: TapeOp, module: Key, tape: Tape) -> object:
    """Key of an op without its arguments."""
    return op.phase, module(op), op.call, op.node, op.name, _text(op)


def _placed(op: TapeOp, module: Key, tape: Tape) -> object:
    """Key of an op without line and arguments: phase, module call and name."""
    return op.phase, module(op), op.call, op.name


def _valued(op: TapeOp, module: Key, tape: Tape) -> object:
    """Key of an op by its name and the bits of its results; ``None`` if it has none."""
    values = tuple(tape.prints[v].hash for v in op.outputs if v is not None)
    return (op.name, values) if values else None


def _shaped(op: TapeOp, module: Key, tape: Tape) -> object:
    """Key of an op by its name and the shapes of its results; for a final result (sink) by name and module."""
    if op.phase == "sink":
        return op.name, module(op)
    return op.phase, op.name, tuple(tape.prints[v].shape if v is not None else None for v in op.outputs)


def _named(op: TapeOp, module: Key, tape: Tape) -> object:
    """Key of an op by its name alone; for a final result (sink) by name and module."""
    return (op.name, module(op)) if op.phase == "sink" else (op.phase, op.name)
