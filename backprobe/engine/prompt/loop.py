"""The command loop: reads commands at each stop and runs them.

Note [What a command raises]: Any exception of a command stays at the prompt, including ``SystemExit`` and Ctrl-C: only
``q`` ends the session. Exceptions of a value's ``__repr__`` or an error's ``__str__`` are printed like any other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rich.text import Text

from ...basics.errors import BackprobeError
from ...basics.terminal import console as console_of
from ...records import Site
from ...source.frames import Frames
from ...torch_internals import private
from .. import show
from ..provenance import around
from ..resume import ABORT, Resume, step_from
from ..stop import Stop
from ..stop_controller import StopController
from .command import COMMANDS, WORDS, Command
from .names import Leave, Names
from .reading import Reader, StandardInput, completing

PROMPT = "(backprobe) "


class Prompt:
    """Asks the user at each stop how to continue.

    :param frames: recognises the user's frames, for the variables of ``p``.
    :param commands: commands that run at the first stop before any are read.
    :param reader: reads commands from elsewhere than standard input.
    :param quit: how ``q`` ends the script; without it only the backward is aborted.
    :ivar level: number of module levels that ``u`` has gone up.
    :ivar times: number of stops that ``n N`` still skips.
    :ivar library: whether library lines are shown, rather than the user's.
    :ivar frame: which line of the op ``fr N`` has selected.
    """

    def __init__(
        self,
        frames: Frames,
        commands: Sequence[str] = (),
        reader: Reader | None = None,
        quit: BaseException | None = None,
    ) -> None:
        """Prepare; ``pilot`` must be set before the first stop."""
        self.reader: Reader = reader or StandardInput()
        self.names, self._quit = Names(frames), quit
        self.queue = list(commands)
        #: Set by the code that makes the controller.
        self.pilot: StopController
        self._stop: Stop | None = None
        self._resume: Resume | None = None
        self._ending: BaseException | None = None
        self.level = self.times = 0
        self.library = False
        self.frame: int | None = None
        self._last = ""
        #: Expressions that are shown at every stop.
        self.displayed: list[str] = []
        #: Number of a breakpoint -> commands that run when it stops.
        self.scripts: dict[int, list[str]] = {}
        self._greeted = False

    # The loop

    def ask(self, stop: Stop) -> Resume:
        """Show the position, and read commands until one resumes the backward."""
        if self.times > 0 and stop.breakpoint is None and stop.phase == "before" and stop.reason == "step":
            self.times -= 1
            if self.times:
                return step_from(stop, "node")
        self.times = self.level = 0
        self._stop, self._resume, self.frame = stop, None, None
        try:
            with private.disable_function_modes():
                self.contained(self._arrive)
                while self._resume is None:
                    self.contained(self._turn)
                    if self._ending is not None:
                        raise self._ending
            return self._resume
        finally:
            self._stop = None
            self.names.forget()

    def _arrive(self) -> None:
        """Show where the backward has stopped and the displayed expressions, and run the commands of the breakpoint."""
        sys.stdout.flush()
        stop = self.stop
        if not self._greeted:
            self._greeted = True
            self.note("backprobe: stopped inside backward. 'help' lists the commands, 'n' goes to the next node.")
            if not self.reader.interactive:
                self.note(
                    "Commands are read from standard input, which is no terminal. A script that reads standard input "
                    "too shares it with them: 'backprobe debug --tty' reads commands from the terminal instead."
                )
        lines = self.scripts.get(stop.breakpoint.number, ()) if stop.breakpoint is not None else ()
        if "silent" not in lines:
            self.say(show.head(stop.backward, stop.index, stop.phase, stop.reason, stop.raised_at, self.library))
        for text in self.displayed:
            self.contained(partial(self.show_displayed, text))
        for line in lines:
            if line != "silent" and self._resume is None:
                self.contained(partial(self.do, line))

    def show_displayed(self, text: str) -> None:
        """Show the value of one displayed expression."""
        self.note(f"  {text}: {self.evaluate(text)!r}")

    def _turn(self) -> None:
        """Read and run one command."""
        try:
            line = self.line(PROMPT)
        except EOFError:
            self.note("")
            self.note("standard input has ended: no command can come any more; quitting", "red")
            self.quit()
            return
        self.do(line)

    def line(self, prompt: str) -> str:
        """Return the next input line.

        :raises EOFError: there are no more lines.
        """
        if self.queue:
            return self.queue.pop(0)
        with completing(self.matches):
            return self.reader.read(prompt)

    def contained(self, what: Callable[[], object]) -> None:
        """Call `what` and contain its exceptions; see Note [What a command raises]."""
        try:
            what()
        except Leave:
            self.quit()
        except KeyboardInterrupt:
            self.note("--KeyboardInterrupt--  (q ends the script)")
        except BackprobeError as error:
            self.note(error_text(error), "red")
        except BaseException as error:
            hint = "  (q ends the script)" if isinstance(error, SystemExit) else ""
            self.note(f"{type(error).__name__}: {error_text(error)}{hint}", "red")

    def do(self, line: str) -> None:
        """Run one input line: a command, or Python code; an empty line repeats the last command if it is a step."""
        line = line.strip()
        if not line:
            line = self._last
            found, _ = parse(line)
            if found is None or not found.repeats:
                return
        self._last = line
        found, arg = parse(line)
        if found is not None:
            found.run(self, arg)
        elif line.startswith("!"):
            self.python(line[1:].strip())
        else:
            self.python(line)

    def python(self, text: str) -> None:
        """Run Python code: print the value of an expression, or execute a statement."""
        if not text:
            return
        try:
            value = self.names.execute(text, self.namespace())
        except (NameError, SyntaxError) as error:
            hint = "" if " " in text else " ('help' lists the commands)"
            self.note(f"{type(error).__name__}: {error_text(error)}{hint}", "red")
            return
        if value is not None:
            self.note(repr(value))

    # What commands use

    @property
    def stop(self) -> Stop:
        """The current stop."""
        assert self._stop is not None
        return self._stop

    def go(self, resume: Resume) -> None:
        """Resume with `resume` after this command."""
        if self.stop.phase == "exception" and resume.kind not in ("abort", "finish", "back"):
            self.note("the backward has ended with this exception: the script goes on with it")
        self._resume = resume

    def quit(self) -> None:
        """End the script, or only the backward if the script is not under our control."""
        self._ending = self._quit
        self.go(ABORT)

    def levels(self) -> list[str]:
        """Return the node's module and those around it.

        :raises BackprobeError: the module is not known.
        """
        module = self.stop.node.module
        if module is None:
            raise BackprobeError("the module of this node is not known")
        return around(module)

    @property
    def line_shown(self) -> int | None:
        """Index of the op's line that is shown."""
        return self.stop.node.place.shown(self.library) if self.frame is None else self.frame

    @property
    def site(self) -> Site | None:
        """The source line that is shown; ``None`` if unknown."""
        at = self.line_shown
        return None if at is None else self.stop.node.place.lines[at]

    def namespace(self) -> dict[str, object]:
        """Return the names that Python code at this stop can use."""
        module = self.stop.node.module
        return self.names.at(self.stop, None if module is None else self.levels()[self.level])

    def evaluate(self, text: str) -> Any:
        """Return the value of an expression."""
        return self.names.evaluate(text, self.namespace())

    # Completion

    def matches(self, text: str, line: str, begin: int) -> list[str]:
        """Return completions of `text`, which begins at `begin` of `line`."""
        head = line[:begin]
        if not head.strip():
            return sorted(n for n in COMMANDS if n.startswith(text))
        found, _ = parse(head)
        if found is COMMANDS["help"]:
            return sorted(n for n in COMMANDS if n.startswith(text))
        names = self._places(head) if found is not None and found.places else {*self.namespace()}
        return sorted(n for n in names if n.startswith(text))

    def _places(self, head: str) -> set[str]:
        """Return the names with which the argument of a command that takes a place can be completed, after `head`."""
        infos = self.stop.backward.infos
        word = head.split()[-1]
        if word in ("module", "mod"):
            return {i.module for i in infos if i.module}
        if word in ("param", "parameter"):
            return {i.parameter for i in infos if i.parameter}
        sites = {site for i in infos for site in i.place.lines}
        lines = {f"{s.file.rpartition('/')[2]}:{s.line}" for s in sites}
        return {i.name for i in infos} | {"module", "param", "nonfinite", "norm"} | lines

    # Output

    def say(self, lines: Sequence[show.Line]) -> None:
        """Print styled lines; on a terminal, long lines wrap with an indent."""
        out = self.reader.out or sys.stdout
        console = console_of(out)
        for line in lines:
            text = Text.assemble(*line)
            if not console.is_terminal:
                console.print(text, soft_wrap=True)
                continue
            for part in text.split("\n", allow_blank=True):
                begin = len(part.plain) - len(part.plain.lstrip())
                first, *rest = part.wrap(console, max(console.width - begin - 4, 20)) or [part]
                console.print(first, soft_wrap=True)
                for more in rest:
                    console.print(Text(" " * (begin + 4)).append_text(more), soft_wrap=True)
        out.flush()

    def note(self, text: str, style: str = "") -> None:
        """Print text."""
        self.say([[(text, style)]])


def parse(line: str) -> tuple[Command | None, str]:
    """Return the command of `line`, and its argument; ``None`` if the line is Python code."""
    word, _, rest = line.strip().partition(" ")
    return WORDS.get(word), rest.strip()


def error_text(error: BaseException) -> str:
    """Return the message of an error, even if its ``__str__`` raises."""
    try:
        return str(error)
    except BaseException as other:
        return f"(its text cannot be had: its __str__ raised {type(other).__name__})"
