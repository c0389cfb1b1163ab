"""Findings for non-finite gradients or weights that no backward node produced. Used by ``nonfinite``."""

from __future__ import annotations

from collections.abc import Iterable

from ...basics.text import few
from ...records import BackwardCall, Finding, FindingSite, GradientHook, NodeRun, Spoilt
from ..rules import sites_of


def corruption_finding(seen: Spoilt) -> Finding:
    """Return the finding for gradients or weights that a write or update made non-finite after a finite backward."""
    names = few(seen.parameters)
    gradient = "gradient" in seen.what
    made = (
        f"made NaN or Inf of {'the gradient' if gradient else 'the value'}{'s'[: len(seen.parameters) > 1]} of {names}"
    )
    why = f" ({seen.why})" if seen.why else ""
    if seen.what == "hooked gradient":
        title = f"{seen.op}, which runs when a gradient has been accumulated, {made}"
    else:
        title = f"{seen.op or 'this line'} {made}{why}"
    before = "the gradients that the backward gave were finite" if gradient else "the gradients were finite"
    return Finding(
        kind="nonfinite-backward" if gradient else "nonfinite-forward",
        severity="error",
        title=f"{title}: {before}",
        confidence="certain" if seen.sure else "likely",
        module=_module(seen.parameters),
        tensor=seen.parameters[0] if seen.parameters else None,
        parameters=seen.parameters,
        step=seen.step,
        sites=(FindingSite("cause", seen.site),) if seen.site else (),
        evidence={"written_by": seen.op, "what": seen.what, "why": seen.why},
        advice="Look at what this divides by or multiplies with: a norm that is 0 or overflows, a scale from another "
        "process."
        if gradient
        else "The update is the first that is not finite: look at the optimizer's settings (eps, lr, betas) and at the "
        "precision that its state and the weights are kept in."
        if seen.what == "update"
        else "Look at what is written there.",
    )


def hooked_finding(call: BackwardCall, hooks: Iterable[GradientHook]) -> Finding | None:
    """Return the finding for a user's hook that made a gradient non-finite before any node did; ``None`` if
    none did.
    """
    made = [(run.order, hook, run) for hook in hooks if (run := call.nodes[hook.node]).order is not None]
    bad = [one for one in made if _made_by(call, one[1], one[2])]
    if not bad:
        return None
    order, hook, run = min(bad, key=lambda one: one[0] or 0)
    first = call.nodes[call.bad_nodes[0].node].order if call.bad_nodes else None
    if first is not None and order is not None and first < order:
        return None
    values = next((str(g.bad) for g in (*run.grad_outputs, *run.grad_inputs) if g and g.bad), "NaN or Inf")
    on = f"the module {run.module!r}" if hook.module else run.parameter or f"the result of {run.node.op or run.name}"
    sites = [("cause", hook.site), ("hook", hook.put), ("failed", call.site)]
    return Finding(
        kind="nonfinite-backward",
        severity="error",
        title=f"a hook on the gradient of {on} made {values} of a finite gradient",
        confidence="certain",
        module=run.module,
        node=run.name,
        parameters=(run.parameter,) if run.parameter else (),
        step=call.step,
        sites=sites_of(*sites),
        evidence={"values": values, "hook": True},
        advice="Look at what the hook divides by or multiplies with: a norm that is 0, a scale that overflows.",
    )


def _made_by(call: BackwardCall, hook: GradientHook, run: NodeRun) -> bool:
    """Return whether a hook made the gradient at its node non-finite: finite values came in, non-finite
    ones went out.
    """
    came = any(g is not None and g.bad for g in run.grad_outputs)
    if hook.module:
        return not came and any(g is not None and g.bad for g in run.grad_inputs)
    index = run.node.index
    given = (
        g
        for r in call.nodes
        for edge, g in zip(r.node.edges, r.grad_inputs, strict=False)
        if edge is not None and edge[0] == index
    )
    return came and not any(g is not None and g.bad for g in given)


def _module(parameters: tuple[str, ...]) -> str | None:
    """Return the module that holds all of the parameters; ``None`` if they are in several."""
    modules = {name.rpartition(".")[0] for name in parameters}
    return modules.pop() if len(modules) == 1 else None
