"""Policies as layers: each is a pair of saved-tensor hooks that passes tensors on to the layer around it.

Torch applies the innermost pair only. So torch calls the layer that was entered last, and that layer passes on the
tensors that it does not take, and its results for the others, to the layer around it.

Note [Pairs that are not ours]: A pair of hooks that is not ours ends the chain: it packs what is left, and its
unpacking comes first. There is no version check of ours then, as there is none without backprobe.

Note [Layers inside a checkpoint]: Inside a checkpointed function nothing is saved for backward, so a layer that is
entered there does nothing.

Note [Layers belong to a thread]: A layer belongs to the thread that entered it, as torch's own stack of hooks does.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import torch
from torch import nn

from ...basics.errors import BackprobeError
from ...basics.select import Choice, Selection
from ...basics.text import mib
from ...saved_memory.storages import StandIn
from ...torch_internals import checkpoints, saved_by_nodes, storage_ids
from .cells import Cell, Foreign, Held, Kept, Version, plain


class Gate:
    """Tracks which modules' calls are running: open inside the chosen modules. Per thread."""

    def __init__(self, model: nn.Module, select: Selection) -> None:
        """Find the modules of `model` that `select` chooses.
        :raises BackprobeError: it chooses none.
        """
        wanted = Choice(select)
        self._modules = [m for name, m in model.named_modules() if wanted(name, m)]
        wanted.check([name for name, _ in model.named_modules()], "module")
        self._local = threading.local()
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    @property
    def open(self) -> bool:
        """Whether a call of a chosen module runs on this thread."""
        return getattr(self._local, "depth", 0) > 0

    def _enter(self, module: nn.Module, args: object) -> None:
        """Count the beginning of a call; used as a forward pre-hook."""
        self._local.depth = getattr(self._local, "depth", 0) + 1

    def _leave(self, module: nn.Module, args: object, output: object) -> None:
        """Count the end of a call; used as a forward hook."""
        self._local.depth = max(0, getattr(self._local, "depth", 0) - 1)

    def start(self) -> None:
        """Register the hooks."""
        for module in self._modules:
            self._handles.append(module.register_forward_pre_hook(self._enter, prepend=True))
            self._handles.append(module.register_forward_hook(self._leave, always_call=True))

    def stop(self) -> None:
        """Remove the hooks, and close the gate."""
        while self._handles:
            self._handles.pop().remove()
        self._local = threading.local()


class Share:
    """A part of a budget, returned when this object is freed."""

    __slots__ = ("__weakref__", "_budget", "size")

    def __init__(self, budget: Budget, size: int) -> None:
        """Take the budget and the number of bytes."""
        self._budget, self.size = budget, size

    def __del__(self) -> None:
        """Return the bytes to the budget."""
        self._budget.free += self.size  # not atomic; the budget is only approximate


class Budget:
    """The number of bytes that may stay where they are at one time; each storage counts once."""

    def __init__(self, size: int) -> None:
        """Take the number of bytes."""
        self.free = size
        self._shares: weakref.WeakValueDictionary[int, Share] = weakref.WeakValueDictionary()

    def take(self, storage: torch.UntypedStorage) -> Share | None:
        """Return the share of a storage, a new one if there are bytes left for it; ``None`` if there are not."""
        key, size = storage_ids.storage_key(storage), storage.nbytes()
        share = self._shares.get(key)
        if share is None and size <= self.free:
            self.free -= size
            share = self._shares[key] = Share(self, size)
        return share


