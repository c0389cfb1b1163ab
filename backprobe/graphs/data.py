"""What a graph is made of as plain data: tensors' metadata, saved tensors, leaves, nodes, roots. No torch.

Note [Graphs are columns]: A graph holds columns, not objects: what nodes have in common is in a table once, and a node
    is a row of small numbers. ``Node`` and ``Saved`` are made when somebody asks for them.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..records import ModuleCall, Site
from ..text import without_controls

#: What a node is: an operation, a leaf's accumulator, a ``Function`` written in Python, a compiled region, a reentrant
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
    """What saved tensors have in common: a row of a graph's table."""

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
    """A tensor that a node keeps for its backward.

    :ivar name: torch's name for it (``self``, ``result``, ``mat1``); ``ctx.x`` for an attribute of a custom function.
    :ivar bytes: of the tensor itself; ``storage_bytes`` are those of the storage that it keeps alive.
    :ivar storage: number of the storage within this graph: equal numbers share memory. ``None`` where there is none.
    :ivar view: it is only a part of its storage, or a view of another tensor.
    :ivar role: ``result`` (a node of a graph made it), ``parameter``, ``leaf`` (another tensor that requires a
        gradient), ``buffer``, ``constant`` (nothing that a gradient goes to), or ``hidden`` (behind a hook).
    :ivar owner: name of the parameter or buffer whose storage it is.
    :ivar made: index of the node that made it, where that node is in the graph.
    :ivar changed: it was written in place since it was saved: a backward would raise.
    :ivar hook: the saved-tensor hook that holds it, by name; its tensor was not looked at, as that runs the hook.
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

    :ivar name: the parameter's, of the model that was given or recorded; ``aliases``: its other names (tied weights).
    :ivar parameter: it is a ``torch.nn.Parameter``.
    """

    name: str | None
    meta: TensorMeta
    parameter: bool
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Inside:
    """An operation inside a compiled region: its backward's FX node. ``inputs`` are names of such nodes."""

    name: str
    target: str
    inputs: tuple[str, ...]
    module: str | None
    site: Site | None


@dataclass(frozen=True, slots=True)
class NodePlace:
    """Where a node was made: index of the module call in ``Graph.calls`` (-1: in none), source line, torch function.

    ``seen`` is false where no recording covers it: then nothing is known, rather than nothing being there. ``library``
    are the lines of libraries between ``site`` and the function, each called by the one before it."""

    call: int = -1
    site: Site | None = None
    op: str = ""
    seen: bool = False
    library: tuple[Site, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphRoot:
    """A tensor that the graph was asked for: node, number of that node's forward output, and name."""

    name: str
    node: int
    output: int
    meta: TensorMeta | None


@dataclass(frozen=True, slots=True)
class NodeKind:
    """What nodes have in common: a row of a graph's table."""

    name: str
    kind: str
    inputs: tuple[TensorMeta, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the autograd graph.

    :ivar seq: torch's sequence number: higher is later in the forward. ``AccumulateGrad`` has 2**64 - 1.
    :ivar kind: one of ``KINDS``.
    :ivar module: path of the innermost module call that it was made in, ``""`` for the model itself, ``None`` for none;
        ``call`` is the number of that call among the module's calls in this graph, from 1.
    :ivar site: the user's line; ``op`` the torch function called there; ``library`` the lines of libraries between the
        two, each called by the one before it. ``seen``: whether a recording covers the node.
    :ivar parameter: name of the leaf, for an accumulator.
    :ivar inputs: of the gradients that come in, which are the forward's outputs.
    :ivar freed: a backward has freed what it saved; ``None`` where it saves nothing, so one cannot tell.
    :ivar edges: for each gradient that goes out (each input of the forward) the node that gets it and that node's input
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
    #: 0: cannot tell, 1: not freed, 2: freed.
    freed: bytearray = field(default_factory=bytearray)
    saved_starts: array[int] = field(default_factory=lambda: array("q", [0]))
    saved_kinds: list[SavedKind] = field(default_factory=list)
    saved_kind: array[int] = field(default_factory=lambda: array("q"))
    #: Number of the storage, and index of the node that made the tensor; -1 for none.
    storage: array[int] = field(default_factory=lambda: array("q"))
    made: array[int] = field(default_factory=lambda: array("q"))


@dataclass(frozen=True)
class GraphFacts:
    """What a graph knows besides its nodes."""

    roots: tuple[GraphRoot, ...]
    leaves: Mapping[int, Leaf] = field(default_factory=dict)
    calls: tuple[ModuleCall, ...] = ()
    #: Names that the caller gave to tensors -> (node, output).
    tensors: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    inside: Mapping[int, tuple[Inside, ...]] = field(default_factory=dict)
    #: Class of the outermost module, for titles.
    model: str = ""
    #: What the reader should know about what is missing.
    notes: tuple[str, ...] = ()
