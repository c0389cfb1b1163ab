"""Rules for buffers: values that are not finite, and running statistics of other data than what is trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.text import counted, few, plural
from ...records import (
    BadBuffers,
    Finding,
    FrozenInTraining,
    FrozenStatistics,
    Spoilt,
    StaleStatistics,
    UntrainedBatches,
)
from ..nonfinite.rule import nonfinites
from ..rules import HOOKS, VALUES, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "nonfinite-buffer",
        "error",
        "a buffer of a module became NaN or Inf, and stays so",
        rank=VALUES + 20,
        questions=(Question.NONFINITE,),
        points_to="the line that made the NaN, and the module that kept it",
    )
)
def nonfinite_buffers(trace: Trace) -> list[Finding]:
    """Report buffers that became NaN or Inf before any backward call or weight did: later ones are a consequence.

    They are not reported either if a later non-finite loss is reported at the line that made them non-finite.
    """
    bad = [call.step for call in trace.backwards if call.bad_nodes or any(root.bad for root in call.roots)]
    bad += [one.step for one in trace.facts.of(Spoilt)]
    early = [seen for seen in trace.facts.of(BadBuffers) if seen.step < min(bad, default=seen.step + 1)]
    if not early or not bad:
        return [_nonfinite(seen) for seen in early]
    # A loss that met the bad buffer later, in eval mode, is explained by the same line.
    explained = {at.site for one in nonfinites(trace) for at in one.sites if at.role in ("cause", "entered")}
    return [_nonfinite(seen) for seen in early if explained.isdisjoint({seen.called, seen.singular, *seen.written})]


def _nonfinite(seen: BadBuffers) -> Finding:
    """Return the finding for non-finite buffers of one module: an error for running statistics, otherwise a warning."""
    name = few(seen.names, 2)
    verb = plural(seen.names, "is", "are")
    first = seen.after + 1
    when = f"in step {seen.step}" if seen.step <= first else f"in one of the steps {first} to {seen.step}"
    by = "a forward put it there" if seen.statistics else "it was written there"
    inferred = bool(seen.written) or seen.singular is not None
    if seen.statistics:
        advice = (
            f"A forward in train mode updates running statistics before the loss is known: a {seen.what} in one batch "
            "stays in them, and in every output in eval mode. Check the batch before the forward, or restore the "
            "buffers if its loss is skipped."
        )
    else:
        advice = f"Check the value before it is written to the buffer: a running value never gets rid of a {seen.what}."
    return Finding(
        kind="nonfinite-buffer",
        severity="error" if seen.statistics else "warning",
        title=f"{name} of {seen.class_name} {verb} {seen.what}: {by} {when}, and no backward call met it",
        confidence="likely",
        module=seen.module,
        step=seen.step,
        parameters=seen.names,
        sites=sites_of(
            *(("cause", site) for site in seen.written),
            ("cause", seen.singular if not seen.written else None),
            ("called" if inferred else "cause", seen.called),
            *(("condition", site) for site in seen.checks),
        ),
        evidence={"value": seen.what, "finite_after_step": seen.after, "buffers": len(seen.names)},
        advice=advice,
    )


@rule(
    Kind(
        "frozen-buffer-changes",
        "warning",
        "running statistics of layers whose parameters are frozen move far from what they were",
        rank=HOOKS + 50,
        questions=(Question.LEARNS_BADLY,),
        points_to="the `train()` of a frozen part with BatchNorm",
    )
)
def frozen_statistics(trace: Trace) -> list[Finding]:
    """Report layers with frozen parameters whose running mean and variance still change.

    First those that moved by a standard deviation in a quarter of their channels; only if there are none, parts that
    are frozen as a whole and in training mode, whose means moved less far.
    """
    found = [
        _frozen(seen)
        for seen in trace.facts.of(FrozenStatistics)
        if seen.shift >= thresholds.SHIFTED_CHANNELS_MIN_SHARE and seen.modules
    ]
    return found or [
        _frozen_part(seen)
        for seen in trace.facts.of(FrozenInTraining)
        if seen.moved >= thresholds.FROZEN_STATISTICS_MIN_MOVE and not seen.evaluation and not seen.evaluated
    ]


def _frozen(seen: FrozenStatistics) -> Finding:
    """Return the finding for frozen normalisation layers whose running statistics moved far."""
    count = counted(len(seen.modules), "layer")
    first = ("cause", seen.switched) if seen.switched is not None else ("cause", next(iter(seen.frozen), None))
    others = [("frozen", site) for site in seen.frozen if site != first[1]]
    return Finding(
        kind="frozen-buffer-changes",
        severity="warning" if seen.trained else "info",
        title=f"the parameters of {count} ({seen.class_name} {few(seen.modules, 2)}) are frozen, but the running mean "
        f"and variance change in every step: {seen.shift:.0%} of the channels have moved by more than a standard "
        "deviation",
        confidence="likely",
        module=seen.modules[0],
        step=seen.since,
        parameters=tuple(f"{name}.running_mean".lstrip(".") for name in seen.modules),
        sites=sites_of(first, *others, ("called", seen.called)),
        evidence={"layers": len(seen.modules), "moved": round(seen.shift, 3), "last_step": seen.step},
        advice="train() also switches frozen layers to batch statistics, and lets them take over the statistics of new "
        "data. Call eval() on the frozen part after each train(), unless it is meant to adapt.",
    )


def _frozen_part(seen: FrozenInTraining) -> Finding:
    """Return the finding for a part that is frozen as a whole and in training mode, whose running means
    moved less far.
    """
    parts = tuple(one or seen.class_name for one in (seen.part, *seen.others))
    cause = (*seen.switched, *seen.frozen)[:1]
    others = [("frozen", site) for site in seen.frozen if site not in cause]
    return Finding(
        kind="frozen-buffer-changes",
        severity="warning" if seen.learned else "info",
        title=f"{few(parts, 2)} {plural(parts, 'is', 'are')} frozen and in training mode: the running means of "
        f"{counted(seen.norms, f'{seen.norm_class} layer')} moved by up to {seen.moved:.1f} standard deviations in "
        f"{counted(seen.last - seen.since + 1, 'step')}",
        confidence="likely",
        module=seen.part or None,
        step=seen.since,
        sites=sites_of(*(("cause", site) for site in cause), *others, ("called", seen.called)),
        evidence={"layers": seen.norms, "moved": round(seen.moved, 3), "last_step": seen.last},
        advice=f"requires_grad does not stop running statistics. Call eval() on {parts[0]} after each train() of the "
        "model, or override train() so that it stays in evaluation mode, unless it is meant to adapt.",
    )


@rule(
    Kind(
        "buffers-left-behind",
        "warning",
        "an averaged copy of a model has old running statistics: only its parameters are averaged",
        rank=HOOKS + 45,
        questions=(Question.LEARNS_BADLY,),
        points_to="the line that averages only `parameters()`",
    )
)
def left_behind(trace: Trace) -> list[Finding]:
    """Report averaged copies of a model whose running statistics stay old while their weights follow the model."""
    return [
        _left_behind(seen)
        for seen in trace.facts.of(StaleStatistics)
        if seen.apart >= thresholds.SHIFTED_CHANNELS_MIN_SHARE
    ]


def _left_behind(seen: StaleStatistics) -> Finding:
    """Return the finding for one copy with old running statistics; only information if the copy was never called."""
    main = ("cause", seen.loop if seen.loop is not None else seen.written)
    return Finding(
        kind="buffers-left-behind",
        severity="warning" if seen.called else "info",
        title=f"the weights of {seen.copy} follow the trained model, but the running statistics of its "
        f"{counted(len(seen.layers), 'normalisation layer')} never change, and {seen.copy} is in eval mode: "
        f"{seen.apart:.0%} of the channels of {'the layer' if len(seen.layers) == 1 else 'a layer'} have a running "
        "mean that is more than a standard deviation off",
        confidence="likely",
        parameters=tuple(f"{name}.running_mean".lstrip(".") for name in seen.layers),
        sites=sites_of(main, ("written", seen.written if seen.loop is not None else None)),
        evidence={"layers": len(seen.layers), "apart": round(seen.apart, 3), "call_seen": seen.called},
        advice="Copy the buffers of the model too, as in `for mine, new in zip(copy.buffers(), model.buffers()): "
        "mine.copy_(new)`, use AveragedModel(..., use_buffers=True), or call torch.optim.swa_utils.update_bn() before "
        "the copy is evaluated.",
    )


@rule(
    Kind(
        "statistics-of-other-data",
        "warning",
        "batches that train nothing, of other data, change the running statistics: gradient mode does not prevent that",
        rank=HOOKS + 42,
        questions=(Question.LEARNS_BADLY,),
        points_to="the call of the model without `eval()`",
    )
)
def statistics_of_other_data(trace: Trace) -> list[Finding]:
    """Report the layer that is worst off of those whose running statistics are of batches that train nothing."""
    found = [
        seen
        for seen in trace.facts.of(UntrainedBatches)
        if seen.turns >= thresholds.UNTRAINED_BATCHES_MIN_TURNS
        and min(seen.apart, seen.shifted) >= thresholds.SHIFTED_CHANNELS_MIN_SHARE
    ]
    return [_other_data(max(found, key=lambda seen: seen.shifted), len(found))] if found else []


def _other_data(seen: UntrainedBatches, layers: int) -> Finding:
    """Return the finding for a layer with the running statistics of batches that train nothing."""
    main = seen.switched if seen.switched is not None else seen.called
    return Finding(
        kind="statistics-of-other-data",
        severity="warning",
        title=f"{seen.class_name} {seen.layer} is in training mode in forwards without gradients, and takes over the "
        f"statistics of their data: {seen.shifted:.0%} of the channels have running statistics far from those of the "
        "training batches",
        confidence="likely",
        module=seen.layer.rpartition(".")[0] or None,
        step=seen.first_step,
        parameters=tuple(f"{seen.layer}.{name}".lstrip(".") for name in ("running_mean", "running_var")),
        sites=sites_of(("cause", main), ("called", seen.called if main is not seen.called else None)),
        evidence={
            "layers": layers,
            "apart": round(seen.apart, 3),
            "shifted": round(seen.shifted, 3),
            "turns": seen.turns,
            "evaluation_seen": seen.evaluated,
        },
        advice="no_grad() does not stop running statistics: only eval() does. Call model.eval() before these forwards "
        "and model.train() after them.",
    )
