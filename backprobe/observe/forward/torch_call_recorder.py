"""The torch call recorder: a ``TorchFunctionMode`` that logs the source line of each op that makes autograd nodes.

Note [Inside the handler]: the mode is off inside its own handler, so ops run there are not recorded. Code there must
not add nodes or keep tensors: gradient mode is off while anything is measured.

Note [Sequence numbers]: all nodes that one thread makes are numbered by one counter. An op that moved it from a to b
made the nodes a to b - 1.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from ...basics.torch_texts import GENERATED
from ...ops import rows, writes_in_place
from ...records import Site
from ...source.caller_frames import StandIns
from ...source.frames import CodeLocation, Frames, variables
from ...source.library import Stacks
from ...torch_internals import code_objects, private
from ...torch_internals.custom_calls import CustomCalls
from ...torch_internals.entry_points import BY_FUNCTION
from ...torch_internals.uncompiled import dynamo_passthrough
from ..events import Events
from .modules import ModuleWatch
from .oplog import Entry, OpLog, spot_of
from .writes import kind_of, targets

if TYPE_CHECKING:
    from ...source.caller_frames import Args, Caller, Function, Kwargs

    Handler = Callable[[Function, Args, Kwargs, FrameType], object]

#: Functions that return their input values, for some arguments in the same memory.
VIEWS = frozenset(
    getattr(torch.Tensor, name)
    for row in rows(lambda row: row.is_unlooked_view)
    for name in (row.name, *row.aliases, f"{row.name}_")
    if callable(getattr(torch.Tensor, name, None)) and not writes_in_place(name)
)
#: Result types of ops outside the graph that are worth recording.
_RECORDED_TYPES = frozenset(
    {
        *(torch.Tensor, tuple, torch.nn.Parameter, float, list),
        *(kind for kind in vars(torch.return_types).values() if isinstance(kind, type)),
    }
)
#: Maximum number of elements of a list or tuple in which the tensors among the arguments of an op are searched.
MAX_SEARCHED_ELEMENTS = 64
#: Reasons to leave the mode stack for a while: an optimizer's step, a module that queries modes, a PyTorch trace,
#: Dynamo.
OPTIMIZER, QUERY, TRACE, DYNAMO = 1, 2, 4, 8
_SETITEM = torch.Tensor.__setitem__
_next = private.next_sequence_nr
_compiling = private.compiling
_frame, _clock = sys._getframe, time.perf_counter
_profiled, _jit_tracing = private.profiled, private.jit_tracing
_dispatch_modes, _tracing = private.dispatch_modes, private.tracing


class Op:
    """An op as passed to listeners that inspect every op: function, arguments, result and calling frame.

    :ivar before, after: the node counter (Note [Sequence numbers]).
    :ivar entry: its entry in the op log, if it made nodes.
    :ivar optimizing: it ran inside an optimizer's step.
    """

    __slots__ = ("after", "args", "before", "entry", "frame", "func", "inspecting", "kwargs", "optimizing", "out")

    def __init__(
        self,
        func: object,
        args: Any,
        kwargs: Any,
        out: Any,
        numbers: tuple[int, int],
        frame: FrameType,
        inspecting: bool = True,
        optimizing: bool = False,
    ) -> None:
        """Store a call that has returned.

        :param numbers: the node counter before and after the call.
        """
        self.func, self.args, self.kwargs, self.out = func, args, kwargs or {}, out
        self.before, self.after = numbers
        self.frame, self.inspecting, self.optimizing = frame, inspecting, optimizing
        self.entry: Entry | None = None

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors among the arguments, and in lists and tuples among them."""
        found = []
        for value in (*self.args, *self.kwargs.values()) if self.kwargs else self.args:
            if isinstance(value, torch.Tensor):
                found.append(value)
            elif type(value) in (list, tuple):
                found += [one for one in value[:MAX_SEARCHED_ELEMENTS] if isinstance(one, torch.Tensor)]
        return found


