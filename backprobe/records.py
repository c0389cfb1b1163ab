"""What a trace is made of: plain frozen records. Imports nothing of ours and no torch.

Producers (``observe``) make them, consumers (``explain``, ``view``, ``store``) read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

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
        parts = [f"{n} {what}" for n, what in ((self.nan, "NaN"), (self.inf, "Inf")) if n]
        return f"{' and '.join(parts)} of {self.numel} elements"


@dataclass(frozen=True, slots=True)
class TensorStat:
    """A tensor seen from outside: its name where it has one, shape, dtype and what is unusual about its values."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bad: BadValues | None = None
    zeros: int | None = None


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """One call of a module. ``call`` counts the calls of this module within one step, from 1."""

    index: int
    path: str
    class_name: str
    call: int
    depth: int
    parent: int
    site: Site | None
    outputs: tuple[tuple[int, ...], ...]
    seq_begin: int
    seq_end: int

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
    """A forward operation whose result was not finite.

    ``inputs`` are the tensors that it got. ``fresh`` says that none of them that autograd made was already bad.
    """

    seq: int
    op: str
    site: Site | None
    module: str | None
    call: int
    output: BadValues
    inputs: tuple[TensorStat, ...]

    @property
    def fresh(self) -> bool:
        return not any(t.bad for t in self.inputs)


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
    nodes: tuple[NodeRun, ...]
    bad_nodes: tuple[BadNode, ...] = ()
    bad_ops: tuple[BadOp, ...] = ()


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

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of the findings contract."""
        out = {k: getattr(self, k) for k in ("kind", "severity", "title", "module", "node", "tensor")}
        out["parameters"] = list(self.parameters)
        out["step"], out["rank"] = self.step, self.rank
        out["sites"] = [{"role": s.role, **asdict(s.site)} for s in self.sites]
        out["evidence"], out["confidence"], out["advice"] = dict(self.evidence), self.confidence, self.advice
        return out
