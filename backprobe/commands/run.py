"""``backprobe run``: a training script as it is, watched."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from ..errors import BackprobeError
from ..records import Finding

_LEVEL = {"error": 0, "warning": 1, "info": 2}


class Run:
    """Run a training script and say what went wrong in its backward passes.

    Options before the script are backprobe's, those after it the script's own. Standard output is the script's;
    backprobe writes to standard error.
    """

    name = "run"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--findings", metavar="FILE", help="write the findings as JSON when the script ends")
        parser.add_argument("--fail-on", choices=("error", "warning"), help="exit with 3 on a finding this severe")
        parser.add_argument("--quiet", action="store_true", help="write nothing to standard error")
        parser.add_argument("--ask", action="append", default=[], metavar="TOPIC", help=argparse.SUPPRESS)
        parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name")
        parser.add_argument("script", help="the script to run")
        parser.add_argument("args", nargs=argparse.REMAINDER, help="the script's own arguments")

    def run(self, options: argparse.Namespace) -> int:
        from ..observe.collect import Collector
        from ..observe.launch import launch
        from ..observe.session import Session, Settings

        if not options.module and not os.path.isfile(options.script):
            raise BackprobeError(f"no such script: {options.script}")
        collector = Collector()
        sessions: list[Session] = []
        findings: list[Finding] = []

        def finish(error: BaseException | None) -> None:
            findings.extend(collector.trace(sessions[0]).findings)
            if error is not None:
                for finding in findings[:1]:
                    add_note(error, f"backprobe: {one_line(finding)}")
            if options.findings:
                write_findings(Path(options.findings), findings)
            if not options.quiet:
                report(findings, collector.backwards)

        code = launch(options.script, options.args, options.module, collector, Settings(), sessions.append, finish)
        worst = min((_LEVEL[f.severity] for f in findings), default=9)
        if code == 0 and options.fail_on and worst <= _LEVEL[options.fail_on]:
            return 3
        return code


def write_findings(path: Path, findings: list[Finding]) -> None:
    body: dict[str, Any] = {"format": 1, "findings": [f.as_dict() for f in findings]}
    path.write_text(json.dumps(body, indent=1, default=str) + "\n")


def add_note(error: BaseException, text: str) -> None:
    """``BaseException.add_note``, which Python 3.10 does not have."""
    notes = getattr(error, "__notes__", [])
    error.__notes__ = [*notes, text]  # type: ignore[attr-defined]


def one_line(finding: Finding) -> str:
    where = f" at {finding.sites[0].site}" if finding.sites else ""
    module = f" in {finding.module}" if finding.module else ""
    return f"{finding.kind}{module}{where}: {finding.title}"


def report(findings: list[Finding], backwards: int) -> None:
    out = sys.stderr
    print(f"backprobe: {backwards} backward calls, {len(findings)} findings", file=out)
    for finding in findings:
        print(f"  {one_line(finding)}", file=out)
        for s in finding.sites:
            print(f"    {s.role:>8}  {s.site}  {s.site.text}", file=out)
        print(f"    {finding.advice}", file=out)
