"""Locates the line of a compiled region that produced NaN or Inf.

Values inside a region cannot be observed. If a backward call went bad, its regions are executed again, op by op, on
their inputs (Note [Graphs of compiled regions]). If that is impossible, the line is inferred from the FX graph of the
region's backward, which torch keeps: the only line whose op has a pole (``find_singular_op``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import torch

from ...ops import POLE, info
from ...records import Cut, GivenToCompiled, Inside, RefusedToCompile, Reuse, Site, Step, Unseen
from ...source.frames import Frames
from ...torch_internals import private
from ..backward.active_backward import ActiveBackward
from ..backward.pending_call_record import PendingCallRecord
from ..tracker import Tracker
from ..tracker_context import TrackerContext
from .compiled_norms import RegionNorms

#: Maximum number of backward calls that are investigated.
MAX_INVESTIGATED_CALLS = 20
#: Maximum number of region calls that are kept while their graphs are alive: the last ones.
MAX_LIVE_CALLS = 1000
#: Maximum number of regions whose gradient paths are examined; a region used for several layers counts once per layer.
MAX_EXAMINED_REGIONS = 500
#: A region's name, and the ids of the parameters among its arguments.
_RegionKey = tuple[str, tuple[int, ...]]


def _region_key(call: private.RegionCall) -> _RegionKey:
    """Return the region's name and the ids of the parameters among a call's arguments: they tell shared code of layers
    apart.
    """
    return call.region.name, tuple(id(a) for a in call.args if isinstance(a, torch.nn.Parameter))


class CompiledRegionTracker(Tracker):
    """Tracker that examines compiled regions of a backward call with bad gradients, if the previous call had none."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without regions; compiled graphs are observed from ``observing_begins`` on."""
        self._context, self._names, self._frames = context, context.names, context.names.frames
        self._graphs = private.CompiledGraphs(
            self._note_call,
            self._forget_call,
            lambda error: context.events.fault(self, error),
            self._emit_op_raised,
            self._record_refused_write,
            self._note_compiled_step,
        )
        context.restorers.append(self._graphs.detach)
        #: Number of optimizer steps that ran compiled.
        self._compiled_step_count = 0
        #: The last calls of regions, by number, in the order of the calls.
        self._region_calls: dict[int, private.RegionCall] = {}
        #: Regions of which calls were dropped while their graphs were alive.
        self._regions_with_dropped_calls: set[str] = set()
        #: Numbers of the calls that existed when the previous step ended.
        self._calls_at_last_step_end: set[int] = set()
        #: The gradients that a region's node received, by id of the node; and the handles of our hooks.
        self._grad_outputs: dict[int, Any] = {}
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._found: list[Inside] = []
        self._refused_writes: dict[tuple[str, Site], RefusedToCompile] = {}
        self._lost_paths: dict[tuple[str, Site], Cut] = {}
        self._region_parameters: dict[str, None] = {}
        #: Regions whose gradient paths have been examined.
        self._examined_regions: set[_RegionKey] = set()
        #: For each region, the outputs of its node whose gradients were zero last time; and how often new zeros
        #: appeared.
        self._zero_outputs: dict[_RegionKey, frozenset[int]] = {}
        self._new_zeros_count = 0
        #: Names of regions that were called; and whether the next good backward call examines gradient paths, because a
        #: new region was called, which may take another path, or new zeros appeared.
        self._called_regions: set[str] = set()
        self._examines_paths = False
        self._bad_calls_in_a_row, self._inspecting = 0, False
        self._norms = RegionNorms(self._op_line_and_module)

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Note whether the step is closely inspected."""
        self._inspecting = inspecting

    def observing_begins(self) -> None:
        """Attach to Dynamo, to get the graphs of compiled regions and their calls."""
        self._graphs.attach()

    def observing_pauses(self) -> None:
        """Forget all region calls, and remove the hooks on their nodes."""
        self._forget_calls_and_hooks()

    def step_ended(self, step: Step) -> None:
        """Forget the calls that are older than the previous step.

        Without an optimizer, a step may end between forward and backward, so calls of this step are kept.
        """
        for number in self._calls_at_last_step_end:
            self._region_calls.pop(number, None)
        self._calls_at_last_step_end = set(self._region_calls)

    def _note_call(self, call: private.RegionCall) -> None:
        """Keep a call of a compiled region until its graph is freed, and emit ``region_called``.

        A region that was not called before may lose gradients on another path, so paths are examined again.
        """
        if call.region.name not in self._called_regions:
            self._called_regions.add(call.region.name)
            self._examines_paths = True
        self._context.events.region_called.emit(call)
        self._region_calls[call.number] = call
        if len(self._region_calls) > MAX_LIVE_CALLS:
            self._regions_with_dropped_calls.add(self._region_calls.pop(next(iter(self._region_calls))).region.name)

    def _forget_call(self, number: int) -> None:
        """Forget a call whose graph was freed."""
        self._region_calls.pop(number, None)

    def _emit_op_raised(self, text: str, frame: FrameType, args: tuple[object, ...]) -> None:
        """Emit the exception that a region call raised, in the same way as that of an op."""
        self._context.events.op_raised.emit(text, frame, args)

    def _record_refused_write(self, region: private.CompiledGraph, args: Sequence[object]) -> None:
        """Record the write for which torch refused to compile a graph: its backward needs the tensor.

        Nothing is recorded if the write, or its line, is not found.
        """
        if len(self._refused_writes) >= MAX_INVESTIGATED_CALLS:
            return
        with private.disable_function_modes(), private.hide_ops():
            found = private.refused_write(region, args)
        site = self._site(found.write) if found is not None else None
        if found is None or site is None:
            return
        op, saver = private.name_of(found.write), found.saver
        made = RefusedToCompile(
            op,
            site,
            self._module_path(region, args, found.write),
            private.name_of(saver) if saver is not None else "an operation",
            self._site(saver) if saver is not None else None,
            found.shape,
            found.saved,
            found.found,
            self._context.steps.index,
            self._frames.site(self._frames.spot(sys._getframe())),
        )
        self._refused_writes.setdefault((op, site), made)

    def _note_compiled_step(self) -> None:
        """Record that an optimizer stepped in compiled code, which calls none of its hooks."""
        self._compiled_step_count += 1
        self._context.steps.note_compiled_optimizer_step()

    def _site(self, node: torch.fx.Node) -> Site | None:
        """Return the user's line of a node in a region's graph; ``None`` if it is unknown."""
        return self._frames.site_in(node.meta.get("stack_trace") or "")

    def backward_attaching(self, running: ActiveBackward) -> None:
        """Register hooks that keep the gradients which the nodes of compiled regions receive in a recorded backward
        call.
        """
        if not self._region_calls:
            return
        for node in running.graph.nodes:
            if private.is_compiled(node):
                self._handles.append(node.register_prehook(self._make_gradient_hook(id(node))))

    def _make_gradient_hook(self, node: int) -> Callable[[object], None]:
        """Return a pre-hook that stores the gradients which the node with the id `node` receives."""

        def hook(grads: object) -> None:
            """Store the gradients that the node receives."""
            self._grad_outputs[node] = grads

        return hook

    def backward_detaching(self, running: ActiveBackward) -> None:
        """Remove the hooks from the nodes of compiled regions."""
        while self._handles:
            self._handles.pop().remove()

    def _forget_calls_and_hooks(self) -> None:
        """Forget all region calls and the gradients of their nodes, and remove the hooks."""
        self._region_calls.clear()
        self._regions_with_dropped_calls.clear()
        self._grad_outputs.clear()
        while self._handles:
            self._handles.pop().remove()

    def backward_recorded(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Examine the compiled regions of a recorded call: for the origin of bad values, lost gradient paths, and
        norms.

        The region calls are forgotten afterwards, unless the call retains its graph.
        """
        try:
            bad = bool(recorded.bad) or any(root.bad for root in recorded.roots)  # the derivative may be finite
            self._bad_calls_in_a_row = self._bad_calls_in_a_row + 1 if bad else 0
            if self._bad_calls_in_a_row == 1 and sum(one.how != "zero" for one in self._found) < MAX_INVESTIGATED_CALLS:
                found = self._find_origin_by_reexecution(running, recorded)
                self._found += [found] if found is not None else self._infer_origins_from_graphs(running)
            if recorded.cause.reuse is not None:
                self._check_reuse(running, recorded.cause.reuse)
            if not bad and running.error is None:
                self._check_zeros(running, recorded)
            inspects = self._inspecting or self._examines_paths
            if not bad and inspects and running.kind != "autograd.grad" and running.error is None:
                self._examines_paths = False
                self._check_paths(running)
            if not bad and self._region_calls and running.inside is None and running.error is None:
                self._measure_norms(running, recorded)
        finally:
            self._grad_outputs.clear()
            if not running.arguments.get("retain_graph"):
                self._region_calls.clear()
                self._regions_with_dropped_calls.clear()

    def _check_reuse(self, running: ActiveBackward, reuse: Reuse) -> None:
        """Record the operation of a region that takes a tensor whose graph an earlier backward had freed."""
        seqs = running.graph.seqs
        for i, call in self._calls_in_graph(running):
            inputs = [node for node in call.region.graph.nodes if node.op == "placeholder"]
            for taken, of in zip(inputs, call.made, strict=False):
                first = next(iter(taken.users), None)
                site = self._site(first) if first is not None else None
                if i == reuse.node and of is not None and of[0] == seqs[reuse.old] and site is not None:
                    module = self._module_path(call.region, call.args, first)
                    self._found.append(
                        Inside(running.index, i, private.name_of(first), site, "reused", module, sure=True)
                    )
                    return

    def _measure_norms(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Measure gradient norms inside regions, if the step is inspected or gradients grew suddenly.

        Regions of which some calls were dropped, or whose inputs were written to, are left out: their norms mislead.
        """
        if not self._norms.has_sudden_growth(recorded) and not self._inspecting:
            return
        calls = [
            (i, call, gradients)
            for i, call in self._calls_in_graph(running)
            if call.region.name not in self._regions_with_dropped_calls and not call.changed
            if (gradients := self._output_gradients(running, i, call)) is not None
        ]
        # Nodes are in the order of the engine, in which the last call comes first.
        self._norms.measure(running, recorded, sorted(calls, key=lambda one: one[0]))

    def _op_line_and_module(self, call: private.RegionCall, node: object) -> tuple[str, Site | None, str | None]:
        """Return the op that the user called, its line and its module."""
        return private.name_of(node), self._site(node), self._module_path(call.region, call.args, node)

    def _find_origin_by_reexecution(self, running: ActiveBackward, recorded: PendingCallRecord) -> Inside | None:
        """Execute the regions of a bad call again, and return the first op that made finite values non-finite; ``None``
        if none is found.
        """
        if not self._region_calls:
            return None
        forward = any(root.bad for root in recorded.roots)
        calls = self._calls_in_graph(running)
        # Nodes are in the engine's order: the last call comes first.
        for i, call in sorted(calls, key=lambda one: one[0], reverse=forward):
            if call.changed:
                continue
            gradients = self._output_gradients(running, i, call)
            with private.disable_function_modes(), private.hide_ops():
                origin = private.find_nonfinite_op(call, gradients, forward)
            site = self._site(origin.node) if origin is not None else None
            if origin is not None and site is not None:
                sure = not call.region.draws and (forward or gradients is not None)
                how = "backward" if origin.backward else "forward"
                details = (
                    private.name_of(origin.node),
                    site,
                    how,
                    self._module_path(call.region, call.args, origin.node),
                    origin.values,
                )
                return Inside(running.index, i, *details, origin.tensors, origin.zero_incoming, sure)
        return None

    def _calls_in_graph(self, running: ActiveBackward) -> list[tuple[int, private.RegionCall]]:
        """Return the region calls that this backward passes through, each with its node."""
        nodes = {id(node): i for i, node in enumerate(running.graph.nodes) if private.is_compiled(node)}
        return [
            (i, call)
            for call in list(self._region_calls.values())
            for i in {nodes[made[0]] for made in call.outputs if made is not None and made[0] in nodes}
        ]

    def _output_gradients(self, running: ActiveBackward, node: int, call: private.RegionCall) -> list[Any] | None:
        """Return the gradient that each output of a region call received, ``None`` for outputs without a node.

        Returns ``None`` if the gradients were not observed.
        """
        grad_outputs = self._grad_outputs.get(id(running.graph.nodes[node]))
        return None if grad_outputs is None else [grad_outputs[m[1]] if m is not None else None for m in call.outputs]

    def _check_zeros(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Note which gradients of a region's node are zero, and schedule another examination if new zeros appeared."""
        calls = self._calls_in_graph(running)
        gave: dict[int, set[int]] = {i: set() for i, _ in calls}
        for i, edge, slot, _, _ in recorded.signature.out if calls else ():
            if i in gave and slot >= 0 and slot not in recorded.unmeasured and recorded.norms[slot] == 0.0:
                gave[i].add(edge)
        for i, call in calls:
            key, zeros = _region_key(call), frozenset(gave[i])
            more = zeros - self._zero_outputs.get(key, zeros)
            if key in self._zero_outputs or len(self._zero_outputs) < MAX_EXAMINED_REGIONS:
                self._zero_outputs[key] = zeros
            if more and self._new_zeros_count < MAX_INVESTIGATED_CALLS:
                self._new_zeros_count, self._examines_paths = self._new_zeros_count + 1, True
                self._examined_regions.discard(key)

    def _check_paths(self, running: ActiveBackward) -> None:
        """Find gradient paths that regions lose: parameters without a gradient, or with zeros, after the call.

        Each combination of a region and its parameters is examined once.
        """
        for i, call in self._calls_in_graph(running):
            key = _region_key(call)
            if key in self._examined_regions or call.changed or len(self._examined_regions) >= MAX_EXAMINED_REGIONS:
                continue
            self._examined_regions.add(key)
            with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
                tensors = private.tensors_of(call)
                names = {k: self._names.of(t) for k, t in enumerate(tensors) if isinstance(t, torch.nn.Parameter)}
                self._region_parameters.update(dict.fromkeys(filter(None, names.values())))
                wanted = [k for k in names if tensors[k].requires_grad]
                none = frozenset(k for k in wanted if tensors[k].grad is None)
                dead = frozenset(k for k in wanted if k not in none and not tensors[k].grad.any())
                lost = private.lost_paths(call) if none else []
                gradients = self._output_gradients(running, i, call)
                zeros = private.find_zeroing_node(call, gradients, dead) if dead and gradients is not None else None
            self._record_lost_paths(call, [one for one in lost if one.inputs & none], names, running.step)
            site = self._site(zeros) if zeros is not None else None
            if site is not None:
                details = private.name_of(zeros), site, "zero", self._module_path(call.region, call.args, zeros)
                self._found.append(Inside(running.index, i, *details, sure=not call.region.draws))

    def _record_lost_paths(self, call: private.RegionCall, lost: list[Any], names: dict[int, str], step: int) -> None:
        """Record the ops of a region that cut gradient paths, by op and line.

        :param lost: the cuts that were found; `names`: the parameters' names by their position among the inputs.
        """
        for one in sorted(lost, key=lambda one: not one.has_arrived):
            site = self._site(one.node)
            if site is not None:
                of = tuple(sorted(names[k] for k in one.inputs if names.get(k)))
                op, module = private.name_of(one.node), self._module_path(call.region, call.args, one.node)
                arrived = step if one.has_arrived else None
                self._lost_paths.setdefault((op, site), Cut(op, site, module, of, 1, step, arrived, True, one.off))

    def _module_path(
        self, region: private.CompiledGraph, args: Sequence[Any], node: torch.fx.Node | None
    ) -> str | None:
        """Return the path of the module that called the op of an FX `node`, if the graph tells it."""
        return private.module_in(region, args, node, self._names.of)

    def _infer_origins_from_graphs(self, running: ActiveBackward) -> list[Inside]:
        """Return, for each compiled region of a call, the only op with a pole in its backward graph, if any."""
        found = []
        for i, node in enumerate(running.graph.nodes):
            module = private.backward_module(node) if private.is_compiled(node) else None
            details = find_singular_op(module.graph.nodes, self._frames) if module is not None else None
            if details is not None:
                found.append(Inside(running.index, i, *details))
        return found

    def unseen(self) -> tuple[Unseen, ...]:
        """Return counts of compiled steps, backward calls and regions that could not be observed."""
        found = []
        if self._compiled_step_count:
            note = "torch calls no hooks of optimizers there: what they change is not measured"
            found.append(Unseen("compiled steps of optimizers", self._compiled_step_count, note))
        if self._context.calls.compiled_calls:
            note = "compiled_autograd compiles all of them, and hooks too: of their nodes only what went wrong is told"
            found.append(Unseen("compiled backward calls", self._context.calls.compiled_calls, note))
        if self._norms.too_large:
            note = "too large, or no memory for it: gradients inside that grow or shrink are not found"
            found.append(Unseen("compiled regions that were not run again", self._norms.too_large, note))
        if self._graphs.not_kept:
            note = "other ranks take part in them, or tensor subclasses: what happens inside is not looked into"
            found.append(Unseen("calls of compiled regions", self._graphs.not_kept, note))
        return tuple(found)

    def records(self) -> tuple[object, ...]:
        """Return all that was found about compiled regions."""
        given = (GivenToCompiled(tuple(self._region_parameters)),) if self._region_parameters else ()
        return (
            *self._found,
            *self._refused_writes.values(),
            *self._lost_paths.values(),
            *given,
            *self._norms.records(),
        )


def find_singular_op(nodes: Any, frames: Frames) -> tuple[str, Site] | None:
    """Return the only forward line in a backward's FX graph whose op has a pole, such as sqrt or log, and the op.

    Divisions by a tensor count only if there is no such op.

    :returns: ``None`` if no line qualifies, or more than one.
    """
    singular_ops: dict[tuple[str, int], tuple[str, Site]] = {}
    divisions: dict[tuple[str, int], tuple[str, Site]] = {}
    for node in nodes:
        stack = node.meta.get("fwd_source_fn_stack") or ()
        called_function = stack[-1][1] if stack and node.op == "call_function" else None
        name = called_function if isinstance(called_function, str) else getattr(called_function, "__name__", "")
        site = frames.site_in(node.meta.get("stack_trace") or "") if name else None
        if site is None:
            continue
        if info(name).is_singular:
            singular_ops.setdefault((site.file, site.line), (name, site))
        elif info(str(node.target)).forward == POLE and all(hasattr(a, "meta") for a in node.args[:2]):
            divisions.setdefault((site.file, site.line), (name, site))
    candidates = singular_ops or divisions
    return next(iter(candidates.values())) if len(candidates) == 1 else None
