"""Calls of modules and of backward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..text import without_controls
from .nodes import BadNode, BadOp, Derivative, NodeRun
from .places import Site
from .registry import record
from .values import BadValues


@record
@dataclass(frozen=True, slots=True)
class ModuleCall:
    """One call of a module. ``call`` counts the calls of this module within one step, from 1.

    ``parent`` is the index of the call around it, -1 for an outermost one. ``outputs`` are the shapes of the tensors
    that it returned. ``grad`` tells whether gradient mode was on. ``norm`` is the 2-norm of what it returned, all its
    tensors of floats together, where that was measured. ``seen`` is the step in which line, shapes and norm were seen:
    in most steps only the order of calls is noted, and the rest is that of the last step with the same calls.
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
    #: What that node is the derivative of, where a backward with ``create_graph`` made it.
    of: Derivative | None = None


@record
@dataclass(frozen=True, slots=True)
class Mutation:
    """A saved tensor that was changed in place before its node ran.

    ``tensor`` is its name or what made it; ``op``, ``site`` and ``module`` are those of the write, where it was seen.
    ``inferred``: it was not, and its line is the likeliest of `candidates`, all that it could have been.
    """

    tensor: str
    shape: tuple[int, ...]
    saved_version: int
    found_version: int
    op: str
    site: Site | None
    module: str | None
    #: The line of the checkpoint that kept it as an input, where one did.
    region: Site | None = None
    inferred: bool = False
    candidates: tuple[Site, ...] = ()


@record
@dataclass(frozen=True, slots=True)
class Reuse:
    """A backward call that met nodes which an earlier one had freed.

    ``freed_by`` is that call, at ``freed_site`` in step ``freed_step``. ``node`` is the first node of the new graph
    that leads into the old one, at ``old``; ``None`` where nothing was built since. ``shared`` tells whether the
    earlier call went through a part of this graph only, from another root. ``carried``: the line, in the function that
    has the old tensor in a variable, that used it last.
    """

    freed_by: int
    freed_site: Site | None
    freed_step: int
    node: int | None
    old: int
    shared: bool = False
    carried: Site | None = None


@record
@dataclass(frozen=True)
class BackwardCall:
    """One ``Tensor.backward``, ``autograd.backward`` or ``autograd.grad`` call and the nodes it ran."""

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

    def __repr__(self) -> str:
        raised = f", raised {self.raised.type}" if self.raised is not None else ""
        where = f"step {self.step} at {self.site or '?'}"
        return without_controls(f"<backward call {self.index} of {where}: {len(self.nodes)} nodes{raised}>")
