"""Commands that show source lines, and the path to them."""

from __future__ import annotations

from .. import show
from .command import command
from .loop import Prompt


@command("Look", "l(ist)", "the lines of the forward that made this node", "l", repeats=True)
def list_(prompt: Prompt, arg: str) -> None:
    """Show the lines of the forward that created this node: yours, or a library's after 'code library' or 'frame N'."""
    prompt.say(show.source(prompt.stop.backward, prompt.stop.index, prompt.site))


@command("Look", "w(here)", "the way from the loss to here", "w", "bt")
def where(prompt: Prompt, arg: str) -> None:
    """Show the path from the loss to here, with modules and lines."""
    prompt.say(show.way(prompt.stop.backward, prompt.stop.index, prompt.library))


@command("Look", "ll", "the whole function of the forward that made this node")
def ll(prompt: Prompt, arg: str) -> None:
    """Show the whole function of the forward that created this node; see l."""
    prompt.say(show.whole_source(prompt.stop.backward, prompt.stop.index, prompt.site))


@command("Look", "fr(ame) [N]", "the calls from your line down to the op; N chooses one for l and ll", "fr")
def frame(prompt: Prompt, arg: str) -> None:
    """Show the calls from your line down to the op, those of libraries too. N chooses the one that l and ll show at
    this stop."""
    stop = prompt.stop
    if arg:
        count = len(stop.node.place.lines)
        if not (arg.isdecimal() and int(arg) < count):
            prompt.note(f"fr takes the number of a line, 0 to {count - 1}, not {arg!r}", "red")
            return
        prompt.frame = int(arg)
    prompt.say(show.frames(stop.backward, stop.index, prompt.line_shown))


@command("Look", "code [mine | library]", "whose lines are shown: yours, or the library's that called torch")
def code(prompt: Prompt, arg: str) -> None:
    """Choose the lines that l, ll, w, graph and the head of each stop show: yours, or the innermost library's that is
    not torch. Without an argument: switch."""
    if arg not in ("", "mine", "library"):
        prompt.note(f"code takes 'mine' or 'library', not {arg!r}", "red")
        return
    prompt.library = arg == "library" if arg else not prompt.library
    prompt.frame = None
    prompt.note("lines of libraries" if prompt.library else "your lines")
    prompt.say(show.source(prompt.stop.backward, prompt.stop.index, prompt.site))
