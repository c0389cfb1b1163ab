"""``backprobe.debug``: runs the native engine in a second thread, which waits at each stop for the caller's commands.

Note [One of two threads runs]: The engine's thread runs between a command and the next stop, the caller's otherwise.

Note [What the engine's thread takes over]: The state that torch keeps per thread (``private.ThreadState``), the
caller's context variables and, if the backward creates a graph, the caller's node sequence counter.

Note [Interrupted commands]: Ctrl-C may arrive between any two instructions of the caller's thread. One assignment
issues a command (``_asked``); every step after it can be repeated: waking the engine, waiting for its answer, restoring
its state in the caller.

Note [Dropped handles]: The engine's thread holds no reference to the handle. Dropping the handle ends its thread, and
so does the interpreter's exit.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from torch import nn

from ..basics.errors import BackprobeError
from ..observe.forward.torch_call_recorder import TorchCallRecorder
from ..torch_internals import private
from ..torch_internals.entry_points import BY_FUNCTION, BY_KIND
from .backward_graph import call_kind
from .control import run
from .nested import Passing
from .provenance import Forward, forward_of
from .resume import ABORT, CONTINUE, FINISH, Resume
from .steering import Steering
from .stop import Stop
from .stop_controller import BackwardAborted, StopController

#: Seconds that a dropped handle waits for its thread to end.
_JOIN_TIMEOUT_S = 5.0


class _Nested(Passing):
    """Function mode that is active while a node runs that may call backward itself."""

    def __init__(self, pilot: StopController, forward: Forward) -> None:
        """Prepare the mode for a debugged call. `pilot` decides where to stop in nested calls."""
        super().__init__()
        self._pilot, self._forward = pilot, forward

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run a backward function that a node calls under the same controller; any other function as it is."""
        kwargs = kwargs or {}
        entry = BY_FUNCTION.get(func)
        if entry is None:
            return func(*args, **kwargs)
        return run(self._pilot, entry.kind, args, kwargs, lambda: func(*args, **kwargs), self._forward)


def _go_on(stop: Stop) -> Resume:
    """Resume without stopping: what is done at a stop of a call that is over."""
    return CONTINUE


class _Command:
    """A command to the engine: how to resume, and whether it has reached a stop or the end since."""

    __slots__ = ("_lock", "answered", "resume")

    def __init__(self, resume: Resume) -> None:
        """Take the command; it counts as not carried out until the engine answers."""
        self.resume, self.answered = resume, False
        self._lock = threading.Lock()
        self._lock.acquire()

    def answer(self) -> None:
        """Note that the engine has reached a stop or the end, and wake the caller."""
        self.answered = True
        self._lock.release()

    def wait(self) -> None:
        """Block until the engine has answered."""
        while not self.answered:
            self._lock.acquire()


