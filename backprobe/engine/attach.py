"""Stops in the engine's own thread: ``backprobe.breakpoint_backward``, and the stops of the ``debug`` command.

A session observes the forward (modules, lines) and every backward call; its ``around`` passes the calls to a
``StopController``.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from torch import nn

from ..basics.errors import BackprobeError
from ..basics.terminal import say
from ..observe.backward.intercepted_functions import DebuggedCall
from ..observe.session import Session, Settings
from ..observe.sinks.memory import Collector
from ..torch_internals import private
from .backward_graph import BackwardGraph
from .breakpoints import Breakpoint
from .control import run
from .options import BreakpointOptions, breakpoint_from
from .prompt import Prompt
from .provenance import Forward
from .resume import ABORT, CONTINUE, FINISH, Resume, step_from
from .stop import Stop
from .stop_controller import StopController

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: The function called at a stop. It returns how to resume: ``None`` (to the next breakpoint), a step (``"node"``,
#: ``"after"``, ``"into"``, ``"module"``, ``"out"``), ``"finish"`` or ``"abort"``.
Action = Callable[[Stop], str | None]


class Stops:
    """Runs the backward calls of a session under a ``StopController``.

    :param ask: called at a stop.
    :param ctrl_c: Ctrl-C during a backward stops at the next node instead of raising.
    :param retain: every call keeps its graph, so that the user can go back in it.
    """

    def __init__(
        self,
        session: Session,
        collector: Collector,
        ask: Callable[[Stop], Resume],
        resume: Resume,
        ctrl_c: bool,
        retain: bool = False,
    ) -> None:
        """Let the backward calls of `session` run under a controller from now on.

        :param collector: keeps the session's records, from which errors are explained; `resume`: how the first call
            begins.
        """
        self.session, self._collector, self._ctrl_c, self._retain = session, collector, ctrl_c, retain
        self.pilot = StopController(ask, resume)
        self.pilot.around_python = self._around_python
        self.pilot.within = session.forward.regions.recomputing
        self.pilot.on_begin = self._check
        self._checked: set[int] = set()
        observed = session.forward
        self.forward = Forward(observed.recorder, observed.modules, observed.leaves, observed.frames)
        self.calls = 0
        session.backward.intercepted.debug_with(self._around)

    def _around(self, call: DebuggedCall) -> object:
        """Run a backward call of the session under the controller, and count it if it is an outermost one."""
        pilot = self.pilot
        self.calls += not pilot.calls
        if self._retain and not pilot.calls:
            call.keep_graph()

        def begins(graph: BackwardGraph) -> int | None:
            """Count the call in the session; return the index of its training step."""
            return call.begin(graph.roots, [graph.nodes[i].variable for i in graph.plan.leaves])

        def explain(error: BaseException, ran: Sequence[int]) -> list[str]:
            """Return the findings about an error of the call as text. `ran`: the nodes that have run."""
            recorded = call.error_record(error, ran)
            if recorded is None:
                return []
            findings = self._collector.at(self.session, recorded).findings
            return [f"{finding}\n  {finding.advice}".rstrip() for finding in findings]

        kind, args, kwargs = call.entry.kind, call.args, call.kwargs
        modes = self.session.forward.recorder.modes()
        try:
            with self._interrupts():
                return run(pilot, kind, args, kwargs, call, self.forward, begins, explain)
        finally:
            self.session.forward.recorder.unwind(modes)

    def _check(self, graph: BackwardGraph) -> None:
        """Warn once, in its first call, about a breakpoint that matches no node: usually a typo."""
        for point in self.pilot.breakpoints:
            if point.number not in self._checked:
                self._checked.add(point.number)
                try:
                    point.check(graph)
                except BackprobeError as error:
                    text = f"backprobe: breakpoint {point.number} cannot stop in this backward: {error}"
                    say(text, sys.stderr)

    def _around_python(self) -> Callable[[], None]:
        """Activate the recorder before a node runs Python code that may call backward.

        :returns: the function that deactivates it again when the node has run: within a backward call it is inactive.
        """
        recorder = self.session.forward.recorder
        recorder.push()
        return recorder.pop

    @contextmanager
    def _interrupts(self) -> Iterator[None]:
        """Make Ctrl-C request a stop; a second one before that stop raises as usual. A handler of the user's stays."""
        pilot = self.pilot
        if (
            not self._ctrl_c
            or pilot.calls
            or threading.current_thread() is not threading.main_thread()
            or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        ):
            yield
            return

        def handler(number: int, frame: FrameType | None) -> None:
            """Request a stop at the next node; raise if a stop was requested already, or the user is being asked."""
            if pilot.interrupted or pilot.asking:
                raise KeyboardInterrupt
            pilot.interrupted = True

        signal.signal(signal.SIGINT, handler)
        try:
            yield
        finally:
            if signal.getsignal(signal.SIGINT) is handler:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            if pilot.interrupted:  # it came after the last node
                pilot.interrupted = False
                raise KeyboardInterrupt


