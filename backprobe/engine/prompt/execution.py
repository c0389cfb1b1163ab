"""Commands that resume the backward."""

from __future__ import annotations

from ..options import breakpoint_from
from ..resume import ABORT, CONTINUE, FINISH, step_from
from .command import command
from .loop import Prompt


@command("Go on", "n(ext) [N]", "to before the next node (N times)", "n", repeats=True)
def next_(prompt: Prompt, arg: str) -> None:
    """Continue to before the next node, N times."""
    if arg and not (arg.isdecimal() and int(arg)):
        prompt.note(f"n takes a number of steps, not {arg!r}", "red")
        return
    prompt.times = int(arg) if arg else 0
    prompt.go(step_from(prompt.stop, "node"))


@command(
    "Go on",
    "s(tep)",
    "a half step: run this node and stop after it, then before the next; into nested backwards",
    "s",
    repeats=True,
)
def step(prompt: Prompt, arg: str) -> None:
    """Run half a step. Before a node: run it and stop after it (or inside, if it runs a backward of its own). After a
    node: continue to before the next."""
    prompt.go(step_from(prompt.stop, "into"))


@command("Go on", "m(odule)", "to the first node of another module", "m", repeats=True)
def module(prompt: Prompt, arg: str) -> None:
    """Continue to the first node of another module."""
    prompt.go(step_from(prompt.stop, "module"))


@command("Go on", "o(ut)", "out of this module, or of the one chosen with u", "o", "r", "return", repeats=True)
def out(prompt: Prompt, arg: str) -> None:
    """Continue to the first node outside this module, or outside the one chosen with u."""
    levels = prompt.levels()
    prompt.go(step_from(prompt.stop, "out", levels[prompt.level] if prompt.level else None))


@command("Go on", "unt(il) PLACE", "to the next place that fits, as in b", "unt", places=True)
def until(prompt: Prompt, arg: str) -> None:
    """Continue to the next match of PLACE."""
    prompt.pilot.add(breakpoint_from(arg, {"temporary": True}))
    prompt.go(CONTINUE)


@command("Go on", "c(ontinue)", "to the next breakpoint", "c", "cont", repeats=True)
def continue_(prompt: Prompt, arg: str) -> None:
    """Continue to the next breakpoint, in this backward or a later one."""
    prompt.go(CONTINUE)


@command("Go on", "f(inish)", "without any stop to the end of the script", "f")
def finish(prompt: Prompt, arg: str) -> None:
    """Continue without any further stop."""
    prompt.go(FINISH)


@command("Go on", "back [N]", "to the stop before (N stops), where the backward keeps its graph")
def back(prompt: Prompt, arg: str) -> None:
    """Go N stops back, where you can replace a gradient and continue. The backward must keep its graph
    (retain_graph=True, or backprobe debug --retain). It begins again and runs up to there, with .grad and random
    numbers restored, and your earlier replacements applied again. Your hooks run again."""
    if arg and not (arg.isdecimal() and int(arg)):
        prompt.note(f"back takes a number of stops, not {arg!r}", "red")
        return
    prompt.go(prompt.pilot.rewind(prompt.stop, int(arg or 1)))


@command("End", "abort", "end this backward with an exception")
def abort(prompt: Prompt, arg: str) -> None:
    """End this backward here; the line that called it raises BackwardAborted."""
    prompt.go(ABORT)


@command("End", "q(uit)", "end the backward and the script", "q", "exit")
def quit_(prompt: Prompt, arg: str) -> None:
    """End the backward and the script."""
    prompt.quit()
