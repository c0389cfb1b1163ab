"""The register of commands: one function each, with its line of ``help``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from .loop import Prompt

#: Titles of ``help``, in their order.
GROUPS = ("Go on", "Look", "Python", "Change", "Breakpoints", "End")

Run: TypeAlias = "Callable[[Prompt, str], None]"


@dataclass(frozen=True)
class Command:
    """One command.

    :ivar usage: how it is written, its short form told by brackets: ``n(ext) [N]``.
    :ivar says: its line of ``help``.
    :ivar repeats: whether an empty line does it again.
    :ivar places: whether it takes what ``b`` takes, and completes it.
    :ivar python: whether it takes Python.
    """

    name: str
    group: str
    usage: str
    says: str
    run: Run
    repeats: bool = False
    places: bool = False
    python: bool = False


#: By name, and by every word that means one.
COMMANDS: dict[str, Command] = {}
WORDS: dict[str, Command] = {}


def command(
    group: str, usage: str, says: str, *words: str, repeats: bool = False, places: bool = False, python: bool = False
) -> Callable[[Run], Run]:
    """Make a function a command; its docstring is what ``help COMMAND`` shows.

    :param words: that mean it too.
    """

    def register(run: Run) -> Run:
        name = run.__name__.rstrip("_")
        made = COMMANDS[name] = Command(name, group, usage, says, run, repeats, places, python)
        for word in (name, *words):
            WORDS[word] = made
        return run

    return register
