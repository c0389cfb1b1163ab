"""Records of autograd nodes: as created and as executed."""

from __future__ import annotations

from dataclasses import dataclass

from ..basics.text import without_controls
from .places import Site
from .registry import record
from .values import BadValues, TensorStat

#: Sequence number that torch gives every ``AccumulateGrad`` node: 2**64 - 1.
ACCUMULATE_SEQ = 2**64 - 1


@record
@dataclass(frozen=True, slots=True)
class Node:
    """A node of the autograd graph and the code that created it.

    ``edges`` lists, for each of the node's outputs (its forward's inputs), the node that receives the gradient and that
    node's input number, or ``None`` if no gradient goes there.
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
    """Shape, dtype and 2-norm of a gradient; ``norm`` is ``None`` if it was not measured (see ``NodeRun``)."""

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
    """A forward operation whose result was not finite.

    It created the nodes ``first`` to ``seq``; one outside the graph created none, and ``first`` is the next created
    node. ``inputs`` are its input tensors.
    """

    first: int
    seq: int
    op: str
    site: Site | None
    module: str | None
    call: int
    output: BadValues
    inputs: tuple[TensorStat, ...]
    #: An operation outside the graph that produced the values which this one took as input.
    origin: BadOp | None = None
    #: That operation was matched by shape and order only.
    guessed: bool = False
    #: For an operation outside the graph: its position among those.
    order: int = 0


@record
@dataclass(frozen=True, slots=True)
class Born:
    """The origin of a bad root, as the graph of a backward call reveals it.

    ``how``: node ``node`` computed it from finite values (``made``), or it was in its leaf (``leaf``), or entered there
    from outside the graph (``outside``).

    ``kept`` are the node's saved tensors, ``output`` its result, if known. ``sure`` is false if the result is unknown
    and the node is merely the only one that can have been bad. For values from outside: ``variable`` is their name in
    the user's code, ``likely`` the earlier line that, by its source, may have made them bad; ``brought``: NumPy, Python
    or another process produced the values, not torch in this process.
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
    #: A deliberate Inf was an input of ``node``.
    masked: bool = False
    #: Other nodes whose forward may have produced it.
    others: tuple[int, ...] = ()
    #: For a leaf: the node whose backward may have given it a bad gradient in the previous step, which was not
    #: recorded; ``likely`` is a line that ran for the first time and may have done so.
    behind: int | None = None
    #: An earlier call of the same closure had been made in the running step of an optimizer, which moves the weights
    #: between these calls.
    in_closure: bool = False


@record
@dataclass(frozen=True, slots=True)
class InferredLine:
    """A node whose line was not observed when it ran: it is one of ``candidates``, the likeliest first."""

    backward: int
    node: int
    candidates: tuple[Site, ...] = ()


@record
@dataclass(frozen=True, slots=True)
class Derivative:
    """The forward operation whose backward created a node."""

    op: str
    site: Site | None
    module: str | None


@record
@dataclass(frozen=True, slots=True)
class BadNode:
    """A node that received only finite gradients and returned a non-finite one.

    ``saved`` are its saved tensors. ``inferred``: it follows from which leaves got a bad gradient; ``values`` are those
    of one of them.
    """

    node: int
    output: int
    values: BadValues
    zero_incoming: bool
    saved: tuple[TensorStat, ...]
    #: The operation that the node is the derivative of, if a backward with ``create_graph`` created it.
    of: Derivative | None = None
    inferred: bool = False


@record
@dataclass(frozen=True, slots=True)
class Inside:
    """An operation inside a compiled region: node ``node`` is the region, in which ``op`` is called at ``site``.

    ``how``: ``read``: of the region's lines, only this one's derivative is not finite everywhere. ``forward`` and
    ``backward``: the region was executed again op by op on its inputs, and its values, or gradients, are first
    non-finite here: ``values``; ``zero``: all incoming gradients became zeros here. ``reused``: this op takes a tensor
    that an earlier backward had freed. ``tensors`` are the op's inputs, or its node's saved tensors; ``zero_incoming``:
    some incoming gradients were zero. ``sure``: nothing that it depends on has changed since, and it draws no random
    numbers of its own.
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
    """Norms of the gradients inside node ``node``, a compiled region that was executed again op by op.

    ``nodes`` are those that autograd created in that execution, with their own numbers. An edge to a negative number
    leaves the region: it goes where edge ``-1 - number`` of ``node`` goes. ``outputs``: by number of the gradient that
    the region received, the inner node and the input number that it goes to. ``sure``: the region draws no random
    numbers of its own.
    """

    backward: int
    node: int
    nodes: tuple[NodeRun, ...]
    outputs: tuple[tuple[int, int] | None, ...]
    sure: bool = True
