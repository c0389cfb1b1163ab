"""Rule for calls of optimizers, schedulers and gradient scalers that torch refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import counted, few, plural
from ...records import Finding, RefusedUpdate, ScheduleSeen, Site
from ..rules import GENERAL, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace

#: Title and advice by reason. The title is a template: ``{owner}`` refused, ``{names}`` are the parameters.
_TEXTS = {
    "over": (
        "{owner} is made for {wanted_steps}, and this is call number {given} of its step()",
        "Its length counts calls of step(). If it is called after each batch, give it the number of all batches: "
        "epochs * len(loader), divided by the number of accumulated batches; and count the epochs before a restart. If "
        "it counts epochs, call step() once per epoch, outside of the loop over batches.",
    ),
    "groups": (
        "{owner} holds {wanted_parameters}, and the loaded state is of {given}",
        "The model or its groups were others when the state was saved: parameters were added, frozen or left "
        "out since. Make the optimizer over the same parameters in the same groups, load, and add new ones with "
        "add_param_group() after that. Or load the weights alone, and let the optimizer begin anew.",
    ),
    "state": (
        "the state of {optimizer} has the shapes of other parameters than {names}: it was loaded in another order",
        "The state of an optimizer has no names: it belongs to the parameters by their order. Give them in the "
        "order in which they were when the state was saved.",
    ),
    "resized": (
        "{names} {has} another shape than the state that {optimizer} keeps for {them}: the optimizer was made before",
        "Make a new optimizer after parameters are resized or replaced: its state has the old shapes. To keep "
        "the state of the other parameters, copy it from the old optimizer.",
    ),
    "sparse": (
        "{owner} cannot use sparse gradients, and {that} of {names} {is} sparse",
        "Leave out sparse=True where the embedding is made, or give its parameter to an optimizer of its own "
        "that can use sparse gradients: SparseAdam, or SGD.",
    ),
    "empty": (
        "{owner} is given no parameters",
        "An iterator such as model.parameters() gives its parameters once: make a list of it. A module has no "
        "parameters of layers that it keeps in a plain list or dict: use nn.ModuleList or nn.ModuleDict. If a filter "
        "selects the parameters, check that it keeps some.",
    ),
    "no-leaf": (
        "{owner} is given {result}, which is no leaf",
        "Give the optimizer the tensor that this one is computed from. To move, cast or scale a parameter, do "
        "so before nn.Parameter() or requires_grad_(): the result of an operation is no leaf.",
    ),
    "twice": (
        "{owner} is given {names} in two groups",
        "Leave these parameters out of one of the groups. A group for the rest must skip all parameters that are in "
        "another group; a parameter that two modules share counts once.",
    ),
    "first-rate": (
        "{owner} is to go on, and the optimizer never had a scheduler",
        "last_epoch says that a schedule is resumed, and the optimizer knows no first rate: load its state "
        "dict before the scheduler is made. Without a checkpoint, leave last_epoch out.",
    ),
    "closure": (
        "the step() of {owner} needs a function that computes the loss",
        "Put zero_grad(), the forward, the loss and backward() into a function that returns the loss, and give "
        "it to step(): this optimizer computes the loss several times in a step.",
    ),
    "metrics": (
        "the step() of {owner} needs the value that it watches",
        "Give step() the value to watch, such as the loss of the validation: scheduler.step(loss).",
    ),
    "unscaled-twice": (
        "unscale_() is called a second time for {optimizer} before update()",
        "Call unscale_() once for each optimizer and iteration, after the last backward call and before "
        "clipping; then step() and update(). With accumulated gradients: only in the iterations that step.",
    ),
    "unscaled-late": (
        "unscale_() is called for {optimizer} after the step() of the scaler",
        "Call unscale_() before the step() of the scaler: step() divides the factor out itself.",
    ),
    "stepped-twice": (
        "the step() of {owner} is called a second time for {optimizer} before update()",
        "Call update() once at the end of each iteration, after all calls of step().",
    ),
    "half": (
        "{owner} cannot divide its factor out: {given} of {wanted} gradients of {optimizer} are float16",
        "Keep the weights in float32, and let autocast choose the precision of operations: leave out half() and "
        "torch_dtype=torch.float16. To train in half precision, use bfloat16, which needs no scaler.",
    ),
    "nothing-unscaled": (
        "no parameter of {optimizer} has a gradient when {owner} is to step it",
        "Call backward() on the scaled loss before step(): none of the optimizer's parameters has a "
        "gradient. Look for a loss that does not depend on them, and for a zero_grad() in between.",
    ),
    "": ("{owner} refused a call: {text}", "Look at this call, and at the line that makes the object."),
}
#: Title of the reason "groups" if the numbers of parameters agree.
_OTHER_GROUPS = "the loaded state has other groups of parameters than {owner}"
#: Maximum length of the text of an error in a title.
MAX_TEXT = 160


@rule(
    Kind(
        "optimizer-error",
        "error",
        "an optimizer, a scheduler or a gradient scaler refused a call",
        rank=GENERAL + 7,
        questions=(Question.RAISED,),
        points_to="the line that failed, and the line that made the optimizer or the scheduler",
    ),
)
def optimizer_errors(trace: Trace) -> list[Finding]:
    """Report the first call of an optimizer, scheduler or gradient scaler that torch refused with an error."""
    return [_finding(seen, _schedule(trace, seen)) for seen in trace.facts.of(RefusedUpdate)[:1]]


def _schedule(trace: Trace, seen: RefusedUpdate) -> Site | None:
    """Return the line that makes the scheduler that refused; ``None`` unless exactly one line makes one of
    its class.
    """
    made = {one.made for one in trace.facts.of(ScheduleSeen) if one.scheduler == seen.owner}
    return made.pop() if len(made) == 1 else None


def _finding(seen: RefusedUpdate, schedule: Site | None) -> Finding:
    """Return the finding for a call that an optimizer, scheduler or gradient scaler refused with an error.

    :param schedule: the line that makes the scheduler, if it was one.
    """
    made = seen.made if seen.made != seen.site else None
    evidence: dict[str, object] = {"reason": seen.reason, "error": seen.text, "owner": seen.owner}
    if seen.wanted:
        evidence |= {"given": seen.given, "wanted": seen.wanted}
    inferred = seen.reason == "resized" and seen.source is not None
    source = "replaced" if inferred else "made"
    if inferred:
        evidence |= {"inferred": [source]}
    if seen.operation:
        evidence |= {"op": seen.operation}
    return Finding(
        kind="optimizer-error",
        severity="error",
        title=_title(seen),
        confidence="likely" if inferred else "certain",
        step=seen.step,
        parameters=seen.parameters,
        sites=sites_of(("cause", seen.site), (source, seen.source), ("schedule", schedule), ("optimizer", made)),
        evidence=evidence,
        advice=_TEXTS[seen.reason][1],
    )


def _title(seen: RefusedUpdate) -> str:
    """Return the title for a refused call: the template for its reason, filled with names and numbers."""
    template, names = _TEXTS[seen.reason][0], seen.parameters
    if seen.reason == "groups" and seen.given == seen.wanted:
        template = _OTHER_GROUPS
    return template.format(
        owner=seen.owner,
        optimizer=seen.optimizer,
        names=few(names),
        given=seen.given,
        wanted=seen.wanted,
        wanted_steps=counted(seen.wanted, "step"),
        wanted_parameters=counted(seen.wanted, "parameter"),
        result=f"the result of {seen.operation}" if seen.operation else "a tensor",
        text=" ".join(seen.text.split())[:MAX_TEXT],
        has=plural(names, "has", "have"),
        them=plural(names, "it", "them"),
        that=plural(names, "that", "those"),
        **{"is": plural(names, "is", "are")},
    )
