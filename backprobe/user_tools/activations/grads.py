"""Gradients of captured tensors: kept by hooks on the graph's nodes.

A hook on a tensor or a module speaks of what the tensor *is*; after a write in place that is another value. The node
and output number of a tensor at the time it was captured stay those of that value. A node's pre-hook runs after all
hooks on the tensor, so it sees what ``retain_grad`` would.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...basics.torch_texts import COPY_SLICES
from ...torch_internals import modes, references
from ...torch_internals.autograd_engine import gradient_edge
from .options import Treatment

if TYPE_CHECKING:
    from torch.autograd.graph import GradientEdge

#: The reason for an unknown gradient.
NOT_WHOLE = "it is a view whose base was written in place, and what went through the write is not known"


class GradRecord:
    """The gradient of one captured value, summed over backward calls as ``.grad`` is."""

    __slots__ = ("__weakref__", "keep", "partial", "tensor", "value")

    def __init__(self, keep: Treatment) -> None:
        """Begin without a gradient.
        :param keep: the treatment of gradients before they are stored.
        """
        self.keep = keep
        self.value: Any = None
        #: The tensor whose ``.grad`` is set too.
        self.tensor: weakref.ref[torch.Tensor] | None = None
        #: Why the gradient is not the whole one, if it is not.
        self.partial = ""

    def add(self, grad: torch.Tensor, part: Callable[[torch.Tensor], torch.Tensor] | None = None) -> None:
        """Add a gradient, or the `part` of it that belongs to this value, to the sum.

        A batch of gradients (``is_grads_batched``) counts as one backward call for each of its elements.
        """
        if self.partial:
            return
        with modes.disable_function_modes(), modes.suspend_transforms(), torch.no_grad():
            for one in modes.unbatched_tensors(grad):
                self._add(part(one) if part is not None else one)

    def _add(self, grad: torch.Tensor) -> None:
        """Add one gradient to the sum, and set the tensor's ``.grad`` unless autograd sets it itself."""
        # A copy: an accumulator may make the very memory of this gradient a parameter's ``.grad``.
        new = self.keep(grad.detach())
        new = new.clone() if _shares(new, grad) else new
        tensor = self.tensor() if self.tensor is not None else None
        if tensor is not None and (autograd_fills(tensor) or not _alike(tensor, new)):
            tensor = None
        if self.value is not None and tensor is not None and _grad_of(tensor) is not self.value:
            self.value = None  # the program has set ``.grad`` to None or to another tensor: start again
        self.value = new if self.value is None else self.value + new
        if tensor is not None:
            tensor.grad = self.value

    def move(self, tensor: torch.Tensor) -> None:
        """Use `tensor` as the captured value from now on, and set its ``.grad``."""
        self.tensor = references.tensor_ref(tensor)
        if self.value is not None and _alike(tensor, self.value):
            tensor.grad = self.value

    def clear(self) -> None:
        """Forget the sum, and reset the tensor's ``.grad`` if it was set here."""
        tensor = self.tensor() if self.tensor is not None else None
        if tensor is not None and self.value is not None and not autograd_fills(tensor):
            tensor.grad = None
        self.value = None


def autograd_fills(tensor: torch.Tensor) -> bool:
    """Return whether autograd itself sets ``.grad`` of this tensor."""
    return bool(tensor.requires_grad and (tensor.is_leaf or tensor.retains_grad))


def _grad_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return ``.grad`` of a tensor without autograd's warning for tensors inside a graph."""
    with warnings.catch_warnings():  # autograd would warn that it does not fill this one
        warnings.simplefilter("ignore")
        return tensor.grad


def _alike(tensor: torch.Tensor, grad: torch.Tensor) -> bool:
    """Return whether `grad` may be the ``.grad`` of `tensor`: same shape, dtype and device."""
    return bool((tensor.shape, tensor.dtype, tensor.device) == (grad.shape, grad.dtype, grad.device))


def _shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors share memory; true if that cannot be determined."""
    try:
        return bool(a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):
        return True


def _arrival(record: GradRecord, number: int) -> Callable[[Sequence[torch.Tensor | None]], None]:
    """Return a pre-hook that adds gradient `number` to the record.

    The hook holds the record weakly: a graph that lives on must not keep captured values alive.
    """
    ref = weakref.ref(record)

    def hook(grads: Sequence[torch.Tensor | None]) -> None:
        """Add the gradient to the record if it still exists."""
        kept = ref()
        if kept is not None and grads[number] is not None and not modes.is_aside():
            kept.add(grads[number])

    return hook


def has_node(tensor: torch.Tensor) -> bool:
    """Return whether `tensor` itself can receive a gradient.

    A view that was created while gradient mode was off reports ``requires_grad`` but has no node: only its base has.
    """
    if not tensor.requires_grad:
        return False
    return not (tensor.grad_fn is None and tensor._is_view() and tensor._base.requires_grad)


def watch(
    tensor: torch.Tensor, keep: Treatment, handles: list[torch.utils.hooks.RemovableHandle]
) -> tuple[GradRecord, GradientEdge]:
    """Start to record the gradient of `tensor` as it is now. Gives its gradient edge too."""
    record = GradRecord(keep)
    edge = gradient_edge(tensor)
    handles.append(edge.node.register_prehook(_arrival(record, edge.output_nr)))
    return record, edge


def follow_view(view: torch.Tensor, record: GradRecord, handles: list[torch.utils.hooks.RemovableHandle]) -> None:
    """Follow the gradient of a captured view whose memory was then written in place. Call this after the write.

    Autograd then routes the gradient past the view's own node, through the node of the write at the view's base. What
    that node hands on for the base, where the view lies in it, is what reached the view's old value by that way.
    """
    base = view._base
    node = base.grad_fn
    if node.name() != COPY_SLICES:
        record.partial = NOT_WHOLE
        return
    shape, stride, offset = view.shape, view.stride(), view.storage_offset() - base.storage_offset()
    ref = weakref.ref(record)

    def hook(grad_inputs: Sequence[torch.Tensor | None], grad_outputs: Sequence[torch.Tensor | None]) -> None:
        """Add the view's part of the gradient of the base to the record if it still exists."""
        kept = ref()
        if kept is None or grad_inputs[0] is None or modes.is_aside():
            return
        # CopySlices makes this gradient with the strides of the base.
        kept.add(grad_inputs[0], lambda grad: grad.as_strided(shape, stride, offset + grad.storage_offset()))

    handles.append(node.register_hook(hook))
