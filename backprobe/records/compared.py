"""Records for comparing two runs: every op of a step, with fingerprints of its inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .places import Site


@dataclass(frozen=True)
class Print:
    """A fingerprint of a tensor's values in logical order: independent of the memory layout.

    :ivar hash: of the bytes: equal if two tensors are bitwise equal.
    :ivar norm: Euclidean norm; ``None`` if a value is not finite.
    :ivar bad: number of non-finite values.
    :ivar sketch: sums of the values in groups, each with a sign drawn by its position: the distance of two sketches is
        that of their tensors, within about a fifth (Charikar et al., "Finding frequent items in data streams", 2002).
    """

    shape: tuple[int, ...]
    dtype: str
    hash: str
    norm: float | None
    bad: int = 0
    sketch: tuple[float, ...] = ()


@dataclass(frozen=True)
class Taken:
    """A tensor that an op took as input.

    :ivar value: number of its fingerprint; ``None`` if the op does not read it, or it has none.
    :ivar op, out: the op that produced it, and the number of the output. For a tensor from outside: the op that read it
        first, and ``-1 - n`` if it was input number n.
    :ivar writer: an op that wrote to its memory since, through another tensor.
    :ivar name: of a parameter or buffer.
    """

    value: int | None
    op: int
    out: int
    writer: int | None = None
    name: str = ""

    @property
    def outside(self) -> bool:
        """Whether no recorded op produced the tensor, as for batches and weights."""
        return self.out < 0

    @property
    def source(self) -> tuple[int, int]:
        """The op that produced it, or that read it first, and the number of the output."""
        return self.op, self.out

    @property
    def last(self) -> int:
        """The op that its values come from."""
        return self.op if self.writer is None else self.writer


@dataclass(frozen=True)
class TapeOp:
    """An ATen op as the dispatcher ran it.

    :ivar phase: ``forward``, ``backward`` or ``optimizer``; ``sink`` is no op: a final gradient or weight.
    :ivar module, call: the module call that it belongs to; for a backward op, that of the forward.
    :ivar site: the user's line; ``inner``: a library's line inside it. For a backward op the forward's line, or its own
        if it is in a function of the user.
    :ivar node: the autograd node that ran it.
    :ivar arguments: all arguments, tensors as positions in ``inputs``: ``{"t": 0}``.
    :ivar outputs: numbers of fingerprints; a tensor written in place counts as an output.
    :ivar random: the state of the generator before, if it draws numbers.
    :ivar grad: whether a node was created for it.
    """

    index: int
    step: int
    phase: str
    name: str
    module: str = ""
    call: int = 1
    site: Site | None = None
    inner: Site | None = None
    node: str = ""
    arguments: Any = ((), {})
    inputs: tuple[Taken, ...] = ()
    outputs: tuple[int | None, ...] = ()
    random: str = ""
    grad: bool = False

    @property
    def place(self) -> Site | None:
        """The most specific line: that of a library if the op is in one."""
        return self.inner or self.site


@dataclass(frozen=True)
class Tape:
    """The recorded ops of one run.

    :ivar about: the environment: versions, flags, variables.
    :ivar steps: for each recorded step its number, generators, settings of modules and optimizers.
    :ivar start: the fingerprints of weights when the first outermost module was called.
    """

    about: dict[str, Any]
    steps: tuple[dict[str, Any], ...]
    start: dict[str, int]
    ops: tuple[TapeOp, ...]
    prints: tuple[Print, ...]


@dataclass(frozen=True)
class Applied:
    """A call of a custom ``Function`` whose node has run.

    :ivar name: of the class.
    :ivar ops: the ops of its forward, by number.
    :ivar given: its tensor arguments; ``None`` for an argument that is no tensor.
    :ivar came, went: numbers of fingerprints of the gradients that its node received, and of those that it returned.
    :ivar ran: the number of the next op when the node had run.
    :ivar at: the line where its backward returns.
    """

    name: str
    ops: tuple[int, ...]
    given: tuple[Taken | None, ...]
    came: tuple[int | None, ...]
    went: tuple[int | None, ...]
    ran: int
    at: Site | None


@dataclass(frozen=True)
class Gap:
    """The distance of a value in one run from its counterpart in the other, both computed in float64 from the same
    tensors, which excludes rounding.

    :ivar differs: by more than the computation in float64 explains; ``None`` if it could not be computed.
    :ivar error: the norm of the difference over that of the first; ``None`` if shapes differ.
    :ivar why: ``shape``, or ``missing`` on one side.
    """

    differs: bool | None
    error: float | None = None
    why: str = ""


@dataclass
class Judged:
    """The result of computing both runs again in float64, by the number of the op in the first run.

    :ivar outputs, slots: by op and number of the output, or of the input tensor.
    :ivar local: for each run, by its own op and the number of the output: for results that are off by much, their
        distance from the float64 result for the same inputs, in units of what the dtype explains; ``inf`` if they
        overflow, ``None`` if unknown.
    :ivar sizes: for each run, by its own op and the number of the output, two norms of the float64 result, independent
        of its shape and order.
    :ivar away: for results of the first run that are off by much, the relative distance from a float64 run from the
        start.
    :ivar off: for each run, by its own op and the number of the output, for results without a bitwise equal
        counterpart: the relative distance from a float64 run from the start, and the step of the coarsest dtype on the
        way.
    :ivar lost: those of them with no correct digit left, since the op's input is rounded to its dtype.
    :ivar outside: tensors from outside that differ: by op and slot, with the error.
    :ivar opaque: names of ops that could not be computed again, and how often.
    """

    outputs: dict[tuple[int, int], Gap]
    slots: dict[tuple[int, int], Gap]
    outside: dict[tuple[int, int], float]
    opaque: dict[str, int]
    local: tuple[dict[tuple[int, int], float | None], dict[tuple[int, int], float | None]]
    sizes: tuple[dict[tuple[int, int], tuple[float, float]], dict[tuple[int, int], tuple[float, float]]]
    away: dict[tuple[int, int], float] = field(default_factory=dict)
    lost: set[tuple[int, int]] = field(default_factory=set)
    off: tuple[dict[tuple[int, int], tuple[float, float]], dict[tuple[int, int], tuple[float, float]]] = field(
        default_factory=lambda: ({}, {})
    )
