"""The distance of two runs that compute the same with different rounding, and where one loses more digits.

Note [Rounding that piles up]: no op may be to blame, and yet one of the runs adds up hundreds of terms in a dtype in
which the last ones vanish. The other run shows it: with the same dtypes, its error is a third or less, and the error of
this run is more steps than a few ops explain. This is checked in the first forward only: optimizers that divide by the
size of a gradient magnify mere rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from ..ops import names_of
from ..records import Judged, Taken, Tape, TapeOp
from .blame import WRONG, Blame
from .estimate import Estimate, eps_of

#: Maximum error, in steps of the dtype, that counts as no loss.
STEPS = 3.0
#: A loss begins where a third of it is lost: a square loses twice the error of its input.
PART = 3.0
#: Ops that combine terms in proportion to their size.
_TERMS = names_of(lambda row: row.is_elementwise_sum or row.joins_inputs)
#: Minimum number of elements: with fewer, one run may be close to float64 by chance.
MIN_ELEMENTS = 16


def drift(a: Tape, b: Tape, pairs: Sequence[tuple[TapeOp, TapeOp]]) -> list[tuple[str, float]]:
    """Return the distance of the last value of each module from its partner, in forward order."""
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
    """Return the first op of the first forward by which one run loses much more digits than the other; ``None`` if
    none.

    The op counts if its error is at least a third of the largest such error: Note [Rounding that piles up].
    """
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
    """Yield each output of two paired ops in which one run is clearly worse.

    As the larger error, the smaller one, whether the second run is worse, and the op of the worse run.
    """
    for k, (value, partner) in enumerate(zip(x.outputs, y.outputs, strict=False)):
        mine, its = (off.get((op.index, k)) for off, op in zip(judged.off, (x, y), strict=True))
        gap = judged.outputs.get((x.index, k))
        if value is None or partner is None or mine is None or its is None or gap is None or gap.differs is not False:
            continue
        (worse, step), (better, other) = max(mine, its), min(mine, its)
        if (step, a.prints[value].dtype) != (other, b.prints[partner].dtype):
            continue  # other dtypes lose other digits
        if worse > STEPS * step and worse > WRONG * better and prod(a.prints[value].shape) >= MIN_ELEMENTS:
            yield worse, better, its > mine, y if its > mine else x


def _begins(tape: Tape, off: dict[tuple[int, int], tuple[float, float]], last: TapeOp, part: float) -> TapeOp:
    """Return the op at which an error of the size `part` was reached first.

    Goes back from the op that shows it (`last`), along inputs with as large an error.

    :param off: error and step of the dtype of each output, in units of its norm.
    """
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
    """Return the error of an input of an op; in a sum of norm `size`, that of a small term is scaled down."""
    error = off.get(taken.source if taken.writer is None else (taken.writer, 0), (0.0, 0.0))[0]
    mine = tape.prints[taken.value].norm if taken.value is not None else None
    return error * min(1.0, mine / size) if mine is not None and size else error
