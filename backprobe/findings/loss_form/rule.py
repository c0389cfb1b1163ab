"""Rules for losses that are put together from the wrong parts, as the graph of a backward call shows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.text import number
from ...ops import canonical, canonical_names, names_of
from ...records import BackwardCall, Finding, NodeRun, Site
from ..relations.expanded_regions import Opened
from ..relations.sources import input_of, is_log_softmax, name_of, passes_values, source_of, with_new_graphs
from ..rules import LEARNING, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace

SOFTMAX, SIGMOID, RELU, LOG, NEG, DIV, MUL, SUB = map(
    canonical, ("softmax", "sigmoid", "relu", "log", "neg", "div", "mul", "sub")
)
BCE_LOGITS, BCE = map(canonical, ("binary_cross_entropy_with_logits", "binary_cross_entropy"))
LOG_SIGMOID = canonical("logsigmoid")
NLL, KL_DIV, CTC = canonical_names("nll_loss nll_loss2d"), canonical("kl_div"), canonical("ctc_loss")
#: Maximum number of findings.
MAX_FINDINGS = 20
#: Operations that add up or divide, of which a root is made.
_SUMS = canonical_names("sum mean")
#: Operations that pick the targets' elements.
_PICKS = names_of(lambda row: row.chooses_by_index) - {"index_select", "masked_select"} | {"diagonal"}
#: Operations that keep a probability away from zero.
_GUARDS = canonical_names("add clamp clamp_min")
#: Values to which logits between 0 and 1 lead: the largest sigmoid, and the least loss of a negative sample.
_SIGMOID_OF_ONE, _LOG_TWO = 1 / (1 + math.exp(-1)), math.log(2)


@dataclass(frozen=True)
class _Logits:
    """An operation that takes logits, and the node that computed them."""

    call: BackwardCall
    taker: NodeRun
    source: NodeRun

    @property
    def loss(self) -> str:
        """The name of the operation, as the script or the library calls it."""
        return "log_softmax" if name_of(self.taker) == SUB else self.taker.node.op or self.taker.name

    @property
    def given(self) -> str:
        """The name of the operation that computed the logits."""
        return self.source.node.op or name_of(self.source)

    @property
    def is_binary(self) -> bool:
        """Whether each of the logits is one of a binary decision."""
        return not is_log_softmax(self.call, self.taker)

    @property
    def classes(self) -> int | None:
        """The number of classes; ``None`` if it is not known in which dimension they are."""
        stats = (*self.taker.grad_outputs, *self.taker.grad_inputs)
        shape = next((one.shape for one in stats if one is not None and one.shape), None)
        if shape is None or (len(shape) > 2 and self.loss != "cross_entropy"):
            return None
        return shape[min(1, len(shape) - 1)]

    @property
    def sites(self) -> tuple[tuple[str, Site | None], ...]:
        """The lines for the finding: what computed the logits, what takes them if on another line, and the backward
        call.
        """
        taken_at = self.taker.site if self.taker.site != self.source.site else None
        return ("cause", self.source.site), ("cause", taken_at), ("failed", self.call.site)

    @property
    def key(self) -> tuple[object, ...]:
        """The place, so that each is reported once: module and line of the source, line of the loss."""
        return self.source.module, self.source.site, self.taker.site


def _logits(trace: Trace) -> Iterator[_Logits]:
    """Yield the operations that take logits, each with the node that computed these, from all calls with new graphs."""
    for call in with_new_graphs(Opened(trace)):
        for run in call.nodes:
            taker = source_of(call, run) if name_of(run) == BCE else run
            source = _logits_of(call, taker, name_of(run) == BCE) if taker is not None else None
            if taker is not None and source is not None:
                yield _Logits(call, taker, source)


def _logits_of(call: BackwardCall, run: NodeRun, before_bce: bool) -> NodeRun | None:
    """Return the node that computed the logits which the operation of `run` takes; ``None`` if it takes no logits.

    :param before_bce: whether a binary cross entropy over probabilities takes the result of `run`.
    """
    name = name_of(run)
    if is_log_softmax(call, run) or name == BCE_LOGITS or (before_bce and name == SIGMOID):
        return source_of(call, run)
    if name == LOG_SIGMOID:
        source = source_of(call, run)
        return source_of(call, source) if source is not None and name_of(source) == NEG else source
    return None


@rule(
    Kind(
        "normalised-twice",
        "warning",
        "a loss that normalises its input is given probabilities: softmax or sigmoid is applied twice",
        rank=LEARNING + 17,
        questions=(Question.LEARNS_BADLY,),
        points_to="the softmax or sigmoid that is too much",
    ),
    Kind(
        "logits-never-negative",
        "warning",
        "a ReLU is the last operation before a loss that takes logits",
        rank=LEARNING + 18,
        questions=(Question.LEARNS_BADLY,),
        points_to="the ReLU",
    ),
)
def no_logits(trace: Trace) -> list[Finding]:
    """Report losses that take logits and are given probabilities or the result of a ReLU: one finding for
    each place.
    """
    found: dict[tuple[object, ...], Finding] = {}
    for one in _logits(trace):
        if len(found) < MAX_FINDINGS and one.key not in found:
            if name_of(one.source) in (SOFTMAX, SIGMOID):
                found[one.key] = _twice(one)
            elif name_of(one.source) == RELU and name_of(one.taker) != LOG_SIGMOID:  # of a margin, such a loss is meant
                found[one.key] = _cut_off(one)
    return list(found.values())


def _twice(one: _Logits) -> Finding:
    """Return the finding for a loss that normalises its input and is given probabilities, with the least
    loss possible.
    """
    evidence: dict[str, object] = {"op": one.given, "loss": one.loss}
    classes = one.classes
    if one.is_binary:
        evidence["least_loss"] = _LOG_TWO
        effect = (
            f"logits between 0 and 1 stand for probabilities between 0.5 and {number(_SIGMOID_OF_ONE)}, and the loss "
            f"of a negative sample cannot fall below {number(_LOG_TWO)}"
        )
    elif classes is not None and classes > 1:
        least = math.log(1 + (classes - 1) / math.e)
        evidence |= {"classes": classes, "least_loss": least}
        effect = (
            f"scores between 0 and 1 are never more than 1 apart, so with {classes} classes the loss cannot fall below "
            f"{least:.4f}, and no class gets a probability above {number(math.exp(-least))}"
        )
    else:
        effect = "scores between 0 and 1 are never more than 1 apart, so no class gets a probability near 1"
    where = f" (module {one.source.module})" if one.source.module else ""
    return Finding(
        kind="normalised-twice",
        severity="warning",
        title=f"{one.loss} expects logits and gets the result of {one.given}{where}: {effect}",
        confidence="certain",
        module=one.source.module or None,
        node=one.source.name,
        step=one.call.step,
        sites=sites_of(*one.sites),
        evidence=evidence,
        advice=f"Give {one.loss} the values that go into {one.given}: remove {one.given} from the model or the loss, "
        "and apply it only where probabilities are needed, as in a prediction.",
    )


def _cut_off(one: _Logits) -> Finding:
    """Return the finding for logits that are the result of a ReLU."""
    if one.is_binary:
        effect = f"no probability is below 0.5, and the loss of a negative sample cannot fall below {number(_LOG_TWO)}"
    else:
        effect = (
            "all scores below zero become 0, so classes cannot be told apart there, and no gradient raises such a score"
        )
    where = f" (module {one.source.module})" if one.source.module else ""
    return Finding(
        kind="logits-never-negative",
        severity="warning",
        title=f"{one.loss} gets the result of {one.given}{where}, which is never negative: {effect}",
        confidence="likely",
        module=one.source.module or None,
        node=one.source.name,
        step=one.call.step,
        sites=sites_of(*one.sites),
        evidence={"op": one.given, "loss": one.loss},
        advice=f"Remove {one.given} after the last layer: logits may be any numbers.",
    )


@rule(
    Kind(
        "logarithm-missing",
        "warning",
        "a loss that takes log-probabilities is given probabilities: the softmax has no logarithm",
        after="minimised-likelihood",
        questions=(Question.LEARNS_BADLY,),
        points_to="the softmax that should be a log-softmax",
    )
)
def logarithm_missing(trace: Trace) -> list[Finding]:
    """Report losses that take log-probabilities and are given probabilities: one finding for each pair of lines."""
    found: dict[tuple[object, ...], Finding] = {}
    for call in with_new_graphs(Opened(trace)):
        for run in call.nodes:
            source = _log_probabilities_of(call, run)
            if source is not None and name_of(source) in (SOFTMAX, SIGMOID) and len(found) < MAX_FINDINGS:
                found.setdefault((source.module, source.site, run.site), _without_logarithm(call, run, source))
    return list(found.values())


def _log_probabilities_of(call: BackwardCall, run: NodeRun) -> NodeRun | None:
    """Return the node that computed the input of a loss that takes log-probabilities; ``None`` for other operations.

    ``kl_div`` is a product of the target and its input, or a difference of the two if the target has logarithms, too.
    """
    name = name_of(run)
    if name in NLL or name == CTC:
        return source_of(call, run)
    if run.node.op is not None and canonical(run.node.op) == KL_DIV and name in (MUL, SUB):
        return source_of(call, run, 1)
    return None


def _without_logarithm(call: BackwardCall, run: NodeRun, source: NodeRun) -> Finding:
    """Return the finding for a loss (`run`) whose input comes from a softmax or sigmoid (`source`) without
    a logarithm.
    """
    loss, given = run.node.op or run.name, source.node.op or name_of(source)
    if name_of(run) in NLL:
        effect = "it is minus the probability of the target instead of minus its logarithm, and lies between -1 and 0"
    elif name_of(run) == CTC:
        effect = "all probabilities between 0 and 1 count as nearly certain, and the loss can be negative"
    else:
        effect = "its gradient is the same however far the probabilities are from the target"
    where = f" (module {source.module})" if source.module else ""
    taken_at = run.site if run.site != source.site else None
    return Finding(
        kind="logarithm-missing",
        severity="warning",
        title=f"{loss} expects log-probabilities and gets the result of {given}{where}: {effect}",
        confidence="certain",
        module=source.module or None,
        node=source.name,
        step=call.step,
        sites=sites_of(("cause", source.site), ("cause", taken_at), ("failed", call.site)),
        evidence={"op": given, "loss": loss},
        advice=f"Compute the input of {loss} with log_softmax instead of {given}."
        if name_of(source) == SOFTMAX
        else "Use logsigmoid instead of sigmoid, or binary_cross_entropy, which takes probabilities.",
    )


@dataclass
class _Likelihood:
    """The backward calls of one line that minimise a likelihood.

    :ivar total: the node of the outermost sum or mean; ``logs``: of the log-probabilities.
    :ivar parameters: those of the layer that computes the scores.
    """

    call: BackwardCall
    total: NodeRun
    logs: NodeRun
    parameters: frozenset[str]
    values: list[float] = field(default_factory=list)


@rule(
    Kind(
        "minimised-likelihood",
        "warning",
        "the loss is the log-probability of the targets without a minus: training makes them less likely",
        rank=LEARNING + 19,
        questions=(Question.LEARNS_BADLY,),
        points_to="the term that lacks a minus",
    )
)
def minimised_likelihood(trace: Trace) -> list[Finding]:
    """Report lines whose backward calls all minimise the log-probability of targets, so that it falls.

    Only if no backward call of another form reaches the parameters of the layer that computes the scores.
    """
    if not any(row.loss is not None and row.loss < 0 for row in trace.step_rows()):
        return []
    seen: dict[Site | None, _Likelihood] = {}
    for call in _outermost(trace):
        found = _likelihood(call)
        if found is not None:
            one = seen.get(call.site)
            if one is None:
                one = seen[call.site] = _Likelihood(call, *found, _nearest_parameters(call, found[1]))
            one.values.append(call.roots[0].value or 0.0)
    seen = {site: one for site, one in seen.items() if one.parameters and _falls(one)}
    if not seen:
        return []
    others = (call for call in _outermost(trace) if _likelihood(call) is None)
    reached = {run.parameter for call in others for run in call.nodes}
    trained = {one.name for one in trace.parameters if one.trained is not False}
    return [
        _minimised(one) for one in seen.values() if one.parameters <= trained and one.parameters.isdisjoint(reached)
    ]


def _outermost(trace: Trace) -> Iterator[BackwardCall]:
    """Yield the calls that accumulate gradients and are not inside others."""
    for call in Opened(trace):
        if call.inside is None and call.kind != "autograd.grad" and call.raised is None and len(call.nodes):
            yield call


def _likelihood(call: BackwardCall) -> tuple[NodeRun, NodeRun] | None:
    """Return the node of a sum or mean, and the node of the log-probabilities from which it takes those of the targets.

    ``None`` if the root of the call is not such a sum, or not negative.
    """
    root = call.roots[0] if len(call.roots) == 1 else None
    if root is None or root.shape or root.node is None or not (root.value is not None and root.value < 0):
        return None
    run: NodeRun | None = call.nodes[root.node]
    total, picks = None, False
    while run is not None and not _is_log_probability(call, run):
        name = name_of(run)
        picks = picks or name in _PICKS
        total = run if total is None and name in _SUMS else total
        if not (passes_values(run) or name in _SUMS or (name == DIV and _is_divided_number(run))):
            return None
        run = input_of(call, run)
    return (total, run) if run is not None and total is not None and picks else None


def _is_divided_number(run: NodeRun) -> bool:
    """Return whether a node divides a scalar by a constant, such as the size of the batch."""
    return run.node.edges[1:] == (None,) and any(one is not None and one.shape == () for one in run.grad_outputs)


def _is_log_probability(call: BackwardCall, run: NodeRun) -> bool:
    """Return whether a node gives log-probabilities: by a log-softmax, or as the logarithm of a softmax."""
    if name_of(run) != LOG:
        return is_log_softmax(call, run)
    source = source_of(call, run)
    while source is not None and name_of(source) in _GUARDS:
        source = source_of(call, source)
    return source is not None and name_of(source) == SOFTMAX


def _nearest_parameters(call: BackwardCall, run: NodeRun) -> frozenset[str]:
    """Return the names of the parameters nearest below a node, searched level by level; empty if there are none."""
    layer, seen = [run.node.index], {run.node.index}
    while layer:
        below = [
            edge[0] for i in layer for edge in call.nodes[i].node.edges if edge is not None and edge[0] not in seen
        ]
        seen.update(below)
        layer = list(dict.fromkeys(below))
        names = frozenset(name for i in layer if (name := call.nodes[i].parameter))
        if names:
            return names
    return frozenset()


def _falls(one: _Likelihood) -> bool:
    """Return whether the values of a likelihood fall over the run, from a start typical of an untrained model.

    One that starts near its largest value, zero, was maximised before: then the model is meant to forget.
    """
    count = len(one.values)
    if count < thresholds.LIKELIHOOD_MIN_CALLS:
        return False
    part = max(1, int(thresholds.LIKELIHOOD_END_SHARE * count))
    first, last = sum(islice(one.values, part)) / part, sum(one.values[-part:]) / part
    shapes = (stat.shape for stat in (*one.logs.grad_outputs, *one.logs.grad_inputs) if stat is not None and stat.shape)
    classes = next(shapes, (2,))[-1]
    return last < first <= -thresholds.LIKELIHOOD_MIN_SHARE_OF_UNTRAINED * math.log(max(2, classes))


def _minimised(one: _Likelihood) -> Finding:
    """Return the finding for a line that minimises a likelihood."""
    first, last, summed_at = one.values[0], one.values[-1], one.total.site
    logs_at = one.logs.site if one.logs.site != summed_at else None
    return Finding(
        kind="minimised-likelihood",
        severity="warning",
        title="the loss is a mean or sum of log-probabilities of the targets, and no minus turns it round: minimising "
        f"it makes the targets less likely; it is negative and falls, from {number(first)} to {number(last)}",
        confidence="likely",
        module=one.logs.module or None,
        node=one.logs.name,
        step=one.call.step,
        sites=sites_of(("cause", summed_at), ("cause", logs_at), ("failed", one.call.site)),
        evidence={"op": one.logs.node.op, "first": first, "last": last, "calls": len(one.values)},
        advice="Put a minus before the loss, or use nll_loss or cross_entropy, which have it.",
    )
