"""Where the lines of a prompt come from: the script's standard input, or another one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO


class Reader(Protocol):
    def read(self, prompt: str) -> str:
        """A line without its end.

        :raises EOFError: there is none any more.
        """
        ...

    @property
    def interactive(self) -> bool:
        """Whether a person types."""
        ...


class StandardInput:
    """The script's own; a person at a terminal can edit the line."""

    @property
    def interactive(self) -> bool:
        try:
            return sys.stdin.isatty()
        except (AttributeError, ValueError):  # none, or closed
            return False

    def read(self, prompt: str) -> str:
        try:
            return input(prompt)
        except (ValueError, RuntimeError, OSError) as error:  # closed, lost, or a terminal that is gone
            raise EOFError(str(error)) from None


class File:
    """Lines of a file."""

    interactive = True

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def read(self, prompt: str) -> str:
        sys.stdout.write(prompt)
        sys.stdout.flush()
        line = self._file.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")


@contextmanager
def completing(matches: Callable[[str, str, int], list[str]]) -> Iterator[None]:
    """Inside, the tab key asks `matches` (word, line, where the word begins). A completer of the user's is put back."""
    try:
        import readline
    except ImportError:
        yield
        return
    found: list[str] = []

    def complete(text: str, state: int) -> str | None:
        if state == 0:
            try:
                found[:] = matches(text, readline.get_line_buffer(), readline.get_begidx())
            except Exception:  # while somebody types there is nowhere to say it
                found.clear()
        return found[state] if state < len(found) else None

    old: Any = readline.get_completer()
    readline.set_completer(complete)
    libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")
    try:
        yield
    finally:
        readline.set_completer(old)
