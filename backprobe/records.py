"""What a trace is made of: plain frozen records. Imports nothing of ours and no torch.

Producers (``observe``) make them, consumers (``explain``, ``view``, ``store``) read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, TypeVar

#: Sequence number that torch gives every ``AccumulateGrad`` node: 2**64 - 1.
ACCUMULATE_SEQ = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Site:
    """A line of the user's code: the innermost frame outside torch, the standard library and installed packages."""

    file: str
    line: int
    function: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class BadValues:
    """How many non-finite elements a tensor held, and the first few of them."""

    nan: int
    inf: int
    numel: int
    shape: tuple[int, ...]
    first: tuple[tuple[int, ...], ...] = ()

    @property
    def count(self) -> int:
        return self.nan + self.inf

    def __str__(self) -> str:
        if not self.numel:  # seen from its norm only
            return "NaN" if self.nan else "Inf"
        parts = [f"{n} {what}" for n, what in ((self.nan, "NaN"), (self.inf, "Inf")) if n]
        return f"{' and '.join(parts)} of {self.numel} elements"


@dataclass(frozen=True, slots=True)
class TensorStat:
    """A tensor seen from outside: its name where it has one, shape, dtype and what is unusual about its values.

    ``made`` tells whether an operation of the graph made it, as far as that was known."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bad: BadValues | None = None
    zeros: int | None = None
    made: bool = False


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """One call of a module. ``call`` counts the calls of this module within one step, from 1.

    ``parent`` is the index of the call around it, -1 for an outermost one. ``outputs`` are the shapes of the tensors
    that it returned. ``grad`` tells whether gradient mode was on. ``norm`` is the 2-norm of what it returned, all its
    tensors of floats together, where that was measured.
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

    @property
    def name(self) -> str:
        """The path as ``named_modules()`` spells it, with ``:2`` for a second call."""
        return self.path if self.call == 1 else f"{self.path}:{self.call}"


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


@dataclass(frozen=True, slots=True)
class GradStat:
    """One gradient: ``norm`` is the 2-norm; ``None`` where it was not measured (see ``NodeRun``)."""

    shape: tuple[int, ...] | None
    dtype: str | None
    norm: float | None
    bad: BadValues | None = None


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


@dataclass(frozen=True, slots=True)
class BadOp:
    """A forward operation whose result was not finite. It made the nodes ``first`` to ``seq``; ``inputs`` are the
    tensors that it got."""

    first: int
    seq: int
    op: str
    site: Site | None
    module: str | None
    call: int
    output: BadValues
    inputs: tuple[TensorStat, ...]
    #: An operation outside the graph that made the NaN which this one was given.
    origin: BadOp | None = None


@dataclass(frozen=True, slots=True)
class BadNode:
    """A node that got finite gradients only and gave one that is not. ``saved`` is what it had kept."""

    node: int
    output: int
    values: BadValues
    zero_incoming: bool
    saved: tuple[TensorStat, ...]


@dataclass(frozen=True, slots=True)
class Root:
    """A tensor that a backward call started from. ``value`` is known for a scalar."""

    node: int | None
    shape: tuple[int, ...]
    dtype: str
    value: float | None
    bad: BadValues | None


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception: its type, text, and the node that was running."""

    type: str
    text: str
    node: int | None
    certain: bool
    #: The user's line inside the backward that raised, or of the custom function's backward that ran.
    backward: Site | None = None


@dataclass(frozen=True, slots=True)
class Mutation:
    """A saved tensor that was changed in place before its node ran.

    ``tensor`` is its name or what made it; ``op``, ``site`` and ``module`` are those of the write, where it was seen.
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


@dataclass(frozen=True, slots=True)
class Reuse:
    """A backward call that met nodes which an earlier one had freed.

    ``freed_by`` is that call, at ``freed_site`` in step ``freed_step``. ``node`` is the first node of the new graph
    that leads into the old one, at ``old``; ``None`` where nothing was built since.
    """

    freed_by: int
    freed_site: Site | None
    freed_step: int
    node: int | None
    old: int


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


@dataclass(frozen=True, slots=True)
class ParameterStat:
    """2-norms of a parameter, its gradient and its last update (new minus old), where they were measured."""

    name: str
    weight: float | None
    grad: float | None
    update: float | None


@dataclass(frozen=True, slots=True)
class Step:
    """A backward call, or several that accumulate, and the optimizer step after them.

    ``loss`` is the value of the last scalar root. ``seconds`` runs from the end of the step before, ``watching`` is
    what of it went into measuring as far as that can be told.
    """

    index: int
    seconds: float
    loss: float | None
    backwards: tuple[int, ...]
    parameters: tuple[ParameterStat, ...] = ()
    watching: float = 0.0


