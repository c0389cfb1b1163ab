"""Rules for trainable tensors that ``parameters()`` does not list, and parameters that no optimizer holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...basics.text import counted, few, plural
from ...records import Finding, FindingSite, OptimizerSeen, Parameter, StoppedLearning, Stray
from ..relations.module_paths import common_module
from ..rules import LEARNING, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "unregistered-parameter",
        "warning",
        "a module uses trainable tensors that `parameters()` does not list",
        rank=LEARNING,
        questions=(Question.NOT_LEARNING,),
        points_to="the line that keeps the tensor or module in a plain list or attribute",
    )
)
def unregistered(trace: Trace) -> list[Finding]:
    """Report trainable tensors that the forward uses and `parameters()` does not list: one finding for each place."""
    found = []
    for stray in trace.facts.of(Stray):
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
                sites=tuple(FindingSite("cut", site) for site in (stray.site, stray.filled) if site),
                evidence={"attribute": stray.attribute, "held_in": stray.how, "count": len(stray.parameters)},
                advice="Keep modules in nn.ModuleList, nn.ModuleDict or as attributes, and tensors as nn.Parameter (or "
                "in nn.ParameterList); make them in __init__, not in forward.",
            )
        )
    return found


@rule(
    Kind(
        "parameter-not-in-optimizer",
        "warning",
        "a part of the model was replaced after the optimizer had been made",
        rank=LEARNING + 10,
        questions=(Question.NOT_LEARNING,),
        points_to="the line that makes the optimizer, and the later assignment",
    )
)
def not_in_optimizer(trace: Trace) -> list[Finding]:
    """Report parameters that get gradients and that no optimizer holds.

    They were created later, replaced parameters that an optimizer holds, or match no group that is chosen by name. If a
    part of a model as a whole was not given to the optimizer, this is taken as intended.
    """
    gone = [seen for seen in trace.facts.of(StoppedLearning) if seen.reason in _TITLE_AND_ADVICE]
    if gone:
        return [_no_longer(seen) for seen in gone]
    idle = [p for p in trace.parameters if p.reached and p.requires_grad and p.trained is False]
    late = [p for p in idle if p.replaced or p.added]
    blamed = next((o for o in trace.facts.of(OptimizerSeen) if o.orphans), None)
    if blamed is None:
        late = [p for p in late if p.added]
        blamed = next((o for o in reversed(trace.facts.of(OptimizerSeen)) if o.site is not None), None)
    if blamed is None:
        return []
    trained = {p.root for p in trace.parameters if p.trained}
    thawed = [p for p in idle if (p.thawed is not None or p.thawed_unseen) and p.root in trained]
    if thawed and not late:
        return [_thawed(thawed, blamed)]
    nothing = next((o for o in trace.facts.of(OptimizerSeen) if o.tensors and o.orphans == o.tensors), None)
    if nothing is not None and idle and not late:
        return [_other_model(idle, nothing)]
    frozen = next((o for o in trace.facts.of(OptimizerSeen) if o.tensors and o.frozen == o.tensors), None)
    if frozen is not None and idle and not late and not any(p.trained and p.reached for p in trace.parameters):
        return [_all_frozen(idle, frozen)]
    hollow = next((o for o in trace.facts.of(OptimizerSeen) if o.empty and o.site is not None), None)
    if hollow is not None and idle and not late:
        return [_used_up(idle, hollow)]
    double = next((o for o in trace.facts.of(OptimizerSeen) if o.twice and o.site is not None), None)
    if double is not None and idle and not late:
        return [_given_twice(idle, double)]
    if not late:
        return _forgotten(trace, idle, blamed) or _missed(trace, idle, blamed)
    names = few([p.name for p in late])
    replaced = dict.fromkeys(p.defined for p in late if p.defined is not None) if blamed.orphans else ()
    return [
        _left_out(
            late,
            blamed,
            f"{names} {plural(late, 'was', 'were')} replaced after {blamed.name} had been made: it still updates "
            f"{counted(blamed.orphans, 'tensor')} that the model no longer has, and not the new ones"
            if blamed.orphans
            else f"{names} {plural(late, 'was', 'were')} added to the model after {blamed.name} had been made: no "
            f"optimizer updates {plural(late, 'it', 'them')}",
            "Make the optimizer after the last change to the model, or give it the new parameters "
            "(optimizer.add_param_group). To change only the values, write them into the parameter itself: "
            "p.copy_(values) under torch.no_grad().",
            {"orphans": blamed.orphans, "tensors_in_optimizer": blamed.tensors},
            sites=[FindingSite("replaced", s) for s in replaced][:3],
        )
    ]


#: Title and advice for an optimizer that continues with tensors the loss no longer reaches, by reason.
_TITLE_AND_ADVICE = {
    "replaced": (
        "from step {step} on the loss reaches {names} of another model than before, like it in every name; the "
        "optimizer goes on with those of before, which get no gradient any more",
        "Make a new optimizer for the copy, or load its weights into the model that the optimizer holds "
        "(model.load_state_dict(copy.state_dict())).",
    ),
    "removed": (
        "from step {step} on other tensors that do not learn stand in the model in the place of {names}: the optimizer "
        "goes on with those of before, which get no gradient any more",
        "What puts parameters in another's place (remove_parametrizations, weight norm, swapped weights) has to make "
        "parameters, outside torch.no_grad(), and needs a new optimizer, or a copy of the model to do it on.",
    ),
}


def _module_of(parameters: Sequence[str]) -> str:
    """Return the innermost module that contains all parameters; empty if there is none."""
    return common_module([name.rpartition(".")[0] for name in parameters])


def _no_longer(seen: StoppedLearning) -> Finding:
    """Return the finding for an optimizer whose tensors the model replaced or removed during the run."""
    title, advice = _TITLE_AND_ADVICE[seen.reason]
    sites = (("optimizer", seen.site), ("failed", seen.failed))
    return Finding(
        kind="parameter-not-in-optimizer",
        severity="warning",
        title=title.format(step=seen.step, names=few(seen.parameters)),
        confidence="likely",
        module=_module_of(seen.parameters),
        parameters=seen.parameters,
        step=seen.step,
        sites=sites_of(*sites),
        evidence={"since_step": seen.step},
        advice=advice,
    )


def _left_out(
    parameters: list[Parameter],
    optimizer: OptimizerSeen,
    title: str,
    advice: str,
    evidence: dict[str, object],
    severity: str = "warning",
    confidence: str = "certain",
    sites: Iterable[FindingSite] = (),
) -> Finding:
    """Return a finding of the kind ``parameter-not-in-optimizer`` for parameters that an optimizer lacks."""
    return Finding(
        kind="parameter-not-in-optimizer",
        severity=severity,
        title=title,
        confidence=confidence,
        module=_module_of([p.name for p in parameters]),
        parameters=tuple(p.name for p in parameters),
        sites=(*sites_of(("optimizer", optimizer.site), ("given", optimizer.given)), *sites),
        evidence=evidence,
        advice=advice,
    )


def _thawed(thawed: list[Parameter], optimizer: OptimizerSeen) -> Finding:
    """Return the finding for parameters that were frozen when the optimizer was created, and unfrozen later."""
    return _left_out(
        thawed,
        optimizer,
        f"{few([p.name for p in thawed])} were thawed, get gradients and are not trained: the optimizer was made "
        "without them",
        "Give them to the optimizer when they are thawed (optimizer.add_param_group), or give it all parameters "
        "from the start: it leaves out those without a gradient.",
        {"count": len(thawed)},
        confidence="likely" if any(p.thawed_unseen for p in thawed) else "certain",
        sites=[FindingSite("thawed", s) for s in dict.fromkeys(p.thawed for p in thawed) if s is not None][:3],
    )


def _other_model(idle: list[Parameter], optimizer: OptimizerSeen) -> Finding:
    """Return the finding for an optimizer none of whose tensors ever got a gradient: it holds a copy, or another model.

    :param idle: parameters that get gradients and that no optimizer holds; so in the functions below.
    """
    return _left_out(
        idle,
        optimizer,
        f"none of the {optimizer.tensors} tensors that {optimizer.name} holds ever got a gradient, and "
        f"{few([p.name for p in idle])} got one: it was made from another model, or from a copy",
        "Make the optimizer from the parameters of the model that is called, after it was copied or wrapped.",
        {"orphans": optimizer.orphans, "tensors_in_optimizer": optimizer.tensors},
    )


def _all_frozen(idle: list[Parameter], optimizer: OptimizerSeen) -> Finding:
    """Return the finding for an optimizer all of whose tensors are frozen."""
    return _left_out(
        idle,
        optimizer,
        f"{optimizer.name} trains nothing: requires_grad is off for all of the {optimizer.tensors} tensors that it "
        f"holds, and {few([p.name for p in idle])} {'get' if len(idle) > 1 else 'gets'} gradients that no optimizer "
        "uses",
        "Turn requires_grad on again for what is to be trained, or make the optimizer from what is not frozen: "
        "[p for p in model.parameters() if p.requires_grad].",
        {"frozen": optimizer.frozen, "tensors_in_optimizer": optimizer.tensors},
    )


def _used_up(idle: list[Parameter], optimizer: OptimizerSeen) -> Finding:
    """Return the finding for an empty parameter group: usually a generator of parameters that was exhausted before."""
    return _left_out(
        idle,
        optimizer,
        f"{optimizer.empty} of the {optimizer.groups} groups of {optimizer.name} "
        f"{'holds' if optimizer.empty == 1 else 'hold'} no parameter, and {few([p.name for p in idle])} "
        f"{'get' if len(idle) > 1 else 'gets'} gradients that no optimizer uses",
        "Give each group a list: list(model.backbone.parameters()). A generator or a filter() that has been read once, "
        "as by counting, gives nothing any more.",
        {"groups": optimizer.groups, "empty": optimizer.empty},
        confidence="likely",
    )


def _given_twice(idle: list[Parameter], optimizer: OptimizerSeen) -> Finding:
    """Return the finding for an optimizer that was given a tensor twice, perhaps in the place of a missing one."""
    return _left_out(
        idle,
        optimizer,
        f"{optimizer.name} was given {optimizer.twice} {'tensors' if optimizer.twice > 1 else 'tensor'} twice, and "
        f"{few([p.name for p in idle])} {'get' if len(idle) > 1 else 'gets'} gradients that no optimizer uses",
        "Look which model stands twice where the optimizer is made: each belongs there once. A tensor that stands "
        "there twice is updated twice in a step.",
        {"twice": optimizer.twice, "tensors_in_optimizer": optimizer.tensors},
        confidence="likely",
    )


def _forgotten(trace: Trace, idle: list[Parameter], optimizer: OptimizerSeen) -> list[Finding]:
    """Return the finding for parameters that the optimizer was not given; empty if this may be intended.

    They are all of a separate module, or of the last part of a trained model. A separate module, such as a criterion
    with weights or a head, has no submodules and is in the same graphs as the model.
    """
    trained = {p.root for p in trace.parameters if p.trained}
    most = max((p.reached for p in trace.parameters if p.trained), default=0)
    roots = {p.root for p in idle} - trained
    alone = roots - {p.root for p in trace.parameters if "." in p.name.removeprefix(f"{p.root}.")}
    lost = [p for p in idle if p.root in alone and p.reached >= most > 0] or _untrained_head(trace, idle)
    if not lost or not trained:
        return []
    return [
        _left_out(
            lost,
            optimizer,
            f"{few([p.name for p in lost])} {plural(lost, 'gets', 'get')} a gradient in every step, and no optimizer "
            f"holds {plural(lost, 'it', 'them')}",
            "Give the optimizer these parameters, too, as in [*model.parameters(), *criterion.parameters()]. Call "
            "requires_grad_(False) on parameters that should not be trained.",
            {"groups": optimizer.groups, "tensors_in_optimizer": optimizer.tensors},
            confidence="likely",
        )
    ]


def _untrained_head(trace: Trace, idle: list[Parameter]) -> list[Parameter]:
    """Return `idle` if it is all parameters of one leaf module, the last one before the loss; otherwise nothing.

    The module must be the last in every backward call, and its model must train at least twice as many other
    parameters. In the middle of a model or at its beginning, such a module may be frozen on purpose.

    :param idle: parameters that get gradients and that no optimizer holds.
    """
    owners = {p.name.rpartition(".")[0] for p in idle}
    owner = owners.pop() if len(owners) == 1 else ""
    mine = {p.name for p in idle}
    beside = [p for p in trace.parameters if p.name.startswith(f"{owner}.") and p.name not in mine]
    held = {p.name for p in trace.parameters if p.trained and p.root == idle[0].root} if idle else set()
    if not owner or beside or len(held) < 2 * len(mine):
        return []
    calls = [c for c in trace.backwards if c.inside is None and c.raised is None and len(c.nodes)]
    for call in calls:
        when = {r.parameter: r.order for r in call.nodes if r.parameter is not None and r.order is not None}
        first = [order for name, order in when.items() if name in mine]
        if len(first) < len(mine) or max(first) > min((o for n, o in when.items() if n in held), default=-1):
            return []
    return idle if calls else []


def _missed(trace: Trace, idle: list[Parameter], optimizer: OptimizerSeen) -> list[Finding]:
    """Return the finding for an optimizer with several groups that holds most of a model and lacks some parameters."""
    held = {p.root for p in trace.parameters if p.trained}
    missed = [p for p in idle if p.root in held]
    kept = sum(bool(p.trained) for p in trace.parameters)
    if not missed or optimizer.groups < 2 or len(missed) > kept:
        return []
    return [
        _left_out(
            missed,
            optimizer,
            f"no group of {optimizer.name} holds {few([p.name for p in missed])}: they get gradients and are never "
            "updated",
            "Where groups are chosen by name, put what no name fits into a last group. If these are meant to "
            "stay as they are, call requires_grad_(False) on them: the backward is cheaper too.",
            {"groups": optimizer.groups, "tensors_in_optimizer": optimizer.tensors},
            "info",
            "possible",
        )
    ]
