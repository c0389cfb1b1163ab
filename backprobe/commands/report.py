"""``backprobe report`` and ``backprobe view``: a run as an HTML page."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import webbrowser
from pathlib import Path

from ..basics.errors import BackprobeError
from ..basics.terminal import say
from ..basics.text import size
from .files import find_run, rank_argument
from .reading import reading_run


class Report:
    """Write a run as one HTML file that opens offline.

    RUN is a folder, or the name of one in backprobe-runs/ (default: the latest). The command prints what the file
    contains; check that before you send it to others. Secrets among the arguments are masked.
    """

    name = "report"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument("run", nargs="?", help="the folder of the run")
        rank_argument(parser)
        parser.add_argument("-o", "--output", metavar="FILE", help="the file to write (default: RUN/report.html)")

    def run(self, options: argparse.Namespace) -> int:
        """Write the page of a run, print its path, size and contents, and return 0."""
        from ..report.document import document
        from ..report.html import contents, save
        from ..store.job import load_run
        from ..view import ranks

        folder = find_run(options.run)
        with reading_run(folder):
            trace = load_run(folder, options.rank)
            name = ranks.titled(folder.name, trace)
            try:
                made = document(trace, name)
                file = save(made, Path(options.output) if options.output else folder / "report.html", name)
            except BackprobeError as error:
                if options.output or os.access(folder, os.W_OK):
                    raise
                raise BackprobeError(f"{error}: name another place with -o FILE") from None
        say(f"{file} ({size(file.stat().st_size)}" + (f", {name})" if name != folder.name else ")"))
        say(contents(made, str(trace.info.get("machine") or "")))
        return 0


class View:
    """Show a run as a page in the browser and update it while the run continues.

    RUN is a folder, or the name of one in backprobe-runs/ (default: the latest). The page is served only on this
    machine, at an address with a token. Ctrl-C ends it.
    """

    name = "view"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument("run", nargs="?", help="the folder of the run")
        rank_argument(parser)
        parser.add_argument("--port", type=_port, default=0, help="the port to serve at (default: a free one)")
        parser.add_argument("--no-browser", action="store_true", help="only print the address")

    def run(self, options: argparse.Namespace) -> int:
        """Serve the page of a run and open it in a browser until Ctrl-C; return 0."""
        from ..report.serve import Server

        folder = find_run(options.run)
        with reading_run(folder):
            server = Server(folder, options.port, options.rank)
        with server:
            say(f"backprobe: {server.address}")
            say(f"It shows {server.source.latest()['run']['name']}. Ctrl-C ends it.")
            if not options.no_browser and _has_screen():
                webbrowser.open(server.address)
            with contextlib.suppress(KeyboardInterrupt):
                server.serve_forever()
        return 0


def _has_screen() -> bool:
    """Return whether a browser would open a window, rather than run in the terminal."""
    return sys.platform in ("win32", "darwin") or any(os.environ.get(k) for k in ("DISPLAY", "WAYLAND_DISPLAY"))


def _port(text: str) -> int:
    """Parse a port number.

    :raises argparse.ArgumentTypeError: it is none.
    """
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: a number from 0 (a free one) to 65535")
    return int(text)
