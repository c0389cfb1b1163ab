"""Records of learning rate schedulers."""

from __future__ import annotations

from dataclasses import dataclass

from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class ScheduleSeen:
    """A scheduler of learning rates, and its optimizer.

    :ivar calls: calls of its ``step``, also by a scheduler that holds it.
    :ivar steps: steps of its optimizer since it was made.
    :ivar rate: the highest of the optimizer's rates when it stepped first; ``last``: when it stepped last. ``highest``:
        in any step.
    :ivar low_since: the step from which on all rates are below a thousandth of the highest, to the end.
    :ivar period: ``T_max`` of a ``CosineAnnealingLR``; 0 for others. ``epochs``: the loop that counts to the same
        number, and is not the loop in which ``step`` is called.
    :ivar ended: a whole run was observed, and ended without an error.
    :ivar elsewhere: the script may step it at a line that was not reached, or a library may.
    :ivar made: the line that makes it; ``stepped``: that calls its ``step``.
    :ivar returned: the line that returns it, if no line of the script steps it.
    :ivar length: the number of steps that it is made for; 0 if it has none. ``base``: the highest rate that it scales.
    :ivar warmup, planned: the steps of its warm-up and of the training, if it was made for such numbers; else 0.
    :ivar warmup_given: the line that gives the warm-up to a library, which makes the scheduler.
    """

    scheduler: str
    optimizer: str
    calls: int
    steps: int
    rate: float
    last: float
    highest: float
    low_since: int | None
    period: int
    epochs: Site | None
    ended: bool
    elsewhere: bool
    made: Site | None
    stepped: Site | None
    optimizer_made: Site | None
    length: int = 0
    base: float = 0.0
    returned: Site | None = None
    warmup: int = 0
    planned: int = 0
    warmup_given: Site | None = None


@record
@dataclass(frozen=True, slots=True)
class ScheduleOfOther:
    """A scheduler that steps while its optimizer does not, and another optimizer trains the same parameters.

    :ivar calls: calls of its ``step`` since its optimizer stepped last.
    :ivar done: how often its optimizer stepped before.
    :ivar other: the class of the other optimizer, ``steps`` its steps since then, ``rate`` its rate, which stayed the
        same, and ``other_made`` the line that makes it.
    """

    scheduler: str
    optimizer: str
    calls: int
    done: int
    other: str
    steps: int
    rate: float
    made: Site | None
    stepped: Site | None
    other_made: Site | None


@record
@dataclass(frozen=True, slots=True)
class PlateauMetric:
    """The metrics that a ``ReduceLROnPlateau`` was given.

    :ivar mode: ``min`` or ``max``.
    :ivar calls: the number of metrics; ``first`` is the first, ``last`` the median of the last ones. ``lowest`` and
        ``highest``: of all.
    :ivar best_at: the position of the best metric, from 0.
    :ivar step: the step of the first metric.
    :ivar rate, last_rate: the first and the last rate of the optimizer.
    :ivar direction: what the names in the call suggest: ``max`` for an accuracy, ``min`` for a loss; ``""``: nothing,
        ``?``: the metric is computed by a subtraction or a minus.
    :ivar name: the name by which a library or the script looked it up, if known.
    :ivar mode_given: the line of the argument ``mode``, if the call that makes the scheduler has one.
    """

    mode: str
    calls: int
    first: float
    last: float
    lowest: float
    highest: float
    best_at: int
    step: int
    rate: float
    last_rate: float
    direction: str
    made: Site | None
    stepped: Site | None
    name: str = ""
    mode_given: Site | None = None


@record
@dataclass(frozen=True, slots=True)
class LoadedRate:
    """An optimizer whose rate an earlier schedule lowered, came with a loaded state, and stays as it is.

    :ivar given: the rate with which the script made the optimizer; ``rate``: that of all its ``steps``; ``begin``: that
        with which the earlier schedule began.
    :ivar step: the first of its steps.
    :ivar loaded: the only line of the script that may have loaded the state.
    """

    optimizer: str
    given: float
    rate: float
    begin: float
    step: int
    steps: int
    loaded: Site | None
    made: Site | None


@record
@dataclass(frozen=True, slots=True)
class ScheduleRestarted:
    """A scheduler that begins at 0 although its optimizer has the loaded state of an earlier run.

    :ivar done: the number of steps that the loaded state counts, if it counts any.
    :ivar loaded: the loaded rate; ``begin``: the rate with which the earlier schedule began; ``highest``: the highest
        rate with which the optimizer stepped since.
    :ivar step: the step in which the scheduler was stepped first.
    """

    scheduler: str
    optimizer: str
    done: int
    loaded: float
    begin: float
    highest: float
    step: int
    made: Site | None
    stepped: Site | None
