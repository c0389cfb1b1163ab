"""Commands about breakpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...basics.errors import BackprobeError
from ..breakpoints import Breakpoint
from ..options import breakpoint_from
from .command import command
from .loop import Prompt


@command("Breakpoints", "b(reak) PLACE [if COND]", "stop there; without arguments list them", "b", places=True)
def break_(prompt: Prompt, arg: str) -> None:
    """Stop at PLACE. Without arguments: list the breakpoints."""
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
    """Stop at PLACE once."""
    _add(prompt, arg, True)


def _add(prompt: Prompt, arg: str, temporary: bool) -> None:
    """Add a breakpoint from the text `arg`, and print it; print a warning if no node of this backward matches.
    :param temporary: whether it is removed after its first stop.
    """
    point = prompt.pilot.add(breakpoint_from(arg, {"temporary": temporary}))
    prompt.note(f"breakpoint {point.number}: {point}")
    try:
        point.check(prompt.stop.backward)
    except BackprobeError as error:
        prompt.note(f"it cannot stop in this backward: {error}", "yellow")


@command("Breakpoints", "disable N ...", "keep them, and do not stop there")
def disable(prompt: Prompt, arg: str) -> None:
    """Disable breakpoints without removing them."""
    _each(prompt, arg, Breakpoint.disable)


@command("Breakpoints", "enable N ...", "stop there again")
def enable(prompt: Prompt, arg: str) -> None:
    """Enable disabled breakpoints."""
    _each(prompt, arg, Breakpoint.enable)


@command("Breakpoints", "cl(ear) N ...", "remove them", "cl")
def clear(prompt: Prompt, arg: str) -> None:
    """Remove breakpoints."""
    _each(prompt, arg, Breakpoint.remove)


def _each(prompt: Prompt, arg: str, what: Callable[[Breakpoint], None]) -> None:
    """Apply `what` to each breakpoint whose number is in the text `arg`."""
    for point in _chosen(prompt, arg.split()):
        what(point)


def _chosen(prompt: Prompt, numbers: list[str]) -> Iterator[Breakpoint]:
    """Yield the breakpoints with these numbers; print a message for a word that is not one."""
    known = {str(point.number): point for point in prompt.pilot.breakpoints}
    if not numbers:
        prompt.note("which? give numbers; 'b' lists the breakpoints", "red")
    for word in numbers:
        if word in known:
            yield known[word]
        else:
            prompt.note(f"there is no breakpoint {word}; there are: {', '.join(known) or 'none'}", "red")


@command("Breakpoints", "condition N [COND]", "stop at N only if COND holds; without it always")
def condition(prompt: Prompt, arg: str) -> None:
    """Stop at breakpoint N only if COND holds; without COND always. COND can use your variables too."""
    number, _, when = arg.partition(" ")
    for point in _chosen(prompt, [number] if number else []):
        point.on_condition(when.strip().removeprefix("if ").strip() or None)
        prompt.note(f"breakpoint {point.number}: {point}")


@command("Breakpoints", "ignore N COUNT", "do not stop at N the next COUNT times")
def ignore(prompt: Prompt, arg: str) -> None:
    """Do not stop at breakpoint N the next COUNT times."""
    words = arg.split()
    if len(words) != 2 or not words[1].isdecimal():
        prompt.note("ignore takes a breakpoint and a count: ignore 1 10", "red")
        return
    for point in _chosen(prompt, words[:1]):
        point.count = point.hits + int(words[1]) + 1
        prompt.note(f"breakpoint {point.number} is met {words[1]} times without a stop")


@command("Breakpoints", "commands N", "lines that are run when N stops, up to 'end'; 'silent' shows no head")
def commands(prompt: Prompt, arg: str) -> None:
    """Run the lines that follow, up to 'end', whenever breakpoint N stops. 'silent' among them omits the heading. A
    command that resumes, such as c, ends the stop. Without lines: run none."""
    for point in _chosen(prompt, arg.split()[:1]):
        lines: list[str] = []
        try:
            while (line := prompt.line("(commands) ").strip()) != "end":
                lines.append(line)
        except EOFError:
            prompt.note("the input has ended before 'end'", "red")
        prompt.scripts[point.number] = [line for line in lines if line]