class Layer(ABC):
    """A policy as a context manager. Subclasses define in ``place`` how a tensor that they take is stored.

    :ivar tensors: number of saved tensors that this layer took.
    :ivar bytes: their memory, each storage once for each time that it was placed.
    :ivar held: bytes that are stored instead.
    """

    #: Whether in-place writes to saved tensors are harmless under this layer.
    lenient = False

    def __init__(
        self,
        model: nn.Module | None = None,
        select: Selection = None,
        min_bytes: int = 0,
        budget_bytes: int | None = None,
    ) -> None:
        """Check the options; they are those of ``offload.on_cpu``.
        :raises BackprobeError: a number is negative, or `select` is given without `model`, or matches nothing.
        """
        if select is not None and model is None:
            raise BackprobeError("select= chooses modules of a model: give model= too")
        for name, value in (("min_bytes", min_bytes), ("budget_bytes", budget_bytes)):
            if value is not None and value < 0:
                raise BackprobeError(f"{name} is {value}; it is 0 or more")
        self._gate = Gate(model, select) if model is not None and select is not None else None
        self._own = weakref.ref(model) if model is not None else None
        self._min_bytes = min_bytes
        self._budget = Budget(budget_bytes) if budget_bytes is not None else None
        self._buffers: set[int] = set()
        self._outer: Layer | tuple[Callable[..., object], Callable[..., object]] | None = None
        self._active: str | None = None
        self._lenient = self.lenient
        self.tensors, self.bytes, self.held = 0, 0, 0

    # Entering and leaving

    def __enter__(self) -> Any:
        """Activate the layer on this thread: push its hooks inside the present ones.
        :raises BackprobeError: it is active already.
        """
        if self._active is not None:
            raise BackprobeError(f"this {type(self).__name__} is in use already: make another for another block")
        if checkpoints.checkpoint_mark() is not None:  # see Note [Layers inside a checkpoint]
            self._active = "idle"
            return self
        pair = saved_by_nodes.top_hooks()
        owner = getattr(pair[0], "__self__", None) if pair is not None else None
        self._outer = owner if isinstance(owner, Layer) else pair
        saved_by_nodes.push_hooks(self._pack, _unpack)
        self._active = "on"
        try:
            self._lenient = self.lenient or (isinstance(self._outer, Layer) and self._outer._lenient)
            model = self._own() if self._own is not None else None
            self._buffers = {storage_ids.storage_key(b.untyped_storage()) for b in model.buffers()} if model else set()
            if self._gate is not None:
                self._gate.start()
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Deactivate the layer on this thread: pop its hooks."""
        was, self._active = self._active, None
        if was != "on":
            return
        saved_by_nodes.pop_hooks()
        try:
            self.stop()
        finally:
            if self._gate is not None:
                self._gate.stop()
            self._outer = None

    def start(self) -> None:  # noqa: B027 - most layers have nothing to do here
        """Hook for subclasses: runs on entering, after the saved-tensor hooks are active."""

    def stop(self) -> None:  # noqa: B027 - see start
        """Hook for subclasses: runs on leaving, also if ``start`` raised."""

    # Packing

    def _pack(self, tensor: torch.Tensor) -> Cell:
        """Pack a tensor that torch saves: its values in some form, with a check of its version if that is needed."""
        held = self.pack(tensor)
        settled = self._foreign() or (self._lenient and held.safe)
        version = None if settled else Version(tensor)
        return Cell(held, version)

    def _foreign(self) -> bool:
        """Return whether the chain ends with a pair that is not backprobe's (Note [Pairs that are not ours])."""
        layer: Any = self
        while isinstance(layer, Layer):
            layer = layer._outer
        return layer is not None

    def pack(self, tensor: torch.Tensor) -> Held:
        """Store a tensor that this layer takes, unless the budget lets it stay; pass other tensors to the layers
        around.
        """
        if self.takes(tensor):
            share = self._budget.take(tensor.untyped_storage()) if self._budget is not None else None
            if share is None:
                self.tensors += 1
                return self.place(tensor)
            held = self.hand_on(tensor)
            if isinstance(held, Kept):
                held.note = share
            return held
        return self.hand_on(tensor)

    def takes(self, tensor: torch.Tensor) -> bool:
        """Return whether this layer takes a tensor: parameters and buffers stay in memory under every policy."""
        if not plain(tensor) or (self._gate is not None and not self._gate.open):
            return False
        base = tensor._base if tensor._is_view() and tensor._base is not None else tensor
        if isinstance(base, nn.Parameter) or (base.is_leaf and base.requires_grad):
            return False
        memory = tensor.untyped_storage()
        return memory.nbytes() >= self._min_bytes and storage_ids.storage_key(memory) not in self._buffers

    @abstractmethod
    def place(self, tensor: torch.Tensor) -> Held:
        """Return the object stored for a tensor that this layer takes."""

    def hand_on(self, tensor: torch.Tensor) -> Held:
        """Pass a tensor to the layer around this one, or to the pair around it; without either, the tensor stays."""
        outer = self._outer
        if isinstance(outer, Layer):
            return outer.pack(tensor)
        if outer is not None:
            return Foreign(outer[0](tensor), outer[1])
        return Kept(tensor)

    def __str__(self) -> str:
        """Return the number of tensors taken and the bytes as text."""
        return (
            f"{type(self).__name__}: {self.tensors} saved tensors taken, {mib(self.bytes)} MiB of memory held in "
            f"{mib(self.held)} MiB"
        )


