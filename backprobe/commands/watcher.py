"""The lifecycle of an observed run: records are collected and saved, progress is printed, findings are reported at the
end.
"""

from __future__ import annotations

import argparse
import linecache
import os
import platform
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..basics.errors import BackprobeError, StorageError, add_note
from ..basics.privacy import masked_arguments
from ..basics.process_clock import Moment, Startup
from ..basics.terminal import say
from ..basics.text import raised
from ..observe import wall_clock
from ..observe.alarm_functions import function_named
from ..observe.processes.child_config import ChildConfig
from ..observe.processes.child_launch import ChildLaunch
from ..observe.processes.identity import identity
from ..observe.processes.rendezvous import join_run_folder, temporary
from ..observe.processes.signals import start_ticks
from ..observe.processes.termination import Terminated, left_by
from ..observe.sinks.disk import DiskSink
from ..observe.sinks.fanout import FanoutSink
from ..observe.sinks.memory import Collector
from ..observe.sinks.plugin import PluginSink, about
from ..observe.sinks.tracker import ExperimentTrackerSink
from ..records import BriefSteps, Facts, Finding, Measured, RankSeen, Replicas, Site, Step, Unseen
from ..records.places import short_path
from ..store.job import goes_on, is_run, job_of, load_run
from ..store.parts import locked, read_parts, write_seen
from ..store.reader import open_run
from ..store.writer import Writer, amend, cannot_write
from ..trace_api import Trace
from ..traces import Trace as TraceData
from ..view.github import workflow_commands
from ..view.overhead import overhead
from ..view.parts import Part as ReportPart
from ..view.parts import report
from ..view.terminal import write
from .files import RUNS, new_run, write_findings

if TYPE_CHECKING:
    from ..findings.levels.alarms import Alarm
    from ..observe.alarm_dispatcher import AlarmDispatcher
    from ..observe.backward.pending_call_record import PendingCallRecord
    from ..observe.processes.children import Children
    from ..observe.processes.part import Part
    from ..observe.program import Program
    from ..observe.schedule.settings import Settings
    from ..observe.session import Session

#: Seconds to wait for other processes after this one was interrupted, as long as they are busy; another Ctrl-C ends the
#: wait.
INTERRUPTED = 60.0


