"""Commands that take Python."""

from __future__ import annotations

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
    """The value of a Python expression. What is no command is Python too; !STATEMENT where it looks like one."""
    if not arg:
        prompt.note("p shows an expression: p grads[0].shape", "red")
        return
    prompt.note(repr(prompt.evaluate(arg)))
