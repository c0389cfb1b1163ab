"""Rules for gradients that shrink or grow layer by layer; they name the line that multiplies them.

They compare the norm of the gradient at the output of each layer that has a weight, from the loss backwards. The bounds
demand a trend over layers, not one small layer: a factor at each layer, nearly all in one direction, and several orders
of magnitude in all.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import geometric_mean
from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.text import few, number
from ...ops import info
from ...records import BackwardCall, Finding, FindingSite, NodeRun, Site
from ..relations.expanded_regions import Opened
from ..relations.module_paths import common_module
from ..rules import GRADIENTS_INVALID, LEARNING, MEANT, Kind, Question, rule
from .gradient_chains import carriers
from .spikes import largest_of, looked_at, norm_of, spiked

if TYPE_CHECKING:
    from ...traces import Trace


def _may_stand_between(name: str) -> bool:
    """Return whether a node of this name may be between a layer and its weight."""
    return info(name).reshapes or info(name).casts


class _Layer:
    """A node that uses a weight, the name of the weight, and the norm of the gradient at the node's output."""

    def __init__(self, run: NodeRun, parameter: str, norm: float) -> None:
        self.run, self.parameter, self.norm = run, parameter, norm


@rule(
    Kind(
        "exploding-gradient",
        "warning",
        "the gradient grows by a factor at each layer, or at each step of time",
        rank=LEARNING + 20,
        questions=(Question.FADES_OR_GROWS,),
        is_symptom=True,
        points_to="the line that multiplies the gradient each time",
    ),
    Kind(
        "vanishing-gradient",
        "warning",
        "the gradient shrinks by a factor at each layer",
        rank=MEANT,
        questions=(Question.FADES_OR_GROWS,),
        points_to="the line that shrinks the gradient each time",
    ),
    silenced_by=(GRADIENTS_INVALID,),
)
def growth(trace: Trace) -> list[Finding]:
    """Report at most one kind of growth: a trend over layers or uses of a weight on which the first usable calls agree.

    If the first calls show none, the last calls of the run are examined, then single operations and calls that stand
    out from earlier ones.
    """
    big = {p.name for p in trace.parameters if len(p.shape) >= 2}
    calls = Opened(trace)
    seen = _trends(calls.comparable(), big)
    if not seen and len(trace.steps) > 2 * thresholds.GRADIENT_TREND_LAST_STEPS:  # it may have come to that later
        last = [call for step in trace.steps[-thresholds.GRADIENT_TREND_LAST_STEPS :] for call in step.backwards]
        for some in (calls.last(thresholds.GRADIENT_TREND_LAST_STEPS), last):
            seen = seen or (_trends(calls.of(some), big) if len(some) >= thresholds.GRADIENT_TREND_LAST_STEPS else {})
    found = [_finding(kind, call, layers) for kind, (call, layers) in seen.items()]
    late = (spiked(calls) or _outgrown(calls, big)) if not found else None
    found = [late] if late is not None else found
    return [one if calls.sure(one.step) else replace(one, confidence="likely") for one in found]


