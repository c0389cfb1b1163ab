"""Both runs again, op by op, in float64 and from the same tensors: what still differs is no rounding.

Note [From the same tensors]: what both runs took from outside (weights, batches, random numbers) is taken from the
first run for both. So two runs that calculate the same give the same here, whatever dtype, kernel or order of sums they
had. A third pass, of the first run, says how far values are known: there each value from outside, and each result of
an op, is moved by a part in 10^12, ten thousand times what float64 rounds by. A difference ten times what that does is
one. Results are moved, too, since what comes from outside may be of no account: the gradient of a bias before a batch
norm is nothing but rounding, whatever the weights. Whole numbers stay: they count, index, or are compared with.

Note [What a dtype loses]: where terms cancel, what is rounding of them may be all that is left. No kernel is to be
blamed for that, and where both runs have it it is no difference. But a value that has digits in float64, though all is
moved by a part in 10^12 there, and not one in its own dtype, is lost at that op.

Note [Aliases]: ops run as they ran: views are views, and what is written in place is seen through them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite

import torch

from ..comparing.align import Names, in_order
from ..comparing.arguments import alike, same
from ..comparing.estimate import distance
from ..ops import info
from ..records import Gap, Judged, Taken, Tape, TapeOp
from .ops import Opaque, call, moves, widened
from .single_op import Alone, apart, step_of
from .tensor_store import Tensors

#: Relative perturbation of values, and the multiple of its effect from which a deviation counts as a difference.
STEP, TIMES = 1e-12, 10.0
#: Deviation, in rounding steps of the dtype, above which the op is checked by itself.
SUSPECT = 8.0
#: Relative error from which no binary digit of a value is correct.
DIGIT = 0.5
_FLOOR = 1e-11


class _Side:
    """The values of one run that later ops still need."""

    def __init__(self, tape: Tape) -> None:
        """Index the ops of a run, and find after which op each value is needed no more."""
        self.tape = tape
        self.at = {op.index: op for op in tape.ops}
        self.env: dict[tuple[int, int], torch.Tensor | None] = {}
        #: Relative uncertainty of values that are known only as recorded, with their rounding.
        self.rough: dict[tuple[int, int], float] = {}
        #: Coarsest relative rounding step of the dtypes that a value depends on; infinite if the run had other tensors.
        self.coarse: dict[tuple[int, int], float] = {}
        self._last: dict[tuple[int, int], int] = {}
        for op in tape.ops:
            for taken in op.inputs:
                self._last[taken.source] = op.index
        self._ends: dict[int, list[tuple[int, int]]] = {}
        for source, index in self._last.items():
            self._ends.setdefault(index, []).append(source)

    def made(self, op: TapeOp) -> None:
        """Record the coarsest dtype that the outputs of `op`, and a tensor that it wrote to, depend on."""
        given = [self.coarse.get(taken.source, step_of(self.tape, taken.value)) for taken in op.inputs]
        made = [(op.index, k) for k in range(len(op.outputs))]
        given += [self.coarse.get(one, 0.0) for one in made] + [step_of(self.tape, value) for value in op.outputs]
        coarsest = max(given, default=0.0)
        self.coarse.update(dict.fromkeys(made, coarsest))
        if op.inputs and op.name.partition(".")[0].endswith("_"):
            self.coarse[op.inputs[0].source] = coarsest

    def done(self, op: TapeOp) -> None:
        """Free the values of this run that no op after `op` takes."""
        for source in self._ends.pop(op.index, ()):
            self.env.pop(source, None)
        for k in range(len(op.outputs)):
            if (op.index, k) not in self._last:
                self.env.pop((op.index, k), None)


class Both:
    """Evaluates two paired tapes in float64, and compares their values."""

    def __init__(self, a: Tape, b: Tape, pairs: Sequence[tuple[int, int]], kept: Tensors, names: Names) -> None:
        """Prepare the evaluation of runs `a` and `b`.

        :param pairs: positions of corresponding ops; `kept`: the stored tensors; `names`: maps names of the second run
            to the first.
        """
        self.a, self.b, self.moved = _Side(a), _Side(b), _Side(a)
        self.pairs = pairs
        self.partner = {a.ops[i].index: b.ops[j].index for i, j in pairs}
        self.kept = kept
        self.judged = Judged({}, {}, {}, {}, ({}, {}), ({}, {}))
        self._draw = torch.Generator().manual_seed(0)
        self._alone = Alone(self._recorded, self._draw)
        self._names = names
        #: Distances between values, by their sources in both runs.
        self._known: dict[tuple[tuple[int, int], tuple[int, int]], Gap] = {}
        #: Latest sources of external named tensors in the first run, by their names in the second.
        self._named: dict[str, tuple[int, int]] = {}
        #: Hashes of external tensors of the first run.
        self._bits: dict[tuple[int, int], str | None] = {}

    def run(self) -> Judged:
        """Evaluate all ops of both runs in float64, pair by pair, and return where their values differ."""
        with torch.no_grad():
            for a, b in in_order(self.a.tape, self.b.tape, self.pairs):
                like = a is not None and b is not None and len(a.inputs) == len(b.inputs)
                for taken in a.inputs if a is not None else ():
                    self._take_first(taken)
                for slot, taken in enumerate(b.inputs if b is not None else ()):
                    self._take_second(taken, a.inputs[slot] if a is not None and like else None)
                if a is not None and b is not None:
                    self._compare_inputs(a, b)  # before they are written to
                if a is not None:
                    self._first(a)
                if b is not None:
                    self._second(b, a)
                self._compare_outputs(a, b)
                if a is not None:
                    self.a.done(a)
                    self.moved.done(a)
                if b is not None:
                    self.b.done(b)
        return self.judged

    # Values

    def _recorded(self, tape: Tape, value: int | None) -> torch.Tensor | None:
        """Return a recorded value in float64; ``None`` if its tensor was not kept."""
        if value is None:
            return None
        found = self.kept.get(tape.prints[value].hash)
        return None if found is None else widened(found)

    def _move(self, tensor: torch.Tensor | None) -> None:
        """Perturb all numbers of a tensor that are not whole by a relative step of ``STEP``, in place."""
        if tensor is not None and (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
            if any(s == 0 and n > 1 for n, s in zip(tensor.shape, tensor.stride(), strict=True)):
                return  # it is one value many times
            step = torch.randn(tensor.shape, generator=self._draw, dtype=torch.float64).mul_(STEP)
            parts = tensor.real if tensor.is_complex() else tensor
            tensor.mul_(step.masked_fill_(parts == parts.round(), 0.0).add_(1.0))

    def _take_first(self, taken: Taken) -> None:
        """Take an input of an op of the first run from its records if it comes from outside, also for the perturbed
        pass.
        """
        source = taken.source
        if taken.name:
            self._named[self._names.of(taken.name)] = source
        if source in self.a.env:
            return
        found = self._recorded(self.a.tape, taken.value)
        self._bits[source] = _bits(self.a.tape, taken.value)
        self.a.env[source] = found
        moved = self.moved.env[source] = _clone(found)
        self._move(moved)

    def _take_second(self, taken: Taken, partner: Taken | None) -> None:
        """Take an input of an op of the second run from outside: that of the first run if both correspond, else its own
        record.
        """
        source = taken.source
        if source in self.b.env:
            return
        there = partner.source if partner is not None and partner.outside else None
        if there is None and taken.name:
            there = self._named.get(taken.name)
        shared = self.a.env.get(there) if there is not None else None
        shape = self.b.tape.prints[taken.value].shape if taken.value is not None else None
        if shared is not None and (shape is None or tuple(shared.shape) == shape):
            self.b.env[source] = shared.clone()
            if there is None or self._bits.get(there) != _bits(self.b.tape, taken.value):
                self.b.coarse[source] = inf
            return
        self.b.env[source] = self._recorded(self.b.tape, taken.value)

    # Ops

    def _first(self, op: TapeOp) -> None:
        """Evaluate an op of the first run, and of the perturbed pass; random results are taken as recorded."""
        if op.phase == "sink":
            return
        if op.random:
            self._set_outputs(self.a, op, [self._recorded(self.a.tape, v) for v in op.outputs])
            self._set_outputs(self.moved, op, [_clone(self.a.env[op.index, k]) for k in range(len(op.outputs))])
            return
        for side in (self.a, self.moved):
            self._call(side, op, op.arguments)
        if moves(op.name):
            for k in range(len(op.outputs)):
                self._move(self.moved.env.get((op.index, k)))

    def _second(self, op: TapeOp, partner: TapeOp | None) -> None:
        """Evaluate an op of the second run. `partner`: the corresponding op of the first run.

        If the partner could not be called and both have equal inputs, its results are taken.
        """
        like = partner is not None and len(partner.inputs) == len(op.inputs)
        if op.phase == "sink":
            return
        arguments = op.arguments
        if partner is not None and like and alike(partner.arguments, op.arguments):
            arguments = partner.arguments
        if op.random:
            self._copy_random(op, partner)
            return
        opaque = partner is not None and any(self.a.rough.get((partner.index, k)) for k in range(len(partner.outputs)))
        if opaque and partner is not None and like and arguments is partner.arguments and self._met(partner, op):
            # The same op of the same: what it calculates is taken to be the same.
            for k in range(len(op.outputs)):
                self.a.rough.pop((partner.index, k), None)
                self.b.coarse[op.index, k] = inf
            self._set_outputs(self.b, op, [_clone(self.a.env.get((partner.index, k))) for k in range(len(op.outputs))])
            return
        self._call(self.b, op, arguments)

    def _copy_random(self, op: TapeOp, partner: TapeOp | None) -> None:
        """Give a random op of the second run the numbers of the first run, if the ops are equal."""
        if partner is not None and same(partner.arguments, op.arguments) and len(partner.outputs) == len(op.outputs):
            shapes = [_shape(self.b.tape, v) for v in op.outputs]
            if shapes == [_shape(self.a.tape, v) for v in partner.outputs]:
                self._set_outputs(self.b, op, [_clone(self.a.env.get((partner.index, k))) for k in range(len(shapes))])
                for k, value in enumerate(op.outputs):
                    if _bits(self.b.tape, value) != _bits(self.a.tape, partner.outputs[k]):
                        self.b.coarse[op.index, k] = inf
                return
        self._set_outputs(self.b, op, [self._recorded(self.b.tape, v) for v in op.outputs])

    def _met(self, a: TapeOp, b: TapeOp) -> bool:
        """Return whether the inputs of two corresponding ops are equal."""
        return not any(self.judged.slots[a.index, slot].differs for slot in range(len(a.inputs)))

    def _set_outputs(self, side: _Side, op: TapeOp, values: list[torch.Tensor | None]) -> None:
        """Store `values` as the outputs of `op`; an in-place op writes them into its input."""
        places = [source for taken in op.inputs if (source := taken.source) in side.env]
        writes = op.name.partition(".")[0].endswith("_") and bool(places)
        for k, value in enumerate(values):
            target = side.env.get(places[0]) if writes and k == 0 else None
            if target is not None and value is not None and target.shape == value.shape:
                target.copy_(value)
                value = target
            side.env[op.index, k] = value

    def _call(self, side: _Side, op: TapeOp, arguments: object) -> None:
        """Evaluate an op of one run with the values of its inputs; if it cannot be called, take its recorded
        results.
        """
        tape = side.tape
        rough = max((side.rough.get(taken.source, 0.0) for taken in op.inputs), default=0.0)
        tensors = [side.env.get(taken.source) for taken in op.inputs]
        gave = tape.prints[op.outputs[0]].dtype if op.outputs and op.outputs[0] is not None else None
        if gave is None and info(op.name).is_uninitialised and not op.inputs:
            gave = "float32"
        try:
            if any(one is None for one in tensors):
                raise Opaque("")
            made = call(op, arguments, [one for one in tensors if one is not None], gave)
            if len(made) != len(op.outputs):
                raise Opaque(op.name)
            for k, value in enumerate(made):
                side.env[op.index, k] = value
        except Opaque as error:
            if str(error) and side is not self.moved:
                self.judged.opaque[op.name] = self.judged.opaque.get(op.name, 0) + 1
            values = [self._recorded(tape, v) for v in op.outputs]
            self._set_outputs(side, op, values)
            rough = max([rough, *(step_of(tape, v) for v in op.outputs)])
        if rough:
            for k in range(len(op.outputs)):
                side.rough[op.index, k] = rough

    # What differs

    def _compare_inputs(self, a: TapeOp, b: TapeOp) -> None:
        """Note how the inputs of op `a` differ from those of op `b`, its counterpart in the other run."""
        judged = self.judged
        for slot in range(max(len(a.inputs), len(b.inputs))):
            if slot >= len(a.inputs) or slot >= len(b.inputs):
                judged.slots[a.index, slot] = Gap(True, None, "missing")
                continue
            one, two = a.inputs[slot], b.inputs[slot]
            judged.slots[a.index, slot] = self._gap(one, two)
            if one.outside and two.outside and one.op == a.index and two.op == b.index:
                self._outside(a, slot, one, two)

    def _compare_outputs(self, a: TapeOp | None, b: TapeOp | None) -> None:
        """Compare the results of two corresponding ops, and check an op by itself if its recorded result looks
        wrong.
        """
        both = [(side, op) for side, op in ((self.a, a), (self.b, b)) if op is not None]
        for side, op in both:
            side.made(op)
            for k in range(len(op.outputs)):
                value = side.env.get((op.index, k))
                if value is not None and value.dtype.is_floating_point:
                    norms = float(torch.linalg.vector_norm(value)), float(torch.linalg.vector_norm(value, 3))
                    self.judged.sizes[side is self.b][op.index, k] = norms
        for k in range(min(len(op.outputs) for _, op in both)):
            if a is not None and b is not None:
                between = self._between((a.index, k), (b.index, k))
                self.judged.outputs[a.index, k] = self._known[(a.index, k), (b.index, k)] = between
                if _bits(self.a.tape, a.outputs[k]) == _bits(self.b.tape, b.outputs[k]):
                    continue
            suspects = [self._suspect(side, op, k) for side, op in both]  # of both, for what they note
            if any(suspects):
                for side, op in both:
                    far = side is self.a and self._leaves(op, k)
                    units, share = self._alone.look(side.tape, op, k, far)
                    self.judged.local[side is self.b][op.index, k] = units
                    if far and share >= DIGIT:
                        self.judged.lost.add((op.index, k))

    def _leaves(self, op: TapeOp, k: int) -> bool:
        """Record the distance of a result of the first run from float64; return whether it lost all digits.

        See Note [What a dtype loses].
        """
        value, exact, moved = op.outputs[k], self.a.env.get((op.index, k)), self.moved.env.get((op.index, k))
        if value is None or exact is None or moved is None or tuple(exact.shape) != self.a.tape.prints[value].shape:
            return False
        seen, size = self.a.tape.prints[value], float(torch.linalg.vector_norm(exact))
        if seen.norm is None or not size:
            return False
        error = self.judged.away[op.index, k] = apart(exact, seen) / size
        return error >= DIGIT and float(torch.linalg.vector_norm(moved - exact)) < DIGIT * size

    def _outside(self, a: TapeOp, slot: int, one: Taken, two: Taken) -> None:
        """Record an external tensor that differs between the runs by more than the rounding of its dtype."""
        if one.value is None or two.value is None:
            return
        x, y = self.a.tape.prints[one.value], self.b.tape.prints[two.value]
        if x.hash == y.hash:
            return
        error = distance(x.sketch, y.sketch, x.norm, y.norm) if x.shape == y.shape else 1.0
        if (
            x.shape != y.shape
            or error is None
            or error > max(step_of(self.a.tape, one.value), step_of(self.b.tape, two.value))
        ):
            self.judged.outside[a.index, slot] = 1.0 if error is None else error

    def _gap(self, one: Taken, two: Taken) -> Gap:
        """Return the distance between two inputs, from a cache if nothing has written to them."""
        if one.writer is not None or two.writer is not None:
            return self._between(one.source, two.source)
        # No op has written to it since, so its value is that of its first use.
        known = self._known.get((one.source, two.source))
        if known is None:
            known = self._known[one.source, two.source] = self._between(one.source, two.source)
        return known

    def _between(self, source: tuple[int, int], its: tuple[int, int]) -> Gap:
        """Return the distance between a value of the first run and one of the second; unknown if one is not there."""
        x, moved, y = self.a.env.get(source), self.moved.env.get(source), self.b.env.get(its)
        if x is None or y is None or moved is None:
            return Gap(None)
        return gap(x, moved, y, max(self.a.rough.get(source, 0.0), self.b.rough.get(its, 0.0)))

    def _suspect(self, side: _Side, op: TapeOp, k: int) -> bool:
        """Return whether a recorded result deviates from the float64 run by more than ``SUSPECT`` rounding steps."""
        value, exact = op.outputs[k], side.env.get((op.index, k))
        if value is None or exact is None or not exact.dtype.is_floating_point:
            return False
        seen = side.tape.prints[value]
        if tuple(exact.shape) != seen.shape:
            return False
        if seen.norm is None:
            return bool(torch.isfinite(exact).all())
        off, size, step = apart(exact, seen), float(torch.linalg.vector_norm(exact)), step_of(side.tape, value)
        if size and step and isfinite(side.coarse[op.index, k]):
            self.judged.off[side is self.b][op.index, k] = off / size, side.coarse[op.index, k]
        return off > SUSPECT * step * size


def gap(x: torch.Tensor, moved: torch.Tensor, y: torch.Tensor, rough: float = 0.0) -> Gap:
    """Return the distance of `y` from `x`, and whether it exceeds the uncertainty that `moved` shows."""
    if x.shape != y.shape:
        return Gap(True, None, "shape")
    if not x.numel():
        return Gap(False, 0.0)
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        if y.dtype.is_floating_point or y.dtype.is_complex:
            y = y.to(x.dtype)
        part = float((x != y).double().mean())
        return Gap(part > 0, part)
    if not (y.dtype.is_floating_point or y.dtype.is_complex):
        y = y.to(x.dtype)
    size, off, noise = _norms(x, y, moved)
    if not isfinite(size + off):
        fine, same_ = torch.isfinite(x), torch.isfinite(y)
        if not torch.equal(fine, same_):
            return Gap(True, float((fine != same_).double().mean()))
        size, off, noise = _norms(*(torch.where(fine, one, torch.zeros_like(one)) for one in (x, y, moved)))
    error = off / size if size else float(off > 0)
    return Gap(off > TIMES * noise + (_FLOOR + 1e3 * rough) * size, error)


def _norms(x: torch.Tensor, y: torch.Tensor, moved: torch.Tensor) -> tuple[float, float, float]:
    """Return the norms of `x`, ``x - y`` and ``x - moved``."""
    norm = torch.linalg.vector_norm
    return float(norm(x)), float(norm(x - y)), float(norm(x - moved))


def _clone(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """Return a copy of a tensor; ``None`` for ``None``."""
    return None if tensor is None else tensor.clone()


def _shape(tape: Tape, value: int | None) -> tuple[int, ...] | None:
    """Return the shape of a recorded value; ``None`` for ``None``."""
    return None if value is None else tape.prints[value].shape


def _bits(tape: Tape, value: int | None) -> str | None:
    """Return the hash of a recorded value; ``None`` for ``None``."""
    return None if value is None else tape.prints[value].hash
