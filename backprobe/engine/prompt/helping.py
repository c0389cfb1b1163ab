"""``help``."""

from __future__ import annotations

from .command import COMMANDS, GROUPS, WORDS, command
from .loop import Prompt

_PLACES = """PLACE is one of
  AddmmBackward0, *Norm*          a node type, with wildcards
  module encoder.* [enter|leave]  the nodes of a module; its first node; after its last
  param *.bias                    before a parameter's gradient is accumulated
  train.py:41                     nodes that this line of the forward made; a library's line: those made through it
  #1234                           a sequence number
followed by 'before' (default), 'after' or 'both' where wanted.
COND is Python with: norm, nonfinite, grads, shape, node, module, parameter, phase. It is about the incoming gradients
before a node, the outgoing ones after it. 'b norm > 10' and 'b nonfinite' stop at any node, before or after it."""


@command("End", "h(elp) [COMMAND]", "this list, or more on one command", "h", "?")
def help_(prompt: Prompt, arg: str) -> None:
    """Show this list, or details of one command."""
    if not arg:
        wide = max(len(c.usage) for c in COMMANDS.values())
        for title in GROUPS:
            rows = [c for c in COMMANDS.values() if c.group == title]
            lines = [[("  " + c.usage.ljust(wide + 2), "cyan"), (c.says, "")] for c in rows]
            prompt.say([[(title, "bold")], *lines])
        prompt.note("An empty line repeats the last step. Anything else is Python. 'help break' shows what PLACE is.")
        return
    found = WORDS.get(arg)
    if found is None:
        prompt.note(f"no command {arg!r}; 'help' lists them", "red")
        return
    prompt.note(f"{found.usage}: " + " ".join((found.run.__doc__ or "").split()))
    if found.places:
        prompt.note(_PLACES)
