"""Records of the memory that graphs hold, of what holds graphs, and of silent writes."""

from __future__ import annotations

from dataclasses import dataclass

from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class SavedBytes:
    """Bytes saved for backward by one line, op, module and dtype: each storage once, for the node that saved it first.

    :ivar module: "" for none, or the model itself; ``None`` if unknown.
    :ivar tensors: saved tensors on this memory; ``names`` are their names in their nodes.
    :ivar holder: the other holder: "parameter", "buffer", "variable" (of the user's functions), "graph" (another),
        "other"; "" if there is none: the backward frees it.
    """

    site: Site | None
    op: str
    module: str | None
    bytes: int
    tensors: int
    names: tuple[str, ...]
    dtype: str = ""
    holder: str = ""


@record
@dataclass(frozen=True, slots=True)
class SavedEntry:
    """A storage that nodes of a graph hold. Its bytes count once, for the node that saved it first."""

    nbytes: int
    #: Torch's name of the node, and the node's name of the tensor (``self``, ``result``, ``ctx.mask``).
    node: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    #: The function that was called in the forward, if observed; else the node's name without ``Backward0``.
    op: str
    #: Path of the module; "" for none, or the model itself; ``None`` if unknown.
    module: str | None
    site: Site | None
    #: Saved tensors on this storage, and how many of them are views.
    tensors: int
    views: int
    #: The other holder: "parameter", "buffer", "variable", "graph", "other"; "" if there is none.
    holder: str
    #: The holder's name, if it has one.
    holder_name: str = ""
    #: Whether the tensor is inside an object that a pair of saved-tensor hooks packed.
    packed: bool = False


@record
@dataclass(frozen=True, slots=True)
class SavedPlaced:
    """Saved tensors that an offload policy moved, with their original size."""

    policy: str
    tensors: int
    nbytes: int


@record
@dataclass(frozen=True, slots=True)
class SavedUnknown:
    """Saved tensors whose size is unknown, and why."""

    what: str
    count: int
    why: str


@record
@dataclass(frozen=True, slots=True)
class SavedMoment:
    """A node of the backward, its position in the engine's order, and the bytes still held after it ran."""

    node: str
    module: str | None
    #: Bytes that only the graph holds and that later nodes still need.
    nbytes: int
    order: int = 0


@record
@dataclass(frozen=True, slots=True)
class SavedModule:
    """The estimated savings of checkpointing a module, computed from the graph of a forward without it.

    :ivar inside: bytes that only nodes inside the module's calls hold.
    :ivar inputs: bytes of its inputs with a gradient that nothing outside holds: the checkpoint would.
    """

    path: str
    class_name: str
    calls: int
    inside: int
    inputs: int

    @property
    def saves(self) -> int:
        """Bytes; negative if the checkpoint would hold more."""
        return self.inside - self.inputs


@record
@dataclass(frozen=True, slots=True)
class SavedMemory:
    """The memory that the graph of one backward call holds: of the inspected calls, the largest.

    :ivar looked: inspected calls.
    :ivar storages: number of storages that only the graph holds; ``entries`` are the largest of all.
    :ivar curve: bytes still held after each node that frees some, in the engine's order; the first is before any.
    :ivar modules: called modules, those whose checkpoint would save most first.
    """

    step: int
    backward: int
    looked: int
    nodes: int
    storages: int
    entries: tuple[SavedEntry, ...] = ()
    curve: tuple[SavedMoment, ...] = ()
    placed: tuple[SavedPlaced, ...] = ()
    unknown: tuple[SavedUnknown, ...] = ()
    modules: tuple[SavedModule, ...] = ()


@record
@dataclass(frozen=True, slots=True)
class Retained:
    """The object that keeps the graphs of earlier steps alive.

    It states the object's name, its type (``how``), the line that stores the graphs there, the module whose results it
    holds, and the number of graphs. ``within``: graphs of one step, kept by backward calls with ``retain_graph``.

    :ivar first: the step of the oldest of these graphs; ``None`` if unknown.
    :ivar steps: the number of steps since, including that one. Not each step's graph can be counted, so as many may be
        alive.
    :ivar grew: whether there were more at a later inspection than at the first.
    :ivar made: for a container, the line that made one of the tensors in it, if it was observed.
    """

    holder: str
    how: str
    site: Site | None
    module: str | None
    graphs: int
    within: bool = False
    first: int | None = None
    steps: int = 0
    grew: bool = True
    made: Site | None = None


@record
@dataclass(frozen=True, slots=True)
class GradientCycle:
    """A ``backward(create_graph=True)`` at ``site`` that left gradients with a graph, of ``parameters``."""

    site: Site | None
    parameters: tuple[str, ...]


@record
@dataclass(frozen=True, slots=True)
class SilentWrite:
    """A saved tensor that was modified without a change of its version counter.

    ``saver`` is the op that had saved it, at ``saved``; ``op`` the write, at ``site``.
    """

    tensor: str
    op: str
    site: Site | None
    saver: str
    saved: Site | None
    backward: Site | None
    module: str | None
    node: str
    step: int
