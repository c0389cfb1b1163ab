"""Records of module calls and backward calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..basics.text import without_controls
from .nodes import BadNode, BadOp, Derivative, NodeRun
from .places import Site
from .registry import record
from .values import BadValues


@record
@dataclass(frozen=True, slots=True)
class ModuleCall:
    """A call of a module.

    ``call`` counts the calls of this module within one step, from 1. ``parent`` is the index of the enclosing call, -1
    for an outermost one. ``outputs`` are the shapes of the returned tensors. ``grad`` is whether gradient mode was on.
    ``norm`` is the 2-norm of all returned float tensors together, if it was measured. ``seen`` is the step in which
    line, shapes and norm were recorded: most steps record the order of calls only, and repeat the rest from the last
    step with the same calls.
    """

    index: int
    path: str
    class_name: str
    call: int
    depth: int
    parent: int
    site: Site | None
    outputs: tuple[tuple[int, ...], ...]
    grad: bool = True
    norm: float | None = None
    seen: int | None = None

    @property
    def name(self) -> str:
        """The path as ``named_modules()`` spells it, with ``:2`` for a second call."""
        return self.path if self.call == 1 else f"{self.path}:{self.call}"


@record
@dataclass(frozen=True, slots=True)
class Root:
    """A tensor that a backward call started from. ``value`` is known for a scalar."""

    node: int | None
    shape: tuple[int, ...]
    dtype: str
    value: float | None
    bad: BadValues | None


@record
@dataclass(frozen=True, slots=True)
class Raised:
    """An exception: its type, text, and the node that was running."""

    type: str
    text: str
    node: int | None
    certain: bool
    #: The user's line inside the backward that raised, or of the custom function's backward that ran.
    backward: Site | None = None
    #: The operation whose derivative that node is, if a backward with ``create_graph`` created it.
    of: Derivative | None = None
    #: Whether the forward line of that node is inferred, since its forward was not recorded.
    inferred: bool = False

    @property
    def is_located(self) -> bool:
        """Whether the node and its forward line are certain."""
        return self.certain and not self.inferred


@record
@dataclass(frozen=True, slots=True)
class Mutation:
    """A saved tensor that was modified in place before its node ran.

    ``tensor`` is its name or the operation that created it; ``op``, ``site`` and ``module`` describe the write, if it
    was observed. ``inferred``: it was not, and its line is the likeliest of `candidates`, all the possible ones.
    """

    tensor: str
    shape: tuple[int, ...]
    saved_version: int
    found_version: int
    op: str
    site: Site | None
    module: str | None
    #: The line of the checkpoint that saved it as an input, if one did.
    region: Site | None = None
    inferred: bool = False
    candidates: tuple[Site, ...] = ()
    #: The earlier call that ran the node, if the graph of this one takes a result from its graph.
    carried: Reuse | None = None


@record
@dataclass(frozen=True, slots=True)
class Reuse:
    """A backward call that reached nodes of the graph of an earlier one.

    ``freed_by`` is that call, at ``freed_site`` in step ``freed_step``; it freed its graph, or, in a ``Mutation``, may
    have retained it. ``node`` is the first node of the new graph that leads into the old one, at ``old``; ``None`` if
    no graph was built since. ``shared``: the earlier call ran only a part of this graph, from another root.
    ``carried``: the line that last used the old tensor, in the function that has it in a variable; ``assigned``: the
    line that assigned this variable, or the attribute of a module. ``inferred``: the line of ``node`` is, since its
    forward was not recorded.
    """

    freed_by: int
    freed_site: Site | None
    freed_step: int
    node: int | None
    old: int
    shared: bool = False
    carried: Site | None = None
    assigned: Site | None = None
    inferred: bool = False


@record
@dataclass(frozen=True, slots=True)
class FailedAllocation:
    """An allocation that failed in a backward call, and what was held at that moment, in bytes.

    :ivar wanted: the size of the allocation; ``None`` if torch's error does not state it.
    :ivar saved: by node, what only the graph of the call still held for nodes that had not run, most first; each
        storage once, for the first node that saved it.
    :ivar parameters: the parameters of the modules that ran; ``gradients``: their ``.grad``.
    """

    wanted: int | None
    saved: tuple[tuple[int, int], ...]
    parameters: int
    gradients: int


@record
@dataclass(frozen=True)
class BackwardCall:
    """A ``Tensor.backward``, ``autograd.backward`` or ``autograd.grad`` call and the nodes it ran."""

    index: int
    step: int
    kind: str
    arguments: Mapping[str, str]
    roots: tuple[Root, ...]
    site: Site | None
    seconds: float
    raised: Raised | None
    nodes: Sequence[NodeRun]
    bad_nodes: tuple[BadNode, ...] = ()
    bad_ops: tuple[BadOp, ...] = ()
    #: Index of the backward call that this one ran inside of (reentrant checkpointing), or ``None``.
    inside: int | None = None
    mutation: Mutation | None = None
    reuse: Reuse | None = None
    allocation: FailedAllocation | None = None

    def __repr__(self) -> str:
        raised = f", raised {self.raised.type}" if self.raised is not None else ""
        where = f"step {self.step} at {self.site or '?'}"
        return without_controls(f"<backward call {self.index} of {where}: {len(self.nodes)} nodes{raised}>")
