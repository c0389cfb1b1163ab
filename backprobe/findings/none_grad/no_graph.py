"""Findings for a loss without a graph, from which backward reaches no parameter: what cut the graph."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...basics.text import few, op_in_text
from ...basics.torch_texts import NO_GRAPH, UNUSED
from ...records import ACCUMULATE_SEQ, BackwardCall, Cut, Finding, FindingSite, FrozenLoss, NoGradient, Parameter, Site
from ..relations.module_paths import common_module
from ..rules import candidates, sites_of

if TYPE_CHECKING:
    from ...traces import Trace

_ADVICE = (
    "Compute the loss from tensors that keep their graph (no argmax, comparison, detach, item or numpy on the way), "
    "and set requires_grad before the forward, not after it."
)


def without_graph(trace: Trace) -> list[Finding]:
    """Return the finding for the first backward call that reaches no parameter since its loss has no graph; empty if
    none.

    A loss that was made a leaf has no graph either, and torch does not report it: the call reaches the loss alone. This
    is reported only if no other call reached more.
    """
    frozen = trace.facts.of(FrozenLoss)
    if frozen:
        return [_frozen(frozen[0])]
    known = {p.name for p in trace.parameters}
    calls = [c for c in trace.backwards if c.inside is None]
    raised = next((c for c in calls if c.raised and (NO_GRAPH in c.raised.text or UNUSED in c.raised.text)), None)
    trained = [c for c in calls if c.raised is None and len(c.nodes) and not _forced(c, known)]
    if raised is None and not trained and any(p.calls or p.quiet_calls for p in trace.parameters):
        raised = next((c for c in calls if _forced(c, known)), None)
    if raised is None or any(seen.kind == "grad-mode" for seen in trace.facts.of(NoGradient)):
        return []
    before = [c for c in trained if c.index < raised.index]
    return _of(raised, before, trace)


def _frozen(seen: FrozenLoss) -> Finding:
    """Return the finding for a loss whose parameters are all frozen."""
    names, several = few(seen.parameters), len(seen.parameters) > 1
    learned = f", {'which' if several else 'it'} learned before" if seen.before else ""
    title = f"the loss has no graph: requires_grad is off for {names}{learned}, and nothing else in the loss needs a"
    return Finding(
        kind="none-grad",
        severity="error",
        title=f"{title} gradient",
        confidence="certain" if seen.observed else "likely",
        module=common_module([name.rpartition(".")[0] for name in seen.parameters]),
        parameters=seen.parameters,
        step=seen.step,
        sites=sites_of(("cut", seen.site), ("cut", seen.caller), ("failed", seen.failed)),
        evidence={"reason": "frozen", **candidates(seen.candidates)},
        advice="Freeze only what is not to learn, and turn requires_grad on again, before the forward, for what is. If "
        "nothing is to learn in this step, skip backward() and the optimizer's step.",
    )


def _of(call: BackwardCall, before: Sequence[BackwardCall], trace: Trace) -> list[Finding]:
    """Return the finding for a backward call without a graph: what cut it, a reentrant checkpoint, or unused inputs.

    :param before: the earlier calls that reached parameters; if there are any, something new in this step cut the
        graph.
    """
    cuts, forced = trace.facts.of(Cut), call.raised is None
    checkpoint = next((c for c in cuts if c.op == "checkpoint"), None)
    if checkpoint is not None and not before:
        through = frozenset(checkpoint.parameters)
        mine = [p for p in trace.parameters if p.name in through]
        return [replace(checkpoint_lost(checkpoint, mine), severity="error", step=call.step)] if mine else []
    last = before[-1] if before else None
    if last is not None and last.step >= call.step - 1 and last.kind == "autograd.grad" and not _creates(last):
        title = "the loss is computed from a gradient of autograd.grad without create_graph=True, which has no graph"
        advice = "Call autograd.grad(..., create_graph=True) where its result goes into a loss."
        return [_finding(call, title, advice, last.site, confidence="likely", evidence={"op": "autograd.grad"})]
    usable = [c for c in cuts if c.parameters and c.op != "checkpoint"]
    if before:  # it went well so far: what cut the graph is new
        usable = [c for c in usable if c.step == call.step]
    cut = usable[0] if usable else None
    if call.raised is not None and UNUSED in call.raised.text:
        title = "autograd.grad was asked for the gradient of a tensor that the output does not depend on"
        advice = (
            "Compute the output from that very tensor: not from a copy, a detached one, or one made before it. Where "
            "it may be left out, pass allow_unused=True, which gives None."
        )
    elif cut is not None:
        names = few(cut.parameters)
        title = f"{op_in_text(cut.op)} cut the graph, " + (
            f"and the loss was made a leaf with requires_grad, so backward runs and reaches none of {names}"
            if forced
            else f"so the loss has none and backward cannot reach {names}"
        )
        advice = _ADVICE
    elif forced:
        title = (
            "the loss is a leaf that requires a gradient: no operation that made it is in its graph, and backward "
            "reaches no parameter"
        )
        advice = _ADVICE
    else:
        title = "the loss has no graph: nothing that it was made from required a gradient at the time"
        advice = _ADVICE
        if before:
            title += f", and {len(before)} backward calls before it had one"
            advice = (
                "Look at what is different in this step: a branch that returns a constant, a batch with nothing to "
                "learn from, parameters that were frozen. Skip the call there, or let the loss depend on the model."
            )
    if forced:
        advice = f"Remove what sets requires_grad on the loss: it only silences the error. {advice}"
    return [
        _finding(
            call,
            title,
            advice,
            cut.site if cut is not None else None,
            confidence="likely" if cut is not None else "certain",
            evidence={"op": cut.op if cut is not None else None, "loss_is_leaf": forced},
            module=cut.module if cut is not None else None,
            parameters=cut.parameters if cut is not None else (),
        )
    ]


def _finding(call: BackwardCall, title: str, advice: str, cut: Site | None, **more: Any) -> Finding:
    """Return the error ``none-grad`` for `call`; `cut` is the line that cut the graph, if known."""
    sites = sites_of(("cut", cut), ("failed", call.site))
    return Finding(kind="none-grad", severity="error", title=title, advice=advice, step=call.step, sites=sites, **more)


def _creates(call: BackwardCall) -> bool:
    """Return whether the call was made with ``create_graph=True``."""
    return call.arguments.get("create_graph") == "True"


def _forced(call: BackwardCall, known: Set[str]) -> bool:
    """Return whether `call` reached only its own roots: leaves that are not parameters of a model (`known`)."""
    if call.raised is not None or not 0 < len(call.nodes) == len(call.roots):
        return False
    return all(run.node.seq == ACCUMULATE_SEQ and run.parameter not in known for run in call.nodes)


def defined_sites(ps: Sequence[Parameter]) -> list[FindingSite]:
    """Return up to three lines at which the parameters were defined, for a finding."""
    sites = list(dict.fromkeys(p.defined for p in ps if p.defined is not None))
    return [FindingSite("defined", s) for s in sites[:3]]


def checkpoint_lost(cut: Cut, ps: Sequence[Parameter]) -> Finding:
    """Return the finding for parameters inside a reentrant checkpoint none of whose inputs requires a gradient."""
    names = tuple(p.name for p in ps)
    enabled = cut.enabled if cut.enabled != cut.site else None
    return Finding(
        kind="none-grad",
        severity="warning",
        title="no input of a reentrant checkpoint requires a gradient, so the parameters inside it get none: "
        f"{few(names)}",
        confidence="certain",
        module=cut.module,
        parameters=names,
        sites=(*sites_of(("enabled", enabled), ("cut", cut.site)), *defined_sites(ps)),
        evidence={"op": cut.op, "optimizer_holds_them": any(p.trained for p in ps)},
        advice="Use checkpoint(..., use_reentrant=False). If it has to be the reentrant one, let an input require a "
        "gradient: x.requires_grad_() before the call, or model.enable_input_require_grads() in transformers.",
    )
