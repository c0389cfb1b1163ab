"""Records of losses through whose targets or weights a gradient flows."""

from __future__ import annotations

from dataclasses import dataclass

from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class CollapsedEmbeddings:
    """A line that compares two embeddings of a batch, both of which are trained, and whose rows became equal.

    The spread of a tensor is the root of the mean squared distance of its rows from their mean, relative to that from
    zero: between 0, all rows are equal, and 1.

    :ivar first, last: the larger spread of the two tensors in the steps ``first_step`` and ``last_step``.
    :ivar rows: the number of rows that were measured in ``last_step``.
    """

    op: str
    site: Site | None
    rows: int
    first: float
    first_step: int
    last: float
    last_step: int


@record
@dataclass(frozen=True, slots=True)
class AttachedAdvantage:
    """A product of log-probabilities with a difference of returns and values whose graph reaches the critic.

    :ivar products: the lines that multiply by the difference.
    :ivar made: the line of the difference.
    :ivar regression: the line of the term of the same loss that fits the values.
    :ivar step: the first step in which it was observed.
    """

    products: tuple[Site, ...]
    made: Site | None
    regression: Site | None
    failed: Site | None
    step: int


@record
@dataclass(frozen=True, slots=True)
class StraightThroughLoss:
    """A loss that compares the result of a straight-through step with the values that the step gives its gradient to.

    :ivar site: the line of the loss; ``made``: that of the step, ``q = x + (y - x).detach()``.
    :ivar step: the first step of the run in which it was observed.
    """

    site: Site | None
    made: Site | None
    step: int


@record
@dataclass(frozen=True, slots=True)
class UndetachedStep:
    """A step ``x + (y - x)`` whose difference has its graph: what goes back to ``x`` cancels, all goes to ``y``.

    :ivar site: its line. ``step``: the first step of the run in which it was observed.
    """

    site: Site
    step: int


@record
@dataclass(frozen=True, slots=True)
class ReversedStep:
    """A straight-through step ``y + (x - y).detach()`` of a step function ``y``: all of its gradient goes to ``y``.

    :ivar site: its line. ``rounded``: the line that applies the step function.
    :ivar step: the first step of the run in which it was observed.
    """

    site: Site
    rounded: Site
    step: int


@record
@dataclass(frozen=True, slots=True)
class CancellingDifference:
    """A comparison of two equal values that were computed from the same parameters, both with a graph.

    :ivar site: the line that compares; ``made``: the line that made the side that should have no graph.
    :ivar sides: both sides as the source has them, empty if unknown; ``again``: the index of that side.
    :ivar steps: the number of observed steps, in all of which the sides were equal; ``step``: the first of them.
    """

    op: str
    site: Site | None
    made: Site | None
    sides: tuple[str, str]
    again: int
    steps: int
    step: int