class TorchCallRecorder(TorchFunctionMode):
    """The function mode that records every torch call made from Python on the thread that it is entered on."""

    def __init__(
        self, frames: Frames, modules: ModuleWatch, events: Events, log: OpLog | None = None, owner: object = None
    ) -> None:
        """Make a recorder for the current thread, without entering the mode.

        :param log: the op log to write to; a new one by default.
        :param owner: the recording or session that owns this recorder.
        """
        super().__init__()
        #: Nodes numbered below ``first`` were made before the recorder existed.
        self.frames, self.modules, self.first = frames, modules, _next()
        #: The recording or session that owns this recorder: a snapshot taken while the mode is on finds it here.
        self.owner = owner
        #: Functions that need special handling, and the handler that calls each for us, given the calling frame.
        self.special: dict[object, Handler] = {}
        self.events = events
        callers = StandIns()
        self._untimed_caller_for = self._caller_for = callers.of
        self._known_callers = callers.made
        self._own, self._ops, self._inner_seconds = events.own, events.own.ops, 0.0
        #: The time that torch spends on calling us.
        self.overheads = private.Overheads()
        self.log = log if log is not None else OpLog()
        self.thread = threading.get_ident()
        #: Whether to record ops at all (not at the level ``minimal``), and whether to inspect each.
        self.recording, self.inspecting = True, True
        #: Whether an optimizer's step is running, and whether it is one of torch's own, in which no code of the script
        #: runs; whether it was given a closure, and its code unless gradient mode tells when it runs.
        self._in_step = self.in_builtin_optimizer = self._has_closure = False
        self._closure: CodeType | None = None
        #: Backward calls that go through the handler now: the mode cannot be taken off the stack during them.
        self.handling = 0
        #: Whether it is on the stack without recording: Note [Held in a test].
        self.idle = False
        #: The reasons for which it is off the stack, as bits, and how many modes were below it:
        #: Note [Builtin optimizers].
        self._off_reasons, self._modes_below = 0, 0
        self.last = _next()
        #: How each function writes in place; ``None`` if it does not.
        self._kinds: dict[object, Any] = {}
        self._entries: dict[object, Entry] = {}
        self._stacks, self._custom = Stacks(), CustomCalls(variables)
        #: How often ``push`` put it on this thread's mode stack.
        self._pushed = 0

    def begin(self) -> None:
        """Measure what torch spends on calling us. Nodes that exist by now were made before the recording."""
        self.overheads = private.overheads()
        self.log.begin_at(_next())

    def begin_at(self, seq: int) -> None:
        """Note that the recording begins with the node `seq`."""
        self.log.begin_at(seq)
        self.last = seq

    def observe(self, recording: bool, inspecting: bool) -> None:
        """Set whether ops are recorded, and whether each is inspected."""
        self.recording, self.inspecting = recording, inspecting

    def set_idle(self, idle: bool) -> None:
        """Set whether the recorder stays on the stack without recording (Note [Held in a test])."""
        self.idle = idle

    def skip_nodes(self) -> None:
        """Leave the nodes that were made since the last observed op out of the log."""
        self.last = _next()

    @dynamo_passthrough
    def call(self, func: Function, args: Args, kwargs: Kwargs, frame: FrameType) -> object:
        """Call `func` as `frame` would, and return its result: Note [Warnings have the script's place]."""
        return self._caller_for(frame)(func, args, kwargs)

    @property
    def optimizing(self) -> bool:
        """Return whether an optimizer's step is running, and not the closure that it was given."""
        return self._in_step and not (self._has_closure and torch.is_grad_enabled() and self._in_closure())

    def _in_closure(self) -> bool:
        """Return whether the closure of the running step is running, given that gradient mode is on.

        Torch's own optimizers turn it off but for the closure.
        """
        if self._closure is None:
            return True
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code is not self._closure:
            frame = frame.f_back
        return frame is not None

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that an optimizer's step begins: ops in it are no part of the forward."""
        self._in_step, self._has_closure = True, False

    def closure_step_begins(self, optimizer: torch.optim.Optimizer, closure: object) -> None:
        """Note the closure that an optimizer's step was given: ops in it are part of the forward."""
        self._has_closure = True
        builtin = code_objects.is_builtin_optimizer(optimizer)
        self._closure = None if builtin else code_objects.code_of(closure)

    def optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that an optimizer's step is over, and go back on the mode stack if the recorder left it for the step."""
        self._in_step = self._has_closure = self.in_builtin_optimizer = False
        self._closure = None
        self.return_to_stack(OPTIMIZER)

    def builtin_optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Leave the mode stack for a step of one of torch's own optimizers, if possible.

        Note [Builtin optimizers]: nothing in such a step concerns gradients, and its writes are one entry of the log.
        So the recorder leaves the mode stack for the step if it can and if no code of the script runs inside, which
        otherwise costs about ten handler calls per parameter. If the step raises, the recorder is put back at the next
        event.
        """
        self.in_builtin_optimizer = True
        if (
            self.recording
            and not self.inspecting
            and not self.handling
            and self.is_here()
            and private.top_mode() is self
        ):
            with private.disable_function_modes():
                self.events.about_to_write.emit()
            self.leave_stack_for(OPTIMIZER)

    def leave_stack_for(self, reason: int) -> None:
        """Leave the stack of function modes for `reason`, until ``return_to_stack`` withdraws it.

        Does nothing if the recorder is not on the stack, as inside its own handler.
        """
        if not self._off_reasons:
            depth = private.depth_of(self) if self.is_here() else None
            if depth is None:
                return
            self._modes_below = depth
            private.drop_mode(self)
        self._off_reasons |= reason

    def return_to_stack(self, reasons: int = OPTIMIZER | QUERY | TRACE | DYNAMO) -> None:
        """Withdraw `reasons` for which this mode is off the stack; if none is left, insert it where it was."""
        if self._off_reasons & reasons:
            self._off_reasons &= ~reasons
            if not self._off_reasons and private.depth_of(self) is None:
                private.put_mode(self, self._modes_below)
                self.log_unobserved_nodes()

    def enter_stack(self, below: int, reason: int = 0) -> None:
        """Go on the stack, above `below` modes; with a `reason`, stay off it until that is withdrawn."""
        self._off_reasons, self._modes_below = reason, below
        if not reason:
            private.put_mode(self, below)

    def leave_stack(self) -> None:
        """Leave the stack of function modes; if the recorder is off it for a while, it does not come back."""
        self._off_reasons = 0
        private.drop_mode(self)

    def mode_query_begins(self, module: torch.nn.Module) -> None:
        """Leave the mode stack while a module runs that may query function modes and behave differently under one."""
        with private.disable_function_modes():
            self.events.about_to_write.emit()  # writes in the call are not observed
        self.leave_stack_for(QUERY)

    def mode_query_ends(self) -> None:
        """Go back on the mode stack after the call of a module that may query function modes."""
        self.return_to_stack(QUERY)

    def hide_from_dynamo(self, hidden: bool) -> None:
        """Leave the stack while Dynamo is active (`hidden`), or go back. See Note [Out of Dynamo's sight]."""
        if hidden:
            with private.disable_function_modes():
                self.events.about_to_write.emit()  # writes in compiled code are not observed
            self.leave_stack_for(DYNAMO)
        else:
            self.return_to_stack(DYNAMO)

    @property
    def is_hidden_from_dynamo(self) -> bool:
        """Whether the recorder is off the mode stack because Dynamo is active."""
        return bool(self._off_reasons & DYNAMO)

    def jit_trace_begins(self) -> None:
        """Leave the stack for a PyTorch trace.

        PyTorch writes the Python frame that calls an op, and a variable name in it for each value, into some graphs: it
        must be the script's frame.
        """
        self.leave_stack_for(TRACE)

    def jit_trace_ends(self) -> None:
        """Go back on the mode stack after a PyTorch trace."""
        self.return_to_stack(TRACE)

    def observing_pauses(self) -> None:
        """Forget why the recorder is off the mode stack: it does not go back while observing pauses."""
        self._off_reasons = 0

    def forward_begins(self) -> None:
        """Go back on the mode stack if a step or call for which the recorder left it raised."""
        if self._off_reasons:
            self.return_to_stack(OPTIMIZER | QUERY | TRACE)

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Go back on the mode stack if a step or call for which the recorder left it raised."""
        if self._off_reasons:
            self.return_to_stack(OPTIMIZER | QUERY | TRACE)

    def __torch_function__(
        self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        """Run a torch call of the script, log it if it made nodes, and pass it on to the listeners of events about ops.

        Called by torch for each call from Python while the mode is on. Special functions, such as backward calls, go to
        their handlers; in a trace or compilation, the function is only called. Our errors never reach the script.
        """
        if _compiling():
            return func(*args, **(kwargs or {}))
        # Note [Stand aside in a trace]. `_jit_tracing` and `_dispatch_modes` cost less, and are enough for ops.
        if self.idle or _jit_tracing() or (_dispatch_modes() and _tracing()):
            return self._call_unrecorded(func, args, kwargs or {}, _frame(1))
        ops, timed = self._ops, False
        left = ops.left = ops.left - 1
        if (left <= 0 or self.inspecting) and func not in BY_FUNCTION:  # backward calls are timed elsewhere
            timed, mark, self._inner_seconds, self._caller_for = True, self._own.mark(), 0.0, self._timed_caller
        try:
            frame = _frame(1)
            special = self.special.get(func)
            if special is not None and not _tracing():
                return special(func, args, kwargs or {}, frame)
            made = None if timed else self._known_callers.get((id(frame.f_code), frame.f_lasti))
            call = made[0] if made is not None else self._caller_for(frame)
            if not self.recording:
                return call(func, args, kwargs)
            before = _next()
            if before != self.last:
                self._log_unobserved_nodes(before, frame)
            kind = self._kinds.get(func, self)
            if kind is self:
                kind = self._kinds[func] = kind_of(func)
            events = self.events
            writes = kind is not None or (kwargs and "out" in kwargs)
            if writes:
                events.about_to_write.emit()
            try:
                out = call(func, args, kwargs)
            except RuntimeError as error:
                events.op_raised.emit(str(error), frame, args)
                raise
            except private.StopRecomputation:
                events.recomputation_stopped.emit(func, args, kwargs, frame)
                raise
            profiled = _profiled()
            if profiled:
                private.record_ops(False)
            try:
                after = _next()
                if writes and not self.in_builtin_optimizer:
                    self._emit_writes(kind, func, args, kwargs, after, frame)
                if self.inspecting or events.op_claimed.listeners:
                    self._inspect(Op(func, args, kwargs, out, (before, after), frame, self.inspecting, self.optimizing))
                elif after != before:
                    entry = self._log_op(func, after, frame)
                    if func not in VIEWS:
                        for listener in events.graph_op.listeners:
                            try:
                                listener(out, before, after, entry)
                            except Exception as error:
                                events.listener_failed(listener, error)
                elif not self.optimizing and (type(out) in _RECORDED_TYPES or func is _SETITEM):
                    for on_op in events.nongraph_op.listeners:
                        try:
                            on_op(func, args, out, frame)
                        except Exception as error:
                            events.listener_failed(on_op, error)
            except Exception as error:
                events.fault(self, error)
            finally:
                if profiled:
                    private.record_ops(True)
            return out
        finally:
            if timed:
                self._caller_for = self._untimed_caller_for
                self._own.often(ops, mark, self._inner_seconds - self.overheads.of(func), self.inspecting)

    @dynamo_passthrough
    def _call_unrecorded(self, func: Function, args: Args, kwargs: Kwargs, frame: FrameType) -> object:
        """Call `func` without recording; only count a backward call that goes through the handler."""
        backward = func in BY_FUNCTION
        self.handling += backward
        try:
            return self._untimed_caller_for(frame)(func, args, kwargs)
        finally:
            self.handling -= backward

    @dynamo_passthrough
    def _timed_caller(self, frame: FrameType) -> Caller:
        """Return a callable that calls a function as if `frame` did, and adds the time of the call to
        ``_inner_seconds``.
        """
        call = self._untimed_caller_for(frame)

        def timed(func: Function, args: Sequence[object], kwargs: Mapping[str, object] | None) -> object:
            """Call `func`, and add its time to ``_inner_seconds``: it is the script's time, not ours."""
            begin = _clock()
            try:
                return call(func, args, kwargs)
            finally:
                self._inner_seconds += _clock() - begin

        return timed

    def _inspect(self, op: Op) -> None:
        """Log the op if it made nodes, and pass it to the listeners of ops, unless one claims it for a
        recomputation.
        """
        events = self.events
        for listener in events.op_claimed.listeners:
            try:
                if listener(op):
                    self.last = op.after
                    return
            except Exception as error:
                events.listener_failed(listener, error)
        if op.after != op.before:
            op.entry = self._log_op(op.func, op.after, op.frame)
        if op.inspecting:
            events.op_inspected.emit(op)
        elif op.entry is None:
            # Regions are observed in a backward, too. Ops that run there, including our own norms, enter no forward.
            if (
                not self.optimizing
                and (type(op.out) in _RECORDED_TYPES or op.func is _SETITEM)
                and private.graph_task() == -1
            ):
                events.nongraph_op.emit(op.func, op.args, op.out, op.frame)
        elif op.func not in VIEWS:
            events.graph_op.emit(op.out, op.before, op.after, op.entry)

    def _log_op(self, func: object, after: int, frame: Any) -> Entry:
        """Log that an op, called by `frame`, made the nodes up to number `after` - 1; return the entry of the log.

        The entry holds the user's innermost line, the function, the running module call, and the library frames in
        between.
        """
        self.last = after
        known = self.frames.known
        stack = self.modules.stack
        where = stack[-1] if stack else None
        log = self.log
        log.ends.append(after)
        code = frame.f_code
        if known.get(id(code)):  # the user's own frame: no search needed
            entry = self._entries.get((id(code), frame.f_lasti, func, where, None))
            if entry is not None:
                log.entries.append(entry)
                return entry
        # The library frames from the module call down to here: Note [Stacks of libraries].
        user, call = frame, code_objects.MODULE_CALL if stack else None
        way: Any = None
        while user is not None:
            code = user.f_code
            mine = known.get(id(code))
            if mine is None:
                mine = self.frames.is_user(code)
            if mine:
                break
            way = (way, id(code), user.f_lasti)
            user = user.f_back
            if code is call:
                user = self.frames.first(user)
                break
        spot = self.frames.generated(frame) if frame.f_code.co_filename.startswith(GENERATED) else None
        # The same op recurs every step: one tuple for each, so that logs compare quickly and no garbage is created
        # (Note [Hooks made once]). The key is the id of the code object, which the entry keeps alive.
        if spot is not None:
            code, lasti, way = *spot, None
        else:
            code, lasti = (user.f_code, user.f_lasti) if user is not None else (None, 0)
        key = (id(code), lasti, func, where, way)
        entry = self._entries.get(key)
        if entry is None:
            if len(self._entries) > 500_000:
                self._entries.clear()
            library = self._stacks.between(frame, user) if spot is None else None
            entry = self._entries[key] = (code, lasti, func, where, library)
        log.entries.append(entry)
        return entry

    def _emit_writes(self, kind: Any, func: Function, args: Args, kwargs: Any, seq: int, frame: FrameType) -> None:
        """Emit ``wrote``, or ``wrote_in_step`` inside an optimizer, with the tensors that an op wrote in place, if any.

        :param kind: how the function writes in place; ``None`` if only ``out=`` is written.
        :param seq: the node counter after the call.
        """
        written = targets(kind, args, kwargs) if kind is not None else []
        if kwargs and "out" in kwargs:
            out = kwargs["out"]
            written += out if isinstance(out, (list, tuple)) else [out]
        if written:
            event = self.events.wrote_in_step if self.optimizing else self.events.wrote
            event.emit(func, written, seq, frame)

    def is_here(self) -> bool:
        """Return whether the current thread is the one that is recorded."""
        return threading.get_ident() == self.thread

    def modes(self) -> tuple[int, int]:
        """Return the depth of the mode stack and how often ``push`` entered it, for ``unwind``."""
        return private.mode_depth(), self._pushed

    def push(self, *_: object) -> None:
        """Activate this mode before a node that runs Python code: the engine runs nodes without the modes of the
        caller.
        """
        if self._off_reasons & DYNAMO:
            return
        self.__enter__()
        self._pushed += 1
        self.last = _next()

    def pop(self, *_: object) -> None:
        """Leave the mode after a node that runs Python; undoes ``push``."""
        if self._pushed and not self._off_reasons & DYNAMO:
            self._pushed -= 1
            self.__exit__(None, None, None)

    def unwind(self, modes: tuple[int, int]) -> None:
        """Restore the mode stack to the state `modes` after a hook of a node raised.

        The engine normally restores the modes of each node, but not in that case.
        """
        depth, self._pushed = modes
        while private.mode_depth() > depth:
            self.__exit__(None, None, None)

    def _log_unobserved_nodes(self, now: int, frame: FrameType) -> None:
        """Log nodes that were made outside any observed call: ``Function.apply``, C++ extensions, compiled code."""
        spot, name, inner = None, None, None
        under = self._custom.innermost(frame)
        if under is not None:
            caller = under.f_back
            spot, name = self.frames.spot_of_call(caller), "Function.apply"
            inner = self._stacks.between(caller, self.frames.first(caller))
        stack = self.modules.stack
        self.log.ends.append(now)
        self.log.entries.append((*(spot or (None, 0)), name, stack[-1] if stack else None, inner))
        self.last = now

    def attribute_nodes(self, spot: CodeLocation | None, name: str) -> None:
        """Attribute the nodes made since the last op to a call `name` at `spot` that is observed in another way."""
        now = _next()
        if self.recording and now != self.last:
            self.log.ends.append(now)
            self.log.entries.append((*(spot or (None, 0)), name, None, None))
            self.last = now

    def log_unobserved_nodes(self) -> None:
        """Log the nodes that were made since the last observed op, if ops are recorded, as made at the current line."""
        now = _next()
        if self.recording and now != self.last:
            self._log_unobserved_nodes(now, _frame(1))

    def made_at(self, tensor: torch.Tensor) -> Site | None:
        """Return the user's line of the op that made `tensor`, which has a node; ``None`` if it is not in the log."""
        return self.made_by_node(tensor.grad_fn)

    def made_by_node(self, node: torch.autograd.graph.Node) -> Site | None:
        """Return the user's line of the op that made a node, if it is in the log."""
        seq = node._sequence_nr()
        _, entries = self.log.slice(seq, seq)
        return self.frames.site(spot_of(entries[0])) if entries else None