class _Engine:
    """The second thread: runs one backward call and hands over at stops; see Note [One of two threads runs]."""

    def __init__(self, pilot: StopController, call: Callable[[], object], count: bool) -> None:
        """Prepare the thread that runs `call`; ``start`` starts it.

        :param count: the backward creates a graph, so the caller's sequence counter is taken over.
        """
        self.pilot = pilot
        pilot.on_stop = self._stopped
        self._call: Callable[[], object] | None = call
        self._state: private.ThreadState | None = private.ThreadState()
        self._context = contextvars.copy_context()
        self._begun = dict(self._context.items())
        self._counter = private.next_sequence_nr() if count else 0
        self._made = 0
        #: See Note [Interrupted commands]: the last command issued, the command that the engine executes, and the last
        #: command whose end the caller has seen.
        self._asked = self._taken = _Command(CONTINUE)
        self._seen: _Command | None = None
        self._go = threading.Lock()
        self._go.acquire()
        self._dropped = False
        self.stop: Stop | None = None
        self.result: object = None
        self.error: BaseException | None = None
        self.over = False
        self.pid = os.getpid()
        self.thread = threading.Thread(target=self._main, name="backprobe-debug", daemon=True)

    def _main(self) -> None:
        """Run the call to its end, and keep its error. The body of the engine's thread."""
        try:
            self._context.run(self._run)
        except BaseException as error:
            self.error = error
        finally:
            self._call = self._state = None
            self.over, self.stop = True, None
            self._taken.answer()

    def _run(self) -> None:
        """Run the backward call on this thread, with torch's thread-local state of the caller's thread."""
        state, call = self._state, self._call
        assert state is not None and call is not None
        # Sessions belong to the caller's thread, and would confuse two backwards.
        state.modes = [mode for mode in state.modes if not isinstance(mode, TorchCallRecorder)]
        if self._counter:
            private.skip_sequence_numbers(self._counter - private.next_sequence_nr())
        state.put()
        try:
            self.result = call()
        finally:
            if self._counter:
                self._made = private.next_sequence_nr() - self._counter
            state.clear()

    def _stopped(self, stop: Stop) -> Resume:
        """Hand over to the caller at a stop, wait for a command, and return it; runs in the engine's thread."""
        if self._dropped:
            return ABORT
        self.stop = stop
        self._taken.answer()
        while self._asked is self._taken:
            self._go.acquire()
        self._taken, self.stop = self._asked, None
        return ABORT if self._dropped else self._taken.resume

    def start(self) -> None:
        """Start the thread, and wait for the first stop."""
        self.thread.start()
        self.wait()

    @property
    def waiting(self) -> bool:
        """Whether a command is being executed, or its end has not been seen yet."""
        return self._asked is not self._seen

    def send(self, resume: Resume) -> None:
        """Resume the engine, and return at the next stop or the end."""
        self._asked = _Command(resume)
        self.wait()

    def wait(self) -> None:
        """Wait for the engine. A first Ctrl-C stops it at the next node; a second one raises and leaves it running."""
        try:
            self._wake()
            self._asked.wait()
        except KeyboardInterrupt:
            self.interrupt()
            self._asked.wait()
        if self.over:
            self.thread.join()
            self._back()
        self._seen = self._asked

    def _wake(self) -> None:
        """Wake the engine's thread to check for a command. Waking it too often is harmless."""
        with contextlib.suppress(RuntimeError):  # it is awake
            self._go.release()

    def interrupt(self) -> None:
        """Make a running engine stop at the next node."""
        self._wake()
        if not self._asked.answered:
            self.pilot.interrupted = True

    def _back(self) -> None:
        """Copy the state that the call left in its thread to the caller: sequence counter and context variables."""
        if self._made:
            private.skip_sequence_numbers(self._made)
            self._made = 0
        missing = object()
        for variable, value in self._context.items():
            if self._begun.get(variable, missing) is not value:
                variable.set(value)
        self._begun = dict(self._context.items())

    def drop(self) -> None:
        """End the backward because the handle is gone or the interpreter exits, and wait briefly for the thread.

        See Note [Dropped handles].
        """
        if os.getpid() != self.pid or self.over or not self.thread.is_alive():
            return
        self._dropped = True
        if self._asked.answered:
            self._asked = _Command(ABORT)
        else:  # it runs: stop it at its next node
            self.pilot.resume, self.pilot.interrupted = CONTINUE, True
        self._wake()
        if threading.current_thread() is not self.thread and not sys.is_finalizing():
            self.thread.join(_JOIN_TIMEOUT_S)


