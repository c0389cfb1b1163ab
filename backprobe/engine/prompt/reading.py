"""Input of the prompt: the script's standard input, or the terminal."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from ...basics.errors import BackprobeError


class Reader(Protocol):
    """A source of input lines for the prompt."""

    def read(self, prompt: str) -> str:
        """Return a line without its line break.

        :raises EOFError: there are no more lines.
        """
        ...

    @property
    def interactive(self) -> bool:
        """Whether a person types the input."""
        ...

    @property
    def out(self) -> TextIO | None:
        """The stream for output; ``None`` for standard output."""
        ...

    @property
    def file(self) -> TextIO | None:
        """The stream from which nested debuggers read; ``None`` for standard input."""
        ...


class StandardInput:
    """The script's standard input, with line editing on a terminal."""

    out = file = None

    @property
    def interactive(self) -> bool:
        """Whether standard input is a terminal."""
        try:
            return sys.stdin.isatty()
        except (AttributeError, ValueError):  # none, or closed
            return False

    def read(self, prompt: str) -> str:
        """Show `prompt`, and return a line of standard input without its line break.
        :raises EOFError: there are no more lines, or standard input is closed.
        """
        try:
            return input(prompt)
        except (ValueError, RuntimeError, OSError) as error:  # closed, lost, or a terminal that is gone
            raise EOFError(str(error)) from None


class Terminal:
    """The terminal of the process, independent of standard input and output; with line editing if readline is
    available.

    Note [Editing on another terminal]: ``input`` edits only if standard input and output are the terminal. The C
    function that it calls takes any two C files, and so is called directly; if that is unavailable, lines are read
    without editing.

    :raises BackprobeError: there is no terminal.
    """

    interactive = True

    def __init__(self) -> None:
        """Open the terminal, and set up line editing if it is available."""
        try:
            self.file, self.out = open("/dev/tty"), open("/dev/tty", "w")  # noqa: SIM115
        except OSError as error:
            raise BackprobeError(f"--tty: there is no terminal to read commands from ({error.strerror})") from None
        self._edit = self._editor()

    def _editor(self) -> Callable[[str], str] | None:
        """Return a function that shows a prompt and returns an edited line; ``None`` if line editing is not
        available.
        """
        try:
            import readline  # noqa: F401

            libc, line_of = ctypes.CDLL(None), ctypes.pythonapi.PyOS_Readline
            libc.fdopen.restype = ctypes.c_void_p
            line_of.restype, line_of.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
            free = ctypes.pythonapi.PyMem_Free
            free.restype, free.argtypes = None, (ctypes.c_void_p,)
        except (ImportError, AttributeError, OSError):
            return None
        files = [libc.fdopen(os.dup(f.fileno()), mode) for f, mode in ((self.file, b"r"), (self.out, b"w"))]
        if not all(files):
            return None

        def edit(prompt: str) -> str:
            """Show `prompt`, let the user edit a line, and return it with its line break.
            :raises EOFError: the user ended the input.
            """
            at = line_of(*files, prompt.encode())
            if not at:
                raise EOFError
            text = ctypes.string_at(at).decode(errors="replace")
            free(at)
            if not text:
                raise EOFError
            return text

        return edit

    def read(self, prompt: str) -> str:
        """Show `prompt`, and return a line from the terminal without its line break.
        :raises EOFError: the user ended the input.
        """
        if self._edit is not None:
            return self._edit(prompt).rstrip("\r\n")
        self.out.write(prompt)
        self.out.flush()
        line = self.file.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")

    def close(self) -> None:
        """Close the terminal's two files."""
        self.file.close()
        self.out.close()


@contextmanager
def completing(matches: Callable[[str, str, int], list[str]]) -> Iterator[None]:
    """Complete words by `matches` (word, line, start of the word) in the block. Restores a completer of the user."""
    try:
        import readline
    except ImportError:
        yield
        return
    found: list[str] = []

    def complete(text: str, state: int) -> str | None:
        """Return match number `state` for the word `text`, as readline asks for completions; ``None`` after the
        last.
        """
        if state == 0:
            try:
                found[:] = matches(text, readline.get_line_buffer(), readline.get_begidx())
            except Exception:  # an error cannot be shown while the user types
                found.clear()
        return found[state] if state < len(found) else None

    old: Callable[[str, int], str | None] | None = readline.get_completer()
    readline.set_completer(complete)
    libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")
    try:
        yield
    finally:
        readline.set_completer(old)
