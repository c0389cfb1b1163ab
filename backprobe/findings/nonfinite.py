"""Where did the first NaN or Inf come from: a forward value, or a node's backward?"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..graphs.plan import BOUNDED, CALM, FILLS, MOVES, SATURATING, VIEW_NODES, VIEW_OPS
from ..records import (
    BackwardCall,
    BadNode,
    BadOp,
    BadValues,
    Born,
    Finding,
    FindingSite,
    GradientHook,
    Inside,
    NodeRun,
    Root,
    Spoilt,
)
from ..torch_texts import COMPILED
from .questions import VALUES, Kind, question
from .spoilt import hooked_finding, spoilt_finding

if TYPE_CHECKING:
    from ..traced import Trace

#: Steps in a row that a loss scaler may skip before it is no longer its search for a scale.
SCALER_STEPS = 20
#: One of so many values is an accident, and no mask.
RARE = 20


@question(
    Kind(
        "nonfinite-forward",
        "error",
        "an operation of the forward gave NaN or Inf, and the loss or a gradient got it",
        rank=VALUES,
    ),
    Kind(
        "nonfinite-backward",
        "error",
        "the forward was finite; the backward of an operation made NaN or Inf",
        rank=VALUES + 10,
    ),
    spoils=True,
)
def nonfinites(trace: Trace) -> list[Finding]:
    """The first bad value of a run, and later ones that came after everything had been finite again.

    A loss scaler begins with a scale that overflows and comes down until it does not: that is its way of working, and a
    finding only where it does not end.
    """
    found: list[Finding] = []
    poisoned = False
    scaled = 0
    born = {one.backward: one for one in trace.facts.of(Born)}
    inside = {(one.backward, one.node): one for one in trace.facts.of(Inside)}
    hooks: dict[int, list[GradientHook]] = {}
    for hook in trace.facts.of(GradientHook):
        hooks.setdefault(hook.backward, []).append(hook)
    spoilt = sorted(trace.facts.of(Spoilt), key=lambda one: one.step)
    step = -1
    for call in trace.backwards:
        step = call.step
        between = [one for one in spoilt if one.step < call.step]
        spoilt = spoilt[len(between) :]
        new = nonfinite(call, born.get(call.index), hooks.get(call.index, ()), inside)
        if new and between and not poisoned and between[-1].step == call.step - 1:
            found.append(spoilt_finding(between[-1]))
            poisoned = True
        if not new:
            bad = any(r.bad for r in call.roots) or call.bad_nodes
            poisoned, scaled = poisoned and bool(bad), 0
            continue
        own = new[0].kind == "nonfinite-backward" or new[0].evidence.get("op_is_root")
        if own and "loss_scale" in call.arguments and not new[0].evidence["nan"]:
            scaled += 1
            if scaled < SCALER_STEPS:
                continue
            new = [
                dataclasses.replace(new[0], evidence={**new[0].evidence, "loss_scale": call.arguments["loss_scale"]})
            ]
        if not poisoned:
            found += new
        poisoned = True
    last = [one for one in spoilt if one.step == step and not poisoned]
    return found + [spoilt_finding(one) for one in last[:1]]  # the script ended there


def nonfinite(
    call: BackwardCall,
    born: Born | None = None,
    hooks: Iterable[GradientHook] = (),
    inside: Mapping[tuple[int, int], Inside] = MappingProxyType({}),
) -> list[Finding]:
    """At most one finding for a backward call: what comes after the first bad value is a consequence of it.

    A bad root means that the forward made it: follow the graph from the root through nodes whose
    forward result was bad.
    Finite roots and a bad gradient: the first node that got finite gradients and gave a bad one is where it began.
    If what that node had kept from the forward was bad already, and made by another statement, that statement is the
    cause; if the same statement made it, the node's own backward is.

    :param born: what the graph tells of a bad root, where nothing saw the forward.
    :param hooks: the user's, on gradients of this call.
    :param inside: by call and node, what is known of compiled regions.
    """
    ops = call.bad_ops
    bad_roots = [r for r in call.roots if r.bad is not None and r.node is not None]
    if bad_roots:
        root = bad_roots[0]
        assert root.node is not None
        origin = _origin(call, root.node, ops)
        seen = _run_again(call, inside, "forward")
        if seen is not None and (origin is None or _not_before(call, origin[0], seen)):
            return [_forward(call, _op_of_region(call, seen), True, f"the loss became {_what(root.bad)}")]
        region = _region_of(call, origin[0], inside) if origin is not None else None
        if origin is not None and region is not None:
            return [_in_region(_forward(call, *origin, f"the loss became {_what(root.bad)}"), origin[0], region)]
        if origin is not None and (born is None or not (_given_bad(*origin) or _brought(*origin, born))):
            return [_forward(call, *origin, f"the loss became {_what(root.bad)}")]
        return [_told_by_graph(call, born, root) if born is not None else _unseen(call, call.nodes[root.node], root)]
    hooked = hooked_finding(call, hooks)
    if hooked is not None:
        return [hooked]
    if not call.bad_nodes:
        return []
    first = call.bad_nodes[0]
    run = call.nodes[first.node]
    origin = _origin(call, first.node, ops)
    if origin is not None and origin[0].site != run.site and not _absorbed(call, origin[0]):
        return [_forward(call, *origin, f"it reached the gradient of {run.name}", run)]
    region = _run_again(call, inside, "backward") or inside.get((call.index, first.node))
    if region is not None and region.how == "backward":
        first, run = dataclasses.replace(first, **_kept(region)), call.nodes[region.node]
    return [_backward(call, first, run, origin[0] if origin is not None else None, region)]


def _run_again(call: BackwardCall, inside: Mapping[tuple[int, int], Inside], how: str) -> Inside | None:
    """Where a compiled region of the call was seen to make what is bad, when it was run again."""
    return next((one for one in inside.values() if one.backward == call.index and one.how == how), None)


def _not_before(call: BackwardCall, op: BadOp, region: Inside) -> bool:
    """Whether `op` ran no sooner than a region of which it is known that what came in was finite."""
    return op.first >= call.nodes[region.node].node.seq or op.op.startswith(COMPILED)


def _op_of_region(call: BackwardCall, region: Inside) -> BadOp:
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


def _kept(region: Inside) -> dict[str, Any]:
    return {
        "node": region.node,
        "values": region.values,
        "zero_incoming": region.zero_incoming,
        "saved": region.tensors,
        "inferred": False,
        "of": None,
    }


def _region_of(call: BackwardCall, op: BadOp, inside: Mapping[tuple[int, int], Inside]) -> Inside | None:
    """The compiled region that made the NaN of `op`: it is one itself, or gives NaN for NaN only and took what one
    made."""
    if not op.output.nan or not (op.op in CALM or op.op.startswith(COMPILED)):
        return None
    stack = [r for r in call.nodes if op.first <= r.node.seq <= op.seq]
    for run in stack:  # grows as we go through views
        found = inside.get((call.index, run.node.index))
        if found is not None:
            return found
        stack += [
            call.nodes[edge[0]]
            for edge in run.node.edges
            if edge is not None
            and len(stack) < 100
            and (call.nodes[edge[0]].name in VIEW_NODES or call.nodes[edge[0]].name.startswith(COMPILED))
        ]
    return None


def _in_region(found: Finding, op: BadOp, region: Inside) -> Finding:
    """`found` of `op`, told of the line inside the compiled region that can have made what it got."""
    entered = () if op.op.startswith(COMPILED) else _sites(("entered", op.site))
    return dataclasses.replace(
        found,
        title=f"{region.op} in a compiled region made it, as far as can be told of what was not seen: {found.title}",
        confidence="likely",
        tensor=f"output of {region.op}",
        sites=(*_sites(("cause", region.site)), *entered, *(s for s in found.sites if s.role != "cause")),
        evidence={**found.evidence, "in_region": region.op},
    )


def _given_bad(op: BadOp, begins: bool) -> bool:
    """Whether what `op` was given was bad already, and nothing that was looked at made it: a transform, or a compiled
    region, did."""
    return begins and op.origin is None and any(t.bad is not None and t.made for t in op.inputs)


def _brought(op: BadOp, begins: bool, born: Born) -> bool:
    """Whether no operation of torch made what `op` was given, and the code tells what else may have."""
    return begins and op.origin is None and born.how == "outside" and born.brought and born.likely is not None


def _absorbed(call: BackwardCall, op: BadOp) -> bool:
    """Whether the forward is right though `op` gave Inf: it was put there on purpose, and the loss is finite."""
    return _meant(op) and not any(root.bad for root in call.roots)


def _what(bad: object) -> str:
    return "NaN" if getattr(bad, "nan", 0) else "Inf"


def _origin(call: BackwardCall, start: int, ops: tuple[BadOp, ...]) -> tuple[BadOp, bool] | None:
    """Where a chain of bad forward results that ends at node `start` began, and whether nothing bad came before.

    An Inf that was put there on purpose (a mask) is where the chain begins only if no NaN comes after it.
    """
    begins = [op.first for op in ops]
    at_node = partial(_op_of, ops, begins)
    chain: dict[int, BadOp] = {}
    seen = {start}
    #: Nodes, and whether what came from there went through a function that nobody looked at and that may end an Inf.
    stack = [(start, False)]
    while stack:
        index, ends_inf = stack.pop()
        node = call.nodes[index].node
        op = at_node(node.seq)
        if op is not None and ends_inf and not op.output.nan:
            continue
        passed = node.op in _UNSEEN or node.op in BOUNDED or node.name in VIEW_NODES
        if op is not None:
            chain[op.seq] = op
        elif node.index != start and not passed:
            continue  # its result was looked at, and finite
        for edge in node.edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                stack.append((edge[0], op is None and (ends_inf or node.op in SATURATING)))
    if not chain:
        return None
    ordered = [chain[seq] for seq in sorted(chain)]
    hidden = _hidden(call, ordered[0])
    if hidden is not None:
        return hidden, True
    for i, op in enumerate(ordered):
        spoilt = next((later for later in ordered[i + 1 :] if later.output.nan), None)
        if spoilt is None or not _meant(op) or (op.origin is not None and not _masked(spoilt)):
            return (i == 0 and _hidden_by_softmax(call, op, at_node)) or op, i == 0
    return ordered[0], True


def _op_of(ops: tuple[BadOp, ...], begins: list[int], seq: int) -> BadOp | None:
    """The one of `ops`, whose first nodes are `begins`, that made node `seq`."""
    at = bisect_right(begins, seq) - 1
    return ops[at] if at >= 0 and ops[at].seq >= seq else None


def _hidden_by_softmax(call: BackwardCall, op: BadOp, at_node: Callable[[int], BadOp | None]) -> BadOp | None:
    """An Inf that was computed outside the graph and not put there as a mask, and became a zero of softmax or exp,
    whose logarithm `op` is."""
    if not op.op.startswith("log") or any(t.bad for t in op.inputs):
        return None
    stack = [(r, False) for r in call.nodes if op.first <= r.node.seq <= op.seq]
    for run, zeros in stack:  # grows as we go
        for edge in run.node.edges if len(stack) < 100 else ():
            above = call.nodes[edge[0]] if edge is not None else run
            before = at_node(above.node.seq)
            if zeros and before is not None and _by_chance(before.origin):
                return before
            ends = any(word in above.name for word in ("Softmax", "Exp", "Sigmoid"))
            if above is not run and (ends or zeros or above.name in VIEW_NODES):
                stack.append((above, zeros or ends))
    return None


def _by_chance(origin: BadOp | None) -> bool:
    """Whether a few of many values were not finite: of noise, not of a mask."""
    return origin is not None and origin.op not in FILLS and origin.output.count * RARE < origin.output.numel


def _hidden(call: BackwardCall, op: BadOp) -> BadOp | None:
    """The custom function that gave `op` its bad input: nobody looked at what it gave."""
    bad = next((t for t in op.inputs if t.bad is not None), None)
    if bad is None or bad.bad is None:
        return None
    stack = [r for r in call.nodes if op.first <= r.node.seq <= op.seq]
    for run in stack:  # grows as we go through views
        for edge in run.node.edges:
            child = call.nodes[edge[0]] if edge is not None else None
            if child is None or op.first <= child.node.seq <= op.seq:
                continue
            if child.node.op == "Function.apply":
                name, node = child.name.removesuffix("Backward"), child.node
                return BadOp(node.seq, node.seq, name, node.site, node.module, node.call, bad.bad, ())
            if child.name in VIEW_NODES and len(stack) < 100:
                stack.append(child)
    return None


def _unseen(call: BackwardCall, run: NodeRun, root: Root) -> Finding:
    """The loss is bad, and nothing that was looked at made it so."""
    what = _what(root.bad)
    return Finding(
        kind="nonfinite-forward",
        severity="error",
        title=f"the loss is {what}; the operation that made it so was not seen",
        confidence="possible",
        module=run.module,
        node=run.name,
        tensor="loss",
        step=call.step,
        sites=_sites(("cause", run.site), ("failed", call.site)),
        evidence={"nan": root.bad.nan if root.bad else 0, "seen": False, "op_is_root": True},
        advice="Results inside compiled regions, of tensor subclasses and in other threads are not looked at: run the "
        "script without torch.compile, or check the parts of the loss with torch.isfinite.",
    )


def _told_by_graph(call: BackwardCall, born: Born, root: Root) -> Finding:
    """The loss is bad, nothing that was looked at made it so, and the graph's nodes tell where it began."""
    run = call.nodes[born.node]
    op = run.node.op or run.name
    reached = f"the loss became {_what(root.bad)}"
    given = next((t for t in born.kept if t.bad), None)
    site, tensor, entered = run.site, f"output of {op}", None
    if born.how == "leaf":
        tensor = run.parameter or "a leaf"
        title = f"{tensor} held {born.output} when the forward began, and {reached}"
        advice = "What wrote to it last made it so: the optimizer's step or a gradient before this step."
        users = [r for r in call.nodes if any(edge and edge[0] == born.node for edge in r.node.edges)]
        site = users[-1].site if users else None
    elif born.how == "outside":
        what = f"{given.bad} in its {given.name}" if given else "a tensor that is not finite"
        called = f" ({born.variable})" if born.variable else ""
        title = f"{op} took in {what}, from outside the graph{called}, and {reached}"
        advice = "Look at what goes into this operation before it does: torch.isfinite(t).all() tells."
        if born.likely is not None and born.likely != site:
            title += f"; nobody saw what made it, as the code reads line {born.likely.line} can have"
            site, entered = born.likely, run.site
    else:
        zeros = next((f": its {t.name} holds {t.zeros} zeros" for t in born.kept if t.zeros), "")
        what = str(born.output) if born.output else _what(root.bad)
        title = f"{op} gave {what} in the forward{zeros}, and {reached}"
        advice = (
            "Keep the argument of this operation inside the range where it is finite (clamp it, add an eps under a "
            "root, a log or a division, or compute it in float32)."
        )
    return Finding(
        kind="nonfinite-forward",
        severity="error",
        title=title,
        confidence="certain" if born.sure and entered is None else "likely",
        module=run.module,
        node=run.name,
        tensor=tensor,
        parameters=(run.parameter,) if run.parameter else (),
        step=call.step,
        sites=_sites(("cause", site), ("entered", entered), ("failed", call.site)),
        evidence={
            "op": op,
            "nan": born.output.nan if born.output else root.bad.nan if root.bad else 0,
            "seen": False,
            "kept": {t.name: (str(t.bad) if t.bad else f"{t.zeros} zeros") for t in born.kept if t.bad or t.zeros},
            "op_is_root": root.node == born.node,
        },
        advice=advice,
    )


