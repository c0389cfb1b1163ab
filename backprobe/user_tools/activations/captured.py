"""A captured tensor, whose value survives later in-place writes.

Note [Values written in place later]: A captured tensor is the model's own tensor, so a later in-place write would
    change it. Before a write that a Python mode can intercept, the value is copied; the copy has the same graph node.
    Other writes are detected by the version counter when the capture ends, and reported in the notes.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ...records import Site
from ...torch_internals import modes, references
from .grads import NOT_WHOLE, GradRecord, follow_view, watch
from .options import Treatment

if TYPE_CHECKING:
    from torch.autograd.graph import GradientEdge


def storage_of(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's memory, or 0 if it has none."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError, AttributeError):
        return 0


def version_of(tensor: torch.Tensor) -> int:
    """Return the version counter of a tensor; 0 if it has none."""
    try:
        return int(tensor._version)
    except RuntimeError:  # made in inference mode
        return 0


class Captured:
    """A captured value. Several names share it if modules return the same tensor."""

    __slots__ = ("edge", "is_view", "record", "source", "storage", "stored", "tensor", "version")

    def __init__(self, source: torch.Tensor) -> None:
        """Take the tensor that the module returned, before its value is stored."""
        #: The tensor that the user gets; ``None`` if it is in a file, under the name ``stored``.
        self.tensor: Any = None
        self.stored = ""
        #: The tensor that the module returned, while the program keeps it and its value is unchanged.
        self.source: weakref.ref[torch.Tensor] | None = references.tensor_ref(source)
        self.version = version_of(source)
        self.is_view = bool(source._is_view())
        #: The memory that the kept tensor shares with the program's, 0 if none.
        self.storage = 0
        self.edge: GradientEdge | None = None
        self.record: GradRecord | None = None

    def watch(self, source: object, keep: Treatment, handles: list[torch.utils.hooks.RemovableHandle]) -> None:
        """Start to record the gradient of `source`; keep its gradient edge if the value stays attached.
        :param keep: the treatment of gradients.
        :param handles: receives the handle of the hook.
        """
        self.record, edge = watch(source, keep, handles)
        if not keep.detach:
            self.edge = edge
        if self.tensor is not None:
            self.record.move(self.tensor)

    def preserve(self) -> torch.Tensor | None:
        """Copy the value if its memory is about to be written. Return the source tensor if it is a view whose gradient
        has to be followed, else ``None``."""
        source = self.source() if self.source is not None else None
        self.source = None
        if self.storage:
            self.storage = 0
            with torch.set_grad_enabled(bool(self.tensor.requires_grad)):
                self.tensor = self.tensor.clone()
            if self.record is not None:
                self.record.move(self.tensor)
        if self.record is None or not self.is_view:
            return None
        if source is None:
            self.record.partial = NOT_WHOLE
        return source

    @property
    def overwritten(self) -> bool:
        """Whether the memory was written by an operation that no Python mode intercepts."""
        return bool(self.storage and self.tensor is not None and version_of(self.tensor) != self.version)


class ByMemory:
    """The kept values by the memory that they came in, most of which they share with the program."""

    def __init__(self, handles: list[torch.utils.hooks.RemovableHandle]) -> None:
        """Begin without values.
        :param handles: receives the handles of hooks on views that are written later.
        """
        self._by_storage: dict[int, list[Captured]] = {}
        self._by_source: dict[int, Captured] = {}
        self._handles = handles

    def __bool__(self) -> bool:
        """Return whether any value is known by its memory."""
        return bool(self._by_storage)

    def known(self, source: object) -> Captured | None:
        """Return the captured value of `source` if its value has not changed since, else ``None``."""
        kept = self._by_source.get(id(source))
        if kept is None or kept.source is None or kept.source() is not source or kept.version != version_of(source):
            return None
        return kept

    def add(self, kept: Captured, source: object) -> None:
        """Remember `kept` as the captured value of `source`, and by its memory."""
        self._by_source[id(source)] = kept
        storage = storage_of(source)
        if not storage:
            return
        self._by_storage.setdefault(storage, []).append(kept)
        if kept.tensor is not None and storage_of(kept.tensor) == storage:
            kept.storage = storage

    def before_write(self, written: list[torch.Tensor]) -> list[tuple[torch.Tensor, Captured, Any]]:
        """Copy captured values whose memory is about to be overwritten; return what ``after_write`` takes."""
        views = []
        with modes.disable_function_modes():
            for tensor in written:
                for kept in self._by_storage.pop(storage_of(tensor), ()):
                    view = kept.preserve()
                    if view is not None:
                        views.append((view, kept, view._base.grad_fn))
        return views

    def after_write(self, views: list[tuple[torch.Tensor, Captured, Any]]) -> None:
        """Follow the gradients of the views that the write has given another node; takes the result of
        ``before_write``.
        """
        with modes.disable_function_modes():
            for view, kept, before in views:
                if kept.record is not None and view._base.grad_fn is not before:
                    follow_view(view, kept.record, self._handles)

    def end(self) -> list[Captured]:
        """Forget all values, and return those that were overwritten unobserved."""
        lost = [kept for some in self._by_storage.values() for kept in some if kept.overwritten]
        self._by_storage.clear()
        self._by_source.clear()
        return lost


class Entry(NamedTuple):
    """A captured value under one name."""

    kept: Captured
    #: Class of the module, or name of the function.
    made_by: str
    #: The user's line, for the result of a function.
    site: Site | None = None