@dataclass(frozen=True, slots=True)
class Parameter:
    """What became of one parameter over a whole run.

    ``reached``: backward calls that gave it a gradient; ``alive``: any of them was not exactly zero.
    ``trained``: an optimizer holds it; ``None`` where no optimizer stepped.
    ``calls``: how often its module was called with gradient mode on, ``quiet_calls``: with it off.
    """

    name: str
    shape: tuple[int, ...]
    requires_grad: bool
    reached: int
    alive: bool
    trained: bool | None
    calls: int
    quiet_calls: int
    root: str
    defined: Site | None = None
    #: Whether it took the place of another parameter of that name.
    replaced: bool = False
    #: Where gradient mode was turned off for its module's calls without it.
    turned_off: Site | None = None
    #: It became part of its model after the optimizer had been made.
    added: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """A forward operation that took tensors with a graph and gave one without: the gradient stops there."""

    op: str
    site: Site | None
    module: str | None
    parameters: tuple[str, ...]
    count: int = 1


@dataclass(frozen=True, slots=True)
class Stray:
    """Trainable tensors that ``parameters()`` of the outermost module does not list, and no optimizer holds.

    ``owner`` is the module whose ``attribute`` holds them, ``how`` says in what; ``site`` is where it was assigned.
    ``optimized`` tells whether any optimizer stepped.
    """

    parameters: tuple[str, ...]
    owner: str
    attribute: str
    how: str
    site: Site | None
    optimized: bool


@dataclass(frozen=True, slots=True)
class OptimizerSeen:
    """An optimizer: its class, where it was made, how many tensors it holds, and how many of them belong to no module
    any longer and never got a gradient."""

    name: str
    site: Site | None
    tensors: int
    orphans: int
    groups: int = 1


@dataclass(frozen=True, slots=True)
class NoGradient:
    """A place where a gradient could not be had: ``kind`` is ``grad-mode`` (a backward call met a root without a graph
    that was built while gradient mode was off, turned off at ``site``), ``inference`` (an op met a tensor that was
    made in inference mode) or ``nonleaf`` (``.grad`` was read from a tensor
    that is not a leaf)."""

    kind: str
    site: Site | None
    failed: Site | None
    module: str | None
    tensor: str
    count: int = 1
    #: Where the tensor that is not a leaf was made.
    made: Site | None = None


@dataclass(frozen=True, slots=True)
class HookSeen:
    """A user's backward hook on modules that cannot do its work.

    ``reason``: ``output`` (what the module returns is no tensor or tuple; its type is the detail), ``forward`` (the
    module was not called as a module), ``inplace`` (its output was changed in place, at ``bypass``), ``legacy``
    (``register_backward_hook`` sees the last node only; how many there are is the detail).
    """

    reason: str
    modules: tuple[str, ...]
    details: tuple[str, ...]
    site: Site | None
    bypass: Site | None


@dataclass(frozen=True, slots=True)
class StaleRead:
    """A hook read ``.grad`` of a leaf at ``stale``, before the backward that called it had written it.

    :ivar on: ``tensor`` (a hook on the leaf itself) or ``module`` (a backward hook of a module).
    :ivar empty: it was ``None``; otherwise it was of an earlier backward.
    """

    parameter: str
    on: str
    stale: Site
    hook: Site | None
    empty: bool
    step: int


@dataclass(frozen=True, slots=True)
class Recomputed:
    """Modules whose buffers changed again while a checkpoint, called at ``region``, was recomputed."""

    modules: tuple[str, ...]
    buffers: tuple[str, ...]
    region: Site | None


@dataclass(frozen=True, slots=True)
class RegionDiffers:
    """What a checkpointed region, called at ``region``, did differently when it ran again.

    :ivar how: ``extra`` or ``missing`` (an op), ``other`` (another op), ``arguments`` (numbers and flags), ``frozen``
        or ``written`` (a parameter), ``shape``, ``dtype``, ``grad``, ``values``, or ``unknown``: torch says so, and we
        saw the same ops.
    :ivar cause: line of the first op that differs; ``forward`` and ``again`` are what it gave in the two runs.
    :ivar raised: the error that it led to.
    :ivar changed: the line that changed what the op depends on, between the two runs.
    :ivar backwards: numbers of the backward calls in which it was seen.
    """

    how: str
    region: Site | None
    cause: Site | None
    failed: Site | None
    module: str | None
    op: str
    forward: str
    again: str
    raised: str
    step: int
    backwards: tuple[int, ...]
    changed: Site | None = None


@dataclass(frozen=True, slots=True)
class RegionGradient:
    """A checkpointed region whose gradients differ from those without the checkpoint, when both are run on the same
    inputs: of which inputs and parameters, the largest relative difference, and whether one is missing."""

    region: Site | None
    module: str | None
    names: tuple[str, ...]
    difference: float
    missing: bool


@dataclass(frozen=True, slots=True)
class Retained:
    """What keeps the graphs of earlier steps alive: its name, what it is (``how``), the line that puts them there, the
    module whose results it holds, and how many graphs there were."""

    holder: str
    how: str
    site: Site | None
    module: str | None
    graphs: int


