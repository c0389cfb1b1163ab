"""Comparison of two models of equal structure in one run: each becomes a tape, and the first op that differs is
found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..records import Tape, TapeOp
from .blame import Blame
from .compared import Judge, compare
from .steps import alone

#: Kinds of blame that count between two models: weights are compared separately, random numbers do not count.
_KINDS = ("arguments", "taken", "structure", "missing", "cut")


@dataclass(frozen=True)
class Parts:
    """The place at which two models diverge.

    :ivar module: the path of the module.
    :ivar matching: the modules before it, which agree completely.
    """

    blame: Blame
    module: str
    matching: tuple[str, ...]


def part(tape: Tape, ops: Sequence[TapeOp]) -> Tape:
    """Return `ops` of `tape` as a tape of their own, with the fingerprints of `tape`."""
    step = ops[0].step if ops else 0
    return Tape(tape.about, ({"step": step},), {}, tuple(alone(ops, {})), tape.prints)


def parts(a: Tape, b: Tape, judge: Judge, meant: bool) -> Parts | None:
    """Return the first op at which two models compute different things from the same tensors; ``None`` if there is
    none.

    :param a, b: the recorded ops of the models.
    :param meant: whether they are meant to have the same weights: a weight that differs then counts.
    """
    found = compare(a, b, judge, given=False)
    blame = found.blame if found.blame is not None and found.blame.kind in _KINDS else found.loses
    pairs = {a.ops[i].index: (a.ops[i], b.ops[j]) for i, j in found.partners}
    for (index, slot), error in sorted(found.judged.outside.items()) if found.judged is not None and meant else ():
        x, y = pairs[index]
        name = x.inputs[slot].name
        if name and name == y.inputs[slot].name and (blame is None or index < blame.order):
            blame = Blame("outside", x, y, slot, error, name=name)
            break
    if blame is None:
        return None
    op = blame.a or blame.b
    assert op is not None
    module = blame.name.rpartition(".")[0] if blame.kind == "outside" else op.module
    seen = dict.fromkeys(x.module for x, _ in pairs.values() if x.phase == "forward" and x.index < blame.order)
    return Parts(blame, module, tuple(one for one in seen if one and one != module))


def settings(one: dict[str, object], two: dict[str, object]) -> list[str]:
    """Return the settings that differ between two modules."""
    return [
        f"{key}: {one[key]} and {two[key]}" for key in one if key in two and one[key] != two[key] and key != "training"
    ]
