"""Re-executes a compiled region eagerly, op by op, on its recorded inputs, to find where values become non-finite.

It runs on a separate thread without the script's modes, hooks or node sequence numbers, under the region's autocast
settings, on copies, from the random state at the start of the region. The script's random state is restored afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.fx import Interpreter
from torch.utils._pytree import tree_leaves

from ..ops import info
from ..records.values import BadValues, TensorStat
from .compiled_graphs import RegionCall, random_state, restore_random_state
from .compiled_regions import backward_as_it_is
from .measure import bad_values, stat_of
from .saved_by_nodes import saved_tensors
from .thread_state import put_autocast

#: Internal functions of Dynamo -> the name that the user wrote.
_USER_NAMES = {"_get_data_attr": "data"}


@dataclass
class NonFiniteNode:
    """A node of the graph that produced non-finite values."""

    node: torch.fx.Node
    values: BadValues
    inputs: tuple[TensorStat, ...]
    #: Whether some input was NaN; whether some input was not finite.
    has_nan_input: bool
    has_nonfinite_input: bool
    producers: list[NonFiniteNode] = field(default_factory=list)

    @property
    def fills_mask(self) -> bool:
        """Return whether an Inf in the result is a mask: the op fills in a constant or a Python number."""
        operator = info(name_of(self.node))
        return operator.is_fill or operator.takes_python_values


@dataclass(frozen=True)
class NonFiniteOrigin:
    """The node at which values became non-finite, in its backward (``backward``) or the forward.

    ``tensors``: statistics of the node's inputs in the forward, or of its saved tensors in the backward.
    """

    node: torch.fx.Node
    backward: bool
    values: BadValues
    tensors: tuple[TensorStat, ...]
    zero_incoming: bool = False


def name_of(node: torch.fx.Node) -> str:
    """Return the name of the function that the user called."""
    stack = node.meta.get("source_fn_stack") or ()
    called = stack[-1][1] if stack and not isinstance(stack[-1][1], type) else node.target
    name = called if isinstance(called, str) else getattr(called, "__name__", str(called))
    return _USER_NAMES.get(str(name), str(name))


class _NotingInterpreter(Interpreter):
    """An interpreter that runs a graph node by node and passes each node's inputs and outputs to the notes."""

    def __init__(self, module: torch.nn.Module, graph: torch.fx.Graph, notes: Notes | _PathNotes) -> None:
        """Take the module that holds the graph's attributes, the graph to run, and the notes to fill."""
        super().__init__(module, garbage_collect_values=True, graph=graph)
        self._notes = notes
        self.extra_traceback = False

    def run_node(self, n: torch.fx.Node) -> object:
        """Run node `n`, pass its inputs and its result to the notes, and return the result."""
        if n.op == "call_function" and isinstance(n.target, torch._ops.HigherOrderOperator):
            inner = self._run_nested_graph(n)
            if inner is not None:
                return inner
        if n.op in ("placeholder", "get_attr", "output"):
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        before = self._notes.input_states(given)
        out = getattr(self, n.op)(n.target, args, kwargs)
        self._notes.note(n, given, before, out)
        return out

    def _run_nested_graph(self, n: torch.fx.Node) -> object:
        """Run the nested graph of a higher-order operator, such as a checkpoint, with the same notes."""
        args, _ = self.fetch_args_kwargs_from_env(n)
        if args and isinstance(args[0], torch.fx.GraphModule) and n.target.__name__ in _INLINED:
            return _NotingInterpreter(args[0], args[0].graph, self._notes).run(*args[1:])
        return None


_INLINED = ("tag_activation_checkpoint", "wrap", "wrap_activation_checkpoint", "invoke_subgraph")


