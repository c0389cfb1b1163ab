"""Intercepts the torch function that every backward call from Python goes through, for steps without our function mode.

Note [In place of the engine's function]: while there is a listener, ``torch.autograd`` has a function in its place that
passes each call to the listeners, and they pass it on to torch's own. It is removed with the last listener. It costs
one more call in each backward, and nothing for any op.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from .uncompiled import dynamo_passthrough, leave_alone

#: Torch's own function; ``None`` if this torch has none of that name.
own: Callable[..., object] | None = getattr(torch.autograd, "_engine_run_backward", None)
#: The listeners: each is called with the next function, and with the arguments for torch's own.
_listening: list[Callable[..., object]] = []

if own is not None:

    @functools.wraps(own)
    @dynamo_passthrough
    def heard(*args: object, **kwargs: object) -> object:
        """Run the engine as torch's own function does, through the listeners, the last one outermost; return its
        result.
        """
        if len(_listening) == 1:
            return _listening[0](own, *args, **kwargs)
        call = own
        for listener in _listening:
            call = functools.partial(listener, call)
        return call(*args, **kwargs)  # type: ignore[misc]

    leave_alone(heard.__code__)  # type: ignore[attr-defined]  # counts as torch's: Note [Our frames are not compiled]


def listen(listener: Callable[..., object], inside: bool = False) -> bool:
    """Pass every call to `listener` from now on; return ``False`` if that is impossible with this torch.

    :param inside: call it after the present listeners, so that no frame of it is between them and their caller.
    """
    if own is None or torch.autograd._engine_run_backward not in (own, heard):  # other code has replaced the function
        return False
    if listener not in _listening:
        _listening.insert(0 if inside else len(_listening), listener)
    torch.autograd._engine_run_backward = heard
    return True


def unlisten(listener: Callable[..., object]) -> None:
    """Stop passing calls to `listener`."""
    if listener in _listening:
        _listening.remove(listener)
    if not _listening and own is not None and torch.autograd._engine_run_backward is heard:
        torch.autograd._engine_run_backward = own


def arguments_of(args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[bool, dict[str, object]]:
    """Return whether a call adds to ``.grad``, and the known arguments of the user's call.

    ``backward`` adds to ``.grad``, ``grad`` does not.

    :param args: the positional arguments of torch's own function after the roots.
    """
    _, retain, create, inputs = args[:4]
    found: dict[str, object] = {"retain_graph": True} if retain else {}
    if create:
        found["create_graph"] = True
    if inputs:
        found["inputs"] = inputs
    return bool(kwargs.get("accumulate_grad")), found
