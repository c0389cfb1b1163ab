"""Findings for parameters that learned and stop learning at some step: a part of ``none_grad``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.text import few, op_in_text
from ...basics.torch_texts import COMPILED
from ...records import BackwardCall, Cut, Finding, NodeRun, Parameter, Site, StoppedLearning, Unreduced
from ..relations.end_of_run import given_none, latest_recorded, left_out
from ..relations.module_paths import common_module
from ..rules import sites_of

if TYPE_CHECKING:
    from ...traces import Trace

_ADVICE = {
    "frozen": "Turn requires_grad on again for all that was frozen, or freeze and thaw in one place that remembers "
    "what was trainable. If they are meant to stay frozen, freeze them alone, in a line of your own.",
    "quiet": "Let the part that is to be trained run outside torch.no_grad(). If it is meant to stay as it is from "
    "there on, call requires_grad_(False) on its parameters.",
    "uncalled": "Keep no results of a part that is to be trained from one step to the next: compute them anew. If it "
    "is meant to stay as it is from there on, call requires_grad_(False) on its parameters.",
    "evaluated": "Call train() on the model after each evaluation. If it is meant to train in evaluation mode, do not "
    "let its forward leave out there what is to be trained.",
    "cut": "Compute the loss from tensors that keep their graph. If the cut is meant from that step on, call "
    "requires_grad_(False) on these parameters, so that everybody can see it.",
}


def given_nothing(trace: Trace) -> list[Finding]:
    """Return findings for parameters that learned and to which a custom function or compiled region returns None at the
    end.
    """
    found = []
    for run, names, call in left_out(trace):
        rest = list(names)
        for cut in trace.facts.of(Cut) if run.name.startswith(COMPILED) else ():
            cut_off = frozenset(cut.parameters if cut.compiled else ())
            mine = tuple(name for name in rest if name in cut_off)
            if mine:
                rest = [name for name in rest if name not in cut_off]
                found.append(_finding(StoppedLearning(mine, cut.step, "cut", None, call.site), cut))
        if rest:
            found.append(_nothing(run, rest, call))
    return found


def never_given(trace: Trace, lost: Sequence[Parameter]) -> tuple[list[Finding], list[Parameter]]:
    """Return findings for parameters to which a custom function returns None, and the other parameters of `lost`.

    :param lost: parameters that never had a gradient.
    """
    names = {p.name for p in lost}
    groups: dict[tuple[str, Site | None], tuple[NodeRun, list[str], BackwardCall]] = {}
    for call in (
        call for calls in latest_recorded(trace, thresholds.NO_LEARNING_LAST_STEPS if names else 0) for call in calls
    ):
        if call.raised is None and call.kind != "autograd.grad":
            own = {name: run for name, run in given_none(call, names).items() if not run.name.startswith(COMPILED)}
            for name, run in own.items():
                names.remove(name)
                groups.setdefault((run.name, run.site), (run, [], call))[1].append(name)
    found = [_nothing(run, sorted(mine), call, False) for run, mine, call in groups.values()]
    return found, [p for p in lost if p.name in names]


def _nothing(run: NodeRun, names: list[str], call: BackwardCall, learned: bool = True) -> Finding:
    """Return the finding for a node whose backward returns None for parameters, or on the way to them.

    :param learned: whether the parameters had a gradient before.
    """
    below = {call.nodes[edge[0]].parameter for edge in run.node.edges if edge is not None}
    on, several = "for" if below.issuperset(names) else "on the way to", len(names) > 1
    gets, them = ("get", "them") if several else ("gets", "it")
    since = f"learned before and {gets} no gradient any more" if learned else f"{gets} no gradient"
    return Finding(
        kind="none-grad",
        severity="warning",
        title=f"{few(names)} {since}: the backward of {run.name.removesuffix('Backward')} returns None {on} {them}",
        confidence="certain",
        module=run.module,
        node=run.name,
        parameters=tuple(names),
        step=call.step if learned else None,
        sites=sites_of(("cut", run.site), ("failed", call.site)),
        evidence={"reason": "returned None", "op": run.name},
        advice="Return a gradient in the place of that input. If it is meant to stay as it is"
        f"{' from there on' if learned else ''}, call requires_grad_(False) on it, so that everybody can see it.",
    )


def stopped(trace: Trace) -> list[Finding]:
    """Return findings for parameters that stopped learning at some step, one for each reason and step.

    If a module runs as before and no line cut its output off, it was left out of the loss: this is taken as intended.
    """
    found = []
    for seen in trace.facts.of(StoppedLearning):
        if seen.reason in ("replaced", "removed"):  # as parameter-not-in-optimizer
            continue
        if seen.reason not in ("cut", "uncalled", "evaluated"):
            found.append(_finding(seen))
            continue
        rest, kept = set(seen.parameters), seen.reason == "uncalled"
        for cut in trace.facts.of(Cut):
            both = rest.intersection(cut.parameters)
            mine = tuple(name for name in seen.parameters if name in both)
            # A module that is no longer called is taken as intended, unless its earlier output is still in use. A cut
            # that was always on the path to the loss stops learning once no other path reaches these parameters.
            old = cut.step < seen.step
            since = cut.arrived if old and (kept or cut.numpy) else None if kept else cut.step
            if mine and since is not None and since >= seen.step:
                rest -= set(mine)
                found.append(_finding(replace(seen, parameters=mine), cut))
        if seen.reason == "evaluated" and rest:  # its forward leaves them out there, and cuts nothing
            left = tuple(name for name in seen.parameters if name in rest)
            found.append(_finding(replace(seen, parameters=left)))
    return found


def unreduced(trace: Trace) -> list[Finding]:
    """Return findings for parameters without a gradient for which DistributedDataParallel waited until it failed."""
    found = []
    for seen in trace.facts.of(Unreduced):
        names, several = few(seen.parameters), len(seen.parameters) > 1
        since = f"no gradient in step {seen.step}" if seen.before else "a gradient in no step"
        how = (
            "requires_grad was turned off after data-parallel training had been set up"
            if seen.frozen
            else f"the forward skipped {'them' if several else 'it'}, or the loss does not depend on the result"
        )
        cuts = (seen.frozen,) if seen.frozen else seen.sites
        sites = [*(("cut", site) for site in cuts), ("wrapped", seen.wrapped), ("failed", seen.failed)]
        found.append(
            Finding(
                kind="none-grad",
                severity="error",
                title=f"{names} got {since} of this process, but DistributedDataParallel expects one for every "
                f"parameter in every step: {how}",
                confidence="certain",
                module=common_module(_owners(seen.parameters)),
                parameters=seen.parameters,
                step=seen.step,
                sites=sites_of(*sites),
                evidence={"reason": "frozen" if seen.frozen else "skipped", "since_step": seen.step},
                advice="Use every parameter in every step (if a layer is skipped, add 0 * its output to the loss), or "
                "pass find_unused_parameters=True to DistributedDataParallel, at the line that wraps the model. After "
                "parameters were frozen, wrap the model again.",
            )
        )
    return found


def _finding(seen: StoppedLearning, cut: Cut | None = None) -> Finding:
    """Return the finding for parameters that learned until a step.

    :param cut: the operation that cut the graph; ``None`` if the reason is another one.
    """
    names = few(seen.parameters)
    how = {
        "frozen": "requires_grad was turned off, and not on again",
        "quiet": "their module runs with gradient mode off from there on",
        "cut": f"{op_in_text(cut.op) if cut else ''} cut the graph"
        + (
            " before what comes back from NumPy, and nothing else reaches the loss"
            if cut is not None and cut.numpy
            else ""
        ),
        "evaluated": "their module was put in evaluation mode before, and what it does there "
        + (f"cuts the graph ({cut.op})" if cut else "leaves them out"),
        "uncalled": f"what {cut.op if cut else ''} took out of the graph before is used in place of a new result",
    }[seen.reason]
    sites = [("cut", cut.site if cut is not None else seen.site), ("failed", seen.failed)]
    if cut is not None and seen.reason == "evaluated":
        sites.insert(1, ("evaluated", seen.site))
    return Finding(
        kind="none-grad",
        severity="warning",
        title=f"{names} learned until step {seen.step - 1} and got no gradient from step {seen.step} on: {how}",
        confidence="likely",
        module=cut.module if cut is not None else common_module(_owners(seen.parameters)),
        parameters=seen.parameters,
        step=seen.step,
        sites=sites_of(*sites),
        evidence={"reason": seen.reason, "op": cut.op if cut is not None else None, "since_step": seen.step},
        advice=_ADVICE[seen.reason],
    )


def _owners(names: Sequence[str]) -> list[str]:
    """Return the paths of the modules that hold the parameters."""
    return [name.rpartition(".")[0] for name in names]
