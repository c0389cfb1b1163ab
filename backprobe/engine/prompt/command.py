"""The registry of commands: one function for each, with its line of ``help``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from .loop import Prompt

#: Titles of ``help``, in order.
GROUPS = ("Go on", "Look", "Python", "Change", "Breakpoints", "End")

Run: TypeAlias = "Callable[[Prompt, str], None]"


@dataclass(frozen=True)
class Command:
    """A command of the prompt.

    :ivar usage: its syntax, with the short form marked by brackets: ``n(ext) [N]``.
    :ivar says: its line of ``help``.
    :ivar repeats: whether an empty line repeats it.
    :ivar places: whether it takes the same places as ``b``, and completes them.
    :ivar python: whether it takes Python code.
    """

    name: str
    group: str
    usage: str
    says: str
    run: Run
    repeats: bool = False
    places: bool = False
    python: bool = False


#: Commands by name and by alias.
COMMANDS: dict[str, Command] = {}
WORDS: dict[str, Command] = {}


def command(
    group: str, usage: str, says: str, *words: str, repeats: bool = False, places: bool = False, python: bool = False
) -> Callable[[Run], Run]:
    """Make a function a command; its docstring is what ``help COMMAND`` shows.

    :param words: alternative names.
    """

    def register(run: Run) -> Run:
        """Add `run` to the commands under its name and its aliases, and return it unchanged."""
        name = run.__name__.rstrip("_")
        made = COMMANDS[name] = Command(name, group, usage, says, run, repeats, places, python)
        for word in (name, *words):
            WORDS[word] = made
        return run

    return register
