"""Two runs that calculate the same and round differently: how far they are apart, and where one loses more.

Note [Rounding that piles up]: no op may be to blame, and yet one of the runs adds up hundreds of terms in a dtype in
which the last of them are nothing. What tells it is the other run: of the same dtypes, it is off by a third or less
where this one is off by more steps than a few ops explain. That is said of the first forward: optimizers that divide by
the size of a gradient magnify what is nothing but rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from ..records import Judged, Taken, Tape, TapeOp
from .blame import WRONG, Blame
from .estimate import Estimate, eps_of

#: What is off by no more steps of its dtype than that has lost nothing to speak of.
STEPS = 3.0
#: Where a third of what is lost is lost it begins: a square loses twice what it is given.
PART = 3.0
#: Ops that put terms together which count by their size.
_TERMS = frozenset(("add", "sub", "rsub", "cat", "stack"))
#: Of fewer numbers one run may be close to float64 by chance.
FEW = 16


def drift(a: Tape, b: Tape, pairs: Sequence[tuple[TapeOp, TapeOp]]) -> list[tuple[str, float]]:
    """How far the last value of each module is from its partner, in the order of the forward."""
    found: dict[str, float] = {}
    estimate = Estimate(a, b)
    step = a.ops[0].step if a.ops else 0
    for x, y in pairs:
        if x.phase == "forward" and x.step == step and x.outputs:
            mine = x.outputs[0]
            if mine is None or not eps_of(a.prints[mine]):
                continue
            error = estimate.error(mine, y.outputs[0] if y.outputs else None)
            if error is not None:
                found.pop(x.module, None)
                found[x.module] = error
    return list(found.items())


def loses(a: Tape, b: Tape, pairs: Sequence[tuple[TapeOp, TapeOp]], judged: Judged) -> Blame | None:
    """The first op of the first forward by which a third of the most is lost that one run loses more than the other:
    Note [Rounding that piles up]."""
    step = a.ops[0].step if a.ops else 0
    first = [(x, y) for x, y in pairs if x.phase == "forward" and x.step == step]
    found = [one for x, y in first for one in _worse(a, b, x, y, judged)]
    worst = max((error for error, *_ in found), default=0.0)
    for error, better, second, op in found:
        if error >= worst / PART:
            lost = _begins(b if second else a, judged.off[second], op, worst / PART)
            return Blame("loses", None if second else lost, lost if second else None, None, error, other=better)
    return None


def _worse(a: Tape, b: Tape, x: TapeOp, y: TapeOp, judged: Judged) -> Iterator[tuple[float, float, bool, TapeOp]]:
    """Of what two partners give: how far the worse is off, how far the other, which that is, and its op."""
    for k, (value, partner) in enumerate(zip(x.outputs, y.outputs, strict=False)):
        mine, its = (off.get((op.index, k)) for off, op in zip(judged.off, (x, y), strict=True))
        gap = judged.outputs.get((x.index, k))
        if value is None or partner is None or mine is None or its is None or gap is None or gap.differs is not False:
            continue
        (worse, step), (better, other) = max(mine, its), min(mine, its)
        if (step, a.prints[value].dtype) != (other, b.prints[partner].dtype):
            continue  # in other dtypes other things are lost
        if worse > STEPS * step and worse > WRONG * better and prod(a.prints[value].shape) >= FEW:
            yield worse, better, its > mine, y if its > mine else x


def _begins(tape: Tape, off: dict[tuple[int, int], tuple[float, float]], last: TapeOp, part: float) -> TapeOp:
    """The op by which `part` of what is lost was lost: back from where it shows, along what is off by as much."""
    ops = {op.index: op for op in tape.ops}
    at = last
    while True:
        sums = at.name.partition(".")[0].rstrip("_") in _TERMS
        size = max((tape.prints[v].norm or 0.0 for v in at.outputs if v is not None and sums), default=0.0)
        given = [(_off(tape, off, t, size), t.last) for t in at.inputs if t.last in ops and t.last < at.index]
        error, giver = max(given, default=(0.0, -1))
        if error < part:
            return at
        at = ops[giver]


def _off(tape: Tape, off: dict[tuple[int, int], tuple[float, float]], taken: Taken, size: float) -> float:
    """How far a tensor is off that an op was given. Of a sum, which has the norm `size`, a small term is of little
    account."""
    error = off.get(taken.source if taken.writer is None else (taken.writer, 0), (0.0, 0.0))[0]
    mine = tape.prints[taken.value].norm if taken.value is not None else None
    return error * min(1.0, mine / size) if mine is not None and size else error
