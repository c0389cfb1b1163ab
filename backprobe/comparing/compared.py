"""The comparison of two tapes: differences before the first op, unpaired ops, and the first op that differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ..records import Judged, Tape, TapeOp
from .align import Aligner, Names, Pair
from .arguments import reads
from .before import Early, before
from .blame import Blame, Blamer
from .drift import drift, loses
from .estimate import Estimate

#: Kinds of blame that rest on ops which the other run does not have.
_BY_STRUCTURE = ("structure", "cut", "taken", "missing")
Judge = Callable[[Tape, Tape, Sequence[tuple[int, int]], Names], Judged]


@dataclass(frozen=True)
class Compared:
    """The result of comparing two runs.

    :ivar verdict: ``identical`` (bit for bit), ``rounding`` (they compute the same), ``differs``, ``unseen`` (results
        differ, and one run has compiler kernels, which are not recorded: the cause is unknown).
    :ivar early: differences that exist before any number is computed.
    :ivar blame: the first op that differs.
    :ivar pairs, alone: number of paired ops, and the unpaired ops of the first and the second run.
    :ivar ends, different: number of final results (gradients, weights, losses), and of those with different bits.
    :ivar drift: distance of the runs by module, in forward order.
    :ivar notes: what could not be determined.
    :ivar partners: positions of paired ops in both runs.
    :ivar judged: the result of recomputing both runs, if that was needed.
    :ivar given: whether other tensors from outside count as a difference: not between steps of one run.
    :ivar loses: if all differences are rounding, the op by which one run has lost much more than the other.
    """

    verdict: str
    early: list[Early]
    blame: Blame | None
    pairs: int
    alone: tuple[list[TapeOp], list[TapeOp]]
    ends: int
    different: int
    drift: list[tuple[str, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    partners: Sequence[Pair] = ()
    judged: Judged | None = None
    given: bool = True
    loses: Blame | None = None

    @property
    def suspect(self) -> Blame | None:
        """The op to inspect: the one that differs, or the one that loses most."""
        return self.blame if self.blame is not None else self.loses

    @property
    def before(self) -> list[str]:
        """``early``, each as a line of text."""
        return [one.text for one in self.early]


def compare(a: Tape, b: Tape, judge: Judge | None = None, names: Names | None = None, given: bool = True) -> Compared:
    """Compare two recorded runs and return the result; the first op that really differs is its ``blame``.

    :param judge: recomputes both in float64; without it, errors are estimated.
    :param given: whether other tensors from outside, and other random numbers, count as a difference. They do not
        between steps of one run: there the question is whether the computation is the same.
    """
    names = names or Names()
    pairs = Aligner(a, b, names).pairs()
    first, second = {i for i, _ in pairs}, {j for _, j in pairs}
    alone = (
        [op for i, op in enumerate(a.ops) if i not in first],
        [op for j, op in enumerate(b.ops) if j not in second],
    )
    told = before(a, b, names)
    plain = Blamer(a, b, pairs, None)
    ends = plain.ends()
    different = sum(not _equal(a, b, x, y, slot) for x, y, slot in ends)
    notes: list[str] = []
    if not different and ends:
        return Compared("identical", told, None, len(pairs), alone, len(ends), 0, [], notes, pairs, None, given)
    judged = judge(a, b, pairs, names) if judge is not None else None
    blamer = Blamer(a, b, pairs, judged)
    blame = blamer.first()
    for other in (_outside(a, b, blamer, judged), _drawn(a, b, blamer)) if given else ():
        if other is not None and (blame is None or other.order < blame.order):
            blame = other
    if blame is None:
        blame = blamer.kernel()
    kernels = [max((int(step.get("kernels", 0)) for step in tape.steps), default=0) for tape in (a, b)]
    if blame is not None and blame.kind in _BY_STRUCTURE and any(kernels):
        apart = _apart(a, b, ends)
        which = " and ".join(f"{count} in {name}" for name, count in zip("AB", kernels, strict=True) if count)
        notes.append(
            f"kernels that Inductor has generated are not recorded ({which}): run with --compiled aot_eager to have "
            "each op of a compiled region, or without compiling"
        )
        return Compared(
            "unseen", told, None, len(pairs), alone, len(ends), different, apart, notes, pairs, judged, given
        )
    if judged is None:
        notes.append("estimated from fingerprints: nothing was calculated again")
    elif judged.opaque:
        few = ", ".join(sorted(judged.opaque)[:5])
        notes.append(f"{sum(judged.opaque.values())} ops could not be calculated again in float64: {few}")
    if judged is not None and blamer.estimated:
        notes.append(f"{blamer.estimated} values were estimated from fingerprints: their tensors were not kept")
    if blamer.untold and given:  # with other input tensors, all results differ
        notes.append(
            f"{blamer.untold} results that are off were not looked at by themselves: give more with --max-record-mb"
        )
    verdict = "rounding" if blame is None else "differs"
    counts = len(pairs), alone, len(ends), different
    if blame is not None:
        return Compared(verdict, told, blame, *counts, [], notes, pairs, judged, given)
    worse = loses(a, b, blamer.pairs, judged) if judged is not None else None
    return Compared(verdict, told, None, *counts, drift(a, b, blamer.pairs), notes, pairs, judged, given, worse)


def _apart(a: Tape, b: Tape, ends: Sequence[tuple[TapeOp, TapeOp, int]]) -> list[tuple[str, float]]:
    """Return the distances of final results with their names, largest first."""
    estimate = Estimate(a, b)
    found: dict[str, float] = {}
    for x, y, slot in ends:
        if x.phase != "sink" or not 0 <= slot < min(len(x.inputs), len(y.inputs)):
            continue
        mine = x.inputs[slot].value
        error = estimate.error(mine, y.inputs[slot].value) if mine is not None else None
        if error is not None:
            name = f"the {x.name} of {x.module}, step {x.step}"
            found[name] = max(error, found.get(name, 0.0))
    return sorted(found.items(), key=lambda one: -one[1])


def _equal(a: Tape, b: Tape, x: TapeOp, y: TapeOp, slot: int) -> bool:
    """Return whether an input of two paired ops has the same bits; for -1, their outputs."""
    if slot < 0:
        mine, other = x.outputs, y.outputs
        return [a.prints[v].hash if v is not None else "" for v in mine] == [
            b.prints[v].hash if v is not None else "" for v in other
        ]
    if slot >= len(x.inputs) or slot >= len(y.inputs):
        return False
    one, two = x.inputs[slot].value, y.inputs[slot].value
    return one is not None and two is not None and a.prints[one].hash == b.prints[two].hash


def _outside(a: Tape, b: Tape, blamer: Blamer, judged: Judged | None) -> Blame | None:
    """Return the blame for the first tensor from outside that has other values; ``None`` if there is none."""
    if judged is None:
        return None
    for (index, slot), error in sorted(judged.outside.items()):
        x, y = blamer.by_a[index]
        one, two = x.inputs[slot], y.inputs[slot]
        if one.value is not None and two.value is not None and a.prints[one.value].shape == b.prints[two.value].shape:
            return Blame("outside", x, y, slot, error, name=one.name or two.name)
    return None


def _drawn(a: Tape, b: Tape, blamer: Blamer) -> Blame | None:
    """Return the blame for the first random numbers that differ, are used, and were drawn in the same way; ``None`` if
    none.
    """
    counts = used(a, [x.index for x, _, _ in blamer.ends()])
    for x, y in blamer.pairs:
        if x.random and x.outputs and y.outputs and x.random != y.random and x.index in counts:
            mine, other = x.outputs[0], y.outputs[0]
            if mine is None or other is None:
                continue
            one, two = a.prints[mine], b.prints[other]
            if one.hash != two.hash and one.shape == two.shape:
                return Blame("random", x, y, None, None)
    return None


def used(tape: Tape, ends: Iterable[int]) -> set[int]:
    """Return the indices of the ops on which those of `ends` depend, including these."""
    ops = {op.index: op for op in tape.ops}
    found = set(ends)
    todo = list(found)
    while todo:
        op = ops[todo.pop()]
        for slot, taken in enumerate(op.inputs):
            for index in (taken.last, taken.op) if reads(op, slot) else ():
                if index in ops and index not in found:
                    found.add(index)
                    todo.append(index)
    return found


def as_dict(found: Compared) -> dict[str, object]:
    """Return a comparison as JSON data."""
    return {
        "verdict": found.verdict,
        "before": found.before,
        "blame": _blame(found.blame),
        "loses": _blame(found.loses),
        "ops": {"paired": found.pairs, "only_a": len(found.alone[0]), "only_b": len(found.alone[1])},
        "only_a": [_op(op) for op in found.alone[0][:100]],
        "only_b": [_op(op) for op in found.alone[1][:100]],
        "ends": {"compared": found.ends, "different": found.different},
        "drift": [{"module": name, "error": error} for name, error in found.drift],
        "notes": found.notes,
    }


def _blame(blame: Blame | None) -> dict[str, object] | None:
    """Return a blame as JSON data."""
    if blame is None:
        return None
    return {
        "kind": blame.kind,
        "slot": blame.slot,
        "error": blame.error,
        "tensor": blame.name,
        "a": _op(blame.a),
        "b": _op(blame.b),
    }


def _op(op: TapeOp | None) -> dict[str, object] | None:
    """Return an op as JSON data."""
    if op is None:
        return None
    place = op.place
    return {
        "op": op.name,
        "phase": op.phase,
        "step": op.step,
        "index": op.index,
        "module": op.module,
        "call": op.call,
        "node": op.node,
        "file": place.file if place is not None else None,
        "line": place.line if place is not None else None,
        "text": place.text if place is not None else None,
        "arguments": op.arguments,
    }
