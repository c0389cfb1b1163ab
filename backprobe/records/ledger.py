"""Records of the ledger: what happened to parameters and their gradients between two steps of their optimizer.

The period of a parameter begins when its optimizer has stepped and ends when it has stepped again. Its events are those
of ``EVENTS``, in the order in which they were observed. Periods with equal events are one ``LedgerRow``.
"""

from __future__ import annotations

from dataclasses import dataclass

from .places import Site
from .registry import record

#: A backward call gave a gradient, or added to the one that was there. ``ADDED``: to the one of the last step.
GRADIENT, ADDED = "gradient", "gradient added to that of the last step"
#: The gradient was set to ``None``; to zero; written in place; or another tensor took its place.
CLEARED, ZEROED, SCALED, REPLACED = "cleared", "set to zero", "changed in place", "replaced"
#: An optimizer stepped that does not hold the parameter; that also holds it.
OTHER_STEP, SHARED_STEP = "step of another optimizer", "step of an optimizer that also holds it"
#: The weight changed outside of steps; or inside the running step, between calls of its closure; or got back the values
#: that it had at the first backward call of the period.
WRITTEN, MOVED_IN_STEP, RESTORED = "weight changed outside of steps", "weight moved inside the step", "weight restored"
#: The optimizer stepped: with a gradient; with one of zeros; with that of its last step; without one.
USED, USED_ZERO, USED_AGAIN, SKIPPED = "used", "used: zeros", "used again", "no gradient in the step"
#: Events after which there is a gradient of a backward call; after which there is none.
GIVING, CLEARING = (GRADIENT, ADDED), (CLEARED, ZEROED)
#: Events that are writes to a gradient or a weight, of which the call may be known.
WRITES = (SCALED, WRITTEN, RESTORED)
#: Why a step left the weight as it was: its learning rate was zero; adding the update rounds to the same weight;
#: clipping has made the gradient zero, or so small that the update rounds away; the gradient was zero; there was none,
#: or none because the parameter was frozen. ``NOT_KNOWN``: it was not measured.
NO_RATE, ROUNDED, CLIPPED = "rate of zero", "rounded", "clipped"
ZERO_GRADIENT, NO_GRADIENT, FROZEN, NOT_KNOWN = "gradient of zeros", "no gradient", "frozen", ""
EVENTS = (
    *(GRADIENT, ADDED, CLEARED, ZEROED, SCALED, REPLACED, OTHER_STEP, SHARED_STEP, WRITTEN, MOVED_IN_STEP, RESTORED),
    *(USED, USED_ZERO, USED_AGAIN, SKIPPED),
)


@record
@dataclass(frozen=True, slots=True)
class LedgerEvent:
    """An event of a period.

    :ivar what: one of ``EVENTS``; ``times`` it happened in a row.
    :ivar site: the line of the backward call, or of the step; for a change by the script: the only line that was
        observed to make it, ``None`` if no line or several were observed.
    :ivar optimizers: for a gradient: the numbers of the optimizers to whose parameters the call gave gradients; for a
        step: the number of the optimizer.
    :ivar call: for ``WRITES``: the function that the script called to make the change, such as ``load_state_dict`` or
        ``copy_``; empty if none or several were observed.
    """

    what: str
    site: Site | None = None
    times: int = 1
    optimizers: tuple[int, ...] = ()
    call: str = ""


@record
@dataclass(frozen=True, slots=True)
class LedgerStay:
    """Steps that left the weight as it was, for one reason.

    :ivar cause: one of the causes above; ``periods``: how many.
    :ivar largest: for ``ROUNDED`` and ``CLIPPED``: the largest update of an element, as a share of the half unit in the
        last place of the weight from which on the weight moves.
    :ivar norm_before, norm_after: for ``CLIPPED``: the total norm that the last such call found, and left.
    """

    cause: str
    periods: int
    largest: float | None = None
    norm_before: float | None = None
    norm_after: float | None = None


