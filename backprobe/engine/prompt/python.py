"""Commands that take Python code."""

from __future__ import annotations

import code
import pprint

from .command import command
from .loop import Prompt


@command(
    "Python",
    "p EXPR, !STATEMENT",
    "your variables, and: stop, node, grads, grad_outputs, grad_inputs, saved, module, torch",
    "print",
    python=True,
)
def p(prompt: Prompt, arg: str) -> None:
    """Show the value of a Python expression. Input that is no command is Python too; write !STATEMENT if it looks like
    one."""
    if not arg:
        prompt.note("p shows an expression: p grads[0].shape", "red")
        return
    prompt.note(repr(prompt.evaluate(arg)))


@command("Python", "pp EXPR", "the same, laid out", python=True)
def pp(prompt: Prompt, arg: str) -> None:
    """Show the value of a Python expression, formatted over several lines if it is long."""
    if not arg:
        prompt.note("pp shows an expression: pp vars(module)", "red")
        return
    prompt.note(pprint.pformat(prompt.evaluate(arg)))


@command("Python", "display [EXPR]", "show it at every stop; without it list what is shown", python=True)
def display(prompt: Prompt, arg: str) -> None:
    """Show the value of EXPR now and at every stop. Without EXPR: list the displayed expressions."""
    if arg and arg not in prompt.displayed:
        prompt.displayed.append(arg)
    for text in [arg] if arg else prompt.displayed:
        prompt.show_displayed(text)
    if not prompt.displayed:
        prompt.note("nothing is displayed; display grads[0].norm()")


@command("Python", "undisplay [EXPR]", "no longer; without it none", python=True)
def undisplay(prompt: Prompt, arg: str) -> None:
    """Stop displaying EXPR; without it, all expressions."""
    if arg and arg not in prompt.displayed:
        prompt.note(f"{arg} is not displayed", "red")
    prompt.displayed[:] = [text for text in prompt.displayed if arg and text != arg]


@command("Python", "interact", "Python with all these names, over many lines; its end (Ctrl-D) comes back")
def interact(prompt: Prompt, arg: str) -> None:
    """Open a Python session with your variables and those of this stop. Ctrl-D returns; assigned variables are kept."""
    names = prompt.namespace()
    before = dict(names)
    session = code.InteractiveConsole(names, "<prompt>")
    if prompt.reader.file is not None:
        session.raw_input = prompt.reader.read  # type: ignore[method-assign,assignment]
    try:
        session.interact("Python with the names of this stop; Ctrl-D comes back", "back at the stop")
    finally:
        prompt.names.keep(before, names)
        before.clear()
