"""``backprobe debug``: runs a training script that stops inside its backward."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ..basics.terminal import say
from ..basics.text import raised
from ..engine.options import breakpoint_from
from ..observe.launch import launch
from ..observe.schedule.settings import Settings
from ..observe.sinks.memory import Collector
from .script import script_arguments, script_of

if TYPE_CHECKING:
    from ..engine.attach import Stops
    from ..engine.breakpoints import Breakpoint
    from ..engine.prompt.reading import Terminal
    from ..observe.program import Program
    from ..observe.session import Session


class Debug:
    """Run a training script and stop inside backward: inspect gradients, change them, continue.

    It stops at the breakpoints of --break, or without that option before the first node of the first backward. A node
    that raises stops it too, and so does Ctrl-C. It reads commands from standard input; 'help' lists them.
    """

    name = "debug"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument(
            "-b",
            "--break",
            dest="breaks",
            action="append",
            default=[],
            metavar="PLACE",
            help="stop at a node type ('*Norm*'), 'module PATH [enter|leave]', 'param NAME', 'file.py:41', "
            "'norm > 10', 'nonfinite'; 'PLACE if CONDITION' for both; may be given again",
        )
        parser.add_argument(
            "-c",
            dest="commands",
            action="append",
            default=[],
            metavar="COMMAND",
            help="run this command at the first stop, before reading any; may be given again",
        )
        parser.add_argument(
            "--retain",
            action="store_true",
            help="keep the graph of every backward so that 'back' works; uses more memory",
        )
        parser.add_argument(
            "--tty", action="store_true", help="use the terminal itself instead of standard input and output"
        )
        script_arguments(parser, code=False)

    def run(self, options: argparse.Namespace) -> int:
        """Run the script with the debugger attached; return its exit code."""
        debugging = _Debugging(options, [breakpoint_from(text, {}) for text in options.breaks])
        try:
            return launch(script_of(options), debugging)
        finally:
            debugging.close()


class _Debugging:
    """The observer of the script: attaches the debugger, and reports breakpoints that were never met."""

    def __init__(self, options: argparse.Namespace, points: list[Breakpoint]) -> None:
        self._options, self._points = options, points
        self._source: Terminal | None = None
        self._stops: Stops | None = None

    def begin(self, program: Program) -> None: ...

    def attach(self, own: tuple[str, ...], script_s: float) -> Session:
        """Start a session whose backward calls stop at the breakpoints; see ``ScriptObserver``."""
        from ..engine.attach import Stops
        from ..engine.prompt import Prompt
        from ..engine.prompt.reading import Terminal
        from ..engine.resume import CONTINUE, Resume
        from ..observe.session import Session

        options, collector = self._options, Collector()
        session = Session(collector, Settings(inspected_steps=0), own, whole=True)
        self._source = Terminal() if options.tty else None
        prompt = Prompt(
            session.forward.frames,
            options.commands,
            self._source,
            SystemExit(0),
        )
        resume = CONTINUE if self._points else Resume("step", 1)
        stops = self._stops = Stops(session, collector, prompt.ask, resume, True, options.retain)
        prompt.pilot = stops.pilot
        for point in self._points:
            stops.pilot.add(point)
        session.start()
        return session

    def forked(self) -> None: ...

    def failed(self, error: Exception) -> None:
        """Report that the debugger could not be attached."""
        say(f"backprobe: watching could not begin: {raised(error)}", sys.stderr)

    abandon = forked

    def close(self) -> None:
        """Give the terminal back, if ``--tty`` opened it."""
        if self._source is not None:
            self._source.close()

    def finish(self, error: BaseException | None, code: int) -> None:
        """Report after the script has ended if it never stopped, and why not."""
        stops = self._stops
        if stops is None:
            say("backprobe: the script did not import torch, so there was no backward to stop in", sys.stderr)
            return
        elsewhere = stops.session.forward.modules.other_threads
        if elsewhere:
            text = f"{elsewhere} module calls ran in other threads: a backward there does not stop"
            say(f"backprobe: {text}; only the thread that runs the script is watched", sys.stderr)
        if not stops.calls:
            say("backprobe: the script ended without a backward call", sys.stderr)
            return
        for point in self._points:
            if not point.hits:
                say(f"backprobe: breakpoint {point.number} was never met: {point}", sys.stderr)
