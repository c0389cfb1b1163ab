"""Hooks on tensors that edit the total gradient of a tensor, summed over all its uses.

Note [Edits of views]: A tensor hook belongs to the value that the tensor had when the hook was registered: a
    later in-place operation does not move it. But if the tensor is a view (a Linear's output for an input of three
    dimensions), an in-place operation gives its base a new node, ``CopySlices``, which bypasses the view's own node: a
    hook on the view is never called, and torch does not warn. So views are remembered, and when a backward call begins,
    their ``CopySlices`` node is located and hooked. A view is identified by the sequence number of its base's node: a
    reference to the node would keep the graph alive.
Note [One hook for each tensor]: One tensor may be the output of several modules (a Sequential and its last child). It
    gets one hook, whose chains run in the order in which a gradient meets them, outer module first; one rule is applied
    to it once.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...basics.torch_texts import COPY_SLICES
from ...torch_internals import references
from .rules import Chain

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

#: Views noted and not yet dropped: the oldest go first.
_VIEWS = 10_000
#: (thread, sequence number, name of the node, number of its output): the gradient edge of a view's base.
Edge = tuple[int, int, str, int]


class Spot:
    """The chains of one tensor, as a hook."""

    def __init__(self) -> None:
        """Begin without chains."""
        self.chains: list[Chain] = []

    def __call__(self, grad: torch.Tensor) -> torch.Tensor | None:
        """Return the edited gradient; ``None`` if it is unchanged."""
        result = grad
        for chain in self.chains:
            edited = chain(result)
            result = result if edited is None else edited
        return None if result is grad else result


class EditedView:
    """The position of a view in its base, and the edits of its gradient."""

    def __init__(self, tensor: torch.Tensor, base: torch.Tensor, spot: Spot) -> None:
        """Note where the view `tensor` lies in its base."""
        self.size, self.stride = tensor.size(), tensor.stride()
        self.offset = tensor.storage_offset() - base.storage_offset()
        self.base_size, self.base_stride = base.size(), base.stride()
        self.spot = spot

    def __call__(self, grad: torch.Tensor) -> torch.Tensor | None:
        """Return the gradient of the base with the view's part edited; ``None`` if nothing changed."""
        if grad.stride() != self.base_stride:  # the view's position is relative to the strides of the base
            laid = torch.empty_strided(self.base_size, self.base_stride, dtype=grad.dtype, device=grad.device)
            grad = laid.copy_(grad)
        offset = grad.storage_offset() + self.offset
        edited = self.spot(torch.as_strided(grad, self.size, self.stride, offset))
        if edited is None:
            return None
        return torch.as_strided_scatter(grad, edited, self.size, self.stride, offset)


class TensorHooks:
    """Owns the hooks on tensors."""

    def __init__(self) -> None:
        """Begin without hooks."""
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._chains: list[weakref.ref[Chain]] = []
        self._limit = 1024
        self._lock = threading.RLock()
        #: id -> the tensor, what tells its state, and its spot.
        self._spots: dict[int, tuple[weakref.ref[torch.Tensor], tuple[int, int], Spot]] = {}
        self.views: dict[Edge, list[EditedView]] = {}
        #: Views that were noted and are not known any more.
        self.dropped = 0

    def add(self, tensor: torch.Tensor, chain: Chain) -> None:
        """Edit the gradient at `tensor` by `chain`. The tensor needs to require a gradient."""
        with self._lock:
            self._tidy()
            node = tensor.grad_fn
            state = (tensor._version if node is not None else 0, node._sequence_nr() if node is not None else -1)
            known = self._spots.get(id(tensor))
            if known is not None and known[0]() is tensor and known[1] == state:
                spot = known[2]
                for other in spot.chains:
                    if chain.without(other):
                        other.also(chain.place)
                if chain.rules:
                    spot.chains.insert(0, chain)
                    self._chains.append(weakref.ref(chain))
                return
            spot = Spot()
            spot.chains.append(chain)
            self._chains.append(weakref.ref(chain))
            self._spots[id(tensor)] = (references.tensor_ref(tensor), state, spot)
            self._handles.append(tensor.register_hook(spot))
            if node is not None and tensor._is_view():
                self._note_view(tensor, spot)

    def _note_view(self, tensor: torch.Tensor, spot: Spot) -> None:
        """Remember a view and its edits by the node of its base; the oldest view is dropped if there are too many."""
        base: Any = tensor._base
        node = base.grad_fn
        if node is None:
            return
        edge = (threading.get_ident(), node._sequence_nr(), node.name(), base.output_nr)
        self.views.setdefault(edge, []).append(EditedView(tensor, base, spot))
        if len(self.views) > _VIEWS:
            del self.views[next(iter(self.views))]
            self.dropped += 1

    def _tidy(self) -> None:
        """Drop entries of tensors and graphs that no longer exist."""
        if len(self._handles) < self._limit and len(self._spots) < self._limit:
            return
        self._handles = [h for h in self._handles if h.hooks_dict_ref() is not None]
        self._chains = [c for c in self._chains if c() is not None]
        self._spots = {k: s for k, s in self._spots.items() if s[0]() is not None}
        self._limit = max(1024, 2 * len(self._handles), 2 * len(self._spots))

    def hook_views(
        self, nodes: list[torch.autograd.graph.Node], names: list[str], seqs: list[int], hooked: set[int]
    ) -> list[RemovableHandle]:
        """Hook the ``CopySlices`` nodes that go round views, but for those in `hooked`; their handles. See
        Note [Edits of views]."""
        handles = []
        thread = threading.get_ident()
        number = {node: i for i, node in enumerate(nodes)} if COPY_SLICES in names else {}
        for node, name in zip(nodes, names, strict=True):
            if name != COPY_SLICES or id(node) in hooked:
                continue
            child, output = node.next_functions[0]
            i = number.get(child)
            if i is None:
                continue
            views = self.views.get((thread, seqs[i], names[i], output))
            if views:
                handles.append(first(node.register_hook(_after(views))))
        return handles

    def stop(self) -> None:
        """Remove all hooks, and make hooks that remain on copies do nothing."""
        with self._lock:
            for ref in self._chains:
                if (chain := ref()) is not None:
                    chain.active = False
            while self._handles:
                self._handles.pop().remove()
            self._chains.clear()
            self._spots.clear()
            self.views.clear()


def _after(views: list[EditedView]) -> Callable[..., object]:
    """Return a hook for the ``CopySlices`` node of the base of `views`."""

    def edit_slices(grad_inputs: Sequence[torch.Tensor | None], grad_outputs: Sequence[torch.Tensor | None]) -> object:
        """Return the node's gradients with those of the views edited; ``None`` if nothing has changed."""
        grad = result = grad_inputs[0]
        if grad is None:
            return None
        for view in views:
            edited = view(result)
            result = result if edited is None else edited
        return None if result is grad else (result, *grad_inputs[1:])

    return edit_slices


def first(handle: RemovableHandle) -> RemovableHandle:
    """Put a node's hook before those that are there already, so that they see what was edited."""
    hooks = handle.hooks_dict_ref()
    if hooks is not None:
        for key in [key for key in hooks if key != handle.id]:
            hooks[key] = hooks.pop(key)
    return handle
