"""The rule for parameters whose gradient is exactly zero in every backward call; it names the op that makes the
zeros.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.text import few
from ...basics.torch_texts import COMPILED
from ...ops import OpInfo, info
from ...records import BackwardCall, Finding, Inside, NodeRun, Parameter, ReversedStep, Site, UndetachedStep
from ...traces.steps import numbers_of
from ..relations.end_of_run import OWN_FUNCTION, feeders, last_recorded, latest_recorded, learned
from ..relations.module_backward import without_own_backward
from ..rules import GRADIENTS_INVALID, LEARNING, Kind, Question, rule, sites_of
from .rounding import rounding, single_values
from .samples import AttachedSample, attached_sample

if TYPE_CHECKING:
    from ...traces import Trace

_Key = tuple[str, "Site | None", "str | None"]

#: The most calls to go back in search of the one in which a parameter's gradient became zero.
MAX_CALLS_BACK = 1000
#: What to do about a sample whose graph makes gradients cancel, by whether ``rsample()`` drew it.
_SAMPLE_ADVICE = {
    True: "Draw with sample(), or give sample.detach() to log_prob(): the score of a sample is trained with the sample "
    "fixed. rsample() is for losses that use the sample itself.",
    False: "Detach the sum before the subtraction, as for a sample whose log-probability is trained: only then does "
    "the difference depend on what was added.",
}


@rule(
    Kind(
        "zero-grad",
        "warning",
        "parameters got exact zeros in every backward call",
        rank=LEARNING + 30,
        questions=(Question.NOT_LEARNING,),
        points_to="the operation whose derivative is zero",
    ),
    silenced_by=(GRADIENTS_INVALID,),
)
def zero_grads(trace: Trace) -> list[Finding]:
    """Report parameters whose gradients are exactly zero, one finding for each operation that makes the zeros.

    Leaves out findings in the forward of a module with its own `backward`, which `backward-never-called` explains.
    """
    return without_own_backward(trace, _zero_grads(trace))


def _zero_grads(trace: Trace) -> list[Finding]:
    """Return one finding for each operation whose backward returns zeros to parameters that never had another gradient.

    A weight of zero stops the gradient too, but only until it is trained itself (low-rank adapters, zero-initialised
    gates): it counts only after three steps of zeros.
    """
    dead = {p.name for p in trace.parameters if p.requires_grad and p.reached and not p.alive and all(p.shape)}
    constant = single_values(trace)
    dead.difference_update(*(found.parameters for found in constant))
    if not dead:
        return constant or rounding(trace) or _died(trace)
    young = sum(1 for _ in trace.backwards) < 3
    groups: dict[_Key, tuple[NodeRun, set[str], BackwardCall]] = {}
    inside = [one for one in trace.facts.of(Inside) if one.how == "zero"]
    for call in trace.backwards:
        for name, run, passing in _killers(call, dead):
            if passing and young:
                continue
            run = _in_region(run, call, inside)
            key = (run.name, run.site, run.module)
            if key not in groups:
                groups[key] = (run, set(), call)
            groups[key][1].add(name)
        if groups:
            break  # the first call that shows it; the others repeat it
    _merge_starved(groups)
    _merge_lines(groups)
    # One op may precede another: parameters that the first explains are not reported again.
    found = constant
    explained: set[str] = set()
    place = {p.name: at for at, p in enumerate(trace.parameters)}
    for run, names, call in sorted(groups.values(), key=lambda g: -len(g[1])):
        if names <= explained:
            continue
        explained |= names
        ordered = sorted(names, key=place.__getitem__)
        through = _straight_through_step(trace, run)
        found.append(_finding(run, ordered, call, _zero_weights(trace, ordered, call), through))
    return found


def _straight_through_step(trace: Trace, run: NodeRun) -> UndetachedStep | ReversedStep | None:
    """Return the straight-through step that gives the gradient to a step function, if `run` is that function's.

    It is written the wrong way round, or is in the same function and detaches nothing.
    """
    at = run.site
    if at is None or not info(run.name).zero_derivative:
        return None
    wrong_way = next((one for one in trace.facts.of(ReversedStep) if one.rounded == at), None)
    if wrong_way is not None:
        return wrong_way
    steps = trace.facts.of(UndetachedStep)
    return next((one for one in steps if (one.site.file, one.site.function) == (at.file, at.function)), None)


def _died(trace: Trace) -> list[Finding]:
    """Return findings for parameters that learned, and got exact zeros in all of the last calls.

    Either some did while others went on learning, because of an operation that is flat at its input or of a custom
    function's backward. Or all of them did although the loss is not zero: in nearly all of the last calls, or in half
    of them and in none at the start. A factor of zero and a loss that reached its target are taken as intended; a loss
    of zero in all of the last calls because everything is masked out is not.
    """
    alive = {p.name for p in learned(trace)}
    empty = _last_empty(trace, alive)
    steps = empty or last_recorded(trace, 2 * thresholds.NO_LEARNING_LAST_STEPS)
    if not steps:
        return []
    late = [c for calls in steps for c in calls]
    calls = [c for calls in steps[-thresholds.NO_LEARNING_LAST_STEPS :] for c in calls]
    whole = [c for c in late if _all_zero(c, alive)]
    share = len(whole) / len(late)
    may_die = _may_die
    if empty and not _at_first(trace, alive, late[0].index, _empty, thresholds.ZERO_GRAD_MIN_FIRST_CALLS):
        dead: set[str] | None = set(_norms(late[-1], alive))
        calls, may_die = late[-1:], _leaves_out
    elif share >= thresholds.ZERO_GRAD_NEARLY_ALL_SHARE or (
        share > thresholds.ZERO_GRAD_HALF_SHARE and not _at_first(trace, alive, late[0].index, _all_zero)
    ):
        dead = set(_norms(whole[-1], alive))
        calls = whole[-1:]
    else:
        dead = None
        for call in calls:
            norms = _norms(call, alive)
            zeros = {name for name, norm in norms.items() if norm == 0}
            dead = zeros if dead is None else dead & zeros
            if not dead or len(zeros) == len(norms):
                return []
    groups: dict[_Key, tuple[NodeRun, set[str], BackwardCall]] = {}
    rest, inside = set(dead or ()), [one for one in trace.facts.of(Inside) if one.how == "zero"]
    # Parameters that died first are not attributed to what killed all others.
    for call, names in _died_in(trace, rest):
        for name, run, _ in _killers(call, names):
            run = _in_region(run, call, inside)
            if may_die(run) or _scores_own_sample(run, call):
                groups.setdefault((run.name, run.site, run.module), (run, set(), call))[1].add(name)
                rest.discard(name)
        if groups:
            break
    for name, run, _ in _killers(calls[0], rest):
        if may_die(run) or _scores_own_sample(run, calls[0]):
            groups.setdefault((run.name, run.site, run.module), (run, set(), calls[0]))[1].add(name)
    _merge_lines(groups)
    return [
        replace(
            found,
            title=f"{found.title}, though they did before",
            confidence="likely",
            evidence={**found.evidence, "learned_before": True},
        )
        for run, names, call in groups.values()
        for factors in [_zero_factors(trace, run, call, names)]
        if factors or not _has_zero_factors(run)
        for found in [_finding(run, sorted(names), call, factors, _straight_through_step(trace, run), died=True)]
    ]


def _in_region(run: NodeRun, call: BackwardCall, inside: Sequence[Inside]) -> NodeRun:
    """Return `run` with the operation that produced the zeros, if it is a compiled region that was executed again."""
    here = (one for one in inside if one.node == run.node.index and one.backward >= call.index)
    region = next(here, None) if run.name.startswith(COMPILED) else None
    if region is None:
        return run
    return replace(run, node=replace(run.node, op=region.op, site=region.site, module=region.module))


def _may_die(run: NodeRun) -> bool:
    """Return whether the derivative of the node may become zero for some inputs."""
    operator = _operator_of(run)
    may = operator.has_flat_parts or operator.zero_derivative or operator.casts
    return may or run.node.op == OWN_FUNCTION or _has_zero_factors(run)


def _scores_own_sample(run: NodeRun, call: BackwardCall) -> bool:
    """Return whether gradients cancel around the node because of a sample of ``rsample()`` that keeps its graph."""
    sample = attached_sample(run, call) if _cancels(run) else None
    return sample is not None and sample.by_rsample


def _has_zero_factors(run: NodeRun) -> bool:
    """Return whether the node is a product of two matrices that are both zero: each has the other as its gradient.

    A matrix that is zero alone gets a gradient, and passes on none until it has moved. Elementwise products are left
    out: the square of a penalty is zero where the penalty is met.
    """
    operator = info(run.name)
    if not (operator.adds_terms and operator.amplifies):
        return False
    given = [
        (edge, grad)
        for k, (edge, grad) in enumerate(zip(run.node.edges, run.grad_inputs, strict=False))
        if edge is not None and k not in (operator.added_inputs or ())
    ]
    return len({edge for edge, _ in given}) > 1 and all(grad is not None and grad.norm == 0 for _, grad in given)


def _zero_factors(trace: Trace, run: NodeRun, call: BackwardCall, names: set[str]) -> list[Parameter]:
    """Return the parameters of `names`, if one of them is a factor of a product whose factors are both zero."""
    leaves = (_leaf_of(edge[0], call) for edge in run.node.edges if edge is not None)
    if not _has_zero_factors(run) or not any(leaf in names for leaf in leaves):
        return []
    return [parameter for parameter in trace.parameters if parameter.name in names]


def _leaf_of(index: int, call: BackwardCall) -> str | None:
    """Return the parameter of a node, or of a node of which it is a view; ``None`` if there is none."""
    run = call.nodes[index]
    while info(run.name).reshapes and run.node.edges and run.node.edges[0] is not None:
        run = call.nodes[run.node.edges[0][0]]
    return run.parameter


def _operator_of(run: NodeRun) -> OpInfo:
    """Return the operator of a node; for a compiled region the operator in it, if known."""
    return info((run.node.op or "") if run.name.startswith(COMPILED) else run.name)


def _leaves_out(run: NodeRun) -> bool:
    """Return whether the node's operation drops inputs, such as by a mask: they get zeros as their gradient."""
    return info(run.name).drops_inputs


