"""Observation of a child process, from its import of torch, its fork, or the call of its target, to its exit."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import multiprocessing.context
import multiprocessing.util
import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from ...basics.privacy import masked_arguments
from ...basics.process_clock import Moment, Startup
from ...records import BriefSteps, Measured, Replicas, Step
from ...source.tracebacks import Uncaught, mend, strip
from ...store import CODE
from ...store.writer import Writer
from .. import wall_clock
from ..alarm_dispatcher import AlarmDispatcher, said
from ..alarm_functions import by_name
from ..backward.pending_call_record import PendingCallRecord
from ..session import Session
from ..sinks.disk import DiskSink
from ..sinks.fanout import FanoutSink
from ..sinks.memory import Collector
from ..sinks.plugin import about
from ..sinks.tracker import ExperimentTrackerSink
from .bootstrap.backprobe_following import ChildEnvironment, unwatched
from .child_config import ChildConfig
from .identity import Identity, identity
from .part import Part, ending
from .stopping import stop_for
from .termination import Terminated, left_by, note_exit_code, raised_in

if TYPE_CHECKING:
    from ...findings.levels.alarms import Alarm

#: Packages whose modules train nothing if ``python -m`` runs them: torch's own, and the ``backprobe`` command, which
#: makes a run of its own.
_UNWATCHED_PACKAGES = ("torch", "backprobe")
#: Text in the ``-c`` argument of a process that ``multiprocessing`` starts, by start method.
_SPAWN_TEXT, _FORK_SERVER_TEXT = "multiprocessing.spawn import spawn_main", "multiprocessing.forkserver import main"


def arrived(plain: dict[str, object], parent: str, following: ChildEnvironment, began: float | None = None) -> None:
    """Begin observing a newly started process that has just imported torch.

    :param plain: the fields of ``ChildConfig`` as plain data.
    :param parent: ``RANK`` in the environment of the process that started this one.
    :param began: the clock when backprobe's own imports began.
    """
    config = ChildConfig.of(plain)
    following.refused = lambda pid: unwatched(str(config.folder), pid)
    kind, what = _runs(sys.orig_argv)
    me = identity(os.environ, parent)
    if multiprocessing.parent_process() is not None and _target_runs():
        begin_child(config, me)
    elif kind == "-c" and (_SPAWN_TEXT in what or _FORK_SERVER_TEXT in what):
        at_target(config, me, _SPAWN_TEXT in what)
    elif kind == "-m" and what.partition(".")[0] in _UNWATCHED_PACKAGES:
        return
    elif threading.current_thread() is not threading.main_thread():
        unwatched(str(config.folder), os.getpid())
    else:
        child = Child(config, me, anew=True, began=began)
        atexit.register(child.exits)


def _target_runs() -> bool:
    """Return whether this child of ``multiprocessing`` has passed the point at which ``at_target`` would begin."""
    return hasattr(multiprocessing.current_process(), "_target")  # the main process of a child has none until then


def _runs(command: list[str]) -> tuple[str, str]:
    """Return what a Python command line runs: ``-c`` and the code, ``-m`` and the module, or ``""`` and the script."""
    rest = iter(command[1:])
    for one in rest:
        if not one.startswith("-") or one == "-":
            return "", one
        if one in ("-W", "-X", "--check-hash-based-pycs"):
            next(rest, None)
        elif one[1] not in "WX-" and one[-1] in "cm":
            return f"-{one[-1]}", next(rest, "")
    return "", ""


def at_target(config: ChildConfig, me: Identity, spawned: bool) -> None:
    """Observe a child of ``multiprocessing`` from just before its target is called.

    Only then is it known whether the child is a worker of a data loader. Replaces the empty method that multiprocessing
    calls there, in the child alone.
    """
    if spawned:
        empty: Any = multiprocessing.context.SpawnProcess
        before = empty.__dict__.get("_after_fork")

        def begin() -> None:
            """Restore the method that was replaced, and begin to observe this child."""
            empty._after_fork = before
            begin_child(config, me)

        empty._after_fork = staticmethod(begin)
    else:
        # A child of a fork server.
        multiprocessing.util.register_after_fork(config, lambda _: begin_child(config, me))


def begin_after_fork(owner: object, begin: Callable[[], None], is_user: Callable[[CodeType], bool]) -> None:
    """Call `begin` in processes that are forked from this one while `owner` is alive.

    The fork is made by ``multiprocessing`` or by a line of the script.

    :param is_user: whether a code object belongs to the script.
    """
    multiprocessing.util.register_after_fork(owner, lambda _: begin())
    mine, by_hand = weakref.ref(owner), weakref.WeakMethod(begin)

    def forked() -> None:
        """Call `begin` in a child that a line of the script forked, if `owner` is still alive."""
        call = by_hand()
        if mine() is not None and call is not None and is_user(sys._getframe(1).f_code):
            call()

    os.register_at_fork(after_in_child=forked)


def begin_child(config: ChildConfig, me: Identity | None = None) -> None:
    """Observe this child of ``multiprocessing`` until it exits. Workers of data loaders are not observed."""
    target = getattr(multiprocessing.current_process(), "_target", None)
    if "torch" not in sys.modules or str(getattr(target, "__module__", "")).startswith("torch.utils.data"):
        return
    try:
        child = Child(config, me or identity(os.environ, os.environ.get("RANK")))
        if multiprocessing.parent_process() is None:  # forked by a line of the script
            atexit.register(child.exits)
        else:
            if sys.version_info >= (3, 13):
                child.raised = raised_in(multiprocessing.current_process())
            multiprocessing.util.Finalize(None, child.leaves, exitpriority=1000)
    except Exception:  # an internal error must not disturb the process
        unwatched(str(config.folder), os.getpid())


class Child:
    """The session of a child process, and the part of the run that the child writes. A sink.

    :param anew: the process was started with a script of its own.
    :param began: the clock when backprobe's own imports began.
    """

    def __init__(self, config: ChildConfig, me: Identity, anew: bool = False, began: float | None = None) -> None:
        """Make the session of this process and start it; ``leaves`` or ``exits`` finishes it.

        :param me: the process within the run.
        """
        now = Moment.now()
        startup = Startup(now if began is None else Moment(began, now.waited))
        self._config, self._me, self._anew, self._began = config, me, anew, wall_clock.now()
        self._pid = os.getpid()
        self._collector = Collector()
        self._sinks = FanoutSink([self._collector])
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        of_parent = multiprocessing.parent_process() is not None  # the same script
        own = config.own if of_parent else (os.path.dirname(os.path.abspath(main)) if main else os.getcwd(),)
        self._part = Part(config.folder, me)
        record_to = self._part.folder if config.settings.max_batch_mb else None
        self.session = Session(self, config.settings, own, whole=True, record_to=record_to)
        self._alarmed = AlarmDispatcher(self._alarm, by_name(config.on_alarm) if config.on_alarm else None)
        self._alarmed.begin(self.session)
        self._forget_code: Callable[[], None] = lambda: None
        #: Returns the exception that ended the process, if it is no longer being handled when the process exits.
        self.raised: Callable[[], BaseException | None] = lambda: None
        self._uncaught: Uncaught | None = None
        if multiprocessing.parent_process() is None:
            self._uncaught = Uncaught()
            self._forget_code = note_exit_code(self._part.folder / CODE)
        self._keep: DiskSink | None = None
        self._tracked: ExperimentTrackerSink | None = None
        self._wrote = self._over = False
        self._part.begin(self.session, self._collector)
        self.session.start(startup)
        self._terminated = Terminated(self._killed)
        self._terminated.start()
        self._terminated.listen()
        self._stay = left_by(self._exits_at_once)
        begin_after_fork(self, self._forked, self.session.forward.frames.is_user)

    def _forked(self) -> None:
        """In a process that this child has forked: stop the inherited session, and observe the new process by
        itself.
        """
        if not self._over and os.getpid() != self._pid:
            self._over = True
            self._stay()
            self._forget_code()
            if self._uncaught is not None:
                self._uncaught.stop()
            self.session.leave()
            begin_child(self._config)

    def backward(self, recorded: PendingCallRecord) -> None:
        """Pass on the record of a backward call. The first record opens the files of this process."""
        self._begin_keeping()
        self._part.backward(recorded)
        self._sinks.backward(recorded)

    def step(self, step: Step, session: Session) -> None:
        """Pass on the record of a step. The first record opens the files of this process."""
        self._begin_keeping()
        self._part.step(step)
        self._sinks.step(step, session)

    def brief_steps(self, steps: BriefSteps, session: Session) -> None:
        """Pass on the records of fast-path steps. The first record opens the files of this process."""
        self._begin_keeping()
        self._part.brief_steps(steps)
        self._sinks.brief_steps(steps, session)

    def measured(self, measured: Measured) -> None:
        """Pass on the statistics of a step, and check them for alarms."""
        self._begin_keeping()
        self._sinks.measured(measured)
        self._alarmed.measured(measured)

    def _alarm(self, alarm: Alarm) -> None:
        """Report an alarm to the experiment trackers, and stop the run if its kind is one of ``--stop-on``."""
        if self._tracked is not None:
            self._tracked.alarm(alarm.kind, said(alarm), alarm.step)
        if alarm.kind in self._config.stop_on:
            stop_for(alarm, self._part.rank, self._config)

    def _begin_keeping(self) -> None:
        """Open the files and trackers of this process at its first record.

        So a process that trains nothing leaves no files.
        """
        if self._wrote:
            return
        self._wrote = True
        self._begin_tracking()
        info = {
            "script": sys.argv[0],
            "arguments": masked_arguments(sys.argv[1:]),
            **about(self._config.settings.level, self._began),
        }
        info["part"] = self._part.folder.name
        texts = self._config.settings.source != "none"
        with self._sinks.keeping():
            self._keep = DiskSink(Writer(self._part.folder, info, self._config.limit, texts))
            self._sinks.add(self._keep)

    def _begin_tracking(self) -> None:
        """Open the experiment trackers: rank 0 writes to them; without ranks, each process that is a script of its own
        does.
        """
        config, rank = self._config, self._me.rank
        if not config.to or (not self._anew if rank is None else rank != 0):
            return
        name = config.name if rank is not None else f"{config.name}-{self._pid}"
        with contextlib.suppress(Exception):
            self._tracked = ExperimentTrackerSink.of(config.to, config.keys, sys.argv[0], str(config.folder), name)
            self._sinks.add(self._tracked)

    def leaves(self) -> None:
        """End the session when a child of ``multiprocessing`` exits, with the exception or exit code that ends it."""
        error = sys.exc_info()[1] or self.raised()
        code = error.code if isinstance(error, SystemExit) else None
        if isinstance(error, SystemExit) and error.code and error.__context__ is not None:
            error = error.__context__  # torch.multiprocessing writes down what was raised, and exits
            mend(error, _error_file())
        if error is not None:
            strip(error)  # it is shown after this
        self._end(None if isinstance(error, SystemExit) else error, code if isinstance(code, int) else int(bool(error)))

    def exits(self) -> None:
        """Finish at the exit of any other process."""
        self._end(getattr(sys, "last_value", None), None)

    def _exits_at_once(self, code: int, frame: FrameType, main: bool) -> None:
        """Finish just before ``os._exit``, and note the line that calls it.

        :param main: the main thread calls it.
        """
        if not self._over:
            self._part.left = self.session.forward.frames.site(self.session.forward.frames.spot(frame))
            self._end(None, code, main)

    def _killed(self, main: bool) -> None:
        """Finish because of SIGTERM. `main`: called in the main thread."""
        self.session.context.receive_signal(15)
        self._end(None, None, main)

    def _end(self, error: BaseException | None, code: int | None, main: bool = True) -> None:
        """Finish the observation once, in the process that began it, and remove what was attached for its exit.

        :param error: the exception that ended the process; `code`: its exit code; ``None`` if unknown.
        :param main: called in the main thread, so that the session can be stopped properly.
        """
        if self._over or os.getpid() != self._pid:
            return
        self._over = True
        with self._terminated.after() if main and self.session.context.signal is None else contextlib.nullcontext():
            self._write(error, code, main)
        if main:
            self._stay()
            self._terminated.stop()

    def _write(self, error: BaseException | None, code: int | None, main: bool) -> None:
        """Stop the session, evaluate the findings, and write the part of this process. Errors in it are suppressed."""
        session = self.session
        session.context.end_script(error, code or int(error is not None))
        with contextlib.suppress(Exception):
            if main:
                if session.context.signal is None:
                    self._alarmed.end()
                session.stop()
            else:
                self._collector.cut(session)
            info = ending(session, self._collector, self._began, error)
            trace = self._collector.trace(session, {**info, "pid": self._pid, "part": self._part.folder.name})
            trace.note_unseen(self._sinks.lost)
            findings = list(trace.findings)
            if self._tracked is not None:
                self._tracked.close(findings, killed=session.context.signal is not None)
                trace.note_unseen(self._tracked.unseen)
            if self._keep is not None and not self._sinks.lost:
                with self._sinks.keeping():
                    self._keep.close(session, trace, findings, info)
                trace.note_unseen(self._sinks.lost)
            self._part.over(
                *(error is not None or bool(code), findings, trace.coverage.own_gaps),
                error=(info["error"] or "")[:500],
                code=code if code is not None else 1 if error is not None else None,
                signal=session.context.signal,
                replicas=trace.facts.of(Replicas),
            )


def _error_file() -> str | None:
    """Return the file in which ``torch.multiprocessing`` stores the exception of this child.

    Returns ``None`` if there is none.
    """
    process: Any = multiprocessing.current_process()
    of = getattr(getattr(process, "_target", None), "__module__", "")
    last = process._args[-1] if of == "torch.multiprocessing.spawn" and process._args else None
    return last if isinstance(last, str) else None
