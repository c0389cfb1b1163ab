"""``backprobe run``: a training script as it is, watched."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BackprobeError, add_note
from ..findings import SEVERITIES, all_questions, own_questions
from ..findings.levels import ALARMS
from ..records import Finding, Measured, Replicas, Step
from ..tracking.writers import WRITERS, is_installed
from .files import RUNS, new_run, write_findings
from .script import script_arguments, script_of

if TYPE_CHECKING:
    from ..findings.levels import Alarm
    from ..observe.alarmed import Alarmed
    from ..observe.backward.recorded import Recorded
    from ..observe.processes.children import Children
    from ..observe.processes.ending import Terminated
    from ..observe.processes.part import Part
    from ..observe.schedule.detail import Settings
    from ..observe.session import Session
    from ..observe.sinks.keep import Keep
    from ..observe.sinks.plugged import Plugged
    from ..observe.sinks.tracked import Tracked
    from ..traced import Trace

#: Seconds that other processes have to come to their end where this one was interrupted, as long as they do something:
#: another Ctrl-C ends that.
INTERRUPTED = 60.0


class Run:
    """Run a training script and say what went wrong in its backward passes.

    Options before the script are backprobe's, those after it the script's own. Standard output is the script's;
    backprobe writes to standard error.
    """

    name = "run"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--out", metavar="DIR", help=f"keep the run there (default: a new folder in {RUNS}/)")
        parser.add_argument("--no-keep", action="store_true", help="do not keep the run")
        parser.add_argument("--findings", metavar="FILE", help="write the findings as JSON when the script ends")
        parser.add_argument(
            "--level",
            choices=("watch", "trace", "explain"),
            default="trace",
            help="watch: losses, parameters and updates; trace: every node too (default); explain: the same, each "
            "gradient and result looked at closely",
        )
        parser.add_argument(
            "--budget",
            default="default",
            metavar="SHARE",
            help="how much longer the script may take for being watched: a share such as 5%% (default, and a second at "
            "the start), or none. As many steps as this pays for have their nodes recorded; of the others what is "
            "cheap, and what goes wrong in one is looked into all the same. Without it there is no bound where "
            "--level, --every, --steps and the like say what to record",
        )
        parser.add_argument("--every", type=_positive, default=1, metavar="N", help="record nodes in every N-th step")
        parser.add_argument(
            "--steps", type=_steps, default=(0, None), metavar="A:B", help="record nodes from A up to B"
        )
        parser.add_argument(
            "--statistics",
            type=_count,
            metavar="N",
            help="measure statistics by layer (weights, gradients, updates, activations, attention) in each N-th step, "
            "or more seldom where the budget does not pay for that; 10 with --ask levels, --to and what is about "
            "alarms, else none",
        )
        parser.add_argument(
            "--to",
            action="extend",
            default=[],
            type=_trackers,
            metavar="TRACKER",
            help="write statistics, losses and what was found to these too: tensorboard, wandb, mlflow, trackio, or "
            "auto for the runs that the script has open in them; several with commas between them",
        )
        parser.add_argument(
            "--log-keys",
            action="append",
            default=[],
            metavar="GLOB",
            help="with --to: these curves, such as 'update_ratio/encoder.*', besides those of all layers together; "
            "without it layers in their order, up to 500 curves",
        )
        parser.add_argument(
            "--stop-on",
            action="append",
            default=[],
            choices=ALARMS,
            metavar="KIND",
            help=f"interrupt the script, as Ctrl-C does, when an alarm of this kind comes: {', '.join(ALARMS)}",
        )
        parser.add_argument(
            "--on-alarm",
            type=_function,
            metavar="MODULE:FUNCTION",
            help="call this function with the finding of each alarm, when the optimizer has stepped; one of the "
            "script's own is __main__:FUNCTION",
        )
        parser.add_argument(
            "--keep-batch",
            action="store_true",
            help="keep, with the run, what the model was called with in a step with an alarm or an error",
        )
        parser.add_argument("--batch-mb", type=_positive, default=512, metavar="MB", help="bound on those (512)")
        parser.add_argument("--keep-mb", type=_positive, default=256, metavar="MB", help="bound on disk use (256)")
        parser.add_argument(
            "--fail-on",
            choices=("error", "warning"),
            help="exit with 3 on a finding this severe, and where watching stopped before the script ended",
        )
        parser.add_argument(
            "--format",
            choices=("text", "github"),
            default="text",
            help="github: besides, a workflow command for each finding, which GitHub shows at its line",
        )
        parser.add_argument("--quiet", action="store_true", help="write nothing to standard error")
        parser.add_argument(
            "--ask",
            action="append",
            default=[],
            type=_topic,
            metavar="TOPIC",
            help=f"look for more: {', '.join(f'{t.name} ({t.about})' for t in own_questions().topics)}; plugins may "
            "have topics of their own",
        )
        parser.add_argument(
            "--tensors",
            action="append",
            default=[],
            metavar="GLOB",
            help="look at the values of modules' outputs, weights and gradients with these names, such as "
            "'encoder.*', in steps 0, 1, 2, 5, 10, 20, 50, ...: the report shows them as histograms",
        )
        parser.add_argument(
            "--log",
            choices=("nodes",),
            metavar="WHAT",
            help="nodes: a line for each node that a backward call runs (module, source line, gradients, time), in the "
            "steps of --steps and --every",
        )
        parser.add_argument("--log-file", metavar="FILE", help="write the log there, not to standard error")
        parser.add_argument(
            "--record",
            choices=("compare",),
            metavar="WHAT",
            help="compare: keep of the first three steps, or those of --steps, what 'backprobe compare' needs: "
            "fingerprints of all values and gradients, and tensors",
        )
        parser.add_argument(
            "--record-mb", type=_positive, default=512, metavar="MB", help="bound on those tensors (512)"
        )
        parser.add_argument(
            "--change",
            action="append",
            default=[],
            metavar="KIND=VALUE",
            help="run the script otherwise, to compare it with itself: dtype=float64, device=cuda, compiled=BACKEND, "
            "seed=N, threads=N",
        )
        script_arguments(parser)

    def run(self, options: argparse.Namespace) -> int:
        _folder_first(options)
        _installed(options)
        if options.keep_batch and options.no_keep:
            raise BackprobeError("--keep-batch keeps a batch with the run: leave out --no-keep")
        script = script_of(options)
        from ..observe.launch import launch

        settings = settings_of(options)
        watcher = _Watcher(options)
        with _changed(options.change):
            code = launch(*script, watcher, settings, watcher.begin, watcher.finish)
        bad = SEVERITIES[: SEVERITIES.index(options.fail_on) + 1] if options.fail_on else ()
        if code == 0 and bad and (watcher.stopped or any(f.severity in bad for f in watcher.findings)):
            return 3
        return code


def settings_of(options: argparse.Namespace) -> Settings:
    """How much is looked at, by the command's options.

    :raises BackprobeError: they do not fit together.
    """
    from ..observe.schedule.detail import Settings, budget_of

    first, last = options.steps
    settings = Settings(
        *(options.level, options.every, first, last),
        ask=frozenset(options.ask) | ({"levels"} if _alarms(options) else frozenset()),
        tensors=tuple(options.tensors),
        quiet=options.quiet,
        log=_log(options),
        statistics=_cadence(options),
        record=options.record or "",
        record_mb=options.record_mb,
        batch_mb=options.batch_mb if options.keep_batch else 0,
    )
    return replace(settings, budget=budget_of(options.budget, settings))


@contextmanager
def _changed(given: list[str]) -> Iterator[None]:
    """The script is run with these changes.

    :raises BackprobeError: there is no such change.
    """
    from ..observe.changed import change

    undo = change(given)
    try:
        yield
    finally:
        undo()


def _folder_first(options: argparse.Namespace) -> None:
    """``--record compare DIR SCRIPT``: as with ``--out DIR``.

    :raises BackprobeError: the record has no place.
    """
    if not options.record:
        return
    if options.no_keep:
        raise BackprobeError("--record compare keeps a record with the run: leave out --no-keep")
    folder = options.script.endswith("/") or not os.path.exists(options.script)
    if not options.out and not options.module and folder and options.args and os.path.isfile(options.args[0]):
        options.out, options.script, options.args = options.script, options.args[0], options.args[1:]


def _trackers(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in (*WRITERS, "auto"):
            raise argparse.ArgumentTypeError(
                f"invalid choice: {name!r} (choose from {', '.join(map(repr, WRITERS))}, 'auto')"
            )
    return names


def _installed(options: argparse.Namespace) -> None:
    """:raises BackprobeError: a tracker that is asked for is not installed, or nothing is to be written to one."""
    if options.log_keys and not options.to:
        raise BackprobeError("--log-keys says what trackers are given: say which, with --to")
    if options.to and options.statistics == 0 and options.log_keys:
        raise BackprobeError("--log-keys chooses among statistics, and --statistics 0 measures none")
    for name in options.to:
        if name != "auto" and not is_installed(name):
            raise BackprobeError(f"--to {name} needs the package {name}: pip install {name}")


def _topic(text: str) -> str:
    names = [topic.name for topic in all_questions().topics]
    if text not in names:
        raise argparse.ArgumentTypeError(f"invalid choice: {text!r} (choose from {', '.join(map(repr, names))})")
    return text


def _log(options: argparse.Namespace) -> str:
    """Where the log of nodes goes; empty for no log."""
    if not options.log:
        if options.log_file:
            raise BackprobeError("--log-file says where a log goes: say what to log too, with --log nodes")
        return ""
    if options.level == "watch":
        raise BackprobeError("--log nodes needs nodes, and --level watch records none: use --level trace or explain")
    if not options.log_file:
        return "-"
    path: str = os.path.abspath(options.log_file)
    try:
        with open(path, "w"):  # emptied here: each process of the run adds to it
            pass
    except OSError as error:
        raise BackprobeError(f"cannot write the log to {options.log_file}: {error.strerror or error}") from None
    return path


def _alarms(options: argparse.Namespace) -> bool:
    """Whether something is to happen when an alarm comes."""
    return bool(options.stop_on or options.on_alarm or options.keep_batch)


def _cadence(options: argparse.Namespace) -> int:
    """Statistics are measured in each so many-th step."""
    asked = _alarms(options) or options.to or "levels" in options.ask
    given: int | None = options.statistics
    return (10 if asked else 0) if given is None else given


def _function(text: str) -> str:
    module, colon, function = text.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), *function.split("."))):
        raise argparse.ArgumentTypeError(f"{text!r} is not MODULE:FUNCTION")
    return text


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is not 0 or more")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def _steps(text: str) -> tuple[int, int | None]:
    begin, colon, end = text.partition(":")
    try:
        first, last = int(begin or 0), int(end) if end else None
    except ValueError:
        first = -1
        last = None
    if not colon or first < 0 or (last is not None and last <= first):
        raise argparse.ArgumentTypeError(f"{text!r} is not A:B with 0 <= A < B, such as 100:200 or 100:")
    return first, last


class _Watcher:
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
        self._begin = time.time()
        self._shown = self._begin

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
        from ..view.parts import took

        self._shown = now
        seconds = now - self._begin
        text = took(session.took.info())
        print(
            f"backprobe: {self.collector.counted(session):,} steps in {seconds:.0f} s, {text}",
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
        if self.keep is not None and self.folder is not None:
            with self._sinks.keeping():
                write_findings(self.folder / "findings.json", job)
        if options.findings:
            write_findings(Path(options.findings), job)
        if not options.quiet:
            self._report(job, self._kept() if job is trace else None, self.keep is not None)
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
            self._report(job, None, not options.no_keep)
        job.close()
        if last and options.no_keep:
            shutil.rmtree(folder, ignore_errors=True)

    def _report(self, trace: Trace, numbers: Trace | None, kept: bool) -> None:
        from ..view.github import workflow_commands
        from ..view.parts import report
        from ..view.terminal import write

        write(report(trace, self.folder if kept else None, numbers=numbers), sys.stderr)
        for tracker, at, left_out in self._tracked.written if self._tracked is not None else ():
            less = f", without {left_out:,} curves of single layers (--log-keys)" if left_out else ""
            print(f"Written to {tracker}: {at}{less}", file=sys.stderr)
        if self.options.format == "github":
            for line in workflow_commands(trace.findings):
                print(line, file=sys.stderr)

    def _kept(self) -> Trace | None:
        """The run as it was kept: memory has fewer of its steps."""
        from ..store.reader import open_run

        try:
            return open_run(self.folder) if self.keep is not None and self.folder is not None else None
        except BackprobeError:
            return None