def _last_empty(trace: Trace, names: set[str]) -> list[list[BackwardCall]]:
    """Return the calls of the last recorded steps in all of which a loss of zero gave no gradient; empty otherwise.

    The loss must be zero in all other steps since the first of them too. The losses of steps that are not recorded are
    known, so fewer recorded steps suffice.
    """
    latest = latest_recorded(trace, 2 * thresholds.NO_LEARNING_LAST_STEPS)
    empty = [*takewhile(lambda calls: all(_empty(call, names) for call in calls), latest)][::-1]
    if len(empty) < thresholds.ZERO_LOSS_MIN_RECORDED_STEPS:
        return []
    rows = [*trace.step_rows(bisect_left(numbers_of(trace.steps), empty[0][0].step))]
    return empty if len(rows) >= 2 * thresholds.NO_LEARNING_LAST_STEPS and all(row.loss == 0 for row in rows) else []


def _died_in(trace: Trace, names: set[str]) -> list[tuple[BackwardCall, set[str]]]:
    """Return, by call and in order, those of `names` whose gradient is zero in it and in all later calls,
    not before.
    """
    rest, since = set(names), dict[str, BackwardCall]()
    calls = (c for step in reversed(trace.steps) for c in reversed(step.backwards) if c.inside is None and len(c.nodes))
    for call in islice(calls, MAX_CALLS_BACK):
        for name, norm in _norms(call, rest).items():
            if norm == 0:
                since[name] = call
            else:
                rest.discard(name)
        if not rest:
            break
    died: dict[int, tuple[BackwardCall, set[str]]] = {}
    for name, call in since.items():
        died.setdefault(call.index, (call, set()))[1].add(name)
    return [died[index] for index in sorted(died)]