def _unpack(cell: Cell) -> torch.Tensor:
    """Return the tensor of a cell; the unpack hook of all layers."""
    return cell.get()


class Pair(Layer):
    """A pair of hooks of the user as a layer: composes with the layers around it, and checks versions."""

    def __init__(self, pack: Callable[[torch.Tensor], Any], unpack: Callable[[Any], torch.Tensor]) -> None:
        """Take the user's two hooks."""
        super().__init__()
        self._user_pack, self._user_unpack = pack, unpack

    def takes(self, tensor: torch.Tensor) -> bool:
        """Return true: the user's hooks get every tensor."""
        return True

    def place(self, tensor: torch.Tensor) -> Held:
        """Pack a tensor with the user's hook, and pass the tensors in the packed object to the layers around."""
        packed = self._user_pack(tensor)
        if packed is tensor:
            packed = tensor.detach()  # a node must not keep itself alive through its output
        if self._outer is None:
            return Foreign(packed, self._user_unpack)
        return Repacked(*self._split(packed), self._user_unpack)

    def _split(self, packed: object) -> tuple[object, list[Held]]:
        """Return the packed object without its tensors, and the results of passing those to the layers around."""
        found: list[Held] = []

        def out(value: Any) -> object:
            """Return `value` with each tensor replaced by its number, and place the tensors."""
            if isinstance(value, torch.Tensor):
                found.append(self.hand_on(value))
                return _Hole(len(found) - 1)
            if type(value) in (tuple, list):
                return type(value)(out(v) for v in value)
            if type(value) is dict:
                return {k: out(v) for k, v in value.items()}
            return value

        return out(packed), found


class _Hole:
    """A mark in a packed object where tensor number `index` was taken out."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        """Take the number of the tensor."""
        self.index = index


class Repacked(StandIn):
    """The object that a user's pair packed, with the tensors in it placed by the layers around."""

    __slots__ = ("content", "parts", "unpack")
    safe = False

    def __init__(self, content: object, parts: list[Held], unpack: Callable[[Any], torch.Tensor]) -> None:
        """Take the packed object without its tensors, the places of these, and the user's unpack hook."""
        self.content, self.parts, self.unpack = content, parts, unpack

    def get(self) -> torch.Tensor:
        """Put the tensors back into the packed object, unpack it with the user's hook, and return the tensor."""
        parts = [part.get() for part in self.parts]

        def back(value: Any) -> Any:
            """Return `value` with the tensors in place of their numbers."""
            if isinstance(value, _Hole):
                return parts[value.index]
            if type(value) in (tuple, list):
                return type(value)(back(v) for v in value)
            if type(value) is dict:
                return {k: back(v) for k, v in value.items()}
            return value

        found: torch.Tensor = self.unpack(back(self.content))
        return found

    def contents(self) -> Iterator[object]:
        """Yield the tensors' places, for the ledger."""
        yield from self.parts
