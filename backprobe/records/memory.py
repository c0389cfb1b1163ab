"""What graphs keep, what keeps graphs, and what was written over."""

from __future__ import annotations

from dataclasses import dataclass

from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class SavedBytes:
    """Bytes kept for backward by one line, op, module and dtype: each storage once, for the node that saved it first.

    :ivar module: "" for none, or the model itself; ``None`` where it is not known.
    :ivar tensors: saved tensors on this memory; ``names`` what their nodes call them.
    :ivar holder: who holds it besides: "parameter", "buffer", "variable" (of the user's functions), "graph" (another),
        "other"; "" for nobody: the backward gives it back.
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
    """One storage that nodes of a graph keep. Its bytes count once, for the node that saved it first."""

    nbytes: int
    #: Name of the node, as torch gives it, and what the node calls the tensor (``self``, ``result``, ``ctx.mask``).
    node: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    #: The function that was called in the forward, where it was seen; else the node without ``Backward0``.
    op: str
    #: Path of the module; "" for none, or the model itself; ``None`` where it is not known.
    module: str | None
    site: Site | None
    #: Saved tensors on this storage, and how many of them are views.
    tensors: int
    views: int
    #: Who else holds it: "parameter", "buffer", "variable", "graph", "other"; "" for nobody.
    holder: str
    #: The holder's name, where it has one.
    holder_name: str = ""
    #: Whether what is kept lies within what a pair of saved-tensor hooks packed.
    packed: bool = False


@record
@dataclass(frozen=True, slots=True)
class SavedPlaced:
    """Saved tensors that a policy put elsewhere: their size as they were."""

    policy: str
    tensors: int
    nbytes: int


@record
@dataclass(frozen=True, slots=True)
class SavedUnknown:
    """Saved tensors whose bytes cannot be told, and why."""

    what: str
    count: int
    why: str


@record
@dataclass(frozen=True, slots=True)
class SavedMoment:
    """A node of the backward, its place in the engine's order, and what is kept when it has run."""

    node: str
    module: str | None
    #: Bytes that nobody but the graph holds and that later nodes still need.
    nbytes: int
    order: int = 0


@record
@dataclass(frozen=True, slots=True)
class SavedModule:
    """What checkpointing a module would save, worked out from the graph of a forward without it.

    :ivar inside: bytes that only nodes inside the module's calls keep, and nobody else holds.
    :ivar inputs: bytes of the tensors with a gradient that go into it and that nothing outside keeps: the checkpoint
        would.
    """

    path: str
    class_name: str
    calls: int
    inside: int
    inputs: int

    @property
    def saves(self) -> int:
        """Bytes; negative where the checkpoint would keep more."""
        return self.inside - self.inputs


@record
@dataclass(frozen=True, slots=True)
class SavedMemory:
    """What the graph of one backward call keeps: of the calls that were looked at, the one with most.

    :ivar looked: calls that were looked at.
    :ivar storages: how many only the graph holds; ``entries`` are the largest of all.
    :ivar curve: bytes still kept after each node that frees some, in the engine's order; the first is before any.
    :ivar modules: modules that were called, those first whose checkpoint would save most.
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
    """What keeps the graphs of earlier steps alive: its name, what it is (``how``), the line that puts them there, the
    module whose results it holds, and how many graphs there were; ``within``: of one step, by backward calls that keep
    theirs.

    :ivar first: the step of the oldest of these graphs; ``None`` if that is not known.
    :ivar steps: how many steps there were since, that one included. Not each step's graph can be counted, so as many
        may be alive.
    :ivar grew: whether there were more at a later look than at the first.
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


@record
@dataclass(frozen=True, slots=True)
class GradientCycle:
    """A ``backward(create_graph=True)`` at ``site`` that left gradients with a graph, of ``parameters``."""

    site: Site | None
    parameters: tuple[str, ...]


@record
@dataclass(frozen=True, slots=True)
class SilentWrite:
    """A saved tensor that was changed where its version does not show it. ``saver`` is the op that had saved it, at
    ``saved``; ``op`` the write, at ``site``."""

    tensor: str
    op: str
    site: Site | None
    saver: str
    saved: Site | None
    backward: Site | None
    module: str | None
    node: str
    step: int
