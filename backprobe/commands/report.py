"""``backprobe report`` and ``backprobe view``: a run as a page."""

from __future__ import annotations

import argparse
from pathlib import Path

from .files import find_run


class Report:
    """Write a run as one HTML file, which opens offline anywhere and can be mailed.

    RUN is a folder, or the name of one in backprobe-runs/; without it the latest is taken.
    The file holds the source lines of the script and what was recorded of its tensors' sizes: mind whom you send it to.
    """

    name = "report"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", nargs="?", help="the folder of the run")
        parser.add_argument("-o", "--output", metavar="FILE", help="the file to write (default: RUN/report.html)")

    def run(self, options: argparse.Namespace) -> int:
        from ..report.html import write
        from ..store.reader import open_run

        folder = find_run(options.run)
        trace = open_run(folder)
        file = write(trace, Path(options.output) if options.output else folder / "report.html", folder.name)
        size = file.stat().st_size
        print(f"{file} ({size / 1e6:.1f} MB)" if size >= 1e6 else f"{file} ({size / 1e3:.0f} kB)")
        return 0
