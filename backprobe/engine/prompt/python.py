"""Commands that take Python code."""

from __future__ import annotations

import code
import inspect
import pprint
import reprlib

import torch
from torch import nn

from ..values import summary
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


@command("Python", "whatis EXPR", "the type of a value; of a tensor its shape, dtype and what made it", python=True)
def whatis(prompt: Prompt, arg: str) -> None:
    """Show the type of a Python expression's value; for a tensor also shape, dtype, device, and its grad_fn."""
    if not arg:
        prompt.note("whatis shows the type of an expression: whatis grads[0]", "red")
        return
    value = prompt.evaluate(arg)
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, torch.Tensor):
        made = value.grad_fn.name() if value.grad_fn is not None else None
        graph = f"made by {made}" if made else "a leaf that requires a gradient" if value.requires_grad else "no graph"
        prompt.note(f"{name}  {list(value.shape)}, {value.dtype}, {value.device}; {graph}")
    elif inspect.isroutine(value) or inspect.isclass(value):
        prompt.note(f"{name}  {getattr(value, '__qualname__', value)}{_signature(value)}")
    else:
        size = f" with {len(value):,} elements" if isinstance(value, (list, tuple, dict, set)) else ""
        prompt.note(f"{name}{size}")


def _signature(function: object) -> str:
    """Return the parameters of `function` as text; ``(...)`` if Python does not know them."""
    try:
        return str(inspect.signature(function))  # type: ignore[arg-type]
    except (TypeError, ValueError):  # written in C, without one
        return "(...)"


@command("Python", "a(rgs)", "the arguments of your function that called backward", "a")
def args(prompt: Prompt, arg: str) -> None:
    """Show the arguments of your function that called backward, with the values that they have now."""
    frame = prompt.names.frame()
    if frame is None:
        prompt.note("no frame of yours called this backward in this thread", "red")
        return
    given = inspect.getargvalues(frame)
    names = [*given.args, *(name for name in (given.varargs, given.keywords) if name)]
    if not names:
        prompt.note(f"{getattr(frame.f_code, 'co_qualname', frame.f_code.co_name)} takes no arguments")
    for name in names:
        prompt.note(f"  {name} = {_short(given.locals[name])}" if name in given.locals else f"  {name} was deleted")


def _short(value: object) -> str:
    """Return the value of an argument as one line; of tensors and modules a summary."""
    if isinstance(value, torch.Tensor):
        return summary(value)
    if isinstance(value, nn.Module):
        return f"{type(value).__qualname__}, a module with {sum(p.numel() for p in value.parameters()):,} parameters"
    short = reprlib.Repr()
    short.maxother = short.maxstring = 100
    return short.repr(value)


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
