"""``backprobe top``: a live run in a terminal."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..basics.errors import BackprobeError
from ..basics.terminal import console, say
from .files import RUNS, find_run, rank_argument, run_folders
from .reading import reading_run

#: Seconds between two updates, and the maximum share of time for reading: long runs take long to read.
UPDATE_INTERVAL_S, MAX_READ_SHARE = 1.5, 0.1


class Top:
    """Show a running job in the terminal: step, loss, gradient, ranks, layers that stand out, findings.

    RUN is a folder, or the name of one in backprobe-runs/ (default: the latest that is running, else the latest). It
    only reads the run's folder every second or two and does not touch the training. q or Ctrl-C ends it. If the output
    is not a terminal, it prints one frame.
    """

    name = "top"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument("run", nargs="?", help="the folder of the run")
        rank_argument(parser)
        parser.add_argument("--once", action="store_true", help="print one frame and end")

    def run(self, options: argparse.Namespace) -> int:
        """Draw the run again and again until the user quits, or once if the output is no terminal; return 0."""
        from ..view.terminal import plain
        from ..view.top import drawn

        folder = _folder(options.run)
        look = Look(folder, options.rank)
        out = console(sys.stdout)
        ascii_only = plain(sys.stdout)
        if options.once or not sys.stdout.isatty():
            with reading_run(folder), out.capture() as text:
                out.print(drawn(look(), out.width, ascii_only))
            lines = "\n".join(line.rstrip() for line in text.get().splitlines())
            say(lines)
            return 0
        look()  # reports an unreadable run before the screen is switched
        with contextlib.suppress(KeyboardInterrupt), reading_run(folder):
            _show(look, out, ascii_only)
        return 0


class Look:
    """Reads a run folder repeatedly; data that was read once is kept."""

    def __init__(self, folder: Path, rank: int | None) -> None:
        from ..view.top import Watch

        self._folder, self._rank, self._watch = folder, rank, Watch()

    def __call__(self) -> Any:
        """Return the frame of the run as it is now.

        :raises BackprobeError: the run cannot be read.
        """
        from ..store.job import load_run
        from ..view.ranks import titled

        with reading_run(self._folder):
            trace = load_run(self._folder, self._rank)
            try:
                return self._watch.frame(trace, titled(self._folder.name, trace), time.time())
            finally:
                trace.close()


def _folder(name: str | None) -> Path:
    """Return the folder of the run called `name`; without a name the latest that is still running, or else the latest.

    :raises BackprobeError: there are no runs.
    """
    from ..store.job import going_on

    if name is None:
        for folder in reversed(run_folders(Path(RUNS))):
            if going_on(folder):
                return folder
    return find_run(name)


def _show(look: Look, out: Any, ascii_only: bool) -> None:
    """Draw frames until the user quits. A thread reads the run, so that keys are answered at once."""
    from rich.live import Live
    from rich.text import Text

    from ..view.top import drawn

    reader = _Reader(look)
    reader.start()
    shown: tuple[object, ...] = ()
    with Live(console=out, screen=True, auto_refresh=False) as live, _keys() as pressed:
        while True:
            frame, why = reader.latest
            now = (frame, why, out.width, out.height)
            if frame is not None and now != shown:
                from rich.console import Group

                foot = Text(why or "q ends this; the run is not touched", "red" if why else "dim")
                body = drawn(frame, out.width, ascii_only, out.height - 1)
                live.update(Group(body, Text(), foot), refresh=True)
                shown = now
            if pressed(0.2) in ("q", "Q", "\x03"):
                return


class _Reader(threading.Thread):
    """Reads the run every second or two, for at most ``MAX_READ_SHARE`` of the time."""

    def __init__(self, look: Look) -> None:
        super().__init__(daemon=True)
        self._look = look
        #: The last frame, and the reason why there is no newer one.
        self.latest: tuple[Any, str] = (None, "")

    def run(self) -> None:
        """Read the run for ever, and keep the last frame, or the error of the last attempt."""
        while True:
            began = time.monotonic()
            try:
                self.latest = (self._look(), "")
            except BackprobeError as error:
                self.latest = (self.latest[0], str(error))
            took = time.monotonic() - began
            time.sleep(max(UPDATE_INTERVAL_S, took * (1 / MAX_READ_SHARE - 1)))


@contextlib.contextmanager
def _keys() -> Iterator[Any]:
    """Yield a function that waits up to a number of seconds for a key, and returns the key or an empty string.

    Keys are read one by one, without echo; without a keyboard the function only waits.
    """

    def nothing(seconds: float) -> str:
        """Wait, since there is no keyboard."""
        time.sleep(seconds)
        return ""

    if os.name == "nt":
        yield _windows_key
        return
    import termios
    import tty

    try:
        number = sys.stdin.fileno()
        before = termios.tcgetattr(number)
    except (OSError, ValueError, termios.error):  # not a terminal
        yield nothing
        return
    try:
        tty.setcbreak(number)

        def key(seconds: float) -> str:
            """Wait for a key of the terminal."""
            ready, _, _ = select.select([number], [], [], seconds)
            return os.read(number, 1).decode("latin-1") if ready else ""

        yield key
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _windows_key(seconds: float) -> str:
    """Wait up to a number of seconds for a key of the Windows console; return it, or an empty string."""
    import msvcrt

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if msvcrt.kbhit():  # type: ignore[attr-defined]
            return str(msvcrt.getwch())  # type: ignore[attr-defined]
        time.sleep(0.05)
    return ""