@dataclass(frozen=True, slots=True)
class FunctionChecked:
    """A custom ``Function`` whose backward disagrees with finite differences: for which input, by what values of a
    directional derivative, and why, where that can be told. ``what`` is ``gradient`` or ``second derivative``."""

    name: str
    module: str | None
    applied: Site | None
    backward: Site | None
    what: str
    input: int
    analytic: float
    numeric: float
    why: str


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first module whose results differ between two outermost modules of one structure.

    ``difference`` is relative to the largest value; ``attributes`` are settings that differ; ``matching`` the modules
    that returned before it.
    """

    module: str
    class_name: str
    difference: float
    attributes: tuple[str, ...]
    matching: tuple[str, ...]
    site: Site | None


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


@dataclass(frozen=True, slots=True)
class SavedPlaced:
    """Saved tensors that a policy put elsewhere: their size as they were."""

    policy: str
    tensors: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class SavedUnknown:
    """Saved tensors whose bytes cannot be told, and why."""

    what: str
    count: int
    why: str


@dataclass(frozen=True, slots=True)
class SavedMoment:
    """A node of the backward, its place in the engine's order, and what is kept when it has run."""

    node: str
    module: str | None
    #: Bytes that nobody but the graph holds and that later nodes still need.
    nbytes: int
    order: int = 0


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


@dataclass(frozen=True, slots=True)
class GradientCycle:
    """A ``backward(create_graph=True)`` at ``site`` that left gradients with a graph, of ``parameters``."""

    site: Site | None
    parameters: tuple[str, ...]


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


@dataclass(frozen=True, slots=True)
class Unseen:
    """Work that was not observed: ``what``, how often, and what that means for the reader."""

    what: str
    count: int
    note: str


@dataclass(frozen=True, slots=True)
class TensorSeen:
    """What a tensor looked like at one step. ``counts`` are its finite values between ``edges``, ``mean`` to
    ``high`` are of the finite ones; ``picture`` has means over cells of the tensor as a matrix, row by row.

    :ivar kind: ``output`` (of a module), ``weight`` or ``gradient``.
    """

    name: str
    kind: str
    module: str
    step: int
    shape: tuple[int, ...]
    dtype: str
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    mean: float
    std: float
    low: float
    high: float
    zeros: int
    nan: int
    inf: int
    picture: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class FindingSite:
    """A site and the part that it plays in a finding."""

    role: str
    site: Site


@dataclass(frozen=True)
class Finding:
    """What went wrong, in plain words, with its evidence. See ``docs/findings`` for every kind."""

    kind: str
    severity: str
    title: str
    confidence: str
    module: str | None = None
    node: str | None = None
    tensor: str | None = None
    parameters: tuple[str, ...] = ()
    step: int | None = None
    rank: int | None = None
    sites: tuple[FindingSite, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)
    advice: str = ""

    def __str__(self) -> str:
        """The finding in one line: kind, module, main site, title."""
        where = f" at {self.sites[0].site}" if self.sites else ""
        module = f" in {self.module}" if self.module else ""
        return f"{self.kind}{module}{where}: {self.title}"

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of the findings contract."""
        out = {k: getattr(self, k) for k in ("kind", "severity", "title", "module", "node", "tensor")}
        out["parameters"] = list(self.parameters)
        out["step"], out["rank"] = self.step, self.rank
        out["sites"] = [{"role": s.role, **asdict(s.site)} for s in self.sites]
        out["evidence"], out["confidence"], out["advice"] = dict(self.evidence), self.confidence, self.advice
        return out


@dataclass(frozen=True, slots=True)
class RankWait:
    """A long stay in a collective operation: since when (seconds since 1970), how long, and how it ended: ``returned``,
    ``raised``, or ``never`` while anybody looked."""

    op: str
    site: Site | None
    began: float
    seconds: float
    ended: str


@dataclass(frozen=True, slots=True)
class RankSeen:
    """One process of several.

    :ivar trail: when it was seen at which line, oldest first.
    :ivar over: it came to its end; a process that was killed did not.
    :ivar findings: what was found in it.
    """

    rank: int | None
    pid: int
    waits: tuple[RankWait, ...] = ()
    trail: tuple[tuple[float, Site], ...] = ()
    over: bool = True
    error: str = ""
    findings: tuple[Finding, ...] = ()
    steps: int = 0
    backwards: int = 0


_Seen = TypeVar("_Seen")


@dataclass(frozen=True)
class Facts:
    """What is known of a run as a whole, apart from its steps.

    :ivar asked: topics that were asked for (``--ask``).
    :ivar seen: what those who look for one thing have recorded, of any kind of record; ask for one kind with ``of``.
    """

    parameters: tuple[Parameter, ...] = ()
    unseen: tuple[Unseen, ...] = ()
    asked: tuple[str, ...] = ()
    seen: tuple[Any, ...] = ()

    def of(self, kind: type[_Seen]) -> tuple[_Seen, ...]:
        """The records of one kind, in the order in which they were made."""
        return self._by_kind.get(kind, ())

    def one(self, kind: type[_Seen]) -> _Seen | None:
        """The record of a kind of which there is one at most."""
        found = self.of(kind)
        return found[0] if found else None

    @cached_property
    def _by_kind(self) -> dict[type, tuple[Any, ...]]:
        found: dict[type, list[Any]] = {}
        for record in self.seen:
            found.setdefault(type(record), []).append(record)
        return {kind: tuple(records) for kind, records in found.items()}
