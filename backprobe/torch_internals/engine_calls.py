"""The function of torch that every backward call from Python goes through: for steps in which no mode of ours is on.

Note [In place of the engine's function]: while somebody of ours listens, ``torch.autograd`` has a function in its place
that hands each call to them, innermost last, and they to torch's own. It is taken away with the last who listens. It
costs one more call in each backward, and nothing for any op.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from .uncompiled import dynamo_passthrough, leave_alone

#: Torch's own; ``None`` where it has none by that name.
own: Callable[..., Any] | None = getattr(torch.autograd, "_engine_run_backward", None)
#: Who listens: each is called with who is next, and with what torch's own is called with.
_listening: list[Callable[..., Any]] = []

if own is not None:

    @functools.wraps(own)
    @dynamo_passthrough
    def heard(*args: Any, **kwargs: Any) -> Any:
        if len(_listening) == 1:
            return _listening[0](own, *args, **kwargs)
        call = own
        for listener in _listening:
            call = functools.partial(listener, call)
        return call(*args, **kwargs)  # type: ignore[misc]

    leave_alone(heard.__code__)  # type: ignore[attr-defined]  # it counts as torch's: Note [Our frames are not compiled]


def listen(listener: Callable[..., Any], inside: bool = False) -> bool:
    """`listener` gets every call from now on. ``False``: on this torch it gets none.

    :param inside: it is told after those who listen already, and no frame of it stands between them and who calls.
    """
    if own is None or torch.autograd._engine_run_backward not in (own, heard):  # somebody else's stands there
        return False
    if listener not in _listening:
        _listening.insert(0 if inside else len(_listening), listener)
    torch.autograd._engine_run_backward = heard
    return True


def unlisten(listener: Callable[..., Any]) -> None:
    """It gets no call any longer."""
    if listener in _listening:
        _listening.remove(listener)
    if not _listening and own is not None and torch.autograd._engine_run_backward is heard:
        torch.autograd._engine_run_backward = own


def arguments_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
    """From what torch's own is called with after the roots: whether it adds to ``.grad``, as ``backward`` does and
    ``grad`` does not, and the arguments of the user's call that can be told."""
    _, retain, create, inputs = args[:4]
    found: dict[str, Any] = {"retain_graph": True} if retain else {}
    if create:
        found["create_graph"] = True
    if inputs:
        found["inputs"] = inputs
    return bool(kwargs.get("accumulate_grad")), found
