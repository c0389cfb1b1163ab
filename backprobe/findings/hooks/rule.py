"""Rules for users' module backward hooks that never fire, see only part of the graph, or meet an in-place write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import few
from ...records import Finding, FindingSite, HookSeen, StaleRead
from ..rules import HOOKS, WRONG, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "hook-inplace-conflict",
        "error",
        "a module has a full backward hook, and its output is changed in place",
        rank=WRONG + 60,
        questions=(Question.RAISED,),
        points_to="the line that registers the hook, and the line that writes",
    ),
    Kind(
        "hook-never-fires",
        "warning",
        "a backward hook on a module cannot fire",
        rank=HOOKS,
        questions=(Question.HOOKS,),
        points_to="the line that registers the hook",
    ),
    Kind(
        "legacy-hook-partial",
        "warning",
        "`register_backward_hook` sees only the last node of a module",
        rank=HOOKS + 10,
        questions=(Question.HOOKS,),
        points_to="the line that registers the hook",
    ),
)
def hooks(trace: Trace) -> list[Finding]:
    """Report module hooks for the backward that never fire, see one node only, or conflict with an in-place write."""
    return [_finding(seen) for seen in trace.facts.of(HookSeen)]


@rule(
    Kind(
        "hook-order",
        "warning",
        "a hook reads `.grad` before the backward has written it",
        rank=HOOKS + 20,
        questions=(Question.HOOKS,),
        points_to="the line that reads `.grad` too early",
    )
)
def hook_order(trace: Trace) -> list[Finding]:
    """Report hooks that read `.grad` before the backward has written it: one finding for each hook, with
    all its lines.
    """
    found = []
    together: dict[object, list[StaleRead]] = {}
    for seen in trace.facts.of(StaleRead):  # one hook may read it on several lines
        together.setdefault(seen.hook or seen.stale, []).append(seen)
    for seen, *more in together.values():
        what = "None" if seen.empty else "the gradient of an earlier backward"
        when = "before the gradient is accumulated" if seen.on == "tensor" else "before that gradient is there"
        sites = [FindingSite("stale", s.stale) for s in (seen, *more)]
        if seen.hook is not None:
            sites.append(FindingSite("hook", seen.hook))
        found.append(
            Finding(
                kind="hook-order",
                severity="warning",
                title=f"a hook reads {seen.parameter or 'a leaf'}.grad {when}: it sees {what}",
                confidence="certain",
                module=seen.parameter.rpartition(".")[0],
                tensor=seen.parameter,
                parameters=(seen.parameter,) if seen.parameter else (),
                step=seen.step,
                sites=tuple(sites),
                evidence={"hook_on": seen.on, "grad_was": "None" if seen.empty else "of an earlier backward"},
                advice="Use the gradient that the hook is given, or register_post_accumulate_grad_hook on the "
                "parameter, which runs when .grad has been written."
                if seen.on == "tensor"
                else "Read .grad after backward() returns, or put register_post_accumulate_grad_hook on the parameter: "
                "it runs when .grad has been written.",
            )
        )
    return found


def _finding(seen: HookSeen) -> Finding:
    """Return the finding for a module's hook; its kind, title and advice depend on the reason that the
    tracker found.
    """
    names = few([name or "the model itself" for name in seen.modules])
    if seen.reason == "inplace":
        kind, severity = "hook-inplace-conflict", "error"
        title = (
            f"the full backward hook on {names} makes its output a view, and the next operation changes that in place"
        )
        advice = "Use the activation that comes next without inplace=True, or put the hook on that module instead."
    elif seen.reason == "legacy":
        kind, severity = "legacy-hook-partial", "warning"
        title = f"register_backward_hook on {names} sees the last of its {seen.details[0]} nodes only"
        advice = "Use register_full_backward_hook: it sees the gradients of the module's inputs and outputs."
    elif seen.reason == "forward":
        kind, severity = "hook-never-fires", "warning"
        title = (
            f"{names} was not called as a module (its forward was called, or its weights used), so its hook never fires"
        )
        advice = "Call the module itself, module(x), not module.forward(x)."
    elif seen.reason == "container":
        kind, severity = "hook-never-fires", "warning"
        title = f"{names} is a {seen.details[0]}, which nobody calls, so the hook on it never fires"
        advice = "Put the hook on the modules that it holds."
    elif seen.reason == "frozen":
        kind, severity = "hook-never-fires", "warning"
        title = (
            f"the backward hook on {names} never fires: its parameters are frozen and nothing that it is given "
            "requires grad, so no gradient comes back to it"
        )
        advice = "Let what goes in require grad (x.requires_grad_()), or thaw the parameters while the hook is to run."
    elif seen.reason == "quiet":
        kind, severity = "hook-never-fires", "warning"
        title = f"the backward hook on {names} never fires: it was called with gradient mode off only"
        advice = "Call it outside torch.no_grad() where the hook is to run."
    elif seen.reason == "compiled":
        kind, severity = "hook-never-fires", "warning"
        title = f"the backward hook on {names} was registered after the last compilation: compiled code does not run it"
        advice = "Register hooks before the first call of what is compiled, or call torch.compiler.reset() after it."
    else:
        kind, severity = "hook-never-fires", "warning"
        what = few(list(dict.fromkeys(seen.details)))
        title = (
            f"the backward hook on {names} never fires: what it returns is of type {what}, not a tensor or a tuple of "
            "tensors"
        )
        advice = (
            "Put the hook on the modules inside that return tensors, or on the tensors themselves "
            "(output['x'].register_hook)."
        )
    pairs = (("hook", seen.site), ("mutated" if seen.reason == "inplace" else "bypass", seen.bypass))
    return Finding(
        kind=kind,
        severity=severity,
        title=title,
        confidence="certain" if seen.site and seen.reason != "compiled" else "likely",
        module=seen.modules[0] if len(seen.modules) == 1 else None,
        sites=sites_of(*pairs),
        evidence={"modules": list(seen.modules), "details": [d for d in seen.details if d]},
        advice=advice,
    )