def _all_zero(call: BackwardCall, names: set[str]) -> bool:
    """Return whether a non-zero loss gave all parameters `names` gradients of zero."""
    return all(root.value for root in call.roots) and not any(_norms(call, names).values())


def _empty(call: BackwardCall, names: set[str]) -> bool:
    """Return whether a loss of zero gave all parameters `names` gradients of zero."""
    return _is_zero(call) and not any(_norms(call, names).values())


def _is_zero(call: BackwardCall) -> bool:
    """Return whether the loss of a call is zero."""
    return bool(call.roots) and all(root.value == 0 for root in call.roots)


def _at_first(
    trace: Trace,
    names: set[str],
    before: int,
    so: Callable[[BackwardCall, set[str]], bool],
    count: int = 2 * thresholds.NO_LEARNING_LAST_STEPS,
) -> bool:
    """Return whether `so` held in one of the first recorded calls; also true if too few calls are known to say.

    :param before: the index of the call before which they must be.
    """
    calls = (c for c in trace.backwards if c.inside is None and len(c.nodes) and c.index < before)
    first = [*islice(calls, count)]
    return len(first) < thresholds.ZERO_GRAD_MIN_FIRST_CALLS or any(so(c, names) for c in first)


def _norms(call: BackwardCall, names: set[str]) -> dict[str, float | None]:
    """Return the norms of the gradients of the parameters `names` in a call; those that got none are left out."""
    return {str(r.parameter): g.norm for r in call.nodes if r.parameter in names for g in r.grad_outputs[:1] if g}


