"""One step of a recorded run as a run of its own: to compare two steps of one run."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from ..errors import BackprobeError
from ..records import Taken, Tape, TapeOp


def only_step(tape: Tape, step: int) -> Tape:
    """The ops of `step`. What they take from steps before it comes from outside, as weights and batches do.

    :raises BackprobeError: the step was not recorded.
    """
    numbers = [one["step"] for one in tape.steps]
    if step not in numbers:
        raise BackprobeError(f"step {step} was not recorded to be compared: there are {', '.join(map(str, numbers))}")
    ops: list[TapeOp] = []
    mine = [op for op, number in zip(tape.ops, _steps(tape, numbers), strict=True) if number == step]
    here = {op.index for op in mine}
    first: dict[tuple[int, int], tuple[int, int]] = {}
    for op in mine:
        taken = [_outside(one, op, slot, here, first) for slot, one in enumerate(op.inputs)]
        ops.append(replace(op, step=step, inputs=tuple(taken)))
    start: dict[str, int] = {}
    for op in ops:
        for one in op.inputs:
            if one.name and one.outside and one.writer is None and one.value is not None:
                start.setdefault(one.name, one.value)
    return replace(tape, steps=(tape.steps[numbers.index(step)],), start=start, ops=tuple(ops))


def _steps(tape: Tape, numbers: list[int]) -> list[int]:
    """The step of each op. A step is over when the next one is seen to begin, by its first module: what runs between the
    last op of the optimizer and that, as the loading of a batch, is of the next."""
    after = dict(pairwise(numbers))
    last: dict[int, int] = {}
    for phase in ("backward", "optimizer"):
        last.update({op.step: op.index for op in tape.ops if op.phase == phase})
    return [
        after[op.step]
        if op.phase == "forward" and op.index > last.get(op.step, op.index) and after.get(op.step) == op.step + 1
        else op.step
        for op in tape.ops
    ]


def _outside(
    taken: Taken, op: TapeOp, slot: int, here: set[int], first: dict[tuple[int, int], tuple[int, int]]
) -> Taken:
    """`taken` as it is where nothing before the step is known. What was last written to before the step is one tensor
    for all who take it, until it is written to again."""
    writer = taken.writer if taken.writer in here else None
    if taken.op in here:
        return replace(taken, writer=writer)
    at, out = first.setdefault(taken.source, (op.index, -1 - slot))
    return replace(taken, op=at, out=out, writer=writer)


def values_from_outside(tape: Tape) -> set[str]:
    """Hashes of what a tape takes from outside, and of what was drawn at random: what nothing else tells of."""
    found = [t.value for op in tape.ops for t in op.inputs if t.outside and t.writer is None]
    found += [value for op in tape.ops if op.random for value in op.outputs]
    return {tape.prints[value].hash for value in found if value is not None}
