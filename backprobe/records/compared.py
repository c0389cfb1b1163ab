"""What a comparison of two runs is made from: every op of a step, with fingerprints of what it took and gave."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .places import Site


@dataclass(frozen=True)
class Print:
    """A fingerprint of a tensor's values, in logical order: a layout in memory does not change it.

    :ivar hash: of the bytes: equal where two tensors are, bit for bit.
    :ivar norm: Euclidean; ``None`` where a value is not finite.
    :ivar bad: how many values are not finite.
    :ivar sketch: sums of the values in groups, each with a sign drawn by its place: the distance of two tensors is that
        of their sketches, give or take a fifth (Charikar et al., "Finding frequent items in data streams", 2002).
    """

    shape: tuple[int, ...]
    dtype: str
    hash: str
    norm: float | None
    bad: int = 0
    sketch: tuple[float, ...] = ()


@dataclass(frozen=True)
class Taken:
    """A tensor that an op was given.

    :ivar value: number of its fingerprint; ``None`` where it is not read, or cannot be.
    :ivar op, out: the op that gave it, as its output so-and-so. Of what comes from outside the op that read it first,
        and ``-1 - n`` for what that was given as number n.
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
        return self.out < 0

    @property
    def source(self) -> tuple[int, int]:
        return self.op, self.out

    @property
    def last(self) -> int:
        """The op that it has its values from."""
        return self.op if self.writer is None else self.writer


@dataclass(frozen=True)
class TapeOp:
    """One op of torch's own, as its dispatcher ran it.

    :ivar phase: ``forward``, ``backward`` or ``optimizer``; ``sink`` is no op: a gradient or weight in the end.
    :ivar module, call: the module call that it is of; of a backward op that of the forward.
    :ivar site: the user's line; ``inner``: that of a library inside it. Of a backward op the forward's line, or its own
        in a function of the user's.
    :ivar node: the autograd node that ran it.
    :ivar arguments: all that it was called with, tensors as places in ``inputs``: ``{"t": 0}``.
    :ivar outputs: numbers of fingerprints; what is written in place counts as given.
    :ivar random: the state of the generator before, where it draws numbers.
    :ivar grad: whether a node was made for it.
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
        """The line that says most: that of a library where the op is in one."""
        return self.inner or self.site


@dataclass(frozen=True)
class Tape:
    """What was recorded of one run.

    :ivar about: the surroundings: versions, flags, variables.
    :ivar steps: of each recorded step its number, generators, settings of modules and optimizers.
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
    :ivar given: the tensors that it was given; ``None`` for what is no tensor.
    :ivar came, went: numbers of fingerprints of the gradients that its node was given, and of those that it gave.
    :ivar ran: the number that the next op had when the node had run.
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
    """How far a value of one run is from its partner in the other, where both are calculated in float64 from the same
    tensors: what rounding did is not in it.

    :ivar differs: more than the calculation in float64 explains; ``None`` where it could not be calculated.
    :ivar error: the norm of the difference by that of the first; ``None`` where shapes differ.
    :ivar why: ``shape``, or ``missing`` on one side.
    """

    differs: bool | None
    error: float | None = None
    why: str = ""


@dataclass
class Judged:
    """What calculating both runs again says, by the number of the op in the first run.

    :ivar outputs, slots: by op and number of the output, or of the tensor that it was given.
    :ivar local: for each run, by its own op and the number of the output: of results that are off by much, how far they
        are from what float64 gives for just what the op was given, in units of what the dtype explains; ``inf`` where
        they overflow, ``None`` where it cannot be told.
    :ivar sizes: for each run, by its own op and the number of the output, two norms of what float64 gives: whatever its
        shape and order.
    :ivar away: of results of the first run that are off by much, how far from what float64 gives from the start:
        relative.
    :ivar off: for each run, by its own op and the number of the output, of results without a partner of the same bits:
        how far from what float64 gives from the start, relative, and the step of the coarsest dtype on the way.
    :ivar lost: those of them of which no digit is left, since what the op was given is rounded to its dtype.
    :ivar outside: tensors from outside that differ: by op and slot, with the error.
    :ivar opaque: names of ops that could not be calculated again, and how often.
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
