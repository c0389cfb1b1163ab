"""Calls of ``torch.autograd.backward`` by its name: a reentrant checkpoint's, and those of scripts that call it so.

Later versions of torch show them to function modes as they do ``Tensor.backward``; 2.8 does not. Where torch does not,
the function in ``torch.autograd`` is replaced by one that does, for as long as somebody of ours watches.

Note [Backward in place of torch's]: The one that replaces it does what torch's later versions do, for threads on which
a mode of ours is on, and else calls torch's own. It is taken away with the last who watches.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

import torch
from torch.overrides import handle_torch_function

#: Torch's own.
own = torch.autograd.backward
_code = getattr(own, "__code__", None)
#: Whether modes see it without us.
SHOWS = _code is None or "has_torch_function" in _code.co_names
#: The modes that want to see calls.
_watching: weakref.WeakSet[Any] = weakref.WeakSet()


@functools.wraps(own)
def shown(*args: Any, **kwargs: Any) -> Any:
    for i in range(torch._C._len_torch_function_stack()):
        if torch._C._get_function_stack_at(i) in _watching:
            return handle_torch_function(shown, (), *args, **kwargs)
    return own(*args, **kwargs)


#: What modes see is called.
seen = own if SHOWS else shown


def show(mode: Any) -> None:
    """`mode`, which is on, sees calls from now on."""
    if not SHOWS:
        _watching.add(mode)
        if torch.autograd.backward is own:
            torch.autograd.backward = shown


def unshow(mode: Any) -> None:
    """It sees them no longer."""
    _watching.discard(mode)
    if not _watching and torch.autograd.backward is shown:
        torch.autograd.backward = own
