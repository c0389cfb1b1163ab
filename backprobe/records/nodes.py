"""Nodes of the autograd graph, as they were made and as they ran."""

from __future__ import annotations

from dataclasses import dataclass

from ..text import without_controls
from .places import Site
from .registry import record
from .values import BadValues, TensorStat

#: Sequence number that torch gives every ``AccumulateGrad`` node: 2**64 - 1.
ACCUMULATE_SEQ = 2**64 - 1


@record
@dataclass(frozen=True, slots=True)
class Node:
    """A node of the autograd graph and where it came from.

    ``edges`` lists, for each of the node's outputs (its forward's inputs), the node that gets the gradient and that
    node's input number, or ``None`` where no gradient goes.
    """

    index: int
    name: str
    seq: int
    module: str | None
    call: int
    site: Site | None
    op: str
    parameter: str | None
    edges: tuple[tuple[int, int] | None, ...]
    #: Shape of the leaf that an ``AccumulateGrad`` belongs to.
    leaf_shape: tuple[int, ...] | None = None
    #: Lines of libraries between ``site`` and the operation, each called by the one before it.
    library: tuple[Site, ...] = ()


@record
@dataclass(frozen=True, slots=True)
class GradStat:
    """One gradient: ``norm`` is the 2-norm; ``None`` where it was not measured (see ``NodeRun``)."""

    shape: tuple[int, ...] | None
    dtype: str | None
    norm: float | None
    bad: BadValues | None = None


@record
@dataclass(frozen=True, slots=True)
class NodeRun:
    """A node as it ran in one backward. ``order`` counts from 0 in the engine's order; ``None``: it did not run.

    ``grad_outputs`` came in, ``grad_inputs`` went out: the meaning that ``Node.register_hook`` gives the words.
    """

    node: Node
    order: int | None
    seconds: float | None
    grad_outputs: tuple[GradStat | None, ...]
    grad_inputs: tuple[GradStat | None, ...]

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def module(self) -> str | None:
        return self.node.module

    @property
    def site(self) -> Site | None:
        return self.node.site

    @property
    def parameter(self) -> str | None:
        return self.node.parameter

    def __repr__(self) -> str:
        module = f" in {self.module}" if self.module else ""
        return without_controls(f"<{self.name} {self.order}{module} at {self.site or '?'}>")


@record
@dataclass(frozen=True, slots=True)
class BadOp:
    """A forward operation whose result was not finite. It made the nodes ``first`` to ``seq``: of one outside the graph
    there are none, and ``first`` is the next that was made. ``inputs`` are the tensors that it got."""

    first: int
    seq: int
    op: str
    site: Site | None
    module: str | None
    call: int
    output: BadValues
    inputs: tuple[TensorStat, ...]
    #: An operation outside the graph that made the values which this one was given.
    origin: BadOp | None = None
    #: That operation was told by shape and order only.
    guessed: bool = False
    #: Of one outside the graph: its place among those.
    order: int = 0


@record
@dataclass(frozen=True, slots=True)
class Born:
    """What the graph of a backward call with a bad root tells of where that began: ``node`` made it of finite values
    (``how`` is ``made``), or it was in its leaf (``leaf``), or came in there from outside the graph (``outside``).

    ``kept`` is what the node had kept, ``output`` what it gave, where that is known. ``sure`` is not so where nothing
    is known of the result, but that it is the only one that can have been bad. Of what came in from outside:
    ``variable`` is what the user's code calls it, ``likely`` the line before that can have made it so, as it reads;
    ``brought``: NumPy, Python or another process made its values, not torch in this one.
    """

    backward: int
    node: int
    how: str
    kept: tuple[TensorStat, ...] = ()
    output: BadValues | None = None
    sure: bool = True
    variable: str = ""
    likely: Site | None = None
    brought: bool = False
    #: Inf that was put there on purpose went into ``node``.
    masked: bool = False
    #: Other nodes whose forward may have given it.
    others: tuple[int, ...] = ()
    #: Of a leaf: the node whose backward may have given it a bad gradient in the step before, of which nothing was
    #: recorded; ``likely`` is a line that ran for the first time and may have done so.
    behind: int | None = None


@record
@dataclass(frozen=True, slots=True)
class InferredLine:
    """The line of ``node`` was not seen when it ran: it is one of ``candidates``, the likeliest first."""

    backward: int
    node: int
    candidates: tuple[Site, ...] = ()


@record
@dataclass(frozen=True, slots=True)
class Derivative:
    """The forward operation whose backward made a node."""

    op: str
    site: Site | None
    module: str | None


@record
@dataclass(frozen=True, slots=True)
class BadNode:
    """A node that got finite gradients only and gave one that is not. ``saved`` is what it had kept. ``inferred``: that
    is what follows from which leaves got a bad gradient; ``values`` are those of one of them."""

    node: int
    output: int
    values: BadValues
    zero_incoming: bool
    saved: tuple[TensorStat, ...]
    #: What the node is the derivative of, where a backward with ``create_graph`` made it.
    of: Derivative | None = None
    inferred: bool = False


@record
@dataclass(frozen=True, slots=True)
class Inside:
    """Node ``node`` of a backward call is a compiled region, in which the function ``op`` is called at ``site``.

    ``how``: ``read``: of what the region runs, this line's derivative, and no other's, is not finite everywhere.
    ``forward`` and ``backward``: the region was run again op by op on what it was given, and this is where its values,
    or gradients, are not finite first: ``values``; ``zero``: where all that came became zeros.
    ``reused``: this op takes what an earlier backward had freed. ``tensors`` are the op's inputs, or what its node had
    kept; ``zero_incoming``: some of the gradients that came to it were zero. ``sure``: nothing that it depends on has
    changed since, and it draws no random numbers of its own.
    """

    backward: int
    node: int
    op: str
    site: Site
    how: str = "read"
    module: str | None = None
    values: BadValues | None = None
    tensors: tuple[TensorStat, ...] = ()
    zero_incoming: bool = False
    sure: bool = False


@record
@dataclass(frozen=True, slots=True)
class RegionRun:
    """Norms of the gradients inside node ``node`` of a backward call, a compiled region that was run again op by op.

    ``nodes`` are those that autograd made of it then, with numbers of their own. An edge of theirs to a number below
    zero leaves the region: it goes where that edge of ``node`` goes, minus one minus the number. ``outputs``: by number
    of the gradient that came to the region, the node inside that it goes to, and which of its inputs it is. ``sure``:
    it draws no random numbers of its own.
    """

    backward: int
    node: int
    nodes: tuple[NodeRun, ...]
    outputs: tuple[tuple[int, int] | None, ...]
    sure: bool = True
