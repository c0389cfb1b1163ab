"""The rule for parameters that no backward call reached: never called, output not used, or graph cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...basics.text import few, op_in_text, plural
from ...ops import info
from ...records import COLLECTIVES, Cut, Finding, FindingSite, GivenToCompiled, Parameter, Site, StraightThroughLoss
from ..relations.end_of_run import reached_no_more
from ..relations.module_backward import without_own_backward
from ..relations.module_paths import common_module
from ..rules import LEARNING, Kind, Question, rule, sites_of
from .no_graph import checkpoint_lost, defined_sites, without_graph
from .stopped import given_nothing, never_given, stopped, unreduced

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "none-grad",
        "warning",
        "parameters got no gradient in any backward call",
        rank=LEARNING + 40,
        questions=(Question.NOT_LEARNING,),
        points_to="the line that cut the path",
    )
)
def none_grads(trace: Trace) -> list[Finding]:
    """Report parameters that no backward call reached, one finding for each reason.

    Leaves out findings in the forward of a module with its own `backward`, which `backward-never-called` explains.
    """
    return without_own_backward(trace, _none_grads(trace))


def _none_grads(trace: Trace) -> list[Finding]:
    """Return the findings for parameters without a gradient, one for each reason.

    These cases are intended and left out: frozen parameters; parameters that no optimizer holds, if there is an
    optimizer; and modules called with gradient mode off only (evaluation, teachers, moving averages), unless they are
    part of a model that trains otherwise.
    """
    first = unreduced(trace) or without_graph(trace)
    if first:
        return first
    # A run that failed early has not had time to reach every parameter.
    failed = any(call.raised is not None and len(call.nodes) for call in trace.backwards)
    if failed and sum(call.raised is None for call in trace.backwards) < 3:
        return []
    if not any(c.raised is None and c.inside is None and len(c.nodes) for c in trace.backwards):
        return []
    used_roots = {p.root for p in trace.parameters if p.reached}
    lost = [p for p in trace.parameters if p.requires_grad and not p.reached and p.trained is not False]
    found = stopped(trace) + given_nothing(trace)
    for cut in trace.facts.of(Cut):
        names = frozenset(cut.parameters) if cut.op == "checkpoint" else frozenset()
        held = [p for p in lost if p.name in names and _expected(p, used_roots, cut)]
        if held:
            lost = _without(lost, held)
            found.append(checkpoint_lost(cut, held))
        elif cut.op == "checkpoint" and cut.step and (since := reached_no_more(trace, cut)):
            late = checkpoint_lost(cut, since)
            found.append(replace(late, title=f"{late.title}, from step {cut.step} on", step=cut.step))
    quiet = _quiet(lost)
    without_mode = {(p.root, p.name) for p in quiet}
    lost = [p for p in lost if (p.root, p.name) not in without_mode]
    found += _turned_off(quiet, used_roots)
    steps = {one.made: one for one in trace.facts.of(StraightThroughLoss)}
    for cut in sorted(trace.facts.of(Cut), key=lambda cut: cut.site not in steps):
        names = frozenset(cut.parameters)
        cutoff = [p for p in lost if p.name in names and (p.calls or cut.compiled)]
        if not cutoff or not any(_expected(p, used_roots, cut) for p in cutoff):
            continue
        lost = _without(lost, cutoff)
        through = steps.get(cut.site) if cut.op == "detach" else None
        found.append(_straight_through(through, cut, cutoff) if through is not None else _cut(cut, cutoff))
    given, lost = never_given(trace, [p for p in lost if _expected(p, used_roots, None)])
    found += given
    groups: dict[tuple[str, str], list[Parameter]] = {}
    compiled = {name for given in trace.facts.of(GivenToCompiled) for name in given.parameters}
    reached = {(q.root, above) for q in trace.parameters if q.reached for above in ("", *_above(q.name))}
    for p in lost:
        owner = p.name.rpartition(".")[0]
        # If a parameter inside the module was reached, the module's output was.
        siblings = (p.root, owner if owner != p.root else "") in reached
        reason = "unused" if siblings else "output" if p.calls else "uncalled"
        if p.name in compiled and not p.calls:
            reason = "compiled"
        elif reason == "unused" or not p.calls:
            # The root's own parameters have no module of their own that could be called.
            reason = "unused" if siblings or not owner else "uncalled"
        groups.setdefault((reason, owner), []).append(p)
    mine = {
        reason: {o: ps for (r, o), ps in groups.items() if r == reason} for reason in ("unused", "output", "compiled")
    }
    for owners, ps in _alike({(ps[0].root, f"{owner}."): ps for owner, ps in _merge(mine["unused"]).items()}):
        found.append(_unused("unused", [owner[:-1] for owner in owners], ps, False))
    found += [_unused("output", [owner], ps, False) for owner, ps in _merge(mine["output"]).items()]
    found += [_unused("compiled", [owner], ps, False) for owner, ps in _merge(mine["compiled"]).items()]
    uncalled = {owner: ps for (r, owner), ps in groups.items() if r == "uncalled"}
    by_data = _called_unevenly(trace.parameters) if uncalled else set()
    for owners, ps in _alike(_outermost(uncalled, trace.parameters)):
        found.append(_unused("uncalled", owners, ps, _routed(owners[0], by_data)))
    gathers = [cut for cut in trace.facts.of(Cut) if cut.op in COLLECTIVES and cut.site is not None]
    if gathers:
        found = [_gathered(one, gathers) if one.evidence.get("reason") == "output" else one for one in found]
    return found


def _quiet(lost: list[Parameter]) -> list[Parameter]:
    """Return those of `lost` whose modules ran with gradient mode off only.

    A module inside such a module that is never called itself may still be used: attention reads the parameters of its
    output projection. Its parameters are returned too, with the line of the module around it.
    """
    quiet = {(p.root, p.name.rpartition(".")[0]): p for p in lost if p.quiet_calls and not p.calls}
    found = []
    for p in lost:
        if p.quiet_calls or p.calls:
            around = p if not p.calls else None
        else:
            around = next((quiet[p.root, one] for one in reversed(_above(p.name)[:-1]) if (p.root, one) in quiet), None)
        if around is not None:
            found.append(replace(p, turned_off=around.turned_off))
    return found


def _turned_off(quiet: list[Parameter], used_roots: set[str]) -> list[Finding]:
    """Return findings for modules of a trained model that ran with gradient mode off only, one for each line that did
    it.

    :param quiet: the parameters of such modules.
    :param used_roots: the models in which some parameter got a gradient.
    """
    places: dict[Site, list[Parameter]] = {}
    for p in quiet:
        if p.turned_off is not None and p.root in used_roots and p.trained is not False:
            places.setdefault(p.turned_off, []).append(p)
    return [
        Finding(
            kind="none-grad",
            severity="warning",
            title=f"gradient mode was off wherever {few(_names(ps))} took part, so the loss does not reach them",
            confidence="likely",
            module=common_module([p.name.rpartition(".")[0] for p in ps]),
            parameters=_names(ps),
            sites=(FindingSite("cut", site),),
            evidence={"calls_without_gradient": max(p.quiet_calls for p in ps)},
            advice="Let the part that is to be trained run outside torch.no_grad(). If it is meant to stay as it is, "
            "call requires_grad_(False) on its parameters.",
        )
        for site, ps in places.items()
    ]


def _expected(p: Parameter, used_roots: set[str], cut: Cut | None) -> bool:
    """Return whether a parameter should get a gradient: an optimizer holds it, or another part of its model trains.

    If neither is so, any operation that cut the graph counts, but not a deliberate cut such as `detach`.
    """
    if p.trained or p.root in used_roots:
        return True
    return cut is not None and cut.op not in ("detach", "detach_", "data")


def _merge(groups: dict[str, list[Parameter]]) -> dict[str, list[Parameter]]:
    """Merge the parameters of several modules of one parent: ``branch.0`` and ``branch.2`` become ``branch``."""
    merged: dict[str, list[Parameter]] = {}
    parents: dict[str, list[str]] = {}
    for owner in groups:
        parents.setdefault(owner.rpartition(".")[0], []).append(owner)
    for parent, owners in parents.items():
        if len(owners) > 1 and parent:
            merged.setdefault(parent, []).extend(p for o in owners for p in groups[o])
        else:
            for o in owners:
                merged.setdefault(o, []).extend(groups[o])
    return merged


def _outermost(
    groups: dict[str, list[Parameter]], parameters: Sequence[Parameter]
) -> dict[tuple[str, str], list[Parameter]]:
    """Group the parameters of uncalled modules by the outermost module in which none was called.

    The group is ``tower``, not each of its layers. The keys are the model (root) and the path of the module.
    """
    used = {(p.root, above) for p in parameters if p.reached or p.calls or p.quiet_calls for above in _above(p.name)}
    found: dict[tuple[str, str], list[Parameter]] = {}
    for owner, ps in groups.items():
        for p in ps:
            # Names begin with the root's label if there are several roots.
            outermost = next((a for a in _above(p.name) if (p.root, a) not in used and a != p.root), owner)
            found.setdefault((p.root, outermost), []).append(p)
    return found


def _above(name: str) -> list[str]:
    """Return the paths of the modules that contain a parameter, the outermost first."""
    parts = name.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts))]


def _alike(groups: dict[tuple[str, str], list[Parameter]]) -> list[tuple[list[str], list[Parameter]]]:
    """Group modules at the same position in the layers of a stack, such as ``layers.0.cross`` and ``layers.1.cross``.

    Returns for each group the paths of its modules, and their parameters.
    """
    found: dict[tuple[str, str], tuple[list[str], list[Parameter]]] = {}
    for (root, owner), ps in groups.items():
        around = owner.rpartition(".")[0]
        place = ".".join("*" if part.isdigit() else part for part in around.split(".")) if around else owner
        owners, together = found.setdefault((root, place), ([], []))
        owners.append(owner)
        together += ps
    return list(found.values())


def _names(ps: Sequence[Parameter]) -> tuple[str, ...]:
    """Return the names of the parameters."""
    return tuple(p.name for p in ps)


def _cut(cut: Cut, ps: Sequence[Parameter]) -> Finding:
    """Return the finding for parameters that the loss does not reach since an operation cut the graph."""
    indices = cut.op.startswith("arg") or info(cut.op).gives_indices
    integers = "an index or a count has no gradient" if indices else "its result has no gradient"
    if cut.off:
        integers = "gradient mode is off there"
    sites = [FindingSite("cut", cut.site)] if cut.site else []
    return Finding(
        kind="none-grad",
        severity="warning",
        title=f"{op_in_text(cut.op)} cut the graph: {integers}, so the loss does not reach {few(_names(ps))}",
        confidence="likely",
        module=cut.module,
        parameters=_names(ps),
        sites=(*sites, *defined_sites(ps)),
        evidence={"op": cut.op, "times": cut.count, "optimizer_holds_them": any(p.trained for p in ps)},
        advice="Let the part that is to be trained run outside torch.no_grad(). If it is meant to stay as it is, call "
        "requires_grad_(False) on its parameters."
        if cut.off
        else "Compute the loss from tensors that keep their graph: a softmax or a straight-through estimator in "
        "place of argmax, no detach, item, numpy or torch.tensor on the way. If the cut is meant, call "
        "requires_grad_(False) on these parameters, so that everybody can see it.",
    )


def _straight_through(loss: StraightThroughLoss, cut: Cut, ps: Sequence[Parameter]) -> Finding:
    """Return the finding for a loss computed from the result of a straight-through line, behind which no gradient gets.

    :param ps: the parameters that get no gradient because of it.
    """
    names = _names(ps)
    return Finding(
        kind="none-grad",
        severity="warning",
        title="this loss uses the result of a straight-through line, so its value is right, but no gradient reaches "
        f"{few(names)}",
        confidence="likely",
        module=cut.module,
        parameters=names,
        sites=(*sites_of(("loss", loss.site), ("cut", loss.made)), *defined_sites(ps)),
        evidence={"op": cut.op, "times": cut.count, "optimizer_holds_them": any(p.trained for p in ps)},
        advice="Compute this loss from the tensor before the straight-through line, the y of x + (y - x).detach(), and "
        "keep it under another name. After that line only x gets a gradient.",
    )


def _gathered(found: Finding, gathers: Sequence[Cut]) -> Finding:
    """Return `found` with the lines that gather tensors of all ranks as the cause: what they return has no graph.

    :param found: a finding for a module whose output did not reach the loss.
    """
    names = few(list(dict.fromkeys(cut.op for cut in gathers)))
    return replace(
        found,
        title=f"{found.title}; what {names} gives has no graph",
        confidence="likely",
        sites=(*(FindingSite("cut", cut.site) for cut in gathers if cut.site is not None), *found.sites),
        advice="Put this rank's own tensor back among those that were gathered (parts[rank] = own), or gather with "
        "torch.distributed.nn.functional.all_gather, which has a gradient.",
    )


def _called_unevenly(parameters: Sequence[Parameter]) -> set[str]:
    """Return the paths of module lists of which some members were called more often than others, such as lists of
    experts.
    """
    calls: dict[str, dict[str, int]] = {}
    for p in parameters:
        parts = p.name.split(".") if p.calls else []
        for at, part in enumerate(parts):
            if part.isdigit():
                inside = calls.setdefault(".".join(parts[:at]), {})
                inside[part] = max(inside.get(part, 0), p.calls)
    return {path for path, inside in calls.items() if len(set(inside.values())) > 1}


def _routed(owner: str, by_data: set[str]) -> bool:
    """Return whether `owner` is in one of the lists in `by_data`, whose members the data select."""
    parts = owner.split(".")
    return any(part.isdigit() and ".".join(parts[:at]) in by_data for at, part in enumerate(parts))


def _without(parameters: list[Parameter], others: list[Parameter]) -> list[Parameter]:
    """Return `parameters` without those that are also in `others`."""
    out = set(map(id, others))
    return [p for p in parameters if id(p) not in out] if out else parameters


def _unused(reason: str, owners: Sequence[str], ps: Sequence[Parameter], routed: bool) -> Finding:
    """Return the finding for parameters that took no part in a backward, for one of four reasons.

    :param reason: "unused" (not in the loss), "output" (the module's output is not), "compiled" (a compiled region made
        nothing of it that is), "uncalled" (the module was never called).
    :param owners: the modules that hold the parameters.
    :param routed: whether the data select which modules are called; then an uncalled one is only information.
    """
    names = _names(ps)
    calls = max(p.calls for p in ps)
    called = owners[0] or "the model"
    inside = any(p.name.rpartition(".")[0] not in owners for p in ps)
    was_not = f"nothing in {few(owners)} was" if inside else f"{few(owners)} {plural(owners, 'was', 'were')} never"
    # The code has a use of it that did not happen: a condition was false, or a method was never called.
    uses = dict.fromkeys(p.used for p in ps if p.used is not None and reason not in ("output", "compiled"))
    branches = [FindingSite("cut", site) for site in list(uses)[:3]]
    what = {
        "unused": f"{few(names)} took part in no backward pass: the forward does not use "
        f"{plural(names, 'it', 'them')}, or the loss does not depend on {plural(names, 'it', 'them')}",
        "output": f"{called} was called {calls} times, but nothing that it returned reached the loss: {few(names)} "
        f"got no gradient",
        "compiled": f"a compiled region was given {few(names)}, and nothing that it made of "
        f"{plural(names, 'it', 'them')} reached the loss",
        "uncalled": f"{was_not} called: {few(names)} got no gradient",
    }[reason]
    return Finding(
        kind="none-grad",
        severity="info" if routed and reason == "uncalled" else "warning",
        title=what + (": the line that would use it was not reached" if branches and reason == "uncalled" else ""),
        confidence="certain",
        module=common_module(owners),
        parameters=names,
        sites=(*branches, *defined_sites(ps)),
        evidence={"reason": reason, "module_calls": calls, "optimizer_holds_them": any(p.trained for p in ps)},
        advice="Others beside it were called, some more often than others: it looks chosen by the data, as an expert "
        "is. If it is never chosen, look at how the choice is balanced."
        if routed and reason == "uncalled"
        else "Use it in the forward, or remove it; data-parallel training fails on parameters without gradient. If "
        "it is meant to stay as it is, call requires_grad_(False) on it.",
    )
