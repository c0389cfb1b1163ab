"""Commands about breakpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...errors import BackprobeError
from ..breakpoints import Breakpoint
from ..options import breakpoint_from
from .command import command
from .loop import Prompt


@command("Breakpoints", "b(reak) PLACE [if COND]", "stop there; without arguments list them", "b", places=True)
def break_(prompt: Prompt, arg: str) -> None:
    """Stop there. Without arguments: list the breakpoints."""
    if arg:
        _add(prompt, arg, False)
        return
    for point in prompt.pilot.breakpoints:
        state = "" if point.enabled else "  (disabled)"
        once = "  (once)" if point.temporary else ""
        prompt.note(f"  {point.number}  {point}{once}{state}  hit {point.hits} times")
    if not prompt.pilot.breakpoints:
        prompt.note("no breakpoints; 'help break' shows the forms")


@command("Breakpoints", "tbreak PLACE [if COND]", "the same, once", places=True)
def tbreak(prompt: Prompt, arg: str) -> None:
    """Stop there once."""
    _add(prompt, arg, True)


def _add(prompt: Prompt, arg: str, temporary: bool) -> None:
    point = prompt.pilot.add(breakpoint_from(arg, {"temporary": temporary}))
    prompt.note(f"breakpoint {point.number}: {point}")
    try:
        point.check(prompt.stop.backward)
    except BackprobeError as error:
        prompt.note(f"it cannot stop in this backward: {error}", "yellow")


@command("Breakpoints", "disable N ...", "keep them, and do not stop there")
def disable(prompt: Prompt, arg: str) -> None:
    """Keep breakpoints, and do not stop at them."""
    _each(prompt, arg, Breakpoint.disable)


@command("Breakpoints", "enable N ...", "stop there again")
def enable(prompt: Prompt, arg: str) -> None:
    """Stop at disabled breakpoints again."""
    _each(prompt, arg, Breakpoint.enable)


@command("Breakpoints", "cl(ear) N ...", "remove them", "cl")
def clear(prompt: Prompt, arg: str) -> None:
    """Remove breakpoints."""
    _each(prompt, arg, Breakpoint.remove)


def _each(prompt: Prompt, arg: str, what: Callable[[Breakpoint], None]) -> None:
    for point in _chosen(prompt, arg.split()):
        what(point)


def _chosen(prompt: Prompt, numbers: list[str]) -> Iterator[Breakpoint]:
    """The breakpoints with these numbers; what is none is said."""
    known = {str(point.number): point for point in prompt.pilot.breakpoints}
    if not numbers:
        prompt.note("which? give numbers; 'b' lists the breakpoints", "red")
    for word in numbers:
        if word in known:
            yield known[word]
        else:
            prompt.note(f"there is no breakpoint {word}; there are: {', '.join(known) or 'none'}", "red")