@record
@dataclass(frozen=True, slots=True)
class LedgerRow:
    """Equal periods of parameters.

    :ivar optimizer: the number of the ``LedgerOptimizer`` that holds them.
    :ivar periods: how many observed periods had these ``events``; ``first`` and ``last``: the steps in which the first
        and the last of them ended. In ``moved`` of them the step changed the weight; in ``kept`` it did not, though
        the learning rate was not zero; in the others the weight's values were not compared.
    :ivar frozen: ``requires_grad`` was off when the optimizer stepped; ``frozen_at``: the line that turned it off, if
        that was ``frozen_observed``, otherwise every line of the script that may have done so.
    """

    parameters: tuple[str, ...]
    optimizer: int
    events: tuple[LedgerEvent, ...]
    periods: int
    first: int
    last: int
    moved: int = 0
    kept: int = 0
    frozen: bool = False
    frozen_at: tuple[Site, ...] = ()
    frozen_observed: bool = False
    #: The parameters' dtype, and for one of 16 bits the line that cast it, or those that may have.
    dtype: str = ""
    cast_at: tuple[Site, ...] = ()
    #: The steps that left the weight as it was, by cause: those of ``kept``, and those without an update to round.
    stayed: tuple[LedgerStay, ...] = ()


@record
@dataclass(frozen=True, slots=True)
class LedgerOptimizer:
    """An optimizer of the ledger.

    :ivar made: the line that created it; ``stepped``: that calls its ``step``.
    :ivar parameters: how many it holds; ``periods``: how many of its periods were observed.
    :ivar reads: lines of the script that read gradients that were cleared before a step used them.
    :ivar omitted: periods that are in no row, because they had too many events or there were too many rows.
    """

    number: int
    name: str
    made: Site | None
    stepped: Site | None
    parameters: int
    periods: int
    reads: tuple[Site, ...] = ()
    omitted: int = 0


@record
@dataclass(frozen=True, slots=True)
class WeightChange:
    """The change of a parameter by an observed step, estimated from a sample of its elements.

    The parts are ``None`` for an optimizer of which they are not known. If they are known, the sample was computed
    again from the optimizer's formula, its state before the step and the gradient.

    :ivar step: the step; ``weight``: the norm of the weight before it; ``change``: of the change.
    :ivar gradient, momentum, decay: the norms of the parts that come from the gradient of this step, from momentum of
        earlier steps, and from weight decay. ``*_share``: how much of the change the part is, along the change; the
        shares add up to one but for rounding, and the share of a part that works against the change is negative.
    :ivar rest: the norm of what the parts leave of the change; ``explained``: rounding explains all of it.
    :ivar rounded: of the elements that the parts should have changed, the share that stayed as they were.
    """

    step: int
    weight: float
    change: float
    gradient: float | None = None
    momentum: float | None = None
    decay: float | None = None
    gradient_share: float = 0.0
    momentum_share: float = 0.0
    decay_share: float = 0.0
    rest: float = 0.0
    explained: bool = True
    rounded: float = 0.0


@record
@dataclass(frozen=True, slots=True)
class LedgerChanges:
    """Changes of a parameter by some steps of the ``LedgerOptimizer`` with that number, in order."""

    parameter: str
    optimizer: int
    changes: tuple[WeightChange, ...]


@record
@dataclass(frozen=True, slots=True)
class BufferWrite:
    """Writes to a buffer that were observed in recorded steps: the function that the script called, and its line."""

    call: str
    site: Site | None
    times: int


@record
@dataclass(frozen=True, slots=True)
class LedgerBuffer:
    """Buffers of one module to which the same happened.

    :ivar names: their paths in the model; ``class_name``: the class of the module.
    :ivar looks: how often they were compared with what they were before; ``changed``: how often they had changed;
        ``first`` and ``last``: the steps after which the first and the last change were found, -1 for none.
    :ivar forwards: in how many looks a forward in training mode had changed them; ``called``: the line that calls the
        module. ``writes``: writes that were observed. ``unknown``: in how many looks neither was seen.
    :ivar what: ``NaN`` or ``Inf``, if they were finite and became so; ``step``: the first step after which they were.
    """

    names: tuple[str, ...]
    class_name: str
    looks: int
    changed: int
    first: int
    last: int
    forwards: int = 0
    called: Site | None = None
    writes: tuple[BufferWrite, ...] = ()
    unknown: int = 0
    what: str = ""
    step: int = -1