class Notes:
    """Records, while a region is re-executed, which tensors are non-finite and which autograd nodes each op created."""

    def __init__(self, checks_values: bool) -> None:
        """Begin without notes.
        :param checks_values: whether to look for non-finite values; if not, only autograd nodes are noted.
        """
        self.checks_values = checks_values
        #: Non-finite tensors by id: (is NaN, the node that produced them). ``_kept`` keeps tensors alive so that ids
        #: stay unique.
        self._bad: dict[int, tuple[bool, NonFiniteNode | None]] = {}
        self._kept: list[torch.Tensor] = []
        self.made: list[NonFiniteNode] = []
        self.of: dict[torch.autograd.graph.Node, Any] = {}

    def input_states(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Return, for each non-finite tensor, whether it has a NaN and which node produced it."""
        return [self._bad.get(id(t)) for t in tensors] if self.checks_values else []

    def begin(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Record the region's inputs; return whether all are finite."""
        for t in tensors:
            values = bad_values(t)
            if values is not None:
                self._bad[id(t)] = bool(values.nan), None
                self._kept.append(t)
        return not self._bad

    def note(self, node: torch.fx.Node, given: list[Any], before: list[Any], out: object) -> None:
        """Record the run of `node`: the autograd nodes that it created, and its non-finite results.
        :param given: its input tensors.
        :param before: what ``input_states`` returned for them before the run.
        :param out: its result, in which tensors may be nested.
        """
        outs = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        for t in outs:
            self._nodes(node, t.grad_fn)
        if not self.checks_values:
            return
        for t in outs:
            values = bad_values(t)
            if values is None:
                self._bad.pop(id(t), None)
                continue
            known = [state for state in before if state is not None]
            made = NonFiniteNode(
                node,
                values,
                tuple(stat_of(f"input {i}", g.detach()) for i, g in enumerate(given[:8])),
                any(nan for nan, _ in known),
                bool(known),
                [one for _, one in known if one is not None],
            )
            self.made.append(made)
            self._bad[id(t)] = bool(values.nan), made
            self._kept.append(t)

    def _nodes(self, node: torch.fx.Node, top: torch.autograd.graph.Node | None) -> None:
        """Record that `node` created autograd node `top` and the nodes below it that are not recorded yet."""
        stack = [top] if top is not None and top not in self.of else []
        while stack:
            one = stack.pop()
            self.of[one] = node
            stack += [below for below, _ in one.next_functions if below is not None and below not in self.of]

    def origin(self, out: object) -> NonFiniteNode | None:
        """Return the node that first produced the non-finite values in `out`, skipping a mask if a NaN follows it."""
        ends = [self._bad[id(t)][1] for t in tree_leaves(out) if isinstance(t, torch.Tensor) and id(t) in self._bad]
        chain: list[NonFiniteNode] = [one for one in ends if one is not None]
        for one in chain:  # grows as we go
            chain += [producer for producer in one.producers if all(producer is not other for other in chain)]
        ordered = [one for one in self.made if any(one is other for other in chain)]
        begins = [one for one in ordered if not one.has_nonfinite_input or (one.values.nan and not one.has_nan_input)]
        nans = [one for one in begins if one.values.nan and not one.has_nan_input]
        for one in begins:
            if not one.fills_mask or one.values.nan or not nans:
                return one
            return nans[0]
        return None


@dataclass
class LostPath:
    """A node of the graph that took tensors that require grad and returned one that does not.

    ``off``: gradient mode was disabled. ``inputs``: positions of the region's inputs that its tensors derive from.
    ``has_arrived``: its result was used by a tensor that requires grad, or returned by the region.
    """

    node: torch.fx.Node
    off: bool
    inputs: frozenset[int]
    has_arrived: bool = False


class _PathNotes:
    """Notes of the region inputs that each tensor derives from, and of where their gradient path ends."""

    def __init__(self) -> None:
        """Begin without notes."""
        self.checks_values = False
        self.of: dict[torch.autograd.graph.Node, object] = {}
        self.lost: list[LostPath] = []
        self._input_positions: dict[int, frozenset[int]] = {}
        self._ended_paths: dict[int, frozenset[int]] = {}
        self._kept: list[torch.Tensor] = []  # an id identifies a tensor only while it lives

    def begin(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Record the region's inputs by position. Returns true: the run is to continue."""
        self._input_positions = {id(t): frozenset((i,)) for i, t in enumerate(tensors)}
        self._kept = [*tensors]
        return True

    def input_states(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Return whether each tensor requires grad."""
        return [t.requires_grad for t in tensors]

    def note(self, node: object, given: list[object], before: list[object], out: object) -> None:
        """Record the run of `node`: the region inputs that its results derive from, and whether a gradient path ends
        here.
        :param given: its input tensors.
        :param before: for each, whether it required grad before the run.
        :param out: its result, in which tensors may be nested.
        """
        came = frozenset[int]().union(*(self._input_positions.get(id(t), ()) for t in given))
        wanted = frozenset[int]().union(
            *(self._input_positions.get(id(t), ()) for t, on in zip(given, before, strict=True) if on)
        )
        after = frozenset[int]().union(*(self._ended_paths.get(id(t), ()) for t in given))
        mine = None
        for t in tree_leaves(out):
            if not isinstance(t, torch.Tensor) or any(t is g for g in given):
                continue
            self._kept.append(t)
            self._input_positions[id(t)] = came
            if t.requires_grad:
                self._note_arrival(after)
            elif wanted:
                if mine is None:
                    mine = len(self.lost)
                    self.lost.append(LostPath(node, not torch.is_grad_enabled(), wanted))
                self._ended_paths[id(t)] = after | {mine}
            else:
                self._ended_paths[id(t)] = after

    def note_outputs(self, out: object) -> None:
        """Record that the region returns `out`, so that lost paths to it have arrived."""
        for t in tree_leaves(out):
            self._note_arrival(self._ended_paths.get(id(t), frozenset()))

    def _note_arrival(self, after: frozenset[int]) -> None:
        """Mark the lost paths with the numbers `after` as arrived."""
        for i in after:
            self.lost[i].has_arrived = True


def lost_paths(call: RegionCall) -> list[LostPath]:
    """Return the nodes at which a call of a region loses a gradient path; ``inputs`` are positions in
    ``tensors_of(call)``.
    """

    def find() -> list[LostPath]:
        """Run the region again, and return the nodes that lose a path."""
        paths = _PathNotes()
        paths.note_outputs(reexecute(call, paths)[0])
        return paths.lost

    found: list[LostPath] = run_on_own_thread(find, call)
    return found


def tensors_of(call: RegionCall) -> list[torch.Tensor]:
    """Return the tensor arguments of a region call, without duplicates."""
    return list({id(a): a for a in call.args if isinstance(a, torch.Tensor)}.values())


def find_zeroing_node(
    call: RegionCall, gradients: Sequence[torch.Tensor | None], dead: frozenset[int]
) -> torch.fx.Node | None:
    """Return the graph node whose backward turned nonzero gradients into all zeros, on the path to one of `dead`.

    :param dead: positions in ``tensors_of(call)``.
    :returns: ``None`` if there is no such node.
    """

    def find() -> Any:
        """Run the region and its backward again, and return the graph node; ``None`` if there is none."""
        notes = Notes(False)
        out, given = reexecute(call, notes)
        ran: list[torch.autograd.graph.Node] = []

        def after(
            grad_inputs: Iterable[object], grad_outputs: Iterable[object], node: torch.autograd.graph.Node | None = None
        ) -> None:
            """Keep `node` if it turned nonzero gradients into zeros; used as a hook after it."""
            if any(_has_nonzero(g) for g in grad_outputs) and not any(_has_nonzero(g) for g in grad_inputs):
                ran.append(node)

        wanted = {id(given[i]) for i in dead}
        _backward(out, given, gradients, notes, lambda node, _: partial(after, node=node))
        for node in ran:
            if notes.of.get(node) is not None and _reaches_leaf(node, wanted):
                return notes.of[node]
        return None

    return run_on_own_thread(find, call)


def _has_nonzero(gradient: Any) -> bool:
    """Return whether `gradient` is a tensor with an element that is not zero."""
    return gradient is not None and bool(gradient.any())


def _reaches_leaf(node: torch.autograd.graph.Node, leaves: set[int]) -> bool:
    """Return whether a backward from `node` reaches a leaf whose id is in `leaves`."""
    seen, stack = {node}, [node]
    for one in stack:  # grows as we go
        if id(getattr(one, "variable", None)) in leaves:
            return True
        below = [b for b, _ in one.next_functions if b is not None and b not in seen]
        seen.update(below)
        stack += below
    return False


def find_nonfinite_op(call: RegionCall, gradients: Sequence[object] | None, forward: bool) -> NonFiniteOrigin | None:
    """Locate where a call of a region turned finite values into non-finite ones; ``None`` if it did not.

    :param gradients: the gradient of each output, or ``None`` for an output without; ``None`` for all: ones.
    :param forward: examine the forward (the loss was non-finite), not the backward.
    """
    found: NonFiniteOrigin | None = run_on_own_thread(lambda: _run_and_find_origin(call, gradients, forward), call)
    return found


def run_on_own_thread(function: Callable[[], object], call: RegionCall) -> Any:
    """Run `function` on a separate thread, with the call's random state and on the device's current stream."""
    state = random_state(call.args)
    found: list[object] = []
    failed: list[BaseException] = []
    device = next((a.device for a in call.args if isinstance(a, torch.Tensor) and a.is_cuda), None)
    stream = torch.cuda.current_stream(device) if device is not None else None

    def run() -> None:
        """Run `function` on this thread, and keep its result or its exception."""
        try:
            with backward_as_it_is(), torch.cuda.stream(stream) if stream is not None else nullcontext():
                found.append(function())
        except BaseException as error:
            failed.append(error)

    try:
        if call.random is not None:
            restore_random_state(call.random)
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        restore_random_state(state)
    if failed:
        raise failed[0]
    return found[0]


def reexecute(call: RegionCall, notes: Notes | _PathNotes) -> tuple[object, list[torch.Tensor]]:
    """Re-execute the region; return the outputs and the leaves that replace its inputs (equal inputs share one)."""
    put_autocast(call.autocast)
    leaves: dict[int, torch.Tensor] = {}
    given: dict[int, torch.Tensor] = {}
    for a in call.args:
        if isinstance(a, torch.Tensor) and id(a) not in given:
            leaf = leaves[id(a)] = a.detach().requires_grad_(a.requires_grad)
            given[id(a)] = copy = leaf.clone()  # the graph may write to it
            if copy.grad_fn is not None:
                notes.of[copy.grad_fn] = None
                notes.of[copy.grad_fn.next_functions[0][0]] = None
    notes.checks_values = notes.begin(list(given.values())) and notes.checks_values
    inputs = [given[id(a)] if isinstance(a, torch.Tensor) else a for a in call.args]
    return _NotingInterpreter(call.region.module, call.region.graph, notes).run(*inputs), list(leaves.values())


def _run_and_find_origin(call: RegionCall, gradients: Sequence[object] | None, forward: bool) -> NonFiniteOrigin | None:
    """Run a call of a region again, and its backward unless `forward`; return the node at which values became
    non-finite.
    :param gradients: see ``find_nonfinite_op``.
    :returns: ``None`` if no node turned finite values into non-finite ones.
    """
    notes = Notes(forward)
    out, given = reexecute(call, notes)
    if forward:
        made = notes.origin(out) if notes.checks_values else None
        return None if made is None else NonFiniteOrigin(made.node, False, made.values, made.inputs)
    found: list[NonFiniteOrigin] = []

    def after(node: torch.autograd.graph.Node, made: torch.fx.Node) -> Callable[[Any, Any], None]:
        """Return a hook for autograd node `node`, which graph node `made` created."""

        def hook(grad_inputs: Iterable[torch.Tensor | None], grad_outputs: Iterable[torch.Tensor | None]) -> None:
            """Record the origin if the node returned the first non-finite gradients for finite ones."""
            if found or any(bad_values(g) is not None for g in grad_outputs):
                return
            for g in grad_inputs:
                values = bad_values(g)
                if values is not None:
                    kept = tuple(stat_of(name, t) for name, t in saved_tensors(node))
                    zero = any(g is not None and bool((g == 0).any()) for g in grad_outputs)
                    found.append(NonFiniteOrigin(made, True, values, kept, zero))
                    return

        return hook

    _backward(out, given, gradients, notes, after)
    return found[0] if found else None


def _backward(
    out: object,
    given: Sequence[object],
    gradients: Sequence[object] | None,
    notes: Notes,
    after: Callable[[object, object], Callable[[object, object], None]],
) -> None:
    """Run the backward of a re-executed region with hooks created by `after`, if its incoming gradients are finite."""
    made = {node: of for node, of in notes.of.items() if of is not None}
    run_backward(outputs_with_gradients(out, gradients), given, made, after)


def outputs_with_gradients(
    out: object, gradients: Sequence[torch.Tensor | None] | None
) -> list[tuple[int, torch.Tensor, torch.Tensor]]:
    """Return the outputs of a re-executed region that receive a gradient, with their index and gradient.

    Empty if an incoming gradient is non-finite.

    :param gradients: ``None``: ones.
    """
    outs = list(out) if isinstance(out, (tuple, list)) else [out]
    pairs: list[tuple[int, torch.Tensor, torch.Tensor]] = []
    for i, one in enumerate(outs):
        if not isinstance(one, torch.Tensor) or not one.requires_grad:
            continue
        gradient = torch.ones_like(one) if gradients is None else gradients[i]
        if gradient is None:
            continue
        if gradient.shape != one.shape and one._base is not None and one._base.shape == gradient.shape:
            one = one._base
        if bad_values(gradient) is not None:
            return []  # the incoming gradient is already bad
        if gradient.shape == one.shape:
            pairs.append((i, one, gradient.detach().clone()))
    return pairs


def run_backward(
    pairs: Sequence[tuple[int, object, object]],
    given: Sequence[torch.Tensor],
    nodes: Mapping[torch.autograd.graph.Node, object],
    after: Callable[[torch.autograd.graph.Node, object], Callable[[Any, Any], None]],
) -> dict[int, torch.Tensor]:
    """Run the backward from the result of ``outputs_with_gradients``, with hooks on `nodes` that `after` creates.

    :returns: position in `given` -> its gradient, for those that got one.
    """
    wanted = {k: g for k, g in enumerate(given) if g.requires_grad}
    if not pairs or not wanted:
        return {}
    handles = [node.register_hook(after(node, made)) for node, made in nodes.items()]
    try:
        roots, came = [one for _, one, _ in pairs], [g for _, _, g in pairs]
        found = torch.autograd.grad(roots, [*wanted.values()], came, allow_unused=True)
    finally:
        for handle in handles:
            handle.remove()
    return {k: g for k, g in zip(wanted, found, strict=True) if g is not None}
