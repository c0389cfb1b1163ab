"""Rule for ``--check compiled``: compiled regions against their operations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...basics.text import number
from ...records import CompiledWrong, Finding
from ..rules import DIFFERS, Kind, Question, Topic, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "wrong-compiled",
        "error",
        "a compiled region gives something else than its operations",
        rank=DIFFERS + 5,
        questions=(Question.COMPILED,),
        points_to="the first operation that differs",
    ),
    topic=Topic("compiled", "compiled regions against their operations, one by one and in float64"),
)
def wrong_regions(trace: Trace) -> list[Finding]:
    """Report compiled regions whose result or gradients differ from those of their operations run one by one."""
    return [_region(seen) for seen in trace.facts.of(CompiledWrong)]


def _region(seen: CompiledWrong) -> Finding:
    """Return the finding for a compiled region that gives other values than its operations, at the first that differs
    if known.
    """
    what = "the gradients" if seen.what == "backward" else "the result"
    where = f" from {seen.op} on" if seen.op is not None else ""
    far = "not finite where that of its operations is" if seen.off == math.inf else f"off by {number(seen.off)}"
    verb = "are" if seen.what == "backward" else "is"
    title = f"{what} of the compiled {seen.function or 'region'}{where} {verb} {far}"
    if seen.off != math.inf:
        title += f", where rounding takes its operations {number(seen.usual)}"
    pairs = (("cause", seen.site), ("compiled", seen.compiled))
    return Finding(
        kind="wrong-compiled",
        severity="error",
        title=title,
        confidence="certain",
        module=seen.module,
        step=seen.step,
        sites=sites_of(*pairs),
        evidence={
            "op": seen.op,
            "what": seen.what,
            "off": seen.off,
            "usual": seen.usual,
            "alone": seen.alone,
            "script": seen.script,
        },
        advice="The compiler is wrong here, or takes a liberty that is too much for these values. Leave this operation "
        "out of what is compiled (torch.compiler.disable on a function around it), or try another backend or version "
        "of torch"
        + ("; it is wrong alone." if seen.alone else ".")
        + (" A script that shows it is in findings.json (evidence.script)." if seen.script else "")
        if seen.op is not None
        else "No part of it is wrong by itself: it is wrong where operations are fused. Compile smaller parts, or "
        "leave this function out (torch.compiler.disable).",
    )