def _outgrown(calls: Iterable[BackwardCall], big: set[str]) -> Finding | None:
    """Return a finding for the first call whose gradients far exceed those of earlier calls and grow with each use of a
    weight.

    Typical of a horizon (number of steps of time) that became longer during the run. ``None`` if there is no such call.
    """
    before: dict[Site | None, list[float]] = {}
    for call in looked_at(calls):
        most = largest_of(call)
        if not 0 < most < math.inf:
            continue
        usual = before.setdefault(call.site, [])  # in order
        if (
            len(usual) >= thresholds.GRADIENT_OUTGROWN_MIN_CALLS
            and most >= thresholds.GRADIENT_OUTGROWN_FACTOR * usual[len(usual) // 2]
        ):
            for layers in _chains(call, big):
                if _repeated(layers) and _trend(layers) == "exploding-gradient":
                    return _finding("exploding-gradient", call, layers)
        insort(usual, most)
    return None


def _trends(calls: Iterable[BackwardCall], big: set[str]) -> dict[str, tuple[BackwardCall, list[_Layer]]]:
    """Return the trends that all of the first three usable calls show, by kind, each with one call and its layers.

    :param big: the names of parameters with two or more dimensions.
    """
    seen: dict[str, tuple[BackwardCall, list[_Layer]]] = {}
    looked = 0
    for call in calls:
        if call.raised is not None or call.inside is not None or any(r.bad for r in call.roots) or not len(call.nodes):
            continue
        kinds = {}
        for layers in _chains(call, big):
            kind = _trend(layers)
            if kind is not None:
                kinds[kind] = (call, layers)
        looked += 1
        seen = kinds if looked == 1 else {k: v for k, v in seen.items() if k in kinds}
        if not seen or looked == 3:
            break
    return seen


def _chains(call: BackwardCall, big: set[str]) -> Iterator[list[_Layer]]:
    """Yield chains of layers in forward order: first all weights that are used once, then the uses of each repeated
    weight.

    :param big: the names of the weights that count as layers.
    """
    uses: dict[str, list[_Layer]] = {}
    for run in call.nodes:
        if _may_stand_between(run.name):
            continue
        norm = norm_of(run)
        if norm is None or not norm or not math.isfinite(norm):
            continue
        for edge in run.node.edges:
            name = _leaf_of(call, edge)
            if name in big:
                uses.setdefault(name, []).append(_Layer(run, name, norm))
    for layers in uses.values():
        layers.sort(key=lambda layer: layer.run.node.seq)
    yield sorted((layers[0] for layers in uses.values() if len(layers) == 1), key=lambda layer: layer.run.node.seq)
    for layers in uses.values():
        if len(layers) >= 2 * thresholds.GRADIENT_TREND_MIN_LAYERS:
            yield layers


def _leaf_of(call: BackwardCall, edge: tuple[int, int] | None) -> str:
    """Return the parameter at the end of `edge`, directly or behind nodes that reshape or cast; empty if
    there is none.
    """
    while edge is not None:
        child = call.nodes[edge[0]]
        if not _may_stand_between(child.name):
            return child.parameter or ""
        edge = child.node.edges[0] if child.node.edges else None
    return ""


def _trend(layers: Sequence[_Layer]) -> str | None:
    """Return the kind of finding that the norms of a chain show, vanishing or exploding; ``None`` if there is no clear
    trend.
    """
    if len(layers) < thresholds.GRADIENT_TREND_MIN_LAYERS:
        return None
    first, last, count = layers[0].norm, layers[-1].norm, len(layers) - 1
    ratio = first / last
    factor = ratio ** (1 / count)
    repeated = _repeated(layers)
    norms = [layer.norm for layer in layers]
    if repeated and count >= 2 * thresholds.GRADIENT_TREND_STRETCHES:
        edges = [
            len(norms) * i // thresholds.GRADIENT_TREND_STRETCHES
            for i in range(thresholds.GRADIENT_TREND_STRETCHES + 1)
        ]
        norms = [geometric_mean(norms[a:b]) for a, b in pairwise(edges)]
    shrinking = sum(a < b for a, b in pairwise(norms)) / (len(norms) - 1)
    vanished = ratio < thresholds.GRADIENT_FORGOTTEN_RATIO or (
        ratio < thresholds.GRADIENT_VANISHED_RATIO and factor < thresholds.GRADIENT_SHRINKS_FACTOR and not repeated
    )
    if vanished and shrinking >= thresholds.GRADIENT_TREND_MIN_SHARE:
        return "vanishing-gradient"
    if (
        ratio > thresholds.GRADIENT_EXPLODED_RATIO
        and (factor > thresholds.GRADIENT_GROWS_FACTOR or repeated or ratio > thresholds.GRADIENT_VAST_RATIO)
        and shrinking <= 1 - thresholds.GRADIENT_TREND_MIN_SHARE
    ):
        return "exploding-gradient"
    return None


def _repeated(layers: Sequence[_Layer]) -> bool:
    """Return whether the layers are uses of one weight."""
    return len(layers) > 1 and layers[0].parameter == layers[-1].parameter


def _finding(kind: str, call: BackwardCall, layers: list[_Layer]) -> Finding:
    """Return the finding for a trend: the operation that changes the gradient most, or those that carry a state around
    a loop.
    """
    vanishing = kind == "vanishing-gradient"
    first, last = layers[0].norm, layers[-1].norm
    factor = (first / last) ** (1 / (len(layers) - 1))
    culprit, share = _multiplier(call, layers, vanishing)
    repeated = _repeated(layers)
    carried: list[NodeRun] = []
    if repeated and not vanishing:
        middle = len(layers) // 2
        carried, on_all = carriers(call, *(layer.run.node.seq for layer in layers[middle - 1 : middle + 1]))
        if any((run.name, run.site) == (culprit.name, culprit.site) for i in on_all for run in [call.nodes[i]]):
            carried = []  # nothing goes around it
        elif carried:
            culprit, share = carried[0], 1.0
    if repeated:
        hit, names = layers, [layers[0].parameter]
    else:
        hit = [la for la in layers if (la.norm < 1e-3 * last if vanishing else la.norm > 1e3 * last)]
        names = [la.parameter for la in hit]
    over = f"{len(layers)} uses of {layers[0].parameter}" if repeated else f"{len(layers)} layers"
    op = culprit.node.op or culprit.name
    sites = [FindingSite("cause", site) for site in dict.fromkeys(run.site for run in carried or [culprit]) if site]
    if call.site:
        sites.append(FindingSite("failed", call.site))
    made = few([one.node.op or one.name for one in carried])
    return Finding(
        kind=kind,
        severity="info" if vanishing and repeated else "warning",
        title=f"the gradient {'shrinks' if vanishing else 'grows'} by a factor of "
        f"{number(factor if not vanishing else 1 / factor)} at each of {over}, "
        f"from {number(last)} near the loss to {number(first)}; "
        + (f"what is handed on from one to the next is made by {made}" if carried else f"{op} multiplies most"),
        confidence="certain",
        module=common_module([la.run.module or "" for la in hit], thresholds.GRADIENT_TREND_MODULE_SHARE),
        node=culprit.name,
        parameters=tuple(names),
        step=call.step,
        sites=tuple(sites),
        evidence={
            "norms": {("" if not repeated else f"{i}:") + la.parameter: la.norm for i, la in enumerate(layers[:100])},
            "factor_per_layer": factor,
            "factor_of_op": share,
            "op": op,
            "first_to_last": first / last,
        },
        advice=(
            f"The first layers of {few(names)} hardly learn. Use an activation that does not saturate (relu, gelu, "
            "silu), normalisation, residual connections, or an initialisation that keeps the scale."
            if vanishing and not repeated
            else "What happened that many steps before the end cannot be learned. If it should be, use gated cells "
            "(LSTM, GRU), an orthogonal recurrent weight, attention, or shorter sequences."
            if vanishing
            else "Go back fewer steps of time (a shorter horizon, detach() between stretches), take an update that "
            "does not amplify (an orthogonal recurrent weight, gates, damping), or clip the gradient's norm "
            "(torch.nn.utils.clip_grad_norm_)."
            if repeated
            else "Scale the initial weights down, add normalisation or residual scaling, or clip the gradient's norm "
            "(torch.nn.utils.clip_grad_norm_)."
        ),
    )


def _multiplier(call: BackwardCall, layers: Sequence[_Layer], vanishing: bool) -> tuple[NodeRun, float]:
    """Return the operation between the first and last layer that changes the gradient most, and its mean factor.

    Nodes of one name and line count together; one of them is returned.
    """
    low, high = layers[0].run.node.seq, layers[-1].run.node.seq
    sums: dict[tuple[str, Site | None], list[float]] = {}
    runs: dict[tuple[str, Site | None], NodeRun] = {}
    for run in call.nodes:
        if run.order is None or run.parameter is not None or not low <= run.node.seq <= high:
            continue
        came = next((g.norm for g in run.grad_outputs if g is not None and g.norm), None)
        gave = [
            g.norm
            for k, g in enumerate(run.grad_inputs)
            if g is not None and g.norm and not _leaf_of(call, run.node.edges[k])
        ]
        if came is None or not gave:
            continue
        key = (run.name, run.site)
        sums.setdefault(key, []).append(math.log(max(gave) / came))
        runs.setdefault(key, run)
    if not sums:
        return layers[0].run, 1.0
    sign = 1 if vanishing else -1
    key = min(sums, key=lambda k: sign * sum(sums[k]))
    return runs[key], math.exp(sum(sums[key]) / len(sums[key]))