def _merge_starved(groups: dict[_Key, tuple[NodeRun, set[str], BackwardCall]]) -> None:
    """Merge layers that get only zeros in the forward into the operation that produced these, in place.

    The gradient of such a layer's weight is zero too.
    """
    makers = {run.node.index: key for key, (run, _, _) in groups.items()}
    for key, (run, names, call) in list(groups.items()):
        for edge in run.node.edges:
            while edge is not None and info(call.nodes[edge[0]].name).reshapes:
                edge = call.nodes[edge[0]].node.edges[0]
            maker = makers.get(edge[0]) if edge is not None else None
            if maker is not None and maker != key and key in groups:
                groups[maker][1].update(names)
                del groups[key]


def _merge_lines(groups: dict[_Key, tuple[NodeRun, set[str], BackwardCall]]) -> None:
    """Merge groups of one operation and line in several modules, as in the layers of a model, in place: it is one
    cause.
    """
    first: dict[tuple[str, Site], _Key] = {}
    for key in list(groups):
        name, site, _ = key
        if site is not None and first.setdefault((name, site), key) != key:
            groups[first[name, site]][1].update(groups.pop(key)[1])


def _zero_weights(trace: Trace, names: Sequence[str], call: BackwardCall) -> list[Parameter]:
    """Return the parameters of `names`, several, if all of them consist of zeros; empty if not, or if not known.

    Where each is a factor of the other's gradient, as with the two factors of a low-rank adapter, none ever learns.
    """
    at = bisect_left(numbers_of(trace.steps), call.step)
    stats = trace.steps[at].parameters if at < len(trace.steps) else {}
    if len(names) < 2 or not all(name in stats and stats[name].weight == 0 for name in names):
        return []
    return [parameter for parameter in trace.parameters if parameter.name in names]


