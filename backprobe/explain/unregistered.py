"""Trainable tensors that ``parameters()`` does not list, and parameters that no optimizer holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..records import Finding, FindingSite
from .words import few

if TYPE_CHECKING:
    from ..traced import Trace


def unregistered(trace: Trace) -> list[Finding]:
    found = []
    for stray in trace.facts.strays:
        if stray.attribute:
            where, what = f"self.{stray.attribute}", f"in {stray.how}"
        elif stray.how == "made in the forward":
            where, what = "a module made in the forward", "made anew at every call"
        else:
            where, what = "a module called here", "held outside the model's own modules"
        learn = "no optimizer trains them" if stray.optimized else "optimizers, state_dict and to() do not see them"
        found.append(
            Finding(
                kind="unregistered-parameter",
                severity="warning",
                title=f"{where} holds parameters that parameters() does not list, {what}: {learn} "
                f"({few(stray.parameters)})",
                confidence="certain" if stray.site and stray.how != "a place that was not found" else "likely",
                module=stray.owner,
                tensor=stray.attribute or None,
                parameters=stray.parameters,
                sites=(FindingSite("cut", stray.site),) if stray.site else (),
                evidence={"attribute": stray.attribute, "held_in": stray.how, "count": len(stray.parameters)},
                advice="Keep modules in nn.ModuleList, nn.ModuleDict or as attributes, and tensors as nn.Parameter (or "
                "in nn.ParameterList); make them in __init__, not in forward.",
            )
        )
    return found


def not_in_optimizer(trace: Trace) -> list[Finding]:
    """Parameters that get gradients and are held by no optimizer, where an optimizer holds tensors that nothing uses.

    A part of a model that is left out of the optimizer on purpose has no such orphans beside it.
    """
    replaced = [p for p in trace.parameters if p.replaced and p.reached and p.requires_grad and p.trained is False]
    blamed = next((o for o in trace.facts.optimizers if o.orphans), None)
    if blamed is None or not replaced:
        return []
    names = tuple(p.name for p in replaced)
    defined = list(dict.fromkeys(p.defined for p in replaced if p.defined is not None))
    sites = [FindingSite("optimizer", blamed.site)] if blamed.site else []
    sites += [FindingSite("replaced", s) for s in defined[:3]]
    return [
        Finding(
            kind="parameter-not-in-optimizer",
            severity="warning",
            title=f"{blamed.name} was made before {few(names)} replaced what it holds: it trains {blamed.orphans} "
            f"tensors that the model no longer has, and not the new ones",
            confidence="certain",
            parameters=names,
            sites=tuple(sites),
            evidence={"orphans": blamed.orphans, "tensors_in_optimizer": blamed.tensors},
            advice="Make the optimizer after the last change to the model, or give it the new parameters "
            "(optimizer.add_param_group).",
        )
    ]
