"""Commands that show the state at a stop."""

from __future__ import annotations

import pdb
import traceback

import torch

from .. import show, why
from ..values import summary
from .command import command
from .loop import Prompt


@command(
    "Look",
    "g(radients)",
    "the incoming gradients, and the outgoing ones when the node has run",
    "g",
    "grads",
)
def gradients(prompt: Prompt, arg: str) -> None:
    """Show the incoming gradients, and the outgoing ones if the node has run. p grads[0] shows values."""
    prompt.say(prompt.stop.gradient_lines())


@command("Look", "saved", "the tensors that the node has kept from the forward")
def saved(prompt: Prompt, arg: str) -> None:
    """Show the tensors that the node saved in the forward. p saved['self'] shows values."""
    prompt.say(show.saved(prompt.stop.saved))


@command("Look", "graph [N | all]", "the nodes in the order they run: done, here, to come")
def graph(prompt: Prompt, arg: str) -> None:
    """Show N nodes (12) before and after this one in execution order."""
    if arg and arg != "all" and not arg.isdecimal():
        prompt.note(f"graph takes a number or 'all', not {arg!r}", "red")
        return
    stop, around = prompt.stop, None if arg == "all" else int(arg or 12)
    prompt.say(show.listing(stop.backward, stop.index, stop.phase, around, prompt.library))


@command("Look", "ready", "the nodes whose gradients have all come")
def ready(prompt: Prompt, arg: str) -> None:
    """Show the nodes that have all their gradients, the next one first."""
    prompt.say([[("  ", ""), (str(info), "")] for info in prompt.stop.ready])


@command("Look", "u(p)", "to the module around this one: its parameters and how much of it has run", "u", repeats=True)
def up(prompt: Prompt, arg: str) -> None:
    """Go to the module around this one: how much of it has run, and its parameters. p module is the module itself."""
    levels = prompt.levels()
    if prompt.level + 1 >= len(levels):
        prompt.note("this is the outermost module")
        return
    _show_module(prompt, prompt.level + 1)


@command("Look", "d(own)", "back towards the node's own module", "d", repeats=True)
def down(prompt: Prompt, arg: str) -> None:
    """Go back towards the node's own module."""
    prompt.levels()
    if not prompt.level:
        prompt.note("this is the node's own module")
        return
    _show_module(prompt, prompt.level - 1)


def _show_module(prompt: Prompt, level: int) -> None:
    """Make the module at `level` (0: the node's own, 1: the one around it, …) current at the prompt, and show it."""
    prompt.level = level
    prompt.names.forget()
    prompt.say(show.module(prompt.stop.backward, prompt.levels()[level]))


@command(
    "Look", "rerun [float64]", "run the node by itself and compare with the engine; in float64: its rounding error"
)
def rerun(prompt: Prompt, arg: str) -> None:
    """Run the node by itself from its incoming gradients, in its own precision or in float64. After it ran, compare
    with what the engine got. backprobe.replay runs a whole backward again."""
    if arg not in ("", "float64"):
        prompt.note(f"rerun takes 'float64' or nothing, not {arg!r}", "red")
        return
    again = prompt.stop.rerun(dtype=torch.float64 if arg else None)
    for k, grad in enumerate(again.grad_inputs):
        equal = ""
        if again.equal is not None and not arg:
            equal = "  as the engine's" if again.equal[k] else "  NOT as the engine's"
        prompt.note(f"  out [{k}]  {summary(grad)}{equal}")
    if arg and again.error is not None:
        prompt.note(f"  the engine's are off by {again.error:.2g} of their norm")


@command("Look", "why", "what backprobe makes of an exception, or of values that are not finite")
def why_(prompt: Prompt, arg: str) -> None:
    """Show backprobe's diagnosis: its findings after an exception; for a gradient that is not finite, whether this node
    made it, and from which values."""
    prompt.say(why.lines(prompt.stop))


@command("Look", "pdb", "Python's debugger at your line that called backward, or that raised; its c comes back here")
def pdb_(prompt: Prompt, arg: str) -> None:
    """Open Python's debugger at the line that called backward, or that raised. Its c returns here."""
    error = prompt.stop.error
    frames = prompt.names.frames
    if error is not None and error.__traceback__ is not None:
        stack = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        mine = [k for k, frame in enumerate(stack) if frames.is_user(frame.f_code)]
        debugger = pdb.Pdb(stdin=prompt.reader.file, stdout=prompt.reader.out, nosigint=True)
        debugger.reset()
        # It opens at the innermost frame, which may belong to a library.
        up = len(stack) - 1 - mine[-1] if mine else 0
        debugger.rcLines += [f"up {up}"] if up else []
        debugger.interaction(None, error.__traceback__)
        return
    frame = prompt.names.frame()
    if frame is None:
        prompt.note("no frame of yours called this backward in this thread", "red")
        return
    debugger = pdb.Pdb(stdin=prompt.reader.file, stdout=prompt.reader.out, nosigint=True)
    debugger.reset()
    debugger.interaction(frame, None)