def _killers(call: BackwardCall, dead: set[str]) -> list[tuple[str, NodeRun, bool]]:
    """Return (parameter, node, passed) for nodes that got a gradient and returned zeros on the path to a parameter of
    `dead`.

    ``passed`` is whether the node passed a gradient on to a leaf. If the outputs of several nodes add up to zero, the
    node is the one of them that ran first.
    """
    into = feeders(call)
    found = []
    for run in call.nodes:
        if run.parameter not in dead or run.order is None:  # ``autograd.grad`` was not asked for it: this is no zero.
            continue
        stack, seen = [run.node.index], {run.node.index}
        while stack:
            index = stack.pop()
            at, giving = call.nodes[index], []
            for above, k in into.get(index, ()):
                node = call.nodes[above]
                if k < len(node.grad_inputs) and (part := node.grad_inputs[k]) is not None and part.norm:
                    giving.append(node)
                if above in seen:
                    continue
                seen.add(above)
                came = [g.norm for g in node.grad_outputs if g is not None and g.norm is not None]
                gave = node.grad_inputs[k] if k < len(node.grad_inputs) else None
                if any(c > 0 for c in came):
                    if gave is not None and gave.norm == 0 and _adds(node, k):
                        # The sum of the incoming gradient is zero: the loss does not depend on a constant that is
                        # added.
                        continue
                    if gave is None or gave.norm == 0:
                        found.append((str(run.parameter), node, _feeds_leaf(call, node)))
                else:
                    stack.append(above)
            if len(giving) > 1 and at is not run and all(g is not None and g.norm == 0 for g in at.grad_outputs):
                found.append((str(run.parameter), min(giving, key=lambda one: one.order or 0), False))
    return found


def _cancels(run: NodeRun) -> bool:
    """Return whether the node returned only non-zero gradients, so that zeros arise where they meet those of other
    nodes.
    """
    given = [g for edge, g in zip(run.node.edges, run.grad_inputs, strict=False) if edge is not None]
    return bool(given) and all(g is not None and g.norm for g in given)


def _compares(run: NodeRun, call: BackwardCall) -> bool:
    """Return whether the node is a difference of two results that share only leaves, or of one result with itself.

    If the two are equal, as in a loss of identical pairs, the gradients of both sides cancel.
    """
    sides = [edge[0] for edge in run.node.edges if edge is not None]
    if not run.name.startswith("SubBackward") or len(sides) != 2:
        return False
    one, other = (_before(side, call) for side in sides)
    return sides[0] == sides[1] or not one & other


def _before(index: int, call: BackwardCall) -> set[int]:
    """Return node `index` and its ancestors in the forward, without leaves and views of leaves."""
    found, stack = {index}, [index]
    while stack:
        for edge in call.nodes[stack.pop()].node.edges:
            if edge is not None and edge[0] not in found and not _is_of_leaf(edge[0], call):
                found.add(edge[0])
                stack.append(edge[0])
    return found


def _is_of_leaf(index: int, call: BackwardCall) -> bool:
    """Return whether a node belongs to a leaf, or to a view of one."""
    node = call.nodes[index].node
    while info(node.name).reshapes and node.edges and node.edges[0] is not None:
        node = call.nodes[node.edges[0][0]].node
    return not node.edges


def _adds(run: NodeRun, k: int) -> bool:
    """Return whether input `k` of the node is added to another: its gradient is a sum of the incoming ones."""
    operator = info(run.name)
    return operator.is_elementwise_sum or k in (operator.added_inputs or ())


def _feeds_leaf(call: BackwardCall, run: NodeRun) -> bool:
    """Return whether a node passed a non-zero gradient to a parameter, directly or through nodes with one input."""
    for k, edge in enumerate(run.node.edges):
        stat = run.grad_inputs[k] if k < len(run.grad_inputs) else None
        if edge is None or stat is None or not stat.norm:
            continue
        child = call.nodes[edge[0]]
        while child.parameter is None and len(child.node.edges) == 1 and child.node.edges[0] is not None:
            child = call.nodes[child.node.edges[0][0]]
        if child.parameter is not None:
            return True
    return False


def _through(sample: AttachedSample, op: str) -> str:
    """Return in words what cancels around the operation `op`, into which a sample with its graph goes."""
    if sample.by_rsample:
        return "a sample of rsample() is used with its graph, so that what goes back through it and around it"
    return f"{op} subtracts what was added just before, with a graph on both sides, and what goes back through them"