def _meant(op: BadOp) -> bool:
    """Whether the values look put there on purpose: Inf only, by a fill, or from a tensor that holds Inf already, added
    in or moved."""
    if op.output.nan:
        return False
    masks = [t for t in op.inputs if t.bad is not None]
    passed_on = op.op in MOVES and any(not t.bad.nan for t in masks if t.bad)
    return (
        op.op in FILLS
        or passed_on
        or (op.op.strip("_i") in ("add", "sub") and any(not t.bad.nan for t in masks if t.bad))
    )


def _masked(op: BadOp) -> bool:
    """Whether `op` is one of those that Inf is put into to leave something out."""
    return any(word in op.op for word in ("softmax", "logsumexp", "attention"))


#: What the eye did not look into: views, and nodes made out of its sight.
_UNSEEN = frozenset({*VIEW_OPS, "", "Function.apply"})


def _forward(call: BackwardCall, op: BadOp, begins: bool, reached: str, victim: NodeRun | None = None) -> Finding:
    entered = None
    sure = not (begins and op.guessed)
    # A constant that was put there is data: what counts is where it goes in.
    if begins and op.origin is not None and op.origin.op not in FILLS:
        reached = f"{reached} (it entered the graph in {op.op})"
        entered, op = op, op.origin
    outside = [t for t in op.inputs if t.bad and not t.made] if begins else []
    source = "" if begins else f"; its input held {_held(op)} already, put there on purpose"
    if outside:
        named = ", ".join(t.name or f"an input of shape {list(t.shape)}" for t in outside)
        source = f"; it was already in {named}, which came from outside the graph"
    evidence = {
        "op": op.op,
        "values": str(op.output),
        "nan": op.output.nan,
        "first_elements": [list(i) for i in op.output.first],
        "nonfinite_inputs": [t.name for t in outside],
        "call": op.call,
        "op_is_root": any(r.node is not None and op.first <= call.nodes[r.node].node.seq <= op.seq for r in call.roots),
    }
    if victim is not None:
        evidence["first_bad_gradient"] = victim.name
    return Finding(
        kind="nonfinite-forward",
        severity="error",
        title=f"{op.op} gave {op.output} {'outside the graph' if entered else 'in the forward'}, and {reached}{source}",
        confidence="certain" if sure else "likely",
        module=op.module,
        tensor=outside[0].name if outside and outside[0].name else f"output of {op.op}",
        step=call.step,
        sites=_sites(("cause", op.site), ("entered", entered.site if entered else None), ("failed", call.site)),
        evidence=evidence,
        advice=(
            f"Look at {' and '.join(t.name or 'that input' for t in outside)} before the model sees it: "
            "torch.isfinite(t).all() tells."
            if outside
            else "A row in which everything is masked has nothing left to normalise: 0/0. Let each row keep at least "
            "one element, or fill with a large finite number (torch.finfo(x.dtype).min)."
            if not begins and "softmax" in op.op
            else "Keep the argument of this operation inside the range where it is finite (clamp it, add an eps under "
            "a root, a log or a division, or compute it in float32)."
        ),
    )


