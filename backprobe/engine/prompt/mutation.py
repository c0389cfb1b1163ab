"""The command that replaces a gradient."""

from __future__ import annotations

from ..values import summary
from .command import command
from .loop import Prompt


@command(
    "Change",
    "replace [K] EXPR",
    "another gradient number K (0): replace grads[0] * 0.5, replace 1 0.0",
    python=True,
)
def replace(prompt: Prompt, arg: str) -> None:
    """Replace gradient K (0): an incoming one before the node, an outgoing one after it. EXPR is a tensor of the same
    shape and dtype, a number, or a function of the gradient."""
    first, _, rest = arg.partition(" ")
    index, text = (int(first), rest) if first.isdecimal() and rest.strip() else (0, arg)
    if not text:
        prompt.note("replace what by what? replace grads[0] * 0.5, or: replace 1 0.0", "red")
        return
    new = prompt.stop.replace(prompt.evaluate(text), index)
    prompt.names.forget()
    prompt.note(f"  [{index}]  {summary(new)}")
