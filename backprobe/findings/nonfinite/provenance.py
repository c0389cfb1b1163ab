"""Finds where a chain of non-finite forward results began, from the results of a recorded forward.

If the forward was not recorded, ``observe/backward/nonfinite_origin.py`` locates the op from the graph alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import partial

from ... import thresholds
from ...ops import info
from ...records import BackwardCall, BadOp, BadValues, Node, NodeRun

#: The most bad results in a chain that are checked for an origin of their own.
MAX_BAD_RESULTS = 20
_AtNode = Callable[[int], BadOp | None]
#: Names of what made nodes out of the sight of the function mode.
_UNSEEN = frozenset(("", "Function.apply"))


def nodes_of(call: BackwardCall, op: BadOp) -> list[NodeRun]:
    """Return the nodes that an operation of the forward made: those between its first and last sequence number."""
    return [run for run in call.nodes if op.first <= run.node.seq <= op.seq]


def origin_of(call: BackwardCall, start: int, ops: tuple[BadOp, ...]) -> tuple[BadOp, bool] | None:
    """Return the operation where the chain of bad results that ends at node `start` began, and whether its inputs were
    finite.

    ``None`` if no recorded bad result leads there. A deliberate Inf (a mask) is the origin only if no NaN comes after
    it.

    :param ops: the operations of this forward with a bad result.
    """
    chain, at_node = _chain(call, start, ops)
    if not chain:
        return None
    ordered = [chain[seq] for seq in sorted(chain)]
    hidden = _hidden(call, ordered[0])
    if hidden is not None:
        return hidden, True
    for i, op in enumerate(ordered):
        nan = next((later for later in ordered[i + 1 :] if later.output.nan), None)
        masks = nan is not None and (meant(op) or _adds_mask(call, op, nan))
        if nan is None or not masks or (op.origin is not None and not _masked(nan)):
            return (i == 0 and _hidden_by_softmax(call, op, at_node)) or op, i == 0
    return ordered[0], True


def others_of(call: BackwardCall, start: int, ops: tuple[BadOp, ...], main: BadOp) -> list[BadOp]:
    """Return bad results in the chain that ends at node `start` that are independent of `main`, at other lines.

    They were computed from finite values, or from a value that another operation outside the graph made bad.
    """
    chain, at_node = _chain(call, start, ops)
    lines, found = {made_in(main).site}, []
    for op in [chain[seq] for seq in sorted(chain)][:MAX_BAD_RESULTS]:
        made = made_in(op)
        if op is main or made.site in lines or info(made.op).is_fill or meant(op):
            continue
        given = any(t.bad for t in op.inputs)
        alone = (
            given or not op.guessed
            if made is not op
            else not (given or info(op.op).makes_no_nan or info(op.op).passes_on)
        )
        hidden = _hidden_by_softmax(call, op, at_node) is not None  # of an Inf that is reported already
        if alone and not hidden and not _given_by(call, op, chain, at_node):
            lines.add(made.site)
            found.append(op)
    return found


def made_in(op: BadOp) -> BadOp:
    """Return the operation outside the graph that produced the input of `op`, or else `op` itself."""
    return op.origin if op.origin is not None and not info(op.origin.op).is_fill else op


def when_made(op: BadOp) -> tuple[int, bool, int]:
    """Sort key of bad results: the order in which they were made, also outside the graph."""
    made = made_in(op)
    return made.first, made.seq >= made.first, made.order


def _given_by(call: BackwardCall, op: BadOp, chain: dict[int, BadOp], at_node: _AtNode) -> bool:
    """Return whether `op` took in a bad result of another operation of `chain`, directly or through
    uninspected nodes.
    """
    stack = nodes_of(call, op)
    seen = {run.node.index for run in stack}
    for run in stack:  # grows as we go
        for edge in run.node.edges:
            if edge is None or edge[0] in seen:
                continue
            seen.add(edge[0])
            above = call.nodes[edge[0]]
            before = at_node(above.node.seq)
            if before is not None and before is not op and before.seq in chain:
                return True
            if before is None and _passed(above.node):
                stack.append(above)
    return False


def _chain(call: BackwardCall, start: int, ops: tuple[BadOp, ...]) -> tuple[dict[int, BadOp], _AtNode]:
    """Return the bad results that lead to node `start`, by their last node; and a function from node to bad operation.

    The search follows the graph towards the leaves and passes nodes whose results were not inspected.
    """
    begins = [op.first for op in ops]
    at_node = partial(_op_of, ops, begins)
    chain: dict[int, BadOp] = {}
    seen = {start}
    #: Nodes, and whether the path went through an uninspected function that may turn an Inf into a finite value.
    stack = [(start, False)]
    while stack:
        index, ends_inf = stack.pop()
        node = call.nodes[index].node
        op = at_node(node.seq)
        if op is not None and ends_inf and not op.output.nan:
            continue
        if op is not None:
            chain[op.seq] = op
        elif node.index != start and not _passed(node):
            continue  # its result was inspected, and finite
        for edge in node.edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                stack.append((edge[0], op is None and (ends_inf or info(node.op or "").saturates)))
    return chain, at_node


def _passed(node: Node) -> bool:
    """Return whether the result of `node` was not inspected, so that a bad value may have gone through it."""
    made_by = info(node.op or "")
    return node.op in _UNSEEN or made_by.is_unlooked_view or made_by.is_bounded or info(node.name).reshapes


def _op_of(ops: tuple[BadOp, ...], begins: list[int], seq: int) -> BadOp | None:
    """Return the operation of `ops` that created the node with sequence number `seq`; ``None`` if none did.

    :param begins: the first sequence number of each operation, in ascending order.
    """
    at = bisect_right(begins, seq) - 1
    return ops[at] if at >= 0 and ops[at].seq >= seq else None


def _hidden_by_softmax(call: BackwardCall, op: BadOp, at_node: _AtNode) -> BadOp | None:
    """Return an operation that brought in an Inf which a softmax or exp turned into zero, before `op` took the
    logarithm.

    The Inf was computed outside the graph and is no mask. ``None`` if `op` is no logarithm or there is no such Inf.
    """
    if not op.op.startswith("log") or any(t.bad for t in op.inputs):
        return None
    stack = [(r, False) for r in call.nodes if op.first <= r.node.seq <= op.seq]
    for run, zeros in stack:  # grows as we go
        for edge in run.node.edges if len(stack) < 100 else ():
            above = call.nodes[edge[0]] if edge is not None else run
            before = at_node(above.node.seq)
            if zeros and before is not None and _is_sparse(before.origin):
                return before
            ends = any(word in above.name for word in ("Softmax", "Exp", "Sigmoid"))
            if above is not run and (ends or zeros or info(above.name).reshapes):
                stack.append((above, zeros or ends))
    return None


def _is_sparse(origin: BadOp | None) -> bool:
    """Return whether only a few of many values were non-finite, as by chance and not from a mask."""
    if origin is None or info(origin.op).is_fill:
        return False
    return origin.output.count * thresholds.NONFINITE_MASK_RARITY < origin.output.numel


def _hidden(call: BackwardCall, op: BadOp) -> BadOp | None:
    """Return the custom function that gave `op` its bad input, as an operation of its own; ``None`` if none did.

    The outputs of custom functions are not inspected.
    """
    bad = next((t for t in op.inputs if t.bad is not None), None)
    if bad is None or bad.bad is None:
        return None
    stack = nodes_of(call, op)
    for run in stack:  # grows as we go through views
        for edge in run.node.edges:
            child = call.nodes[edge[0]] if edge is not None else None
            if child is None or op.first <= child.node.seq <= op.seq:
                continue
            if child.node.op == "Function.apply":
                name, node = child.name.removesuffix("Backward"), child.node
                return BadOp(node.seq, node.seq, name, node.site, node.module, node.call, bad.bad, ())
            if info(child.name).reshapes and len(stack) < 100:
                stack.append(child)
    return None


def meant(op: BadOp) -> bool:
    """Return whether a bad result looks deliberate: Inf alone, from a fill, or moved or added from a tensor that held
    Inf.
    """
    if op.output.nan:
        return False
    masks = [t for t in op.inputs if t.bad is not None]
    passed_on = info(op.op).passes_on and any(not t.bad.nan for t in masks if t.bad)
    return (
        info(op.op).is_fill
        or passed_on
        or (info(op.op).is_elementwise_sum and any(not t.bad.nan for t in masks if t.bad) and _fills_a_row(op.output))
    )


def _fills_a_row(values: BadValues) -> bool:
    """Return whether as many elements are non-finite as a row has: fewer mask no row, and are an accident."""
    return not values.shape or values.count >= values.shape[-1]


def _adds_mask(call: BackwardCall, op: BadOp, later: BadOp) -> bool:
    """Return whether `op` added a mask: a constant whose values were not inspected.

    That is assumed if the sum has Inf in as many elements as a row has, and no NaN, and `later`, a softmax, made NaN of
    it. It is not assumed in float16, where a sum overflows, nor if an operation is known that computed the Inf.
    """
    if op.output.nan or op.inputs or not info(op.op).is_elementwise_sum or not _masked(later):
        return False
    if not _fills_a_row(op.output) or (op.origin is not None and not _is_placed(op.origin)):
        return False
    runs = nodes_of(call, op)
    return any(None in run.node.edges for run in runs) and not any(is_half(run) for run in runs)


def _is_placed(origin: BadOp) -> bool:
    """Return whether an Inf outside the graph was filled in or moved, and not computed."""
    return info(origin.op).is_fill or info(origin.op).passes_on


def is_half(run: NodeRun) -> bool:
    """Return whether a gradient that the node received or returned is in float16."""
    return any(grad is not None and grad.dtype == "float16" for grad in (*run.grad_outputs, *run.grad_inputs))


def _masked(op: BadOp) -> bool:
    """Return whether `op` is an operation whose input is masked with Inf."""
    return any(word in op.op for word in ("softmax", "logsumexp", "attention"))
