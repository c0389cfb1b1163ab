"""Rule for methods ``backward`` of modules, which autograd does not call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import counted, few
from ...records import Finding, ModuleBackward
from ..rules import WRONG, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "backward-never-called",
        "warning",
        "a module defines `backward`, which autograd does not call: its gradient is that of its forward",
        rank=WRONG + 52,
        questions=(Question.SILENTLY_WRONG,),
        points_to="the line `def backward`",
    )
)
def backward_never_called(trace: Trace) -> list[Finding]:
    """Report classes of modules that define a `backward` method, which autograd never calls: one finding for each
    class.
    """
    return [_finding(seen) for seen in trace.facts.of(ModuleBackward)]


def _finding(seen: ModuleBackward) -> Finding:
    """Return the finding for one module class with a `backward` method; less certain if only likely calls
    were found.
    """
    names = [name for name in seen.modules if name]
    other_calls = {"other_calls": [f"{one.file}:{one.line}" for one in seen.possible]} if seen.possible else {}
    where = f" ({few(names)})" if names else ""
    return Finding(
        kind="backward-never-called",
        severity="warning",
        title=f"{seen.class_name}.backward{where} was not called in {counted(seen.steps, 'step')}: {seen.class_name} "
        "is an nn.Module, and autograd calls the backward of a torch.autograd.Function only",
        confidence="certain" if seen.is_certain else "likely",
        module=names[0] if len(names) == 1 else None,
        step=seen.step,
        sites=sites_of(("cause", seen.defined), ("called", seen.called)),
        evidence={"class": seen.class_name, "modules": names, "steps": seen.steps, **other_calls},
        advice="Write forward and backward as static methods of a torch.autograd.Function, both with ctx, and call its "
        "apply() in the forward of the module. To change only the gradient, register a hook in the forward: "
        "x.register_hook(lambda grad: -grad). A straight-through step needs neither: x + (hard(x) - x).detach().",
    )
