"""The rule for the first NaN or Inf of a run: a forward value, or a node's backward."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ... import thresholds
from ...basics.text import counted, number
from ...basics.torch_texts import COMPILED
from ...ops import info
from ...records import (
    BackwardCall,
    BadOp,
    BadValues,
    Born,
    Finding,
    GradientHook,
    InferredLine,
    Inside,
    LossGrowth,
    Spoilt,
)
from ..relations.losses import growth_to_overflow
from ..rules import VALUES, Kind, Question, rule
from .corruption import corruption_finding, hooked_finding
from .messages import (
    backward_finding,
    forward_finding,
    graph_finding,
    nan_or_inf,
    region_finding,
    unobserved_finding,
    with_inferred_line,
)
from .provenance import is_half, meant, nodes_of, origin_of, others_of, when_made

if TYPE_CHECKING:
    from ...traces import Trace

#: The most findings for one call, and the most bad nodes that are inspected for them.
MAX_FINDINGS, MAX_BAD_NODES = 3, 20


@rule(
    Kind(
        "nonfinite-forward",
        "error",
        "an operation of the forward produced NaN or Inf, which reached the loss or a gradient",
        rank=VALUES,
        questions=(Question.NONFINITE,),
        points_to="the line that made the first NaN or Inf",
    ),
    Kind(
        "nonfinite-backward",
        "error",
        "the forward was finite; the backward of an operation made NaN or Inf",
        rank=VALUES + 10,
        questions=(Question.NONFINITE,),
        points_to="the line whose derivative is not finite",
    ),
    invalidates_gradients=True,
)
def nonfinites(trace: Trace) -> list[Finding]:
    """Report the first NaN or Inf of a run, and later ones that appear after everything was finite again.

    A loss scaler starts with a scale that overflows and lowers it until it does not: this is normal, and a finding only
    if it does not end. A scaler that the script implements itself is recognised by its behaviour (``_followed``).
    """
    found: list[Finding] = []
    poisoned = False
    scaled = 0
    born = {one.backward: one for one in trace.facts.of(Born)}
    inside = {(one.backward, one.node): one for one in trace.facts.of(Inside)}
    lines: dict[int, dict[int, InferredLine]] = {}
    for line in trace.facts.of(InferredLine):
        lines.setdefault(line.backward, {})[line.node] = line
    hooks: dict[int, list[GradientHook]] = {}
    for hook in trace.facts.of(GradientHook):
        hooks.setdefault(hook.backward, []).append(hook)
    spoilt = sorted(trace.facts.of(Spoilt), key=lambda one: one.step)
    step = last_bad = -1
    followed = cache(lambda: _followed(trace))
    for call in trace.backwards:
        step = call.step
        between = [one for one in spoilt if one.step < call.step]
        spoilt = spoilt[len(between) :]
        new = nonfinite(call, born.get(call.index), hooks.get(call.index, ()), inside, lines.get(call.index))
        if new and between and not poisoned and between[-1].step == call.step - 1:
            found.append(corruption_finding(between[-1]))
            poisoned = True
        if not new:
            bad = any(r.bad for r in call.roots) or call.bad_nodes
            poisoned, scaled = poisoned and (bool(bad) or call.step == last_bad), 0  # the step's gradients are a sum
            continue
        own = new[0].kind == "nonfinite-backward" or new[0].evidence.get("op_is_root")
        scale = call.arguments.get("loss_scale")
        if own and (scale or (_is_scaled(call) and call.index in followed())) and not new[0].evidence["nan"]:
            scaled += 1
            if scaled < thresholds.LOSS_SCALER_SEARCH_STEPS:
                continue
            if scale:
                new = [dataclasses.replace(new[0], evidence={**new[0].evidence, "loss_scale": scale})]
        if not poisoned:
            found += new
        poisoned, last_bad = True, call.step
    last = [one for one in spoilt if one.step == step and not poisoned]
    found += [corruption_finding(one) for one in last[:1]]  # the script ended there
    grown = growth_to_overflow(trace)
    return found if grown is None else [_after_growth(one, grown) for one in found]


def _after_growth(finding: Finding, grown: LossGrowth) -> Finding:
    """Return the finding of a value that is too large for its dtype with the growth of the loss before it."""
    if not finding.evidence.get("too_large") or finding.step is None or finding.step <= grown.until:
        return finding
    steps = counted(grown.until - grown.since, "step")
    advice = f"The loss had grown for {steps} before, from {number(grown.first)} in step {grown.since} to "
    advice += (
        f"{number(grown.last)}: look for what makes it grow from step to step, also in a state that is carried on. "
    )
    advice += finding.advice
    evidence = {**finding.evidence, "loss_grew_since": grown.since, "loss_before": grown.first, "loss_last": grown.last}
    return dataclasses.replace(finding, advice=advice, evidence=evidence)


def _is_scaled(call: BackwardCall) -> bool:
    """Return whether the loss is a product and the first bad gradient is in float16."""
    root = next((call.nodes[r.node] for r in call.roots if r.node is not None), None)
    product = root is not None and root.name == "MulBackward0"
    return product and bool(call.bad_nodes) and is_half(call.nodes[call.bad_nodes[0].node])


def _followed(trace: Trace) -> frozenset[int]:
    """Return the indices of calls with bad values that did no harm, as if the script's own scaler lowered its factor.

    That is, a finite call followed before any optimizer stepped, and the loss after the step was finite too.
    """
    lost = {one.index for one in trace.backwards if any(r.bad for r in one.roots)}
    bad = lost | {one.index for one in trace.backwards if one.bad_nodes}
    found: set[int] = set()
    for step in trace.steps:
        calls = step.record.backwards
        fine = max((n for n in calls if n not in bad), default=-1)
        if calls and max(calls) + 1 not in lost:
            found.update(n for n in calls if n < fine)
    return frozenset(found)


def nonfinite(
    call: BackwardCall,
    born: Born | None = None,
    hooks: Iterable[GradientHook] = (),
    inside: Mapping[tuple[int, int], Inside] = MappingProxyType({}),
    lines: Mapping[int, InferredLine] | None = None,
) -> list[Finding]:
    """Return at most ``MAX_FINDINGS`` findings for a backward call, in the order in which values became non-finite.

    Non-finite values that follow from an earlier one are not reported; independent ones are.

    A bad root means that the forward produced it: follow the graph from the root through nodes whose forward result was
    bad.

    If the roots are finite and a gradient is bad, it began at the first node that got finite gradients and returned a
    bad one. If a tensor that this node had saved was bad already and another statement produced it, that statement is
    the cause; if the same statement produced it, the node's own backward is.

    :param born: what the graph reveals about a bad root, if the forward was not observed.
    :param hooks: the user's hooks on gradients of this call.
    :param inside: by call and node, what is known of compiled regions.
    :param lines: by node, the lines that may have created it; ``None`` if the forward was observed.
    """
    ops = call.bad_ops
    bad_roots = [r for r in call.roots if r.bad is not None and r.node is not None]
    if bad_roots:
        root = bad_roots[0]
        assert root.node is not None
        reached = f"the loss became {nan_or_inf(root.bad)}"
        origin = origin_of(call, root.node, ops)
        seen = _run_again(call, inside, "forward")
        if seen is not None and (origin is None or _not_before(call, origin[0], seen)):
            return [forward_finding(call, _op_of_region(call, seen), True, reached)]
        region = _region_of(call, origin[0], inside) if origin is not None else None
        if origin is not None and region is not None:
            return [region_finding(forward_finding(call, *origin, reached), origin[0], region)]
        if origin is not None and (born is None or not (_given_bad(*origin) or _brought(*origin, born))):
            in_closure = born is not None and born.in_closure
            told = [forward_finding(call, *origin, reached, in_closure=in_closure)]
            if origin[1]:
                several = sorted((origin[0], *others_of(call, root.node, ops, origin[0])), key=when_made)
                told = [forward_finding(call, one, True, reached, in_closure=in_closure) for one in several]
            return _each_once([*told, *_slopes(call, 0, ops, lines)])
        if born is None:
            return [unobserved_finding(call, call.nodes[root.node], root, lines is not None)]
        found = graph_finding(call, born, root, lines is not None)
        behind = (
            born.behind if born.how == "leaf" and born.likely is None else None if born.how == "leaf" else born.node
        )
        return [with_inferred_line(found, lines.get(behind) if lines and behind is not None else None)]
    hooked = hooked_finding(call, hooks)
    if hooked is not None:
        return [hooked]
    if not call.bad_nodes:
        return []
    first = call.bad_nodes[0]
    run = call.nodes[first.node]
    origin = origin_of(call, first.node, ops)
    if origin is not None and origin[0].site != run.site and not _absorbed(call, origin[0]):
        return [forward_finding(call, *origin, f"it reached the gradient of {run.name}", run)]
    region = _run_again(call, inside, "backward") or inside.get((call.index, first.node))
    if region is not None and region.how == "backward":
        first, run = dataclasses.replace(first, **_region_fields(region)), call.nodes[region.node]
    own = backward_finding(call, first, run, origin[0] if origin is not None else None, region)
    own = with_inferred_line(own, lines.get(first.node) if lines and region is None else None)
    more = [] if region is not None else _slopes(call, 1, ops, lines)
    return _each_once([own, *more])


def _slopes(
    call: BackwardCall, after: int, ops: tuple[BadOp, ...], lines: Mapping[int, InferredLine] | None
) -> list[Finding]:
    """Return findings for nodes that made non-finite gradients of finite values, from bad node number `after` on."""
    return [
        with_inferred_line(backward_finding(call, bad, call.nodes[bad.node], None, None), (lines or {}).get(bad.node))
        for bad in call.bad_nodes[after : after + MAX_BAD_NODES]
        if not bad.inferred and not any(t.bad for t in bad.saved) and origin_of(call, bad.node, ops) is None
    ]


def _each_once(told: list[Finding]) -> list[Finding]:
    """Return the first finding of each line, at most ``MAX_FINDINGS``."""
    by_line: dict[object, Finding] = {}
    for found in told:
        by_line.setdefault(found.sites[0].site if found.sites else found.title, found)
    return list(by_line.values())[:MAX_FINDINGS]


def _run_again(call: BackwardCall, inside: Mapping[tuple[int, int], Inside], how: str) -> Inside | None:
    """Return the compiled region that produced a bad value when it was executed again, if there is one.

    :param how: "forward" or "backward": where it did.
    """
    return next((one for one in inside.values() if one.backward == call.index and one.how == how), None)


def _not_before(call: BackwardCall, op: BadOp, region: Inside) -> bool:
    """Return whether `op` ran after a compiled region whose inputs were finite, or is a compiled region itself."""
    return op.first >= call.nodes[region.node].node.seq or op.op.startswith(COMPILED)


def _op_of_region(call: BackwardCall, region: Inside) -> BadOp:
    """Return the operation inside a compiled region that produced the bad value, as if the forward had recorded it."""
    node = call.nodes[region.node].node
    values = region.values or BadValues(1, 0, 0, ())
    return BadOp(
        node.seq,
        node.seq,
        region.op,
        region.site,
        region.module,
        node.call,
        values,
        region.tensors,
        None,
        not region.sure,
    )


def _region_fields(region: Inside) -> dict[str, Any]:
    """Return the fields of a bad node that describe a compiled region executed again, as keyword arguments."""
    return {
        "node": region.node,
        "values": region.values,
        "zero_incoming": region.zero_incoming,
        "saved": region.tensors,
        "inferred": False,
        "of": None,
    }


def _region_of(call: BackwardCall, op: BadOp, inside: Mapping[tuple[int, int], Inside]) -> Inside | None:
    """Return the compiled region that produced the NaN of `op`, directly or through operations that pass NaN on."""
    if not op.output.nan or not (info(op.op).makes_no_nan or op.op.startswith(COMPILED)):
        return None
    stack = nodes_of(call, op)
    for run in stack:  # grows as we go through views
        found = inside.get((call.index, run.node.index))
        if found is not None:
            return found
        stack += [
            call.nodes[edge[0]]
            for edge in run.node.edges
            if edge is not None
            and len(stack) < 100
            and (info(call.nodes[edge[0]].name).reshapes or call.nodes[edge[0]].name.startswith(COMPILED))
        ]
    return None


def _given_bad(op: BadOp, begins: bool) -> bool:
    """Return whether `op` got a bad input from an uninspected operation, as in a transform or a compiled region.

    :param begins: as in ``forward_finding``.
    """
    return begins and op.origin is None and any(t.bad is not None and t.made for t in op.inputs)


def _brought(op: BadOp, begins: bool, born: Born) -> bool:
    """Return whether `op` got a bad input that torch did not produce, and the source names a line that may have.

    :param begins: as in ``forward_finding``.
    """
    return begins and op.origin is None and born.how == "outside" and born.brought and born.likely is not None


def _absorbed(call: BackwardCall, op: BadOp) -> bool:
    """Return whether the forward is right although `op` gave Inf: a deliberate fill, and the loss is finite."""
    return meant(op) and not any(root.bad for root in call.roots)