def _held(op: BadOp) -> str:
    return next((str(t.bad) for t in op.inputs if t.bad), "Inf")


INFERRED = "nodes were not looked at in this step; it follows from which parameters got a bad gradient"


def _backward(call: BackwardCall, first: BadNode, run: NodeRun, origin: BadOp | None, region: Inside | None) -> Finding:
    bad_saved = [t for t in first.saved if t.bad]
    zero_saved = [t for t in first.saved if t.zeros]
    parameters = tuple(
        dict.fromkeys(
            r.parameter
            for r in call.nodes
            if r.parameter is not None and any(g and g.norm is not None and g.norm - g.norm for g in r.grad_outputs)
        )
    )
    if region is not None and region.how == "read":
        how = "it is in a compiled region, of which its derivative is the one that is not finite everywhere"
    elif bad_saved and first.zero_incoming:
        how = f"a gradient of zero met a non-finite {bad_saved[0].name}: 0 times {_what(bad_saved[0].bad)} is NaN"
    elif bad_saved:
        how = f"its saved {bad_saved[0].name} was not finite"
    elif zero_saved:
        how = f"its saved {zero_saved[0].name} holds zeros, where the derivative is not finite"
    elif first.inferred:
        how = "of the nodes before the bad gradients and no others, it is the one that can have"
    else:
        how = "its derivative is not finite for the values that it had kept"
    outside = [t.name for t in origin.inputs if t.bad] if origin is not None else []
    op, site, module, second = run.node.op or run.name, run.site, run.module, None
    if first.of is not None and first.of.site is not None:
        op, site, module, second = f"the derivative of {first.of.op}", first.of.site, first.of.module, run.site
    sure = not first.inferred
    if region is not None:
        op, site, second, sure = region.op, region.site, run.site, region.sure
        module = region.module if region.how == "backward" else module
    return Finding(
        kind="nonfinite-backward",
        severity="error",
        title=f"the backward of {op} made {first.values} from finite gradients: {how}",
        confidence="certain" if sure else "likely",
        module=module,
        node=run.name,
        tensor=f"gradient {first.output} of {run.name}",
        parameters=parameters,
        step=call.step,
        sites=_sites(("cause", site), ("region" if region is not None else "derived", second), ("failed", call.site)),
        evidence={
            "values": str(first.values),
            "nan": first.values.nan,
            "first_elements": [list(i) for i in first.values.first],
            "incoming_zeros": first.zero_incoming,
            "saved": {t.name: (str(t.bad) if t.bad else f"{t.zeros} zeros") for t in first.saved if t.bad or t.zeros},
            "nonfinite_inputs": [n for n in outside if n],
            **({"inferred": INFERRED} if first.inferred else {}),
        },
        advice=(
            "A mask or torch.where after the operation does not keep its backward finite: the masked elements get a "
            "gradient of zero, and zero times Inf or NaN is NaN. Make the operation's input safe first, for the "
            "masked elements too (torch.where(mask, x, safe) before it)."
            if first.zero_incoming and (bad_saved or zero_saved)
            else "Keep the operation's input away from the point where its derivative is not finite: add an eps, clamp."
        ),
    )


def _sites(*pairs: tuple[str, object]) -> tuple[FindingSite, ...]:
    return tuple(FindingSite(role, site) for role, site in pairs if site is not None)  # type: ignore[arg-type]
