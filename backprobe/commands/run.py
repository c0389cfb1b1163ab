"""``backprobe run``: a training script as it is, watched."""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BackprobeError, add_note
from ..findings import SEVERITIES, all_questions, own_questions
from ..records import Finding, Step, Unseen
from .files import RUNS, new_run, write_findings
from .script import script_arguments, script_of

if TYPE_CHECKING:
    from ..observe.backward.recorded import Recorded
    from ..observe.session import Session, Sink
    from ..observe.sinks.keep import Keep
    from ..observe.sinks.plugged import Plugged
    from ..traced import Trace


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
        parser.add_argument("--keep-mb", type=_positive, default=256, metavar="MB", help="bound on disk use (256)")
        parser.add_argument(
            "--fail-on",
            choices=("error", "warning"),
            help="exit with 3 on a finding this severe, and where watching stopped before the script ended",
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
        script_arguments(parser)

    def run(self, options: argparse.Namespace) -> int:
        script = script_of(options)
        from ..observe.launch import launch
        from ..observe.schedule.detail import budget_of
        from ..observe.session import Settings

        first, last = options.steps
        settings = Settings(
            *(options.level, options.every, first, last),
            ask=frozenset(options.ask),
            tensors=tuple(options.tensors),
            quiet=options.quiet,
            log=_log(options),
        )
        settings = replace(settings, budget=budget_of(options.budget, settings))
        watcher = _Watcher(options)
        code = launch(*script, watcher, settings, watcher.begin, watcher.finish)
        bad = SEVERITIES[: SEVERITIES.index(options.fail_on) + 1] if options.fail_on else ()
        if code == 0 and bad and (watcher.stopped or any(f.severity in bad for f in watcher.findings)):
            return 3
        return code


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
        from ..observe.sinks.collect import Collector

        self.options = options
        self.collector = Collector()
        self.keep: Keep | None = None
        self._plugged: Plugged | None = None
        self._sinks: list[Sink] = [self.collector]
        self.findings: list[Finding] = []
        #: What could not be kept of the run.
        self.lost: list[Unseen] = []
        #: Watching ended before the script did.
        self.stopped = False
        self.folder: Path | None = None
        self._session: Session | None = None
        self._begin = time.time()
        self._shown = self._begin
        self._lines = 0

    def begin(self, session: Session) -> None:
        from ..observe.sinks.plugged import Plugged, about

        self._session = session
        options = self.options
        info = {"script": options.script, "arguments": options.args, **about(options.level, self._begin)}
        if not options.no_keep:
            self._begin_keeping(info)
        self._plugged = Plugged(lambda: {**info, "run": str(self.folder) if self.folder else None})
        self._sinks += [*([self.keep] if self.keep is not None else ()), self._plugged]

    def _begin_keeping(self, info: dict[str, Any]) -> None:
        from ..observe.sinks.keep import Keep
        from ..store.writer import Writer

        options = self.options
        folder = Path(options.out) if options.out else new_run(options.script)
        try:
            self.keep = Keep(Writer(folder.absolute(), info, options.keep_mb << 20))
        except BackprobeError as error:
            if options.out:
                raise
            if not options.quiet:
                print(f"backprobe: the run is not kept: {error}", file=sys.stderr)
            return
        self.folder = folder.absolute()

    def backward(self, recorded: Recorded) -> None:
        self._tell(lambda sink: sink.backward(recorded), recorded.step)

    def step(self, step: Step, session: Session) -> None:
        self._tell(lambda sink: sink.step(step, session), step.index)
        if not self.options.quiet:
            self._progress(session)

    def _tell(self, tell: Callable[[Sink], None], step: int) -> None:
        """Hand on what was seen. A run that cannot be written any more is watched all the same."""
        for sink in list(self._sinks):
            try:
                tell(sink)
            except (OSError, sqlite3.Error, BackprobeError) as error:
                if sink is not self.keep:
                    raise
                self._sinks.remove(sink)
                self._not_kept(f"from step {step} on", error)

    def _not_kept(self, what: str, error: Exception) -> None:
        self.lost.append(Unseen("kept run", 1, f"not kept {what}: {type(error).__name__}: {error}", hides=False))

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
            f"backprobe: {self.collector.steps:,} steps in {seconds:.0f} s, {text}",
            file=sys.stderr,
            flush=True,
        )

    def finish(self, error: BaseException | None) -> None:
        session, options = self._session, self.options
        assert session is not None
        seconds = time.time() - self._begin
        info: dict[str, Any] = {
            "steps": self.collector.steps,
            "backwards": session.calls,
            "seconds": seconds,
            "code": session.scene.code,
            **session.took.info(),
            "error": None if error is None else f"{type(error).__name__}: {error}"[:2000],
        }
        about = {"pid": os.getpid(), "started": self._begin}
        trace = self.collector.trace(session, {**about, **info})
        self.findings = list(trace.findings)
        if self._plugged is not None:
            self._plugged.close(trace)
        if error is not None and not options.quiet:
            for finding in self.findings[:1]:
                add_note(error, f"backprobe: {finding}")
        self.stopped = trace.watched.stopped is not None
        trace.note_unseen(self.lost)
        if self.keep is not None and self.folder is not None:
            try:
                self.keep.writer.put(info)
                self.keep.close(session, trace, self.findings)
                write_findings(self.folder / "findings.json", trace)
            except (OSError, sqlite3.Error, BackprobeError) as failed:
                if not self.lost:
                    self._not_kept("whole", failed)
                    trace.note_unseen(self.lost)
        if options.findings:
            write_findings(Path(options.findings), trace)
        if not options.quiet:
            from ..view.parts import report
            from ..view.terminal import write

            write(report(trace, self.folder, numbers=self._kept()), sys.stderr)

    def _kept(self) -> Trace | None:
        """The run as it was kept: memory has fewer of its steps."""
        from ..store.reader import open_run

        try:
            return open_run(self.folder) if self.keep is not None and self.folder is not None else None
        except BackprobeError:
            return None
