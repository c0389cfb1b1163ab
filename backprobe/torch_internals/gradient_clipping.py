"""Reports the total norm that each ``torch.nn.utils.clip_grad_norm_`` finds.

Note [Norms that clipping finds]: ``clip_grad_norm_`` measures the norm of all gradients, in every step, whether or not
the step is recorded. It gives the norm to a function of its module, looked up at each call, which scales the gradients.
While a listener is registered, that function is replaced by one that reports the norm first. A compiled
function has the same graph as without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.utils import clip_grad

from .modes import compiling
from .uncompiled import dynamo_passthrough

#: The function that scales the gradients: (parameters, largest norm, total norm, whether to do it for all at once).
SCALES = "_clip_grads_with_norm_"
_listening: list[Callable[[torch.Tensor], None]] = []
_original: Any = getattr(clip_grad, SCALES, None)


@dynamo_passthrough
def _report_and_clip(parameters: Any, max_norm: Any, total_norm: Any, *args: Any, **kwargs: Any) -> Any:
    if not compiling():
        for listener in tuple(_listening):
            listener(total_norm)
    return _original(parameters, max_norm, total_norm, *args, **kwargs)


def listen(listener: Callable[[torch.Tensor], None]) -> None:
    """Call `listener` with each total norm, on the thread that clips. It must not raise."""
    if listener not in _listening:
        _listening.append(listener)
    if getattr(clip_grad, SCALES, None) is _original is not None:
        setattr(clip_grad, SCALES, _report_and_clip)


def unlisten(listener: Callable[[torch.Tensor], None]) -> None:
    if listener in _listening:
        _listening.remove(listener)
    if not _listening and getattr(clip_grad, SCALES, None) is _report_and_clip:
        setattr(clip_grad, SCALES, _original)
