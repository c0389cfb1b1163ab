"""Commands that show lines of source, and the way to them."""

from __future__ import annotations

from .. import show
from .command import command
from .loop import Prompt


@command("Look", "l(ist)", "the lines of the forward that made this node", "l", repeats=True)
def list_(prompt: Prompt, arg: str) -> None:
    """The lines of the forward that made this node."""
    prompt.say(show.source(prompt.stop.backward, prompt.stop.index))


@command("Look", "w(here)", "the way from the loss to here", "w", "bt")
def where(prompt: Prompt, arg: str) -> None:
    """The way from the loss to here, with modules and lines."""
    prompt.say(show.way(prompt.stop.backward, prompt.stop.index))


@command("Look", "ll", "the whole function of the forward that made this node")
def ll(prompt: Prompt, arg: str) -> None:
    """The whole function of the forward that made this node."""
    prompt.say(show.whole_source(prompt.stop.backward, prompt.stop.index))