class Debugger(Steering):
    """A paused backward that continues on command. Created by ``backprobe.debug``.

    As a context manager, it runs to the end when the block ends, or aborts the backward if the block raises.
    """

    def __init__(self, pilot: StopController, engine: _Engine) -> None:
        """Start the engine's thread and stop before the first node. Raises what torch raises for the call."""
        super().__init__(pilot)
        self._engine = engine
        self._raised: BaseException | None = None
        self._aborted = False
        self._finalizer = weakref.finalize(self, engine.drop)
        engine.start()
        self._settle(raise_now=True)

    # State

    @property
    def stop(self) -> Stop | None:
        """The current stop; ``None`` if the call is over."""
        return self._engine.stop

    @property
    def state(self) -> str:
        """``stopped``, ``raised`` (stopped where a node raised), ``running``, ``over`` or ``aborted``."""
        if self._engine.waiting:
            return "running"
        if self.stop is not None:
            return "raised" if self.stop.phase == "exception" else "stopped"
        return "aborted" if self._aborted else "over"

    @property
    def done(self) -> bool:
        """Whether the call is over."""
        return self.stop is None

    @property
    def result(self) -> Any:
        """The call's return value: the gradients of ``call="grad"``, else ``None``.

        :raises BackprobeError: the call is not over.
        """
        if self.state != "over":
            raise BackprobeError(f"the backward is not over, it is {self.state}: finish() it for its result")
        return self._engine.result

    # Going on

    def finish(self) -> Any:
        """Run to the end without stopping, and return the call's return value. Raises what the backward raises."""
        if self.stop is not None or self._engine.waiting:
            self._go(FINISH)
        return self.result if self.state == "over" else None

    def back(self, stops: int = 1) -> Stop:
        """Go back to an earlier stop, where gradients can be replaced and from which the backward continues.

        The call must keep its graph (``retain_graph=True``). backprobe ends the call, restores ``.grad`` of the leaves
        and the random state, and starts it again, without stops up to that point. Replacements made before that stop
        are repeated; later ones are not. Your hooks run again.

        :param stops: how many stops to go back.
        :raises BackprobeError: there are fewer stops, the graph is not kept, or a hook has a side effect that cannot be
            undone.
        """
        stop = self._here()
        self._go(self._pilot.rewind(stop, stops))
        return self._here()

    def abort(self) -> None:
        """End the backward here. Does nothing if the call is over.

        Gradients accumulated so far are kept. The graph is freed as far as the backward ran.
        """
        self._mine()
        if self._engine.waiting:
            self._engine.interrupt()
            self._engine.wait()
        if self.stop is None:
            return
        self._aborted = True
        self._pilot.breakpoints.clear()
        self._engine.send(ABORT)
        while self._engine.stop is not None:  # a node's own code caught the abort and went on
            self._engine.send(ABORT)
        self._engine.error = None

    def __repr__(self) -> str:
        """Return the state and the current stop as text."""
        stop = self.stop
        return f"<debugger {self.state}{'' if stop is None else f' {stop.phase} {stop.node}'}>"

    def __enter__(self) -> Debugger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the call: abort it if the block raised `error`, else run it to its end."""
        if error is not None:
            self.abort()
        elif not self.done or self._engine.waiting:
            self.finish()

    # Inside

    def _mine(self) -> None:
        """Check that the debugger may be steered from here.

        :raises BackprobeError: this is a forked process, or the engine's own thread.
        """
        if os.getpid() != self._engine.pid:
            raise BackprobeError("this debugger belongs to the process before the fork: its thread is not here")
        if threading.current_thread() is self._engine.thread:
            raise BackprobeError(
                "a debugger cannot be steered from inside its own backward (a hook, a condition): "
                "return, and give the command from the thread that called backprobe.debug"
            )

    def _here(self) -> Stop:
        """Return the current stop, after interrupting the engine if a second Ctrl-C had left it running.

        :raises BackprobeError: the call is over.
        """
        self._mine()
        if self._engine.waiting:  # a second Ctrl-C had left it running
            self._engine.interrupt()
            self._engine.wait()
            self._settle()
        stop = self.stop
        if stop is None:
            raise BackprobeError(f"the backward is {self.state}: there is nothing to step through any more")
        return stop

    def _go(self, resume: Resume) -> Stop | None:
        """Resume the engine, and return the next stop; ``None`` if the call is over. Raises what the call raises."""
        self._mine()
        if self._engine.waiting:
            self._engine.wait()
        else:
            self._engine.send(resume)
        self._settle()
        return self.stop

    def _settle(self, raise_now: bool = False) -> None:
        """If the call is over, let go of it, and raise its exception if there is one."""
        engine = self._engine
        if engine.over:
            self._pilot.on_stop = _go_on  # not the engine, which holds the result: a cycle would keep it
            error, engine.error = engine.error, None
            self._aborted = self._aborted or isinstance(error, BackwardAborted)
            if error is not None:
                self._aborted = True
                raise error


def debug(
    tensors: object,
    *args: object,
    call: str | None = None,
    model: nn.Module | None = None,
    trace: object = None,
    **kwargs: object,
) -> Debugger:
    """Begin a backward and stop before its first node.

    The native engine runs the backward in a second thread, so every gradient is the same as without the debugger.
    Modules and lines are known if ``backprobe.trace`` watched the forward.

    :param tensors: the roots, as in ``loss.backward``, ``autograd.backward`` or ``autograd.grad``.
    :param args: the call's other arguments (``retain_graph``, ``inputs``, ``create_graph``, ...), by position or by
        name.
    :param call: ``"backward"`` (of a tensor, or ``autograd.backward`` of several) or ``"grad"``.
    :param model: the outermost module, for the names of parameters.
    :param trace: the ``backprobe.trace`` that watched the forward, if its block has ended.
    :raises BackprobeError: `call`, `model` or `trace` is wrong, or a ``torch.func`` transform is active.

    Errors that torch itself finds in the call are raised at once, as torch raises them.

    >>> import torch, backprobe
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> dbg = backprobe.debug((x * x).sum())
    >>> dbg.node.name, dbg.step().node.name
    ('SumBackward0', 'MulBackward0')
    >>> dbg.finish()
    >>> x.grad
    tensor([2., 4.])
    """
    kind = call_kind(tensors, call)
    if private.in_transform():
        raise BackprobeError("backprobe.debug cannot run inside a torch.func transform: use breakpoint_backward there")
    with private.disable_function_modes():
        forward = forward_of(model, trace, threading.get_ident())
    pilot = StopController(_go_on, Resume("step", 1))
    function = BY_KIND[kind].function
    given = (tensors, *args)
    nested = _Nested(pilot, forward)

    def around() -> Callable[[], None]:
        """Enter the mode that sees nested backward calls of a node that runs Python; return a function that leaves
        it.
        """
        nested.__enter__()
        private.show_backward(nested)

        def leave() -> None:
            """Leave the mode again."""
            private.unshow_backward(nested)
            nested.__exit__(None, None, None)

        return leave

    pilot.around_python = around
    engine = _Engine(
        pilot, lambda: run(pilot, kind, given, kwargs, lambda: function(*given, **kwargs), forward),
        bool(kwargs.get("create_graph")),
    )  # fmt: skip
    return Debugger(pilot, engine)
