"""Comparison of one run with itself in float64: the first op at which it diverges.

Works as ``blame``, with the float64 results as the second run, whose error is zero. An op is reported if its result
differs by more than its dtype explains, if no digit of a value is left (Note [What a dtype loses]), or if the backward
of a custom function is not the derivative of its forward.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from ..ops import info
from ..records import Applied, Judged, Tape, TapeOp
from .blame import WRONG, Blamer, taken_from
from .compared import used

#: Smallest normal number of half precision.
NORMAL = 2.0**-14


@dataclass(frozen=True)
class Departs:
    """The place at which a run diverges from float64.

    :ivar kind: ``kernel``, ``overflow``, ``underflow``, ``lost`` or ``function``.
    :ivar order: the index of the op that ran next, to find the first divergence.
    :ivar error: relative error of the value computed from the start; for a function, of its gradient alone.
    :ivar function: the call of a custom function; `op` is then the first op of its forward.
    """

    kind: str
    op: TapeOp
    order: int
    error: float | None
    dtype: str = ""
    function: Applied | None = None

    @property
    def what(self) -> str:
        """A description in words."""
        if self.kind == "function":
            assert self.function is not None
            return f"the backward of {self.function.name} gives another gradient than the derivative of its forward"
        if self.kind == "overflow":
            return f"an overflow in {self.dtype}: float64 gives finite values"
        if self.kind == "underflow":
            return f"an underflow: {self.dtype} has no numbers as small as that"
        if self.kind == "lost":
            how = "what it adds up cancels" if info(self.op.name).adds_terms else "it magnifies rounding"
            return f"{how}: no digit is left in {self.dtype}"
        return f"it gives something else than {self.dtype} explains"


def nothing(tape: Tape) -> Tape:
    """Return a tape without ops, as the other side if there is no other run."""
    return Tape(tape.about, tape.steps, {}, (), ())


def departs(tape: Tape, judged: Judged, functions: Iterable[tuple[Applied, float, float]] = ()) -> Departs | None:
    """Return the first divergence from float64 among the ops on which the final results depend; ``None`` if there is
    none.

    :param judged: of `tape` and ``nothing``.
    :param functions: calls of custom functions, the error of a gradient in units of what its type explains, and its
        relative error.
    """
    blamer = Blamer(tape, nothing(tape), (), judged)
    ops = used(tape, [op.index for op in _ends(tape)])
    blame = blamer.kernel(ops)
    found = []
    if blame is not None and blame.a is not None:
        op = blame.a
        bad = any(v is not None and tape.prints[v].bad for v in op.outputs)
        away = max((judged.away.get((op.index, k), 0.0) for k in range(len(op.outputs))), default=0.0)
        kind = "overflow" if bad else "underflow" if _small(tape, op, 0) else "kernel"
        found.append(Departs(kind, op, op.index, None if bad else away, _dtype(tape, op, 0)))
    at = {op.index: op for op in tape.ops}
    for index, k in sorted(judged.lost):
        if index in ops:
            kind = "underflow" if _small(tape, at[index], k) else "lost"
            found.append(Departs(kind, at[index], index, judged.away[index, k], _dtype(tape, at[index], k)))
            break
    for one, units, error in functions:
        if units > WRONG:
            found.append(Departs("function", at[one.ops[0]], one.ran, error, function=one))
    return min(found, key=lambda one: one.order, default=None)


def _dtype(tape: Tape, op: TapeOp, k: int) -> str:
    """Return the dtype of an output of an op as text."""
    value = op.outputs[k] if k < len(op.outputs) else None
    return tape.prints[value].dtype if value is not None else "its dtype"


def _small(tape: Tape, op: TapeOp, k: int) -> bool:
    """Return whether a result is in float16 and mostly below its normal numbers."""
    value = op.outputs[k]
    seen = tape.prints[value] if value is not None else None
    return seen is not None and seen.dtype == "float16" and (seen.norm or 0.0) < NORMAL * prod(seen.shape) ** 0.5


def _ends(tape: Tape) -> list[TapeOp]:
    """Return the ops with final results: gradients, weights, numbers that were read; if there are none,
    unused results.
    """
    ends = [op for op in tape.ops if op.phase == "sink" or not op.outputs]
    if any(op.inputs for op in ends):
        return ends
    taken = taken_from(tape)
    return [op for op in tape.ops if op.index not in taken]
