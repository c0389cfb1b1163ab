"""Module calls: global forward hooks that record the running call, and the names of modules and parameters.

Note [One reference per module call]: there is one ``ModuleCallRef`` per module and call number, created once and reused
in every step, so that the op log can compare steps by identity. Its name is resolved only when it is read, because the
spelling of a path depends on how many outermost modules the script turns out to have.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import nn

from ...records import ModuleCall, Site, Unseen
from ...source.frames import CodeLocation, Frames
from ...source.roots import ModuleCallRef, RootModule, modules_in_sight
from ...torch_internals import code_objects, private
from ...torch_internals.called_with import keywords
from ...torch_internals.measure import joint_norm, shape_of
from ...torch_internals.mode_queries import builds_graph, queries_modes
from ...torch_internals.module_hooks import ModuleHooks
from ...torch_internals.recursion_limit import Room
from ...torch_internals.sharding import plain_class
from ...torch_internals.structure import tensors_in
from ..events import Events
from .grad_off_lines import GradModeCalls, GradOffLines

_compiling, _tracing = private.compiling, private.tracing
_in_region = private.checkpoint_mark
_ident = threading.get_ident
_grad_on = torch.is_grad_enabled

#: Maximum number of outermost modules that are kept after they were freed: records of theirs may need their names.
MAX_FREED_ROOTS = 100
#: Maximum number of outermost calls of a step that are kept.
MAX_OUTERMOST_CALLS = 64


class OutermostCall(NamedTuple):
    """A call of an outermost module, or of a part of one, from outside any module.

    ``grad_on``: gradient mode was on when it began; otherwise ``turned_off`` is the line that had turned it off.
    ``has_graph``: a tensor that it returned has a graph.
    """

    module: weakref.ref[nn.Module]
    grad_on: bool
    turned_off: Site | None
    has_graph: bool


class _ModuleState:
    """The call counts and call references of one module."""

    __slots__ = (
        "call_refs",
        "count",
        "grad_mode",
        "no_grad_calls_in_step",
        "queries_modes",
        "ref",
        "root",
        "step",
    )

    def __init__(self, module: nn.Module, root: RootModule) -> None:
        """Start with no calls."""
        self.ref = weakref.ref(module)
        self.root = root
        self.call_refs: list[ModuleCallRef] = []
        self.step, self.count = -1, 0
        self.grad_mode = GradModeCalls()
        self.no_grad_calls_in_step = 0
        self.queries_modes = queries_modes(type(module))


class ModuleWatch:
    """The stack of running module calls on the recorded thread, and the sequence of calls of each step (the trail)."""

    def __init__(self, frames: Frames, events: Events | None = None, limit: int = 100_000) -> None:
        """Start without modules on the current thread; ``start`` registers the hooks.

        :param limit: the most calls of a step that are kept, and about the most modules.
        """
        self._frames, self._events = frames, events or Events()
        self._limit = limit
        self._hooks, self._room = ModuleHooks(self._enter, self._leave), Room()
        self._states: dict[int, _ModuleState] = {}
        #: The same records by id of their weak reference, which identifies a module after it is gone.
        self._counts: dict[int, _ModuleState] = {}
        self.thread = _ident()
        #: Seconds that torch spends on calling our hooks at each module call.
        self.overhead = private.Overheads().module
        self._most = 0
        self.stack: list[ModuleCallRef] = []
        self.roots: list[RootModule] = []
        #: The step's calls in order: a ``ModuleCallRef`` on entry, ``None`` on return.
        self.trail: list[ModuleCallRef | None] = []
        #: For each entry of the trail, the sequence number that the next node would have got: maps a graph's nodes to
        #: their calls.
        self.moments: list[int] = []
        #: Lines and shapes by position in the trail, in closely inspected steps.
        self.details: dict[int, list[Any]] = {}
        self.open: list[int] = []
        self.step = 0
        self.inspecting = True
        self.keep_trail = True
        #: Whether there was no checkpoint yet: only then does each module call look for one.
        self.no_regions = True
        #: Whether no module inside the running outermost call has returned yet.
        self._first_output = False
        #: Running modules that have backward hooks, and the node counter when each was called.
        self._hooked_at: list[tuple[nn.Module, int]] = []
        #: The module whose call emitted ``mode_query_begins``, and how many calls of it are running.
        self._querying: weakref.ref[nn.Module] | None = None
        self._query_calls = 0
        #: Whether the hooks only report modules that query modes.
        self._idle = False
        #: Whether a backward call is running: modules called now are recomputed.
        self.in_backward = False
        #: The step's calls of modules with parameters from outside any module, in the order in which they returned; and
        #: of the running one: whether gradient mode was on when it began, and the line that had turned it off.
        self.outermost: list[OutermostCall] = []
        self._began: tuple[bool, Site | None] = True, None
        self.grad_off = GradOffLines()
        self.other_threads = 0
        self.dropped = 0
        #: Calls of outermost modules that PyTorch traced, and how many module calls of one are running:
        #: Note [Stand aside in a trace].
        self.traced = self._traced_calls = 0

    def begin(self) -> None:
        """Measure what torch spends on calling our hooks."""
        self.overhead = private.overheads().module

    def observe(self, keep_trail: bool, inspecting: bool) -> None:
        """Set whether the trail of calls is kept, and whether each call is inspected."""
        self.keep_trail, self.inspecting = keep_trail, inspecting

    def enter_backward(self, running: bool) -> None:
        """Set whether a backward call is running: modules called in it are recomputed."""
        self.in_backward = running

    def note_region(self) -> None:
        """Stop looking for the first checkpoint at each module call: there was one."""
        self.no_regions = False

    def start(self) -> None:
        """Register the hooks on all module calls; calls of the current thread are recorded."""
        self.thread, self._idle = _ident(), False
        self._hooks.on()

    def stop(self) -> None:
        """Remove the hooks, and forget the running calls."""
        self._idle = False
        self._hooks.off()
        self._forget()

    def hide_from_dynamo(self, hidden: bool) -> None:
        """Remove the module hooks while Dynamo is active (`hidden`), or register them again.

        See Note [Out of Dynamo's sight].
        """
        if hidden:
            self._hooks.off()
        else:
            self._hooks.on()

    def make_idle(self) -> None:
        """Stop recording calls.

        Keep the hooks for modules that query modes, during which the recorder leaves the mode stack.
        """
        self._idle = True
        self._forget()

    def _forget(self) -> None:
        """Forget the running calls: their ends will not be seen."""
        self._room.end()
        self.stack.clear()
        self._hooked_at.clear()
        self._querying, self._traced_calls = None, 0

    def new_step(self, step: int) -> None:
        """Begin a step.

        If an interrupt ended the running calls, for which torch calls no hook, drop them: none is on the Python stack.
        """
        if self.stack and _ident() == self.thread and not _module_runs():
            self._forget()
        self.step = step
        self.trail, self.moments = [], []
        self.details = {}
        self.open = []
        self.outermost = []

    def _enter(self, module: nn.Module, args: object) -> None:
        """Record that a module call begins; a global forward pre-hook. Errors do not reach the script.

        Calls that PyTorch traces are only counted, and an idle hook only reports modules that query modes.
        """
        if _compiling():
            return
        if _tracing():
            if _ident() == self.thread:
                self._trace_enters(module)
            return
        if self._traced_calls and _ident() == self.thread:
            self._trace_over()  # an interrupt ended those calls: torch calls no hook then
        if self._idle:
            if _ident() == self.thread:
                self._query(module, args, sys._getframe(1))
            return
        own, mark = self._events.own, None
        own.enters.left -= 1
        if own.enters.left <= 0 or self.inspecting:
            mark = own.mark()
        depth = len(self.stack)
        try:
            self._record_call(module, args)
        except Exception as error:
            self._events.fault(self, error)
            if depth and len(self.stack) == depth:  # treat the call as part of the call around it
                self.stack.append(self.stack[-1])
        if mark is not None:
            own.often(own.enters, mark, -self.overhead, self.inspecting)

    def _record_call(self, module: nn.Module, args: object) -> None:
        """Push a module call on the stack: count it, add it to the trail, and emit the events that concern its
        beginning.
        """
        if _ident() != self.thread:
            self.other_threads += 1
            return
        stack, events = self.stack, self._events
        if not stack:
            events.forward_begins.emit()
            self._first_output = True
            self._began = _grad_on(), self.grad_off.last
            self._room.begin()
        state = self._states.get(id(module))
        if state is None or state.ref() is not module:
            state = self._add_module(module)
        if state.step != self.step:
            state.step, state.count, state.no_grad_calls_in_step = self.step, 0, 0
        n = state.count
        state.count = n + 1
        if _grad_on():
            state.grad_mode.calls += 1
        else:
            state.grad_mode.no_grad_calls += 1
            state.no_grad_calls_in_step += 1
            self.grad_off.note_call(state.grad_mode, from_outside=not stack and not self._began[0])
        call_refs = state.call_refs
        where = call_refs[n] if n < len(call_refs) else self._where(module, state, n)
        if where.path is None and stack and where.around is not stack[-1]:
            where = call_refs[min(n, len(call_refs) - 1)] = ModuleCallRef(
                where.root, None, where.class_name, where.call, stack[-1]
            )
        stack.append(where)
        if self.no_regions and self.keep_trail and not self.in_backward and _in_region() is not None:
            events.region_entered.emit()
        if module._buffers and (self.in_backward or self.inspecting or not self.no_regions):
            events.stateful_module_called.emit(module)
        if module._backward_hooks or module._backward_pre_hooks:
            self._hooked_at.append((module, private.next_sequence_nr()))
        if self.keep_trail:
            trail = self.trail
            if self.inspecting:
                self.open.append(len(trail))
                self.details[len(trail)] = [self._frames.spot(sys._getframe()), (), _grad_on(), None]
            if len(trail) < self._limit:
                trail.append(where)
                self.moments.append(private.next_sequence_nr())
            else:
                self.dropped += 1
        if state.queries_modes or self._querying is not None:
            self._query(module, args, sys._getframe(2))

    def _trace_enters(self, module: nn.Module) -> None:
        """Record that PyTorch begins to trace the call of `module`."""
        if not self._traced_calls:
            self.traced += not isinstance(module, torch.fx.GraphModule)  # compilers call those, not the script
            self._events.jit_trace_begins.emit()
        self._traced_calls += 1

    def _trace_over(self) -> None:
        """Note that the traced calls are over, and emit that."""
        self._traced_calls = 0
        self._events.jit_trace_ends.emit()

    def _query(self, module: nn.Module, args: object, caller: FrameType) -> None:
        """Emit ``mode_query_begins`` if this is the outermost call that queries function modes and builds no graph.

        `caller` is the frame that calls `module`.
        """
        if self._querying is not None:
            running = self._querying()
            if running is module:
                self._query_calls += 1
                return
            if running is not None and _module_runs(running):
                return
            self._query_over()  # an interrupt ended that call: torch calls no hook then
        if queries_modes(type(module)) and not builds_graph(module, args, keywords(caller) or {}):
            self._querying, self._query_calls = weakref.ref(module), 1
            self._events.mode_query_begins.emit(module)

    def _query_over(self) -> None:
        """Note that the call which queries modes is over, and emit that."""
        self._querying = None
        self._events.mode_query_ends.emit()

    def _leave(self, module: nn.Module, args: object, output: object) -> None:
        """Record that a module call has returned; a global forward hook, also called if the call raised (no output
        then).
        """
        if _compiling():
            return
        if _ident() != self.thread:
            return
        if self._traced_calls and _tracing():
            self._traced_calls -= 1
            if not self._traced_calls:
                self._trace_over()
            return
        if self._querying is not None and self._querying() is module:
            self._query_calls -= 1
            if not self._query_calls:
                self._query_over()
        if not self.stack:
            return
        own, mark = self._events.own, None
        own.leaves.left -= 1
        if own.leaves.left <= 0 or self.inspecting:
            mark = own.mark()
        try:
            with private.disable_function_modes():
                self._record_return(module, output)
        except Exception as error:
            self._events.fault(self, error)
        if mark is not None:
            own.often(own.leaves, mark, 0.0, self.inspecting)

    def _record_return(self, module: nn.Module, output: object) -> None:
        """Pop a module call from the stack, and emit the events that concern its return."""
        stack, events = self.stack, self._events
        where = stack.pop()
        if not stack:
            self._room.end()
        forward = output is not None and not self.in_backward  # None: forward raised (end of recomputation)
        if not stack and forward and where.root.has_parameters and len(self.outermost) < MAX_OUTERMOST_CALLS:
            on, off = self._began
            has_graph = any(t.requires_grad for t in tensors_in(output, most=32, depth=4))
            self.outermost.append(OutermostCall(weakref.ref(module), on, None if on else off, has_graph))
        if forward:
            if self._first_output:
                self._first_output = False
                if _grad_on():
                    events.first_module_returned.emit(output)
            for listener in events.module_returned.listeners:
                try:
                    listener(module, where, output)
                except Exception as error:
                    events.listener_failed(listener, error)
        elif self.in_backward and module._buffers:
            events.stateful_module_returned.emit(module, where)
        if self._hooked_at and self._hooked_at[-1][0] is module:
            begin = self._hooked_at.pop()[1]
            if forward:
                events.hooked_module_returned.emit(module, where, output, private.next_sequence_nr() - begin)
        if self.keep_trail:
            self._trail_left(output)

    def _trail_left(self, output: object) -> None:
        """Add the return of the innermost call to the trail; in closely inspected steps, with shapes and norm of its
        output.
        """
        if len(self.trail) < self._limit:
            self.trail.append(None)
            self.moments.append(private.next_sequence_nr())
        if self.inspecting and self.open:
            at = self.open.pop()
            if at in self.details:
                tensors = tensors_in(output, most=32)
                self.details[at][1] = tuple(map(shape_of, tensors))
                self.details[at][3] = joint_norm(tensors)

    def _add_module(self, module: nn.Module) -> _ModuleState:
        """Return the state of a module that is called for the first time, with its outermost module, which is found or
        added.
        """
        root = None
        if self.stack:
            root = self.stack[-1].root
            if root.path_of(module) is None:
                root.scan()
            if root.path_of(module) is None:
                other = next((r for r in self.roots if r.path_of(module) is not None), None)
                if other is None:
                    self._events.unregistered_module_called.emit(
                        module, self.stack[-1], self._frames.spot(sys._getframe())
                    )
                root = other or root
        else:
            root = self._find_root(module)
        state = self._states[id(module)] = _ModuleState(module, root)
        self._counts[id(state.ref)] = state
        if len(self._states) > self._limit:
            self._states = {k: s for k, s in self._states.items() if s.ref() is not None}
        if len(self._counts) > 2 * self._limit:
            self._counts = {k: s for k, s in self._counts.items() if s.ref() is not None}
        return state

    def _find_root(self, module: nn.Module) -> RootModule:
        """Return the outermost module for a module called from outside: a known one, or the largest in sight that has
        it.
        """
        for root in self.roots:
            if root.ref() is not None and root.path_of(module) is not None:
                return root
        label, holder, size = "", module, 0
        for name, candidate in modules_in_sight(sys._getframe(), self._frames):
            members = list(candidate.modules())
            if len(members) > size and any(m is module for m in members):
                label, holder, size = name, candidate, len(members)
        return self.add_root(holder, label)

    def add_root(self, module: nn.Module, label: str) -> RootModule:
        """Add `module` as an outermost module called `label`, if it is new, and return it.

        It replaces earlier outermost modules that it contains; calls of modules inside it get their paths in it.
        """
        for root in self.roots:
            if root.ref() is module:
                root.label = root.label or label
                return root
        root = RootModule(module, label)
        # A module that holds an earlier root takes its place (``model.encoder(x)`` before ``model(x)``).
        self.roots = [r for r in self.roots if (m := r.ref()) is None or root.path_of(m) is None]
        self.roots.append(root)
        if len(self.roots) > 2 * MAX_FREED_ROOTS:  # a script that copies its model in each step has thousands
            freed = [r for r in self.roots if r.ref() is None]
            dropped = set(map(id, freed[:-MAX_FREED_ROOTS]))
            self.roots = [r for r in self.roots if id(r) not in dropped]
        self._most = max(self._most, sum(r.has_parameters and r.ref() is not None for r in self.roots))
        for state in self._states.values():
            m = state.ref()
            path = root.path_of(m) if m is not None else None
            if path is not None:
                state.root = root
                for where in state.call_refs:
                    where.root, where.path = root, path
        self._events.root_found.emit()
        return root

    def _where(self, module: nn.Module, state: _ModuleState, n: int) -> ModuleCallRef:
        """Return the reference to call `n` (from 0) of a module in a step, made if it is the first step with so many
        calls.
        """
        if n >= self._limit:
            return state.call_refs[-1]
        kind = plain_class(type(module))
        where = ModuleCallRef(state.root, state.root.path_of(module), kind.__name__, n + 1)
        state.call_refs.append(where)
        return where

    def unseen(self) -> list[Unseen]:
        """Return how many module calls were not observed: in other threads, or traced."""
        found = []
        if self.other_threads:
            text = "only the thread that started backprobe is watched"
            found.append(Unseen("module calls in other threads", self.other_threads, text))
        if self.traced:
            text = "torch.export, torch.jit.trace, make_fx, fake tensors: there are no values to look at"
            found.append(Unseen("module calls that PyTorch traced", self.traced, text, hides=False))
        return found

    def was_called(self, module: nn.Module) -> bool:
        """Return whether `module` was called while calls were recorded."""
        state = self._states.get(id(module))
        return state is not None and state.ref() is module

    def grad_was_on(self) -> bool:
        """Return whether gradient mode was on when the innermost running call began; true if that was not recorded."""
        at = self.open[-1] if self.open else None
        return bool(self.details[at][2]) if at in self.details else True

    def quiet_lines(self) -> list[Site | None]:
        """Return the lines that had turned gradient mode off where the trainable modules of this step were called.

        Each line is listed once. The list is empty if a module with trainable parameters of its own was called with
        gradient mode on, or if none was called.
        """
        now = [state for state in self._states.values() if state.step == self.step]
        trained = [s for s in now if (m := s.ref()) and any(p.requires_grad for p in m.parameters(recurse=False))]
        if not all(state.no_grad_calls_in_step == state.count for state in trained):
            return []
        return list(dict.fromkeys(state.grad_mode.off for state in trained))

    @property
    def naming(self) -> int:
        """Return the largest number of outermost modules with parameters alive at one time; names depend on it."""
        return self._most

    def name_of(self, where: ModuleCallRef | None) -> str | None:
        """Return the path as findings spell it: bare if one root has parameters, otherwise after the root's label."""
        if where is None:
            return ""
        if where.path is None:
            return None
        return self.full_name(where.root, where.path)

    def registered(self, where: ModuleCallRef | None) -> ModuleCallRef | None:
        """Return the innermost call, from `where` outwards, of a module that is registered in the model."""
        while where is not None and where.path is None:
            where = where.around
        return where

    def place_of(self, where: ModuleCallRef | None) -> str | None:
        """Return the name of the registered module in whose call something happened (``registered``)."""
        return self.name_of(self.registered(where) or where)

    def models(self) -> Iterator[tuple[RootModule, nn.Module]]:
        """Yield the outermost modules that are still there, each with what is known of it."""
        return ((root, model) for root in self.roots if (model := root.ref()) is not None)

    def root_and_path(self, module: nn.Module) -> tuple[RootModule, str] | None:
        """Return the outermost module that a module is in and its path there; ``None`` if no known one has it."""
        return next(((root, path) for root in self.roots if (path := root.path_of(module)) is not None), None)

    def full_name(self, root: RootModule, path: str) -> str:
        """Return the display name of a module or parameter at `path` in the outermost module `root`.

        It begins with the label of `root` if there are several outermost modules.
        """
        if self.naming <= 1 and (root.has_parameters or not self.naming):
            return path
        return f"{root.label}.{path}".strip(".") if root.label else path

    def counts(self, ref: weakref.ref[nn.Module] | None) -> tuple[int, int]:
        """Return how many calls of the module behind `ref`, which may be gone, had gradient mode on, and off."""
        calls = self.grad_mode_calls(ref)
        return (calls.calls, calls.no_grad_calls) if calls is not None else (0, 0)

    def grad_mode_calls(self, ref: weakref.ref[nn.Module] | None) -> GradModeCalls | None:
        """Return the calls of the module behind `ref`, which may be gone; ``None`` if there are none."""
        state = self._counts.get(id(ref)) if ref is not None else None
        return state.grad_mode if state is not None and state.ref is ref else None

    def called_at(self, module: nn.Module) -> CodeLocation | None:
        """Return where a module was called first in this step; ``None`` unless the step is inspected closely."""
        state = self._states.get(id(module))
        if state is not None and state.ref() is module:
            for at, (spot, *_) in self.details.items():
                if spot is not None and at < len(self.trail) and self.trail[at] in state.call_refs:
                    return spot  # type: ignore[no-any-return]
        return None

    def turned_off(self, ref: weakref.ref[nn.Module] | None, has_learned: bool = False) -> Site | None:
        """Return the line that stops the module behind `ref` from learning (``GradOffLines.line_that_stops``)."""
        calls = self.grad_mode_calls(ref)
        return self.grad_off.line_that_stops(calls, has_learned) if calls is not None else None

    def calls_of(
        self, trail: list[ModuleCallRef | None], details: dict[int, list[Any]], step: int
    ) -> tuple[ModuleCall, ...]:
        """Return records of the calls in `trail`, of step `step`.

        `details` are present for a closely inspected step.
        """
        calls: list[ModuleCall] = []
        stack: list[int] = []
        for at, where in enumerate(trail):
            if where is None:
                if stack:
                    stack.pop()
                continue
            spot, shapes, grad, norm = details.get(at, (None, (), True, None))
            parent = stack[-1] if stack else -1
            calls.append(
                ModuleCall(
                    len(calls),
                    self.name_of(where) or "",
                    where.class_name,
                    where.call,
                    len(stack),
                    parent,
                    self._frames.site(spot),
                    shapes,
                    grad,
                    norm,
                    step if at in details else None,
                )
            )
            stack.append(len(calls) - 1)
        return tuple(calls)


def _module_runs(module: nn.Module | None = None) -> bool:
    """Return whether a module's call (the call of `module`, if given) is on this thread's Python stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is code_objects.MODULE_CALL and (module is None or frame.f_locals.get("self") is module):
            return True
        frame = frame.f_back
    return code_objects.MODULE_CALL is None
