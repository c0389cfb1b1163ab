"""Rules for kept weights that are the parameters themselves: loaded back, or compared with the parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import counted, few, listed, plural
from ...records import Finding, ReferenceNotCopied, Site, StateNotCopied
from ..rules import LEARNING, Kind, Question, candidates, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace

_COPY = "Keep a copy: copy.deepcopy(model.state_dict()), or {k: v.clone() for k, v in model.state_dict().items()}."


@rule(
    Kind(
        "state-not-copied",
        "warning",
        "a state dict that was kept is the model's own tensors: loading it back changes nothing",
        rank=LEARNING + 16,
        questions=(Question.LEARNS_BADLY,),
        points_to="the call of `state_dict()`, and the load",
    )
)
def state_not_copied(trace: Trace) -> list[Finding]:
    """Report state dicts that are loaded back without effect, as they share their tensors with the model."""
    return [_finding(seen) for seen in trace.facts.of(StateNotCopied)]


def _finding(seen: StateNotCopied) -> Finding:
    """Return the finding for a load of a state dict that shares its tensors with the model; the title says
    why it does.
    """
    steps = counted(seen.steps, "step")
    if seen.own:
        title = (
            f"{seen.model} is loaded with its own state, taken in the same line, {seen.loads} times: nothing changes, "
            f"and what other models have learned in {steps} does not get there"
        )
        advice = "Load the state of the other model: target.load_state_dict(model.state_dict())."
    elif seen.shared:
        title = (
            f"loading a state dict into {seen.model} changes nothing: its parameters are the memory that the state was "
            f"taken from, and follow its training ({steps} since the first load)"
        )
        advice = "Make the target with copy.deepcopy(model), and load without assign=True."
    elif seen.computed:
        title = (
            f"{seen.model} is loaded {seen.loads} times with a state dict that was computed from a kept one, and "
            f"nothing changes: the kept one shares its tensors with {seen.model}, so {steps} changed it, too"
        )
        advice = _COPY
    else:
        since = f"after {steps} of an optimizer" if seen.steps else "after another state had been loaded"
        state = f"the state dict of step {seen.taken_at}" if seen.exact else "a state dict that was kept"
        title = (
            f"loading {state} changes nothing, {since}: it shares its tensors with {seen.model}, and holds no copies"
        )
        advice = _COPY
    return Finding(
        kind="state-not-copied",
        severity="warning",
        title=title,
        confidence="certain" if seen.exact and not (seen.shared or seen.computed) else "likely",
        step=seen.step,
        sites=sites_of(
            *(("cause", site) for site in seen.taken[:3]), ("loaded", seen.loaded if not seen.own else None)
        ),
        evidence={
            "loads": seen.loads,
            "steps": seen.steps,
            **({} if seen.shared else {"taken_at": seen.taken_at}),
            **({} if seen.exact else candidates(seen.taken)),
        },
        advice=advice,
    )


#: Maximum number of parameters that a title names.
MAX_NAMES = 2


@rule(
    Kind(
        "reference-not-copied",
        "warning",
        "a loss compares parameters with tensors that share their memory: the term is zero, and so is its gradient",
        rank=LEARNING + 38,
        questions=(Question.NOT_LEARNING, Question.LEARNS_BADLY),
        points_to="the line that kept the parameters without a copy, and the comparison",
    )
)
def reference_not_copied(trace: Trace) -> list[Finding]:
    """Report terms of a loss that compare parameters with themselves: one finding for each line that kept them."""
    by_line: dict[tuple[Site, ...], list[ReferenceNotCopied]] = {}
    for seen in trace.facts.of(ReferenceNotCopied):
        by_line.setdefault(seen.kept, []).append(seen)
    return [_compared(some) for some in by_line.values()]


def _compared(some: list[ReferenceNotCopied]) -> Finding:
    """Return the finding for terms of a loss whose references were kept at the same lines.

    :param some: the terms, at least one.
    """
    first = some[0]
    names = tuple(dict.fromkeys(name for one in some for name in one.parameters))
    what = (listed(names) if len(names) <= MAX_NAMES else few(names, MAX_NAMES)) if names else "parameters"
    sites = dict.fromkeys((*first.kept, *(one.site for one in some)))
    return Finding(
        kind="reference-not-copied",
        severity="warning",
        title=f"the loss compares {what} with {plural(names, 'a tensor', 'tensors')} in the same memory: this term is "
        f"0 in all {first.steps} observed steps, and has no effect",
        confidence="likely",
        step=first.step,
        parameters=names,
        sites=sites_of(*(("cause", site) for site in sites)),
        evidence={"op": first.op, "steps": first.steps, **(candidates(first.kept) if len(first.kept) > 1 else {})},
        advice="p.data, p.detach() and state_dict() make no copy: an update changes them, too. Keep "
        "p.detach().clone().",
    )
