"""A comparison as text."""

from __future__ import annotations

import json
import os

from ..records import TapeOp
from .blame import Blame
from .compared import Compared

_KINDS = {
    "arguments": "the same op of the same tensors, called differently",
    "taken": "the same op, given another tensor",
    "structure": "ops that the other run does not have, with another result",
    "kernel": "the same op of the same tensors gives something else than float64 explains",
    "missing": "no gradient in one of the runs",
    "cut": "a gradient is cut off here in one of the runs",
    "random": "other random numbers are drawn",
    "outside": "another tensor from outside",
}
#: Maximum number of lines for unpaired ops, and for modules.
_MAX_LINES = 8


def report(found: Compared, a: str, b: str) -> str:
    """Return the result of a comparison as text for the terminal.

    :param a, b: the names of the runs.
    """
    lines = [f"A: {a}", f"B: {b}", ""]
    if found.before:
        lines += ["Before any number (A and B):", *(f"  {line}" for line in found.before), ""]
    if found.blame is not None:
        lines += ["The first that differs:", *_blame(found.blame)]
    lines.append(result(found))
    if found.verdict == "rounding":
        if found.loses is not None:
            lines += ["Rounding that piles up:", *_blame(found.loses)]
        lines += _drift(found)
    elif found.verdict == "unseen":
        lines += ["Farthest apart:", *(f"  {name}: {error:.1e}" for name, error in found.drift[:_MAX_LINES])]
    one, two = found.alone
    lines.append(f"{found.pairs} ops are paired; {len(one)} are only in A, {len(two)} only in B.")
    if found.verdict == "differs":
        for which, ops in (("A", one), ("B", two)):
            lines += [f"  only in {which}: {_short(op)}" for op in ops[:_MAX_LINES]]
            if len(ops) > _MAX_LINES:
                lines.append(f"  only in {which}: and {len(ops) - _MAX_LINES} more")
    lines += [f"Note: {note}." for note in found.notes]
    return "\n".join(lines) + "\n"


def result(found: Compared) -> str:
    """Return the overall result as a sentence."""
    off = f"{found.different} of {found.ends} results"
    if found.verdict == "identical":
        return f"Identical: all {found.ends} results have the same bits."
    if found.verdict == "unseen":
        return f"Cannot tell which op: {off} have other bits."
    if found.blame is not None:
        return f"{off} (gradients, weights, numbers read) differ."
    if not found.given:
        return (
            f"The same calculation, of other tensors: {off} have other bits; calculated in float64 from the same "
            "tensors they agree."
        )
    return f"The same but for rounding: {off} have other bits; calculated in float64 from the same tensors they agree."


def what(blame: Blame) -> str:
    """Return in a few words what is wrong with the op that is blamed, and by how much it is off."""
    if blame.kind == "loses":
        return f"one of the runs has lost more digits: it is off by {blame.error:.2g}, the other by {blame.other:.2g}"
    said = _KINDS[blame.kind]
    if blame.kind == "kernel" and (blame.a is None or blame.b is None):
        said = "an op that the other run does not have gives something else than its dtype explains"
    off = f", off by {blame.error:.2g}" if blame.error is not None else ""
    name = f" ({blame.name})" if blame.name else ""
    return f"{said}{name}{off}"


def _blame(blame: Blame) -> list[str]:
    """Return lines about the op that is blamed, in both runs."""
    lines = [f"  {what(blame)}"]
    for which, op in (("A", blame.a), ("B", blame.b)):
        if op is None and blame.kind == "loses":
            continue
        lines.append(f"  {which}: {_long(op)}" if op is not None else f"  {which}: has no such op")
        if op is not None and op.place is not None:
            lines.append(f"       {op.place.text}")
    if blame.kind == "arguments" and blame.a is not None and blame.b is not None:
        lines.append(f"  called with {call(blame.a)} and {call(blame.b)}")
    return [*lines, ""]


def _long(op: TapeOp) -> str:
    """Return an op in full as text: name, module, line, phase and step."""
    where = f" in {op.module}" + (f" (call {op.call})" if op.call > 1 else "") if op.module else ""
    node = f", run by {op.node}" if op.node else ""
    if op.phase == "sink":
        return f"the {op.name} of {op.module}, step {op.step}"
    return f"{op.name}{where}{_at(op)}, {op.phase} of step {op.step}{node}"


def _short(op: TapeOp) -> str:
    """Return name, module and line of an op as text."""
    return f"{op.name}{f' in {op.module}' if op.module else ''}{_at(op)}"


def _at(op: TapeOp) -> str:
    """Return the line of an op as the text `` at file.py:12``; empty if it is not known."""
    place = op.place
    return f" at {os.path.basename(place.file)}:{place.line}" if place is not None else ""


def call(op: TapeOp) -> str:
    """Return the arguments of an op as text; tensors appear by their numbers."""
    args, kwargs = op.arguments
    told = [_value(one) for one in args] + [f"{key}={_value(one)}" for key, one in kwargs.items()]
    return "(" + ", ".join(told) + ")"


def _value(one: object) -> str:
    """Return an argument as text; a tensor appears by its number."""
    if isinstance(one, dict) and len(one) == 1:
        ((kind, what),) = one.items()
        return f"tensor {what}" if kind == "t" else str(what)
    return json.dumps(one)


def _drift(found: Compared) -> list[str]:
    """Return lines about the distance of the runs in each module; of many, the first and the last."""
    if not found.drift:
        return []
    shown = found.drift
    if len(shown) > 2 * _MAX_LINES:
        shown = [*shown[:_MAX_LINES], *shown[-_MAX_LINES:]]
    return ["How far apart, by module:", *(f"  {name or 'outside of modules'}: {error:.1e}" for name, error in shown)]
