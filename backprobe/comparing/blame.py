"""Finds the first op that really differs, by walking back from differing results to an op whose inputs agree.

Note [Back from the end]: two runs may compute the same thing in two ways, with intermediate values that have no
partner, or that look like partners and are not. What counts are the final results: losses, gradients, weights. From a
result that differs the search goes to the op that produced it, and from there to each input that differs, until none of
an op's inputs differ, or an input comes from another source than in the other run. Of all such ops the first that ran
is reported.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isinf, isnan

from ..records import Gap, Judged, Taken, Tape, TapeOp
from .align import in_order
from .arguments import reads, same
from .estimate import JUMP, Estimate, eps_of

#: Maximum difference of a rounded constant, in steps of its type.
ROUNDED = 2.0
#: An op is wrong if its error is this multiple of what its type explains, and the other run's is not. PyTorch uses the
#: same limit to check its compiler's results. Correct ops were seen to reach at most a fifth of it.
WRONG = 3.0
#: The op with which a GradScaler looks for non-finite gradients.
SCALER = "_amp_foreach_non_finite_check_and_unscale_"
#: Relative difference below which norms of values that are equal in float64 are equal.
SAME = 1e-9


@dataclass(frozen=True)
class Blame:
    """The place at which two runs diverge.

    :ivar kind: ``arguments`` (one op, other arguments), ``taken`` (one op, another input tensor), ``structure`` (ops
        that the other run does not have), ``kernel`` (the same op on the same inputs, another result), ``missing`` (no
        gradient), ``cut`` (an op that is not part of the graph in one run), ``random`` (other random numbers),
        ``outside`` (another tensor from outside), ``loses`` (one run has lost more by rounding:
        Note [Rounding that piles up]).
    :ivar a, b: the op in each run; ``None`` if the run does not have it.
    :ivar slot: index of the input that differs.
    :ivar exact: the error was computed in float64; otherwise it is estimated from fingerprints.
    :ivar other: for ``loses``, the error of the other run.
    :ivar rounded: the error that a constant with fewer digits in one run explains.
    """

    kind: str
    a: TapeOp | None
    b: TapeOp | None
    slot: int | None = None
    error: float | None = None
    exact: bool = True
    name: str = ""
    rounded: float = 0.0
    other: float = 0.0

    @property
    def late(self) -> bool:
        """Whether the difference appears after the forward."""
        return all(op is None or op.phase in ("backward", "sink") for op in (self.a, self.b))

    @property
    def order(self) -> float:
        """The index of the op, which orders blames: the one that ran first counts."""
        assert self.a is not None or self.b is not None
        return self.a.index if self.a is not None else self.b.index  # type: ignore[union-attr]


def taken_from(tape: Tape) -> set[int]:
    """Return the ops whose results other ops use."""
    return {taken.last for op in tape.ops for taken in op.inputs if not (taken.outside and taken.writer is None)}


def _roots(tape: Tape) -> set[int]:
    """Return the indices of the ops that make the first gradient of a backward call, of the shape of its loss."""
    return {op.index for op, after in pairwise(tape.ops) if op.name == "ones_like" and after.phase == "backward"}


def _near(one: tuple[float, float], among: list[tuple[float, float]]) -> bool:
    """Return whether a pair of norms is in the list `among`, except for rounding in float64."""
    at = bisect_left(among, (one[0] * (1 - SAME), 0.0))
    while at < len(among) and among[at][0] <= one[0] * (1 + SAME):
        if abs(among[at][1] - one[1]) <= SAME * one[1]:
            return True
        at += 1
    return False


class Blamer:
    """Finds the op to blame by walking back from final results that differ: Note [Back from the end].

    :param pairs: positions of paired ops in both runs.
    :param judged: the result of recomputing both runs in float64; ``None``: differences are estimated from
        fingerprints.
    """

    def __init__(self, a: Tape, b: Tape, pairs: Sequence[tuple[int, int]], judged: Judged | None) -> None:
        self.a, self.b = a, b
        self._places = pairs
        self.pairs = [(a.ops[i], b.ops[j]) for i, j in pairs]
        self.by_a = {x.index: (x, y) for x, y in self.pairs}
        self.by_b = {y.index: (x, y) for x, y in self.pairs}
        self._ops_a, self._ops_b = {op.index: op for op in a.ops}, {op.index: op for op in b.ops}
        self._judged = judged
        self._estimate = Estimate(a, b)
        self.found: list[Blame] = []
        #: Blames that are uncertain: values of other shapes with the same origin, or values that the other run has
        #: elsewhere. They count only if nothing else is found.
        self._weak: list[Blame] = []
        self._norms: list[list[tuple[float, float]]] = []
        self._seen: set[int] = set()
        #: Number of values that could only be estimated.
        self.estimated = 0
        #: Number of ops with an error that could not be evaluated on their own.
        self.untold = 0

    def first(self) -> Blame | None:
        """Return the first op that differs by more than rounding; ``None`` if there is none."""
        ends = self.ends()
        todo = [(x, y, slot) for x, y, slot in ends if self.slot(x, y, slot).differs]
        while todo:
            todo += self._back(*todo.pop())
        if not (self.found or self._weak) and self._judged is not None and any(self.slot(*end).differs for end in ends):
            self._forward()
        first = min(self.found or self._weak, key=lambda one: one.order, default=None)
        if first is not None and first.kind in ("missing", "structure", "taken") and first.late:
            return self._cut(first) or first
        return first

    def _cut(self, late: Blame) -> Blame | None:
        """Return the forward op that explains a difference which appears only in the backward; ``None`` if none is
        found.

        In one run, the op is cut off from the graph. One in a module of `late` is preferred.
        """
        step = next(op.step for op in (late.a, late.b) if op is not None)
        modules = {op.module for op in (late.a, late.b) if op is not None} | {late.name.rpartition(".")[0]}
        found: list[Blame] = []
        for ops, paired in ((self.a.ops, self.by_a), (self.b.ops, self.by_b)):
            for op in ops:
                if op.phase == "forward" and op.step == step and op.name == "detach" and op.index not in paired:
                    first = ops is self.a.ops
                    found.append(Blame("cut", op if first else None, None if first else op, name=late.name))
        for x, y in self.pairs:
            if x.phase == "forward" and x.step == step and x.grad != y.grad:
                found.append(Blame("cut", x, y, name=late.name))
        near = [one for one in found if any(op is not None and op.module in modules for op in (one.a, one.b))]
        return (near or found or [None])[0]  # type: ignore[list-item]

    def ends(self) -> list[tuple[TapeOp, TapeOp, int]]:
        """Return the final results of the runs, as pairs of ops and the input that holds the result.

        These are gradients, weights, numbers that were read, and roots of backward calls. If there are none, ops whose
        results no op uses, with the input -1.
        """
        found = []
        roots = [_roots(tape) for tape in (self.a, self.b)]
        parts = len(roots[0]) != len(roots[1])  # of a batch: a loss of a part is another one
        for x, y in self.pairs:
            root = x.index in roots[0] and not parts
            if x.phase == "sink" or root or (not x.outputs and not parts):
                found += [(x, y, slot) for slot in range(max(len(x.inputs), len(y.inputs)))]
        if any(x.name != "weight" and (x.inputs or y.inputs) for x, y, _ in found):
            return found
        taken = taken_from(self.a)
        last = [(x, y) for x, y in self.pairs if x.outputs and x.index not in taken and not self._alike(x, y)]
        return [*found, *((x, y, -1) for x, y in last)]

    def _alike(self, x: TapeOp, y: TapeOp) -> bool:
        """Return whether two ops gave the same bits."""
        mine, other = (
            [tape.prints[v].hash if v is not None else "" for v in op.outputs]
            for tape, op in ((self.a, x), (self.b, y))
        )
        return mine == other

    # How far values are apart

    def slot(self, x: TapeOp, y: TapeOp, slot: int) -> Gap:
        """Return the difference of an input of two paired ops; for -1, of their outputs."""
        if slot < 0:
            return self.output(x, y)
        if slot >= len(x.inputs) or slot >= len(y.inputs):
            return Gap(True, None, "missing")
        gap = self._judged.slots.get((x.index, slot)) if self._judged is not None else None
        if gap is not None and gap.differs is not None:
            return gap
        self.estimated += 1
        return self._estimate.gap(x.inputs[slot].value, y.inputs[slot].value)

    def output(self, x: TapeOp, y: TapeOp) -> Gap:
        """Return the difference of the outputs of two ops: the worst of them."""
        worst = Gap(False, 0.0)
        for k in range(min(len(x.outputs), len(y.outputs))):
            gap = self._judged.outputs.get((x.index, k)) if self._judged is not None else None
            if gap is None or gap.differs is None:
                self.estimated += 1
                gap = self._estimate.gap(x.outputs[k], y.outputs[k])
            if gap.differs and (not worst.differs or (gap.error or 2.0) > (worst.error or 2.0)):
                worst = gap
        return worst

    def _calculated(self, x: TapeOp) -> bool:
        """Return whether the outputs of an op were recomputed."""
        gaps = [self._judged.outputs.get((x.index, k)) for k in range(len(x.outputs))] if self._judged else []
        return any(gap is not None and gap.differs is not None for gap in gaps)

    # Back

    def _forward(self) -> None:
        """Blame the first pair with equal inputs and different outputs; used if the walk back found nothing."""
        for x, y in self.pairs:
            if x.outputs and self._calculated(x) and self.output(x, y).differs:
                self._at(x, y)
                if self.found:
                    return

    def _back(self, x: TapeOp, y: TapeOp, slot: int) -> list[tuple[TapeOp, TapeOp, int]]:
        """Follow an input that differs: return the inputs to examine next, or record a blame and return nothing."""
        if slot < 0:
            return self._at(x, y)
        gap = self.slot(x, y, slot)
        if gap.why == "missing":
            self.found.append(Blame("missing" if x.phase == "sink" else "arguments", x, y, slot, None, name=x.module))
            return []
        one, two = x.inputs[slot], y.inputs[slot]
        if one.outside and two.outside and one.writer is None and two.writer is None:
            self.found.append(Blame("outside", x, y, slot, gap.error, name=one.name or two.name))
            return []
        givers = self.by_a.get(one.last)
        if givers is not None and givers[1].index == two.last and (one.out == two.out or one.writer is not None):
            if one.writer is not None and not self.output(*givers).differs:
                return self._earlier(*givers)
            return self._at(*givers)
        return self._apart(x, y, slot, gap)

    def _earlier(self, x: TapeOp, y: TapeOp) -> list[tuple[TapeOp, TapeOp, int]]:
        """Return an input with an earlier difference in memory that two paired ops wrote to last, if what they wrote
        agrees.

        Follows the views that they wrote through.
        """
        todo, seen = [(x, y)], {x.index}
        while todo:
            x, y = todo.pop()
            for s, (one, two) in enumerate(zip(x.inputs, y.inputs, strict=False)):
                givers = self.by_a.get(one.op)
                if self.slot(x, y, s).differs:
                    return [(x, y, s)]
                if givers is not None and givers[1].index == two.op and givers[0].index not in seen:
                    seen.add(givers[0].index)
                    todo.append(givers)
        return []

    def _at(self, x: TapeOp, y: TapeOp) -> list[tuple[TapeOp, TapeOp, int]]:
        """Examine two paired ops with different results: return their inputs that differ, or blame the ops
        themselves.
        """
        if x.index in self._seen:
            return []
        self._seen.add(x.index)
        all_ = range(max(len(x.inputs), len(y.inputs)))
        slots = [s for s in all_ if (reads(x, s) or reads(y, s)) and self.slot(x, y, s).differs]
        gap = self.output(x, y)
        if not self._calculated(x) and gap.error is not None:
            if gap.error > JUMP * self._estimate.input_error(x.inputs, y.inputs):
                slots = []
            elif not slots:
                return []  # it has grown to this, op by op
        if slots:
            return [(x, y, s) for s in slots]
        kind = "arguments" if not same(x.arguments, y.arguments) or x.name != y.name else "kernel"
        if kind == "kernel" and x.random:
            kind = "random"
        if gap.error != 0.0:
            self._add(Blame(kind, x, y, None, gap.error), x, y)
        return []

    def _apart(self, x: TapeOp, y: TapeOp, slot: int, gap: Gap) -> list[tuple[TapeOp, TapeOp, int]]:
        """Examine inputs that do not come from paired ops: return earlier differences, or blame the ops between.

        The inputs come from ops that the other run does not have, or from other ops.
        """
        mine, edge = self._cone(x.inputs[slot], self.a, self._ops_a, self.by_a)
        other, its = self._cone(y.inputs[slot], self.b, self._ops_b, self.by_b)
        before = {p[0].index: p for p in (*edge, *its) if self.output(*p).differs}
        if before:
            return [(p[0], p[1], -1) for p in before.values()]
        if not mine and not other:
            rounded = max(self._digits(self.a, [x.inputs[slot]]), self._digits(self.b, [y.inputs[slot]]))
            self._add(Blame("taken", x, y, slot, gap.error, rounded=rounded), x, y)
        else:
            new = [
                [op for op in ops if not self._met([(op.index, k) for k in range(len(op.outputs))], side)] or ops
                for side, ops in enumerate((mine, other))
            ]
            first, second = (min(ops, key=lambda op: op.index, default=None) for ops in new)
            rounded = max(
                self._digits(tape, [taken for op in ops for taken in op.inputs])
                for tape, ops in ((self.a, mine), (self.b, other))
            )
            found = Blame("structure", first, second, slot, gap.error, rounded=rounded)
            if gap.why == "shape":
                self._weak.append(found)
            else:
                self._add(found, x, y)
        return []

    def _cone(
        self, taken: Taken, tape: Tape, ops: dict[int, TapeOp], paired: dict[int, tuple[TapeOp, TapeOp]]
    ) -> tuple[list[TapeOp], list[tuple[TapeOp, TapeOp]]]:
        """Return the unpaired ops that computed `taken`, and the pairs of ops that gave them inputs.

        :param ops: all ops of the run; `paired`: pairs by index of the op in this run.
        """
        alone: dict[int, TapeOp] = {}
        edge: dict[int, tuple[TapeOp, TapeOp]] = {}
        todo = [taken]
        while todo:
            one = todo.pop()
            if (one.outside and one.writer is None) or (one.name and tape.start.get(one.name) == one.value):
                continue
            for index in {one.last, one.op}:
                if index in paired:
                    edge[index] = paired[index]
                elif index in ops and index not in alone:
                    alone[index] = ops[index]
                    todo += [one for slot, one in enumerate(ops[index].inputs) if reads(ops[index], slot)]
        return list(alone.values()), list(edge.values())

    def _digits(self, tape: Tape, given: Sequence[Taken]) -> float:
        """Return the possible error of constants from outside among `given`, due to their limited digits."""
        prints = [tape.prints[t.value] for t in given if t.outside and not t.name and t.value is not None]
        return ROUNDED * max((eps_of(one) for one in prints), default=0.0)

    def _add(self, blame: Blame, x: TapeOp, y: TapeOp) -> None:
        """Record a blame, unless a constant with fewer digits explains it; as weak if the other run has the values
        elsewhere.

        :param x, y: the ops that produce or receive the value that differs.
        """
        slot = blame.slot
        if blame.error is not None and blame.error <= blame.rounded:
            return
        if slot is not None and slot < min(len(x.inputs), len(y.inputs)):
            mine, other = [x.inputs[slot].source], [y.inputs[slot].source]
        else:
            mine, other = ([(op.index, k) for k in range(len(op.outputs))] for op in (x, y))
        (self._weak if self._met(mine, 0) and self._met(other, 1) else self.found).append(blame)

    def _met(self, sources: list[tuple[int, int]], side: int) -> bool:
        """Return whether the other run has these values too, anywhere and in any order, judged by their norms.

        :param side: the run of `sources`: 0 or 1.
        """
        if self._judged is None:
            return False
        if not self._norms:
            self._norms = [sorted(values.values()) for values in self._judged.sizes]
        norms = [self._judged.sizes[side].get(source) for source in sources]
        return bool(norms) and all(one is not None and _near(one, self._norms[1 - side]) for one in norms)

    # Kernels

    def kernel(self, among: set[int] | None = None) -> Blame | None:
        """Return the first op whose own error is larger than its type explains, while its partner's is not; ``None`` if
        none.

        :param among: indices of ops of the first run to consider; default: all.
        """
        if self._judged is None:
            return None
        bad = [self._ends_bad(tape) for tape in (self.a, self.b)]
        for x, y in in_order(self.a, self.b, self._places):
            if among is not None and (x is None or x.index not in among):
                continue
            for k in range(min(len(op.outputs) for op in (x, y) if op is not None)):
                units = [
                    local.get((op.index, k), 0.0) if op is not None else 0.0
                    for op, local in zip((x, y), self._judged.local, strict=True)
                ]
                if x is not None and y is not None and any(off is not None and isnan(off) for off in units):
                    if not self._unlike(x, y, k):
                        continue
                    return Blame("kernel", x, y, None, self._estimate.error(x.outputs[k], y.outputs[k]), False)
                self.untold += None in units
                mine, other = (
                    0.0 if off is None or isnan(off) or (isinf(off) and not lost) else off
                    for off, lost in zip(units, bad, strict=True)
                )
                if max(mine, other) > WRONG * max(1.0, min(mine, other)):
                    error = (
                        self._estimate.error(x.outputs[k], y.outputs[k]) if x is not None and y is not None else None
                    )
                    return Blame("kernel", x, y, None, error)
        return None

    def _ends_bad(self, tape: Tape) -> bool:
        """Return whether a final result of a run (loss, gradient or weight) is not finite.

        If there are none, a result that no op uses. In a step in which a scaler checks gradients, only weights count:
        the scaler skips a bad step.
        """
        roots = _roots(tape)
        ends = [op for op in tape.ops if op.phase == "sink" or op.index in roots]
        scaled = {op.step for op in tape.ops if op.name.partition(".")[0] == SCALER}
        ends = [op for op in ends if op.name == "weight" or op.step not in scaled]
        values = {t.value for op in ends for t in op.inputs}
        if not any(op.inputs for op in ends if op.name != "weight"):
            taken = taken_from(tape)
            values |= {v for op in tape.ops if not scaled and op.index not in taken for v in op.outputs}
        return any(v is not None and tape.prints[v].bad for v in values)

    def _unlike(self, x: TapeOp, y: TapeOp, k: int) -> bool:
        """Return whether two ops that could not be recomputed gave different results for the same bits."""
        if x.random or len(x.inputs) != len(y.inputs) or not same(x.arguments, y.arguments):
            return False
        given = [self._estimate.error(t.value, u.value) for t, u in zip(x.inputs, y.inputs, strict=True)]
        types = {self.a.prints[v].dtype for v in x.outputs if v is not None}
        types |= {self.b.prints[v].dtype for v in y.outputs if v is not None}
        alike = all(e == 0.0 for e in given) and len(types) == 1
        return alike and bool(self._estimate.gap(x.outputs[k], y.outputs[k]).differs)
