"""``backprobe show`` and ``backprobe runs``: saved runs, read without torch."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from ..basics.errors import BackprobeError
from ..basics.terminal import say
from .files import RUNS, find_run, rank_argument, run_folders
from .reading import reading_run


class Show:
    """Print a saved run: its findings, its main figures, the gradients of its last step.

    RUN is a folder, or the name of one in backprobe-runs/ (default: the latest).
    """

    name = "show"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument("run", nargs="?", help="the folder of the run")
        rank_argument(parser)
        parser.add_argument("--json", action="store_true", help="print the findings as JSON, at most 32 KB")
        parser.add_argument(
            "--format",
            choices=("text", "json", "github"),
            help="json: as --json; github: a workflow command for each finding, which GitHub shows at its line",
        )
        parser.add_argument(
            "--all",
            action="store_true",
            help="list every parameter; with JSON: no size limit",
        )

        parser.add_argument(
            "--ledger",
            metavar="NAME",
            help="print what happened to the gradients and weights of a parameter, or of a module's parameters",
        )

    def run(self, options: argparse.Namespace) -> int:
        """Print the run in the requested form; return 0."""
        from ..findings.json_size import MAX_JSON_BYTES, as_json
        from ..store.job import load_run
        from ..view.github import workflow_commands
        from ..view.parts import report
        from ..view.terminal import write

        folder = find_run(options.run)
        with reading_run(folder):
            trace = load_run(folder, options.rank)
            if options.ledger is not None:
                say(repr(trace.ledger(options.ledger)))
            elif options.json or options.format == "json":
                say(as_json(trace.as_dict(), None if options.all else MAX_JSON_BYTES))
            elif options.format == "github":
                say("\n".join(workflow_commands(trace.findings)))
            else:
                write(report(trace, details=True, whole=options.all), sys.stdout)
        return 0


class Runs:
    """List the saved runs, the latest last."""

    name = "runs"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument("folder", nargs="?", default=RUNS, help=f"the folder of the runs (default: {RUNS})")

    def run(self, options: argparse.Namespace) -> int:
        """Print a table of the runs in a folder, damaged ones with their error; return 0."""
        from ..store import FILE
        from ..view.parts import Table
        from ..view.terminal import write

        rows = []
        for folder in run_folders(Path(options.folder)):
            try:
                with reading_run(folder):
                    rows.append(_row(folder))
            except BackprobeError as error:
                said = str(error).removeprefix(f"{folder / FILE} ").removeprefix(f"{folder} ")
                rows.append([folder.name, "", "", said])
        if not rows:
            say(f"no runs in {options.folder}")
            return 0
        write([Table(("run", "started", "steps", "findings"), rows)], sys.stdout)
        return 0


def _row(folder: Path) -> list[str]:
    """Return the row of a run in the list of runs."""
    from ..store.job import load_run

    trace = load_run(folder)
    try:
        started = time.strftime("%Y-%m-%d %H:%M", time.localtime(float(trace.info.get("started", 0))))
        calm = f"no findings; {trace.coverage.gaps[0]}" if trace.coverage.gaps else "no findings"
        first = trace.findings[0].kind if trace.findings else calm
        more = f" and {len(trace.findings) - 1} more" if len(trace.findings) > 1 else ""
        return [folder.name, started, str(trace.info.get("steps", len(trace.steps))), first + more]
    finally:
        trace.close()