class BackwardBreakpoints:
    """Breakpoints for future backward calls. Created by ``backprobe.breakpoint_backward``.

    ``remove()`` or the end of a ``with`` block ends them.
    """

    def __init__(self, point: Breakpoint | None, action: Action | None, model: nn.Module | None) -> None:
        """Begin to observe, with one breakpoint, or without one to stop at the first node of the next backward.

        :param action: called at a stop; ``None`` opens a prompt.
        """
        collector = Collector()
        self._session = Session(collector, Settings(inspected_steps=0))
        if model is not None:
            self._session.forward.modules.add_root(model, "model")
        ask: Callable[[Stop], Resume]
        if action is None:
            prompt = Prompt(self._session.forward.frames)
            ask = prompt.ask
        else:
            chosen = action
            ask = lambda stop: _resume(stop, chosen(stop))  # noqa: E731
        resume = CONTINUE if point is not None else Resume("step", 1)
        self._stops = Stops(self._session, collector, ask, resume, action is None)
        if action is None:
            prompt.pilot = self._stops.pilot
        if point is not None:
            self._stops.pilot.add(point)
        self._thread = threading.get_ident()
        self._on = True
        self._session.start()

    @property
    def breakpoints(self) -> list[Breakpoint]:
        """The breakpoints that are set. Each can ``disable()``, ``enable()`` and ``remove()`` itself."""
        return list(self._stops.pilot.breakpoints)

    def add(self, place: str | None = None, **where: Unpack[BreakpointOptions]) -> Breakpoint:
        """Add a breakpoint, with the arguments of ``breakpoint_backward``."""
        return self._stops.pilot.add(breakpoint_from(place, where))

    def remove(self) -> None:
        """Stop watching. Does nothing if it was removed already.

        :raises BackprobeError: inside a backward that it watches, or in another thread than it was created in.
        """
        if not self._on:
            return
        recorder = self._session.forward.recorder
        if threading.get_ident() == self._thread:
            recorder.return_to_stack()
        if self._stops.pilot.calls or threading.get_ident() != self._thread or recorder not in private.function_modes():
            raise BackprobeError(
                "breakpoint_backward cannot be removed inside the backward that it watches, nor from another thread: "
                "disable() its breakpoints here, and remove it where it was set"
            )
        self._on = False
        above = []
        while (mode := private.pop_function_mode()) is not recorder:
            above.append(mode)
        private.push_function_mode(recorder)
        self._session.stop()
        for mode in reversed(above):
            private.push_function_mode(mode)

    def __enter__(self) -> BackwardBreakpoints:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Remove the breakpoints at the end of the block."""
        self.remove()

    def __repr__(self) -> str:
        return f"<backward breakpoints {self.breakpoints}{'' if self._on else ', removed'}>"


def _resume(stop: Stop, answer: str | None) -> Resume:
    """Return how to resume from the answer of an action.

    :raises BackprobeError: it is not one of the allowed answers.
    """
    if answer is None:
        return CONTINUE
    if isinstance(answer, str):
        fixed = {"cont": CONTINUE, "finish": FINISH, "abort": ABORT}
        return fixed[answer] if answer in fixed else step_from(stop, answer)
    raise BackprobeError(
        f"the action of breakpoint_backward returned a {type(answer).__name__}; it returns None to go on, or one of "
        "'node', 'after', 'into', 'module', 'out', 'finish', 'abort'"
    )


def breakpoint_backward(
    place: str | None = None,
    *,
    action: Action | None = None,
    model: nn.Module | None = None,
    **where: Unpack[BreakpointOptions],
) -> BackwardBreakpoints:
    """Stop inside the backward calls to come, in the engine's own thread.

    Set it before the forward, so that the modules and lines of nodes are known. Without a place it stops at the first
    node of the next backward.

    :param place: the text form, and
    :param where: the keyword arguments, as ``Debugger.break_at`` takes them.
    :param action: called with the ``Stop``, which can be read and changed until it returns. It returns ``None`` to
        go on to the next breakpoint, a step (``"node"``, ``"after"``, ``"into"``, ``"module"``, ``"out"``),
        ``"finish"`` or ``"abort"``. Without it a prompt opens, in the manner of pdb.
    :param model: the outermost module, so that paths begin there.
    :raises BackprobeError: an argument is wrong.

    >>> import torch, backprobe
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> def halve(stop):
    ...     stop.replace(lambda g: g / 2)
    >>> with backprobe.breakpoint_backward("ExpBackward0", action=halve):
    ...     x.exp().sum().backward()
    >>> torch.equal(x.grad, x.detach().exp() / 2)
    True
    """
    given = place is not None or any(v is not None for v in where.values())
    if action is not None and not callable(action):
        raise BackprobeError(f"action is a {type(action).__name__}; it is a function of the stop")
    if model is not None and not isinstance(model, nn.Module):
        raise BackprobeError(f"model is a {type(model).__name__}; give a torch.nn.Module, or nothing")
    return BackwardBreakpoints(breakpoint_from(place, where) if given else None, action, model)
