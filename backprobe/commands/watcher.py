"""What a run that is watched comes to: collected, kept, shown while it goes on, and reported when it ends."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BackprobeError, add_note
from ..process_clock import Moment
from ..records import Finding, Measured, Replicas, Step
from .files import RUNS, new_run, write_findings

if TYPE_CHECKING:
    from ..findings.levels import Alarm
    from ..observe.alarmed import Alarmed
    from ..observe.backward.recorded import Recorded
    from ..observe.processes.children import Children
    from ..observe.processes.ending import Terminated
    from ..observe.processes.part import Part
    from ..observe.session import Session
    from ..observe.sinks.keep import Keep
    from ..observe.sinks.plugged import Plugged
    from ..observe.sinks.tracked import Tracked
    from ..traced import Trace
    from ..view.parts import Part as ReportPart

#: Seconds that other processes have to come to their end where this one was interrupted, as long as they do something:
#: another Ctrl-C ends that.
INTERRUPTED = 60.0


class Watcher:
    """Collects what the session sees, keeps it, shows progress, and says what was found."""

    def __init__(self, options: argparse.Namespace) -> None:
        from ..observe.processes.identity import identity
        from ..observe.sinks.collect import Collector
        from ..observe.sinks.telling import Telling

        self.options = options
        self.collector = Collector()
        self.keep: Keep | None = None
        self._plugged: Plugged | None = None
        self._tracked: Tracked | None = None
        self._sinks = Telling([self.collector])
        self._me = identity(os.environ)
        #: Of several that were started so: the part of the run that is this process's.
        self._part: Part | None = None
        self._children: Children | None = None
        self._terminated: Terminated | None = None
        self._stay: Callable[[], None] = lambda: None
        self.findings: list[Finding] = []
        self._alarmed: Alarmed | None = None
        #: Watching ended before the script did.
        self.stopped = False
        self.folder: Path | None = None
        self._session: Session | None = None
        self._begin = time.time() - (Moment.now().clock - options.began.clock)
        self._shown = time.time()

    def begin(self, session: Session) -> None:
        from ..observe.alarmed import Alarmed, named
        from ..observe.processes.children import Children
        from ..observe.processes.ending import Terminated, left_by
        from ..observe.sinks.plugged import Plugged, about

        self._session = session
        options = self.options
        self._alarmed = Alarmed(self._alarm, named(options.on_alarm) if options.on_alarm else None)
        self._alarmed.begin(session)
        info = {"script": options.script, "arguments": options.args, **about(options.level, self._begin)}
        mine = self._place()
        if self._part is not None:
            info["part"] = self._part.folder.name
        if not options.no_keep and mine is not None:
            session.scene.record_to = mine
            self._begin_keeping(mine, info)
        self._plugged = Plugged(lambda: {**info, "run": str(self.folder) if self.folder else None})
        self._sinks.add(self._plugged)
        if options.to and not self._me.rank:
            self._begin_tracking()
        if self._part is not None:
            self._part.begin(session, self.collector)
        tracking = (tuple(options.to), tuple(options.log_keys), self._name)
        if self._me.rank:
            tracking = ((), (), "")
        alarms = (tuple(options.stop_on), options.on_alarm or "")
        self._children = Children(session, self.folder, options.keep_mb << 20, tracking, alarms)
        self._children.equals = self._part is not None
        session.attach(self._children)
        self._children.start()
        self._terminated = Terminated(self._killed)
        self._terminated.start()
        if self._part is not None:
            self._stay = left_by(self._leaves)

    @property
    def _name(self) -> str:
        """What the run is called in trackers."""
        if self.folder is not None:
            return self.folder.name
        return f"{Path(self.options.script).stem}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(self._begin))}"

    def _begin_tracking(self) -> None:
        """Before the script's processes are told to be watched: those of trackers are none of them."""
        from ..observe.sinks.tracked import Tracked

        options = self.options
        folder = os.path.relpath(self.folder) if self.folder is not None else ""
        self._tracked = Tracked.of(options.to, options.log_keys, options.script, folder, self._name)
        self._sinks.add(self._tracked)

    def _place(self) -> Path | None:
        """Where this process writes: the folder of the run, or its own in that of all ranks."""
        from ..observe.processes.joining import join, temporary
        from ..observe.processes.part import Part

        options, me = self.options, self._me
        out = Path(options.out).absolute() if options.out else None
        try:
            if (me.world or 1) < 2:
                self.folder = None if options.no_keep else out or new_run(options.script).absolute()
                return self.folder
            if options.no_keep:
                out = temporary(me)
            self.folder, mine = join(me, out, Path(RUNS).absolute(), lambda: new_run(options.script).absolute())
            self._part = Part(self.folder, me, mine)
            return mine
        except OSError as error:
            self._cannot_keep(BackprobeError(f"cannot write a run to {out or RUNS}: {error}"))
            return None

    def _begin_keeping(self, folder: Path, info: dict[str, Any]) -> None:
        from ..observe.sinks.keep import Keep
        from ..store.writer import Writer

        try:
            self.keep = Keep(Writer(folder, info, self.options.keep_mb << 20))
        except BackprobeError as error:
            self._cannot_keep(error)
            return
        self._sinks.add(self.keep)

    def _cannot_keep(self, error: BackprobeError) -> None:
        """:raises BackprobeError: a person has said where the run is to be kept."""
        self.folder = None
        if self.options.out:
            raise error
        if not self.options.quiet:
            print(f"backprobe: the run is not kept: {error}", file=sys.stderr)

    def backward(self, recorded: Recorded) -> None:
        if self._part is not None:
            self._part.backward(recorded)
        self._sinks.backward(recorded)

    def measured(self, measured: Measured) -> None:
        self._sinks.measured(measured)
        if self._alarmed is not None:
            self._alarmed.measured(measured)

    def _alarm(self, alarm: Alarm) -> None:
        if self._tracked is not None:
            from ..observe.alarmed import said

            self._tracked.alarm(alarm.kind, said(alarm), alarm.step)
        if alarm.kind in self.options.stop_on and self._children is not None:
            self._children.stop_for(alarm, self._part.rank if self._part is not None else None)

    def step(self, step: Step, session: Session) -> None:
        self._sinks.step(step, session)
        if self._part is not None:
            self._part.step(step)
        if not self.options.quiet and not self._me.rank:
            self._progress(session)

    def _progress(self, session: Session) -> None:
        """A line every ten seconds on a terminal, every minute in a log."""
        now = time.time()
        if now - self._shown < (10 if sys.stderr.isatty() else 60):
            return
        from ..view.overhead import overhead

        self._shown = now
        seconds = now - self._begin
        text = overhead(session.took.info(), parts=False)
        print(
            f"backprobe: {self.collector.counted(session):,} steps in {seconds:.0f} s; {text}",
            file=sys.stderr,
            flush=True,
        )

    def _killed(self, main: bool) -> None:
        """The process is ended by a signal. `main`: this is the main thread, where all can be undone."""
        session = self._session
        assert session is not None
        if main:
            session.stop()
        else:
            self.collector.cut(session)
        session.scene.signal = 15
        self.finish(None)

    def _leaves(self, code: int, frame: Any, main: bool) -> None:
        """A rank leaves by ``os._exit``."""
        session = self._session
        assert session is not None and self._part is not None
        self._part.left = session.frames.site(session.frames.spot(frame))
        session.scene.code = code
        if main:
            session.stop()
        else:
            self.collector.cut(session)
        self.finish(None)

    def finish(self, error: BaseException | None) -> None:
        assert self._session is not None and self._terminated is not None and self._children is not None
        self._stay()
        own = self._session.scene.signal is None
        try:
            with self._terminated.after() if own else nullcontext():
                self._finish(error)
        finally:
            self._children.stop()
            if own:
                self._terminated.stop()

    def _finish(self, error: BaseException | None) -> None:
        from ..observe.processes.part import ending
        from ..store.job import job_of

        session, options = self._session, self.options
        assert session is not None
        if self._alarmed is not None and error is None and session.scene.signal is None:
            self._alarmed.end()
        info = ending(session, self.collector, self._begin, error)
        if self._children is not None and session.scene.signal is None:
            with session.cost.elsewhere():
                if isinstance(error, KeyboardInterrupt):  # the others were interrupted too, most likely
                    with suppress(KeyboardInterrupt):
                        self._children.wait(INTERRUPTED)
                elif not info["error"] and not info["code"]:
                    self._children.wait()
        about: dict[str, Any] = {"pid": os.getpid(), "started": self._begin}
        if self._part is not None:
            about["part"] = self._part.folder.name
        trace = self.collector.trace(session, {**about, **info})
        self.findings = list(trace.findings)
        if self._plugged is not None:
            self._plugged.close(trace)
        if self._tracked is not None:
            self._tracked.close(self.findings, killed=session.scene.signal is not None)
            trace.note_unseen(self._tracked.unseen)
        if error is not None and not options.quiet:
            for finding in self.findings[:1]:
                add_note(error, f"backprobe: {finding}")
        self.stopped = trace.watched.stopped is not None
        trace.note_unseen(self._sinks.lost)
        if self.keep is not None and not self._sinks.lost:
            with self._sinks.keeping():
                self.keep.writer.put(info)
                self.keep.close(session, trace, self.findings)
            if self._sinks.lost:
                trace.note_unseen(self._sinks.lost)
        if self._part is not None:
            self._finish_part(self._part, trace, info)
            return
        assert self._children is not None
        job = job_of(self._children.folder, trace) if self._children.folder is not None else trace
        numbers = self._kept() if job is trace and not options.quiet else None
        parts = [] if options.quiet else self._parts(job, numbers, self.keep is not None)
        job.info = {**job.info, **self._took()}  # what was printed is what is kept
        self._keep_overhead()
        if self.keep is not None and self.folder is not None:
            with self._sinks.keeping():
                write_findings(self.folder / "findings.json", job)
        if options.findings:
            write_findings(Path(options.findings), job)
        if not options.quiet:
            self._print(parts, job.findings)
        job.close()

    def _finish_part(self, part: Part, trace: Trace, info: dict[str, Any]) -> None:
        """Of several: what is known of all of them is written by each that ends, and told by the last."""
        from ..store.job import goes_on, open_job
        from ..store.parts import locked, read_parts

        options, folder = self.options, self.folder
        assert folder is not None and self._session is not None
        how = {name: info.get(name) for name in ("code", "signal")}
        failed = bool(info["error"] or info["code"])
        with locked(folder):
            how["replicas"] = trace.facts.of(Replicas)
            part.over(failed, self.findings, trace.hidden, error=(info["error"] or "")[:500], **how)
            job = open_job(folder)
            self.findings = list(job.findings)
            last = not any(goes_on(seen) for seen in read_parts(folder).values())
            if not options.no_keep:
                write_findings(folder / "findings.json", job)
            if options.findings:
                write_findings(Path(options.findings), job)
        if not options.quiet and (last or failed):
            self._print(self._parts(job, None, not options.no_keep), job.findings)
        job.close()
        if last and options.no_keep:
            shutil.rmtree(folder, ignore_errors=True)

    def _took(self) -> dict[str, Any]:
        """What the run and watching it took, as it is printed and kept: both have the numbers of the first call."""
        assert self._session is not None
        took = self._session.cost.freeze()
        return {**took.info(), "seconds": took.elapsed + took.waited}

    def _keep_overhead(self) -> None:
        from ..store.writer import amend

        if self.keep is not None and self.folder is not None and not self._sinks.lost:
            with suppress(BackprobeError):
                amend(self.folder, self._took())

    def _parts(self, trace: Trace, numbers: Trace | None, kept: bool) -> Sequence[ReportPart]:
        """The parts of the report. What the run took is measured when all others are there, and the terminal's own
        modules are loaded."""
        from ..view import terminal  # noqa: F401
        from ..view.parts import report

        own = trace.info.get("pid") == os.getpid()
        return report(trace, self.folder if kept else None, numbers=numbers, took=self._took if own else None)

    def _print(self, parts: Sequence[ReportPart], findings: Sequence[Finding]) -> None:
        from ..view.github import workflow_commands
        from ..view.terminal import write

        write(parts, sys.stderr)
        for tracker, at, left_out in self._tracked.written if self._tracked is not None else ():
            less = f", without {left_out:,} curves of single layers (--log-keys)" if left_out else ""
            print(f"Written to {tracker}: {at}{less}", file=sys.stderr)
        if self.options.format == "github":
            for line in workflow_commands(findings):
                print(line, file=sys.stderr)

    def _kept(self) -> Trace | None:
        """The run as it was kept: memory has fewer of its steps."""
        from ..store.reader import open_run

        try:
            return open_run(self.folder) if self.keep is not None and self.folder is not None else None
        except BackprobeError:
            return None