def _finding(
    run: NodeRun,
    names: list[str],
    call: BackwardCall,
    zeros: Sequence[Parameter] = (),
    through: UndetachedStep | ReversedStep | None = None,
    died: bool = False,
) -> Finding:
    """Return the finding for a node that turns gradients into zeros, or around which they cancel.

    :param zeros: the parameters, if all of them are zero themselves.
    :param through: the straight-through step that gives the gradient to it.
    :param died: they learned before.
    """
    op = run.node.op or run.name
    operator, cancels = info(run.name), _cancels(run)
    flat, rounds = operator.zero_derivative and not operator.is_fill, operator.casts
    # A bias that both sides have alone cancels too, whatever they are: all parameters have to.
    compares = cancels and _compares(run, call) and {r.parameter for r in call.nodes if r.parameter} <= set(names)
    sample = attached_sample(run, call) if cancels and not compares else None
    why = "its derivative was zero for everything that it got"
    if flat:
        why = "its derivative is zero wherever it exists"
    elif rounds:
        why = "they are too small for the dtype that it came from"
    elif _is_zero(call) and _leaves_out(run):
        why = "a factor of zero or a mask leaves out everything that it got"
    came = next((g.norm for g in run.grad_outputs if g is not None and g.norm), None)
    defined = dict.fromkeys(parameter.defined for parameter in zeros)
    wrong_way = isinstance(through, ReversedStep)
    if wrong_way and flat:
        why = f"the straight-through step is the wrong way round, and gives them all to {op}"
    elif through is not None and flat:
        why += ", and the straight-through step detaches nothing"
    drawn = sample.site if sample is not None and sample.site != run.site else None
    cuts = ("cut", drawn), ("cut", through.site if through is not None and flat else None), ("cut", run.site)
    sites = sites_of(*cuts, *(("defined", site) for site in defined), ("failed", call.site))
    return Finding(
        kind="zero-grad",
        severity="warning",
        title=f"both factors of {op} are zero, and each is a factor of the other's gradient: {few(names)} never learn"
        if zeros and died
        else f"{few(names)} are all zero, and each is a factor of the other's gradient in {op}: they never learn"
        if zeros
        else f"what goes back through the two sides of a difference in {op} cancels exactly, as it does if they are "
        f"equal: {few(names)} never learn"
        if compares
        else f"{_through(sample, op)} adds up to exactly zero: {few(names)} never learn"
        if sample is not None
        else f"what goes back through {op} and around it adds up to exactly zero (its result does not depend on what "
        f"it is given): {few(names)} never learn"
        if cancels
        else f"the backward of {op} turns every gradient into zero ({why}): {few(names)} never learn",
        confidence="certain",
        module=run.module,
        node=run.name,
        parameters=tuple(names),
        step=call.step,
        sites=sites,
        evidence={"op": op, "incoming_norm": came, "always_flat": flat},
        advice=(
            "Something has set both factors to zero since: set one of them to random values there, as LoRA does with A."
            if zeros and died
            else "Initialise one of the factors with random values; LoRA starts with random A and zero B."
            if zeros
            else f"Write x + (y - x).detach(), where y is the result of {op}. Then the forward uses y, and the "
            "gradient goes to x."
            if wrong_way and flat
            else "Detach the difference, x + (y - x).detach(): only then does the gradient go to x, around the step "
            "function."
            if through is not None and flat
            else "A step function has no slope to learn from: use a soft version of it (a sigmoid or tanh with a "
            "temperature), or a straight-through estimator."
            if flat
            else "Nothing can be learned from comparing an example with itself: look at how pairs are drawn "
            "(an index that repeats, a positive or a negative that is the anchor itself)."
            if compares
            else _SAMPLE_ADVICE[sample.by_rsample]
            if sample is not None
            else "Over a single element a mean is that element, and a sum is too: subtract or divide over a dimension "
            "that has several, or leave the normalisation out."
            if cancels
            else "Scale the loss up before the backward (torch.amp.GradScaler, with a scale that is large enough), or "
            "keep this part in bfloat16 or float32."
            if rounds
            else "Look at what goes into this operation: a clamp or relu with every value outside its range, a factor "
            "or a weight of zero, a mask that covers everything."
        ),
    )
