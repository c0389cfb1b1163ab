"""Objects that replace saved tensors in a graph: the values in some form, and their version.

Note [Cells hold aliases]: Nothing here refers to the tensor that was saved: a node that keeps its own output would keep
itself alive. A cell holds a detached alias, which shares memory and version counter.

Note [Versions without memory]: A detached alias whose ``data`` is replaced by an empty tensor still shares the version
counter, and holds no memory. So the version is known even if the values have moved elsewhere.

Note [Nodes are named late]: Reading ``grad_fn`` of every saved tensor would make a Python object for every node, and
freeing a deep chain of those overflows the stack. Names are looked up when there is an error to report.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

from ...basics.torch_texts import AS_STRIDED, IN_PLACE_DETAIL
from ...saved_memory.storages import RESULTS, StandIn
from ...torch_internals import autograd_engine, modes, references, saved_by_nodes


class Held(Protocol):
    """The values of one tensor in some form. Forms that the ledger must recognise are ``StandIn`` too."""

    @property
    def safe(self) -> bool:
        """Whether the values stay the same if the tensor that was saved is written."""
        ...

    def get(self) -> torch.Tensor:
        """Return a tensor with the values, shape, strides, dtype and device of the one that was saved."""
        ...


def plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's memory can be copied and restored: strided, of torch's own class, outside
    transforms.
    """
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and not tensor.is_meta
        and not tensor.is_quantized
        and not tensor.is_neg()
        and not modes.is_wrapped(tensor)
    )


class Kept(StandIn):
    """A tensor that stays where it is."""

    __slots__ = ("__weakref__", "note", "tensor")
    safe = False

    def __init__(self, tensor: torch.Tensor, note: object = None) -> None:
        """Keep a detached alias of `tensor`.
        :param note: an object that is to live as long.
        """
        with modes.disable_function_modes():
            self.tensor = tensor.detach()  # see Note [Cells hold aliases]
        #: Lives as long as this object: a share of a budget.
        self.note = note

    def get(self) -> torch.Tensor:
        """Return the tensor."""
        return self.tensor

    def contents(self) -> Iterator[object]:
        """Yield the tensor, for the ledger."""
        yield self.tensor


class Foreign(StandIn):
    """The object into which another user's saved-tensor hooks packed a tensor."""

    __slots__ = ("content", "unpack")
    safe = False

    def __init__(self, content: object, unpack: Callable[[Any], torch.Tensor]) -> None:
        """Take the packed object, and the hook that unpacks it."""
        self.content, self.unpack = content, unpack

    def get(self) -> torch.Tensor:
        """Unpack the object with the user's hook, and return the tensor."""
        found: torch.Tensor = self.unpack(self.content)
        return found

    def contents(self) -> Iterator[object]:
        """Yield the packed object, for the ledger."""
        yield self.content


class Version:
    """The version of a tensor when it was saved, with a check whether it has changed."""

    __slots__ = ("leaf", "saved", "shape", "tensor", "token", "type", "view")

    def __init__(self, tensor: torch.Tensor) -> None:
        """Note the version of `tensor`, and what torch's error says of it."""
        with modes.disable_function_modes():
            token = tensor.detach()
            if plain(token):
                token.data = token.new_empty(0)  # see Note [Versions without memory]
            self.saved = tensor._version
        self.token = token
        #: Only for the error's text: the node is looked up then (Note [Nodes are named late]).
        self.tensor = references.tensor_ref(tensor)
        self.view = tensor._is_view()
        self.shape, self.leaf, self.type = tuple(tensor.shape), tensor.is_leaf, tensor.type()

    def check(self, packed: object) -> None:
        """Raise torch's error if the saved tensor was written in place.

        :param packed: the object that the node holds instead of the tensor.
        """
        now = self.token._version
        if now != self.saved:
            raise RuntimeError(self._text(now, packed))

    def _text(self, now: int, packed: object) -> str:
        """Return the text of torch's error for a tensor that is at version `now`."""
        said = saved_by_nodes.in_place_error()  # torch's wording of the error
        found = IN_PLACE_DETAIL.search(said)
        before, after = (said[: found.start()], said[found.end() :]) if found is not None else (f"{said}: ", "")
        name = "" if self.leaf else self._node_name(packed)
        if found is not None and found["op"] == "Exp":  # newer torch shortens the names of nodes
            name = re.sub(r"Backward\d*$", "", name)
        output = f", which is output 0 of {name}," if name else ""  # torch says 0 whichever output it is
        versions = f"is at version {now}; expected version {self.saved}"
        return f"{before}[{self.type} {list(self.shape)}]{output} {versions}{after}"

    def _node_name(self, packed: object) -> str:
        """Return the name of the node that made the tensor; if the tensor is gone, the only candidate other than the
        running node.
        """
        running, tensor = autograd_engine.current_node(), self.tensor()
        if running is not None:
            for name, slot in saved_by_nodes.saved_slots(running):
                content = (saved_by_nodes.slot_content(slot) or (None,))[0]
                if (content is packed or getattr(content, "held", None) is packed) and RESULTS.fullmatch(name):
                    return str(running.name())
        if tensor is not None:
            return tensor.grad_fn.name() if tensor.grad_fn is not None else ""
        if self.view:
            return AS_STRIDED  # the node that torch makes anew for a view whose memory was written
        if running is None:
            return ""
        fitting = set()
        for node, number in running.next_functions:
            if node is None or hasattr(node, "variable"):
                continue
            metadata = node._input_metadata
            if number < len(metadata) and tuple(metadata[number].shape) == self.shape:
                fitting.add(node)
        found = fitting.pop() if len(fitting) == 1 else running
        return str(found.name())


class Cell(StandIn):
    """The object that torch stores for a saved tensor: the values, and the version to check on unpacking."""

    __slots__ = ("held", "version")

    def __init__(self, held: Held, version: Version | None) -> None:
        """Take the stored values; without `version`, nothing is checked."""
        self.held, self.version = held, version

    def get(self) -> torch.Tensor:
        """Return the tensor; raise torch's error if it was written in place since it was saved."""
        if self.version is not None:
            self.version.check(self)
        return self.held.get()

    def contents(self) -> Iterator[object]:
        """Yield the stored values, for the ledger."""
        yield self.held