class Watcher:
    """The observer of ``backprobe run``: saves the session's records, prints progress, and reports findings at the end.

    Before the script imports torch there is no session: ``begin`` prepares what is needed from the start (the run
    folder, the configuration for child processes), and ``attach`` the rest. It is also the session's sink: ``step`` and
    ``measured`` receive the records. See ``ScriptObserver`` for when each method is called.
    """

    def __init__(self, options: argparse.Namespace, settings: Settings) -> None:
        self.options, self.settings = options, settings
        self.collector = Collector()
        self.keep: DiskSink | None = None
        self._plugged: PluginSink | None = None
        self._tracked: ExperimentTrackerSink | None = None
        self._sinks = FanoutSink([self.collector])
        self._me = identity(os.environ)
        #: If a launcher started several ranks: the folder of this process's part of the run, and that part.
        self._place: Path | None = None
        self._part: Part | None = None
        self._launch: ChildLaunch | None = None
        self._undo: Callable[[], None] = lambda: None
        self._children: Children | None = None
        self._terminated = Terminated(self._killed)
        self._stay: Callable[[], None] = lambda: None
        self.findings: list[Finding] = []
        self._alarmed: AlarmDispatcher | None = None
        #: Observation ended before the script did, or could not begin.
        self.stopped = False
        self._failure: Unseen | None = None
        self.folder: Path | None = None
        #: Why the run could not be saved, if it should have been.
        self._not_kept: list[Unseen] = []
        #: Why the file of ``--findings`` could not be written.
        self.unwritten: BackprobeError | None = None
        self._session: Session | None = None
        self._own = ""
        #: The exit code of the script, and whether a signal ended it.
        self._code, self._signal = 0, False
        self._begin = wall_clock.now() - (Moment.now().clock - options.began.clock)
        self._shown = wall_clock.now()
        self._findings_file = Path(os.path.abspath(options.findings)) if options.findings else None

    def begin(self, program: Program) -> None:
        """Prepare before the script starts: the run folder, trackers, child processes' configuration, and SIGTERM's
        handler.
        """
        options, self._own = self.options, program.folder
        self._on_alarm = function_named(options.on_alarm) if options.on_alarm else None
        given = masked_arguments(options.args)
        self._info = {"script": options.script, "arguments": given, **about(options.level, self._begin)}
        mine = self._folders()
        if self._is_part:
            assert mine is not None
            self._info["part"] = mine.name
        if not options.no_keep and mine is not None:
            self._begin_keeping(mine, self._info)
        if options.log_to and not self._me.rank:
            self._begin_tracking()
        self._launch = ChildLaunch(self.folder, self._told, equals=self._is_part)
        self._launch.start()
        self._terminated.start()
        if self._is_part:
            self._stay = left_by(self._leaves)
            self._save_seen(over=False)  # in case the process is killed

    def _told(self, folder: Path) -> ChildConfig:
        """Return the configuration for child processes of a run in `folder`; trackers only from the first rank."""
        options = self.options
        told = ChildConfig(
            *(folder, self.settings, (self._own,), options.max_run_mb << 20),
            stop_on=tuple(options.stop_on),
            on_alarm=options.on_alarm or "",
            first=os.getpid(),
            first_ticks=start_ticks(os.getpid()),
        )
        if self._me.rank:
            return told
        return replace(told, to=tuple(options.log_to), keys=tuple(options.metrics), name=self._name)

    @property
    def _is_part(self) -> bool:
        """Whether a launcher started this process as one of several."""
        return self._place is not None

    def attach(self, own: tuple[str, ...], script_s: float) -> Session:
        """Start the session with its sinks, alarms and plugins, when torch has been imported; return the session."""
        from ..observe.alarm_dispatcher import AlarmDispatcher
        from ..observe.overrides import change
        from ..observe.processes.children import Children
        from ..observe.processes.part import Part
        from ..observe.session import Session

        assert self._launch is not None
        self._undo = change(self.options.override)
        record_to = (self._place or self.folder) if self.keep is not None else None
        self._session = session = Session(self, self.settings, own, whole=True, record_to=record_to)
        self._alarmed = AlarmDispatcher(self._alarm, self._on_alarm)
        self._alarmed.begin(session)
        self._plugged = PluginSink(lambda: {**self._info, "run": str(self.folder) if self.folder else None})
        self._sinks.add(self._plugged)
        if self._place is not None:
            assert self.folder is not None
            self._part = Part(self.folder, self._me, self._place)
            self._part.begin(session, self.collector)
        self._children = Children(session, self._launch)
        session.run_facts.attach(self._children)
        self._terminated.listen()
        session.start(Startup(self.options.began, script_s))
        return session

    def forked(self) -> None:
        """Begin observing in a process that the script forked; called in that process."""
        from ..observe.processes.attach import begin_child

        assert self._launch is not None
        begin_child(self._launch.config)

    def failed(self, error: Exception) -> None:
        """Note that the session could not start; the script goes on unobserved."""
        if self._part is not None and self._part.waiting is not None:
            self._part.waiting.stop()
        self._session = self._part = None
        self._failure = Unseen("script", 1, f"watching could not begin: {raised(error)}"[:300])
        self.stopped = True

    def abandon(self) -> None:
        """Undo ``begin`` and delete the folder that it created: the script could not start."""
        self._stay()
        self._terminated.stop()
        if self._launch is not None:
            self._launch.stop()
        if self.keep is not None and self.folder is not None and self._place is None:
            self.keep.writer.abandon()
            if not self.options.out:
                shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _name(self) -> str:
        """The name of the run in trackers: that of its folder, or of the script with the time if there is no folder."""
        if self.folder is not None:
            return self.folder.name
        return f"{Path(self.options.script).stem}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(self._begin))}"

    def _begin_tracking(self) -> None:
        """Start the trackers' processes, before child processes are observed, so that trackers themselves are not."""
        options = self.options
        folder = os.path.relpath(self.folder) if self.folder is not None else ""
        self._tracked = ExperimentTrackerSink.of(options.log_to, options.metrics, options.script, folder, self._name)
        self._sinks.add(self._tracked)

    def _folders(self) -> Path | None:
        """Return the folder that this process writes to: that of the run, or of its part of the run; ``None`` if it
        saves none.

        If a launcher started several ranks, the first one creates the run folder, and the others join it.
        """
        options, me = self.options, self._me
        out = Path(options.out).absolute() if options.out else None
        try:
            if (me.world or 1) < 2:
                self.folder = None if options.no_keep else out or new_run(options.script).absolute()
                return self.folder
            if options.no_keep:
                out = temporary(me)
            self.folder, mine = join_run_folder(
                me, out, Path(RUNS).absolute(), lambda: new_run(options.script).absolute()
            )
            self._place = mine
            return mine
        except OSError as error:
            self._cannot_keep(cannot_write(out or Path(RUNS), error))
            return None

    def _begin_keeping(self, folder: Path, info: dict[str, object]) -> None:
        """Create the file of the run in `folder`, with `info` about it, and add it to the sinks.

        If that fails, the run is watched without being saved.
        """
        try:
            texts = self.options.source != "none"
            self.keep = DiskSink(Writer(folder, info, self.options.max_run_mb << 20, texts))
        except BackprobeError as error:
            self._cannot_keep(error)
            return
        self._sinks.add(self.keep)

    def _cannot_keep(self, error: BackprobeError) -> None:
        """Continue without saving the run.

        :raises BackprobeError: the user has named a folder that cannot hold a run.
        """
        self.folder = None
        if self.options.out and not isinstance(error, StorageError):
            raise error
        self._not_kept.append(Unseen("kept run", 1, f"not kept: {error}", hides=False))
        if not self.options.quiet:
            say(f"backprobe: the run is not kept: {error}", sys.stderr)

    def backward(self, recorded: PendingCallRecord) -> None:
        """Pass a recorded backward call on to the file of the run and other sinks; called by the session."""
        if self._part is not None:
            self._part.backward(recorded)
        self._sinks.backward(recorded)

    def measured(self, measured: Measured) -> None:
        """Pass statistics of a step on to the sinks and to the alarms; called by the session."""
        self._sinks.measured(measured)
        if self._alarmed is not None:
            self._alarmed.measured(measured)

    def _alarm(self, alarm: Alarm) -> None:
        """Pass an alarm on to the trackers, and stop the script if ``--stop-on`` names its kind."""
        if self._tracked is not None:
            from ..observe.alarm_dispatcher import said

            self._tracked.alarm(alarm.kind, said(alarm), alarm.step)
        if alarm.kind in self.options.stop_on and self._children is not None:
            self._children.stop_for(alarm, self._part.rank if self._part is not None else None)

    def step(self, step: Step, session: Session) -> None:
        """Pass a finished step on to the sinks, and print progress; called by the session."""
        self._sinks.step(step, session)
        if self._part is not None:
            self._part.step(step)
        self._step_shown(session)

    def brief_steps(self, steps: BriefSteps, session: Session) -> None:
        """Pass finished brief steps on to the sinks, and print progress; called by the session."""
        self._sinks.brief_steps(steps, session)
        if self._part is not None:
            self._part.brief_steps(steps)
        self._step_shown(session)

    def _step_shown(self, session: Session) -> None:
        """Print progress, unless ``--quiet`` or another rank does it."""
        if not self.options.quiet and not self._me.rank:
            self._progress(session)

    def _progress(self, session: Session) -> None:
        """Print a line with steps, time and overhead, every ten seconds on a terminal, every minute in a log."""
        now = wall_clock.now()
        if now - self._shown < (10 if sys.stderr.isatty() else 60):
            return
        self._shown = now
        seconds = now - self._begin
        text = overhead(session.cost.took.info(), parts=False)
        say(f"backprobe: {self.collector.counted(session):,} steps in {seconds:.0f} s; {text}", sys.stderr)

    def _killed(self, main: bool) -> None:
        """Finish because a signal ends the process. `main`: this is the main thread, so everything can be undone."""
        self._signal = True
        self._stop(main)
        if self._session is not None:
            self._session.context.receive_signal(15)
        self.finish(None, 0)

    def _leaves(self, code: int, frame: FrameType, main: bool) -> None:
        """Finish just before a rank calls ``os._exit`` with `code`, which would skip all other handlers.

        :param main: as in ``_killed``.
        """
        session = self._session
        if session is not None and self._part is not None:
            self._part.left = session.forward.frames.site(session.forward.frames.spot(frame))
        self._stop(main)
        self.finish(None, code)

    def _stop(self, main: bool) -> None:
        """Stop recording; if this is not the `main` thread, only note where it was cut off."""
        if self._session is None:
            return
        if main:
            self._session.stop()
        else:
            self.collector.cut(self._session)

    def finish(self, error: BaseException | None, code: int) -> None:
        """Save and report the run after the script has ended, and undo all that was attached.

        :param error: the script's uncaught error; ``code``: its exit code.
        """
        assert self._launch is not None
        self._stay()
        self._code = code
        if self._session is not None and not self._signal:
            self._session.context.end_script(error, code)
        try:
            with nullcontext() if self._signal else self._terminated.after():
                self._finish(error)
        finally:
            self._launch.stop()
            if self._children is not None:
                self._children.stop()
            self._undo()
            if not self._signal:
                self._terminated.stop()

    def _ending(self, error: BaseException | None) -> dict[str, object]:
        """Return the data that is stored about this process at its end: steps, seconds, error, exit code."""
        if self._session is not None:
            from ..observe.processes.part import ending

            return ending(self._session, self.collector, self._begin, error)
        return {
            "steps": 0,
            "backwards": 0,
            "seconds": wall_clock.now() - self._begin,
            "code": None if self._signal else self._code,
            "error": None if error is None else raised(error)[:2000],
            "torch_imported": "torch" in sys.modules,
            **({"signal": 15} if self._signal else {}),
        }

    def _trace(self, info: dict[str, object]) -> Trace:
        """Return the trace of this process; without a session, an empty one that says why nothing was observed."""
        if self._session is not None:
            return self.collector.trace(self._session, info)
        assert self._launch is not None
        unseen = [*self._launch.unseen()]
        if self._failure is not None:
            unseen.append(self._failure)
        elif info["torch_imported"]:
            unseen.append(Unseen("script", 1, "torch was loaded without an import of it that backprobe could see"))
        return Trace((), Facts(unseen=tuple(unseen), seen=self._launch.seen()), info)

    def _wait(self, error: BaseException | None, failed: bool) -> None:
        """Give other processes of the run time to finish, unless this one failed or was killed."""
        if self._launch is None or self._signal:
            return
        with self._session.cost.exclude_from_end() if self._session is not None else nullcontext():
            self._wait_for_others(self._launch, error, failed)

    def _wait_for_others(self, launch: ChildLaunch, error: BaseException | None, failed: bool) -> None:
        """Wait for other processes; only a limited time if the user interrupted this one."""
        waiting = self._session.context.waiting if self._session is not None else None
        ranked = waiting is not None and waiting.rank is not None
        if isinstance(error, KeyboardInterrupt):  # most likely the others were interrupted too
            with suppress(KeyboardInterrupt):
                launch.wait(ranked, INTERRUPTED)
        elif not failed:
            launch.wait(ranked)

    def _finish(self, error: BaseException | None) -> None:
        """End a run: wait for other processes, compute findings, save the run, and print the report."""
        options = self.options
        if self._alarmed is not None and error is None and not self._signal:
            self._alarmed.end()
        info = self._ending(error)
        self._wait(error, bool(info["error"] or info["code"]))
        about: dict[str, object] = {**self._info, "pid": os.getpid(), "started": self._begin}
        if self._place is not None:
            about["part"] = self._place.name
        trace = self._trace({**about, **info})
        self.findings = list(trace.findings)
        if self._plugged is not None:
            self._plugged.close(trace)
        if self._tracked is not None:
            self._tracked.close(self.findings, killed=self._signal)
            trace.note_unseen(self._tracked.unseen)
        if error is not None and not options.quiet:
            for finding in self.findings[:1]:
                add_note(error, f"backprobe: {finding}")
        self.stopped = self.stopped or trace.coverage.observed.stopped is not None
        trace.note_unseen([*self._not_kept, *self._sinks.lost])
        if self.keep is not None and not self._sinks.lost:
            with self._sinks.keeping():
                if self._session is not None:
                    self.keep.close(self._session, trace, self.findings, info)
                else:
                    self.keep.writer.check_there()
                    self.keep.writer.put(info)
                    self.keep.writer.close(trace.facts, self.findings)
            trace.note_unseen(self._sinks.lost)
        if self._place is not None:
            self._finish_part(error, trace, info)
            return
        assert self._launch is not None and self._launch.of_parts is not None
        job = job_of(self._launch.of_parts, trace)
        numbers = self._kept() if job is trace and not options.quiet else None
        parts = [] if options.quiet else self._parts(job, numbers, self.keep is not None)
        job.info = {**job.info, **self._took()}  # keep the numbers that the report printed
        self._keep_overhead()
        if self.keep is not None and self.folder is not None and not self._sinks.lost:
            with self._sinks.keeping():
                write_findings(self.folder / "findings.json", job, options.source)
            job.note_unseen(self._sinks.lost)
        self._write_findings(job)
        if not options.quiet:
            self._print(parts, job.findings, self.keep is not None)
        job.close()

    def _finish_part(self, error: BaseException | None, trace: Trace, info: dict[str, Any]) -> None:
        """End one of several ranks: each rank that ends writes the data of all, and the last one prints the report."""
        options, folder = self.options, self.folder
        assert folder is not None
        how = {name: info.get(name) for name in ("code", "signal")}
        failed = bool(info["error"] or info["code"])
        job: TraceData = trace
        last = True
        try:
            with locked(folder):
                how["error"] = (info["error"] or "")[:500]
                if self._part is not None:
                    how["replicas"] = trace.facts.of(Replicas)
                    self._part.over(failed, self.findings, trace.coverage.own_gaps, **how)
                else:
                    self._save_seen(
                        over=True, gaps=tuple(trace.coverage.own_gaps), raised=self._raised_at(error), **how
                    )
                job = load_run(folder)
                self.findings = list(job.findings)
                last = not any(goes_on(seen) for seen in read_parts(folder).values())
                if not options.no_keep:
                    with self._sinks.keeping():
                        write_findings(folder / "findings.json", job, options.source)
                self._write_findings(job)
        except (OSError, BackprobeError) as broken:  # the folder of the run is gone or not writable
            with self._sinks.keeping():
                raise broken
            self._write_findings(trace)
        job.note_unseen([one for one in self._sinks.lost if one not in job.facts.unseen])
        if not options.quiet and (last or failed):
            kept = not options.no_keep
            self._print(self._parts(job, None, kept), job.findings, kept)
        job.close()
        if last and options.no_keep:
            shutil.rmtree(folder, ignore_errors=True)

    def _save_seen(self, over: bool, **how: Any) -> None:
        """Write the state of this process to its part of the run, if there is no session that does so.

        :param over: it has ended. ``how``: other fields of ``RankSeen``.
        """
        me, place = self._me, self._place
        assert place is not None
        ticks = start_ticks(os.getpid())
        seen = RankSeen(
            me.rank,
            os.getpid(),
            start_ticks=ticks,
            over=over,
            local=me.local,
            world=me.world,
            restart=me.restart,
            **how,
        )
        with suppress(OSError):
            seen = replace(seen, machine=platform.node(), part=place.name, said=wall_clock.now())
            write_seen(place, seen, self.options.source != "none")

    def _raised_at(self, error: BaseException | None) -> Site | None:
        """Return the innermost line of the script's own folder in the traceback of `error`."""
        found = None
        for frame, line in traceback.walk_tb(error.__traceback__ if error is not None else None):
            code = frame.f_code
            if code.co_filename.startswith(self._own + os.sep) and "site-packages" not in code.co_filename:
                text = linecache.getline(code.co_filename, line).strip()
                found = Site(code.co_filename, line, code.co_name, text)
        return found

    def _took(self) -> dict[str, object]:
        """Return the times of the run and the overhead, for the report and for storage; later calls return the same."""
        if self._session is None:
            return {}
        took = self._session.cost.freeze()
        return {**took.info(), "seconds": took.elapsed + took.waited}

    def _keep_overhead(self) -> None:
        """Add the overhead to the saved run, after the report was built; a run that cannot be written stays
        as it is.
        """
        if self.keep is not None and self.folder is not None and not self._sinks.lost:
            with suppress(BackprobeError):
                amend(self.folder, self._took())

    def _write_findings(self, trace: TraceData) -> None:
        """Write the file of ``--findings``. An error is printed, since the script has already ended."""
        if self._findings_file is not None:
            try:
                write_findings(self._findings_file, trace)
            except BackprobeError as error:
                self.unwritten = error
                say(f"backprobe: {error}", sys.stderr)

    def _parts(self, trace: TraceData, numbers: TraceData | None, kept: bool) -> Sequence[ReportPart]:
        """Return the parts of the report. The overhead is measured after all other parts are built."""
        own = trace.info.get("pid") == os.getpid()
        whole = kept and not self._sinks.lost
        return report(trace, self.folder if whole else None, numbers=numbers, took=self._took if own else None)

    def _print(self, parts: Sequence[ReportPart], findings: Sequence[Finding], kept: bool) -> None:
        """Print the report, where trackers wrote to, and GitHub's workflow commands if requested."""
        write(parts, sys.stderr)
        if kept and self._sinks.lost and self.folder is not None and is_run(self.folder):
            say(f"What was kept before that is in {short_path(str(self.folder))}", sys.stderr)
        for tracker, at, left_out in self._tracked.written if self._tracked is not None else ():
            less = f", without {left_out:,} curves of single layers (--metrics)" if left_out else ""
            say(f"Written to {tracker}: {at}{less}", sys.stderr)
        if self.options.format == "github":
            for line in workflow_commands(findings):
                say(line, sys.stderr)

    def _kept(self) -> TraceData | None:
        """Return the run as it was saved, since memory has fewer of its steps; ``None`` if it was not saved."""
        try:
            return open_run(self.folder) if self.keep is not None and self.folder is not None else None
        except BackprobeError:
            return None
