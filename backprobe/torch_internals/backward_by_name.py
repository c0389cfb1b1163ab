"""Makes function modes intercept ``torch.autograd.backward`` called by that name, as reentrant checkpoints do.

Later versions of torch pass such calls to function modes, as they do for ``Tensor.backward``; 2.8 does not. In that
case the function in ``torch.autograd`` is replaced by one that does, as long as one of our modes wants it.

Note [Backward in place of torch's]: the replacement does what later versions of torch do, for threads on which one of
our modes is active, and calls torch's own function otherwise. It is removed with the last such mode.
"""

from __future__ import annotations

import functools
import weakref

import torch
from torch.overrides import handle_torch_function

#: Torch's own function.
own = torch.autograd.backward
_code = getattr(own, "__code__", None)
#: Whether function modes intercept it without our replacement.
SHOWS = _code is None or "has_torch_function" in _code.co_names
#: The modes that intercept calls.
_watching: weakref.WeakSet[object] = weakref.WeakSet()


@functools.wraps(own)
def shown(*args: object, **kwargs: object) -> object:
    """Run a backward as ``torch.autograd.backward`` does, and let function modes intercept the call if one of ours is
    active.
    """
    for i in range(torch._C._len_torch_function_stack()):
        if torch._C._get_function_stack_at(i) in _watching:
            return handle_torch_function(shown, (), *args, **kwargs)
    return own(*args, **kwargs)


#: The function as passed to modes.
seen = own if SHOWS else shown


def show(mode: object) -> None:
    """Make `mode`, which is active, intercept calls from now on."""
    if not SHOWS:
        _watching.add(mode)
        if torch.autograd.backward is own:
            torch.autograd.backward = shown


def unshow(mode: object) -> None:
    """Stop `mode` from intercepting calls."""
    _watching.discard(mode)
    if not _watching and torch.autograd.backward is shown:
        torch.autograd.backward = own
