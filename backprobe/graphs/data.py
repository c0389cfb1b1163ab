"""Plain-data classes for a graph: tensor metadata, saved tensors, leaves, nodes, roots. No torch.

Note [Graphs are columns]: A graph stores columns, not objects: properties that nodes share are stored in a table once,
and a node is a row of small numbers. ``Node`` and ``Saved`` objects are made on access.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..basics.text import without_controls
from ..records import ModuleCall, Site

#: Kinds of nodes: an operation, a leaf's accumulator, a ``Function`` written in Python, a compiled region, a reentrant
#: checkpoint.
KINDS = ("op", "accumulate", "function", "compiled", "checkpoint")


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """Shape, dtype (``"float32"``) and device of a tensor."""

    shape: tuple[int, ...]
    dtype: str
    device: str = "cpu"

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}" + ("" if self.device == "cpu" else f" on {self.device}")


@dataclass(frozen=True, slots=True)
class SavedKind:
    """Properties that several saved tensors share: a row of a graph's table."""

    name: str
    meta: TensorMeta | None
    bytes: int
    storage_bytes: int
    view: bool
    role: str
    owner: str | None
    changed: bool
    hook: str | None


@dataclass(frozen=True, slots=True)
class Saved:
    """A tensor that a node saves for its backward.

    :ivar name: torch's name for it (``self``, ``result``, ``mat1``); ``ctx.x`` for an attribute of a custom function.
    :ivar bytes: of the tensor itself; ``storage_bytes`` are those of the storage that it keeps alive.
    :ivar storage: number of the storage within this graph: equal numbers share memory. ``None`` if there is no storage.
    :ivar view: it is only a part of its storage, or a view of another tensor.
    :ivar role: ``result`` (a node of a graph made it), ``parameter``, ``leaf`` (another tensor that requires a
        gradient), ``buffer``, ``constant`` (no gradient goes to it), or ``hidden`` (behind a hook).
    :ivar owner: name of the parameter or buffer that owns the storage.
    :ivar made: index of the node that made it, if that node is in the graph.
    :ivar changed: it was written in place since it was saved: a backward would raise.
    :ivar hook: name of the saved-tensor hook that holds it; its tensor was not read, as that would run the hook.
    """

    name: str
    meta: TensorMeta | None
    bytes: int
    storage: int | None
    storage_bytes: int
    view: bool
    role: str
    owner: str | None = None
    made: int | None = None
    changed: bool = False
    hook: str | None = None


@dataclass(frozen=True, slots=True)
class Leaf:
    """The tensor that an ``AccumulateGrad`` node belongs to.

    :ivar name: the name of the parameter in the given or recorded model; ``aliases``: its other names (tied weights).
    :ivar parameter: it is a ``torch.nn.Parameter``.
    """

    name: str | None
    meta: TensorMeta
    parameter: bool
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Inside:
    """An operation inside a compiled region: a node of its backward's FX graph. ``inputs`` are names of such nodes."""

    name: str
    target: str
    inputs: tuple[str, ...]
    module: str | None
    site: Site | None


@dataclass(frozen=True, slots=True)
class NodePlace:
    """The origin of a node: index of the module call in ``Graph.calls`` (-1 for none), source line, torch function.

    ``seen`` is false if no recording covers the node: the origin is then unknown. ``library`` are the lines of
    libraries between ``site`` and the function, each called by the one before it.
    """

    call: int = -1
    site: Site | None = None
    op: str = ""
    seen: bool = False
    library: tuple[Site, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphRoot:
    """A tensor from which the graph was read: its node, the number of that node's forward output, and its name."""

    name: str
    node: int
    output: int
    meta: TensorMeta | None


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Properties that several nodes share: a row of a graph's table."""

    name: str
    kind: str
    inputs: tuple[TensorMeta, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the autograd graph.

    :ivar seq: torch's sequence number: higher is later in the forward. ``AccumulateGrad`` has 2**64 - 1.
    :ivar kind: one of ``KINDS``.
    :ivar module: path of the innermost module call that made the node, ``""`` for the model itself, ``None`` for none;
        ``call`` is the number of that call among the module's calls in this graph, from 1.
    :ivar site: the user's line; ``op`` the torch function called there; ``library`` the lines of libraries between the
        two, each called by the one before it. ``seen``: whether a recording covers the node.
    :ivar parameter: name of the leaf, for an accumulator.
    :ivar inputs: metadata of the incoming gradients, which correspond to the forward's outputs.
    :ivar freed: whether a backward has freed its saved tensors; ``None`` if it saves nothing, so that this is unknown.
    :ivar edges: for each outgoing gradient (each input of the forward) the node that gets it and that node's input
        number, or ``None``.
    """

    index: int
    name: str
    seq: int
    kind: str
    module: str | None
    call: int
    site: Site | None
    op: str
    seen: bool
    parameter: str | None
    inputs: tuple[TensorMeta, ...]
    saved: tuple[Saved, ...]
    freed: bool | None
    edges: tuple[tuple[int, int] | None, ...]
    library: tuple[Site, ...] = ()

    def __str__(self) -> str:
        where = f" in {self.module or 'the model'}" + (f":{self.call}" if self.call > 1 else "")
        parts = [f"{self.index} {self.name}", f" of {self.parameter}" if self.parameter else ""]
        parts += [where if self.module is not None else "", f" at {self.site}" if self.site else ""]
        return without_controls("".join(parts))


@dataclass
class Columns:
    """The rows of a graph; see Note [Graphs are columns]. ``starts`` and ``saved_starts`` have one element more than
    there are nodes."""

    kinds: list[NodeKind] = field(default_factory=list)
    kind: array[int] = field(default_factory=lambda: array("q"))
    seqs: array[int] = field(default_factory=lambda: array("Q"))
    places: list[NodePlace] = field(default_factory=list)
    place: array[int] = field(default_factory=lambda: array("q"))
    starts: array[int] = field(default_factory=lambda: array("q", [0]))
    #: Node that an edge goes to, -1 for none, and that node's input number.
    targets: array[int] = field(default_factory=lambda: array("q"))
    numbers: array[int] = field(default_factory=lambda: array("q"))
    #: 0: unknown, 1: not freed, 2: freed.
    freed: bytearray = field(default_factory=bytearray)
    saved_starts: array[int] = field(default_factory=lambda: array("q", [0]))
    saved_kinds: list[SavedKind] = field(default_factory=list)
    saved_kind: array[int] = field(default_factory=lambda: array("q"))
    #: Number of the storage, and index of the node that made the tensor; -1 for none.
    storage: array[int] = field(default_factory=lambda: array("q"))
    made: array[int] = field(default_factory=lambda: array("q"))


@dataclass(frozen=True)
class GraphFacts:
    """Facts about a graph as a whole."""

    roots: tuple[GraphRoot, ...]
    leaves: Mapping[int, Leaf] = field(default_factory=dict)
    calls: tuple[ModuleCall, ...] = ()
    #: Names that the caller gave to tensors -> (node, output).
    tensors: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    inside: Mapping[int, tuple[Inside, ...]] = field(default_factory=dict)
    #: Class of the outermost module, for titles.
    model: str = ""
    #: Remarks on missing information, for the reader.
    notes: tuple[str, ...] = ()
