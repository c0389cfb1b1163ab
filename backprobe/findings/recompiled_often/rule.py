"""The rule for a function that ``torch.compile`` compiles again and again."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.text import counted
from ...records import CompiledRegion, Finding, Recompiled
from ..rules import HOOKS, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "recompiled-often",
        "warning",
        "`torch.compile` compiles a function again and again, or has given up on it",
        rank=HOOKS + 40,
        questions=(Question.COMPILED,),
        points_to="the guard that failed, and its line",
    )
)
def recompiled(trace: Trace) -> list[Finding]:
    """Report functions that `torch.compile` compiled again in many steps, or for which it met its limit and gave up."""
    often = (
        one
        for one in trace.compiled
        if one.limit or len({r.step for r in one.recompiled}) >= thresholds.RECOMPILED_MIN_STEPS
    )
    return [_finding(one) for one in often if one.recompiled]


def _finding(one: CompiledRegion) -> Finding:
    """Return the finding for one compiled function, with the line whose guard failed most often."""
    line = Counter(r.site for r in one.recompiled).most_common(1)[0][0]
    same = [r for r in one.recompiled if r.site == line]
    last = same[-1]
    name = f"{one.function or 'a function'}" + (f" after line {one.after}" if one.after is not None else "")
    title = f"{name} was compiled again {counted(len(one.recompiled), 'time')} in {one.seconds:.1f} s: "
    title += f"{last.guard} did not hold"
    if one.limit:
        title += f"; torch met its limit, and runs it in Python from step {one.recompiled[-1].step} on"
    pairs = (("cause", line), ("compiled", one.site))
    return Finding(
        kind="recompiled-often",
        severity="warning",
        title=title,
        confidence="certain",
        step=one.recompiled[-1].step,
        sites=sites_of(*pairs),
        evidence={
            "function": one.function,
            "compiled": one.graphs,
            "limit": one.limit,
            "guards": [r.guard for r in one.recompiled[-8:]],
            "steps": [r.step for r in one.recompiled],
            "seconds": round(one.seconds, 3),
        },
        advice=_advice(last),
    )


def _advice(last: Recompiled) -> str:
    """Return advice by the guard that failed last: varying shapes, or a Python value that was taken for a constant."""
    if "size mismatch" in last.guard or "stride mismatch" in last.guard or ".size()" in last.guard:
        return (
            "Its inputs have other shapes each time: mark what varies with torch._dynamo.mark_dynamic, give "
            "torch.compile dynamic=True, or pad to a few sizes."
        )
    return (
        "Torch took this value for a constant. Make it a tensor, keep it out of what is compiled, or, for a number "
        "on a module, set torch._dynamo.config.allow_unspec_int_on_nn_module."
    )
