"""Reports calls of ``torch.nn.utils.clip_grad_norm_`` and ``clip_grad_value_`` before they change gradients.

Note [Norms that clipping finds]: ``clip_grad_norm_`` measures the norm of all gradients, in every step, whether or not
the step is recorded. It gives the norm to a function of its module, looked up at each call, which scales the gradients.
While a listener is registered, that function is replaced by one that reports the norm first. A compiled
function has the same graph as without it.

``clip_grad_value_`` groups the gradients by another function of the module, which is replaced while there is a listener
to these calls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import unwrap
from types import CodeType
from typing import Any

import torch
from torch.nn.utils import clip_grad

from .modes import compiling
from .uncompiled import dynamo_passthrough

#: The function that scales the gradients: (parameters, largest norm, total norm, whether to do it for all at once).
SCALES = "_clip_grads_with_norm_"
#: The function that groups the gradients, given as ``[gradients]``.
GROUPS = "_group_tensors_by_device_and_dtype"
_original: Any = getattr(clip_grad, SCALES, None)
_original_groups: Any = getattr(clip_grad, GROUPS, None)
_value_code: CodeType = unwrap(clip_grad.clip_grad_value_).__code__


@dataclass(frozen=True)
class ClipCall:
    """A call that is about to clip gradients.

    :ivar parameters: those that it was given; ``None`` if they came from an iterator that the call has used up.
    :ivar grads: the gradients that it clips: of ``clip_grad_value_`` only, which raises if there are none.
    :ivar bound: the largest norm, or the largest absolute value of an element.
    :ivar total_norm: the norm that ``clip_grad_norm_`` found; ``None`` for ``clip_grad_value_``.
    """

    parameters: Sequence[torch.Tensor] | None
    grads: Sequence[torch.Tensor | None]
    bound: float
    total_norm: torch.Tensor | None


#: A listener to calls, which may return a function to call when the call has clipped by norm.
CallListener = Callable[[ClipCall], Callable[[], None] | None]
_listening: list[Callable[[torch.Tensor], None]] = []
_listening_to_calls: list[CallListener] = []


@dynamo_passthrough
def _report_and_clip(
    parameters: object, max_norm: float, total_norm: torch.Tensor | None, *args: object, **kwargs: object
) -> object:
    """Report the norm and the call to the listeners, then scale the gradients as torch does."""
    at_end: list[Callable[[], None]] = []
    if not compiling():
        for listener in tuple(_listening):
            listener(total_norm)
        if _listening_to_calls and isinstance(parameters, list):
            at_end = _report_call(ClipCall(parameters, (), max_norm, total_norm))
    result = _original(parameters, max_norm, total_norm, *args, **kwargs)
    for clipped in at_end:
        clipped()
    return result


@dynamo_passthrough
def _report_and_group(tensors: Any, *args: object, **kwargs: object) -> object:
    """Group tensors as torch does; report the call first if it comes from ``clip_grad_value_``."""
    if not compiling():
        frame = sys._getframe(1)
        if frame.f_code is _value_code:
            _report_values(frame.f_locals, tensors[0])
        del frame
    return _original_groups(tensors, *args, **kwargs)


def _report_values(values: dict[str, object], grads: Sequence[torch.Tensor | None]) -> None:
    """Report a call of ``clip_grad_value_`` with these local variables."""
    parameters = values.get("parameters")
    known = parameters if isinstance(parameters, (list, tuple)) else None
    bound = values.get("clip_value")
    if isinstance(bound, float):
        _report_call(ClipCall(known, grads, bound, None))


def _report_call(call: ClipCall) -> list[Callable[[], None]]:
    """Report `call` to all listeners, and return what they want to be called at its end."""
    at_end = []
    for listener in tuple(_listening_to_calls):
        if (clipped := listener(call)) is not None:
            at_end.append(clipped)
    return at_end


def listen(listener: Callable[[torch.Tensor], None]) -> None:
    """Call `listener` with each total norm, on the thread that clips. It must not raise."""
    if listener not in _listening:
        _listening.append(listener)
    _replace()


def unlisten(listener: Callable[[torch.Tensor], None]) -> None:
    """Stop passing norms to `listener`."""
    if listener in _listening:
        _listening.remove(listener)
    _restore()


def listen_to_calls(listener: CallListener) -> None:
    """Call `listener` with each call that clips, on its thread. Neither it nor what it returns may raise."""
    if listener not in _listening_to_calls:
        _listening_to_calls.append(listener)
    _replace()


def unlisten_to_calls(listener: CallListener) -> None:
    """Stop passing calls to `listener`."""
    if listener in _listening_to_calls:
        _listening_to_calls.remove(listener)
    _restore()


def _replace() -> None:
    """Replace torch's functions by those that report, as far as there are listeners for them."""
    if getattr(clip_grad, SCALES, None) is _original is not None:
        setattr(clip_grad, SCALES, _report_and_clip)
    if _listening_to_calls and getattr(clip_grad, GROUPS, None) is _original_groups is not None:
        setattr(clip_grad, GROUPS, _report_and_group)


def _restore() -> None:
    """Restore torch's functions that have no listeners any more."""
    if not (_listening or _listening_to_calls) and getattr(clip_grad, SCALES, None) is _report_and_clip:
        setattr(clip_grad, SCALES, _original)
    if not _listening_to_calls and getattr(clip_grad, GROUPS, None) is _report_and_group:
        setattr(clip_grad, GROUPS, _original_groups)
