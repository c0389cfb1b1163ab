"""Extraction of one step of a recorded run as a run of its own, to compare two steps of one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from ..basics.errors import BackprobeError
from ..records import Taken, Tape, TapeOp


def only_step(tape: Tape, step: int) -> Tape:
    """Return the ops of `step` as a run of its own.

    Inputs from earlier steps count as coming from outside, as weights and batches do.

    :raises BackprobeError: the step was not recorded.
    """
    numbers = [one["step"] for one in tape.steps]
    if step not in numbers:
        raise BackprobeError(f"step {step} was not recorded to be compared: there are {', '.join(map(str, numbers))}")
    mine = [op for op, number in zip(tape.ops, _steps(tape, numbers), strict=True) if number == step]
    start = dict(tape.start) if step == numbers[0] else {}
    ops = alone([replace(op, step=step) for op in mine], start)
    for op in ops if step != numbers[0] else ():
        for one in op.inputs:
            if one.name and one.outside and one.writer is None and one.value is not None:
                start.setdefault(one.name, one.value)
    return replace(tape, steps=(tape.steps[numbers.index(step)],), start=start, ops=tuple(ops))


def alone(ops: Sequence[TapeOp], start: dict[str, int]) -> list[TapeOp]:
    """Return `ops` as a tape of their own: inputs from other ops come from outside. `start`: weights at their start."""
    sources = _Sources({op.index for op in ops}, start)
    return [
        replace(op, inputs=tuple(sources.outside(one, op, slot) for slot, one in enumerate(op.inputs))) for op in ops
    ]


class _Sources:
    """The origins of tensors, as far as one step knows them.

    :param here: the ops of the step.
    :param start: weights that are made in the step, which does not matter to it.
    """

    def __init__(self, here: set[int], start: dict[str, int]) -> None:
        self._here, self._start = here, start
        self._first: dict[tuple[int, int], tuple[int, int]] = {}

    def outside(self, taken: Taken, op: TapeOp, slot: int) -> Taken:
        """Return the input `taken` with everything before the step unknown.

        Memory last written before the step is one tensor for all of its users, until it is written again.

        :param slot: the number of the input of `op`.
        """
        weight = bool(taken.name) and self._start.get(taken.name) == taken.value
        if taken.op in self._here and taken.source not in self._first and not weight:
            return replace(taken, writer=taken.writer if taken.writer in self._here else None)
        at, out = self._first.setdefault(taken.source, (op.index, -1 - slot))
        writer = taken.writer if taken.writer in self._here and not weight else None
        return replace(taken, op=at, out=out, writer=writer)


def _steps(tape: Tape, numbers: list[int]) -> list[int]:
    """Return the step to which each op belongs.

    A step is over when the first module of the next one begins: ops between the optimizer's last op and that, such as
    the loading of a batch, belong to the next step.
    """
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


def values_from_outside(tape: Tape) -> set[str]:
    """Return the hashes of inputs from outside and of random results: values that cannot be recomputed."""
    found = [t.value for op in tape.ops for t in op.inputs if t.outside and t.writer is None]
    found += [value for op in tape.ops if op.random for value in op.outputs]
    return {tape.prints[value].hash for value in found if value is not None}
