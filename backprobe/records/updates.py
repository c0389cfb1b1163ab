"""Records of clipping, updates and settings without effect."""

from __future__ import annotations

from dataclasses import dataclass

from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class UselessClipping:
    """Calls at ``clipped`` that clip gradients which no optimizer uses, or by a bound that cannot be meant.

    ``reason``: ``empty`` (the call gets no parameters), ``no-gradients`` (its parameters have no gradients yet),
    ``used`` (the optimizer has used these gradients already), ``other`` (another optimizer's parameters), ``scaled``
    (the gradients still have the factor of a ``GradScaler``).

    :ivar by_value: the calls are of ``clip_grad_value_``.
    :ivar optimizer: the optimizer that steps with gradients that are not clipped; ``made`` its line.
    :ivar step: the first step that is known to be concerned.
    :ivar calls: the number of calls that were examined.
    :ivar bound: the bound of the last call. ``norm``: the largest total norm with which the optimizer stepped; for
        ``scaled`` the median norm before clipping, with the factor divided out. ``scale``: the factor.
    :ivar given: the line that assigns the variable which the call is given.
    """

    reason: str
    by_value: bool
    optimizer: str
    step: int
    calls: int
    bound: float
    norm: float | None
    scale: float | None
    clipped: Site | None
    given: Site | None
    made: Site | None


@record
@dataclass(frozen=True, slots=True)
class ZeroRate:
    """Learning rates of ``optimizer`` that are zero, or practically zero, from ``step`` to the end of the run.

    :ivar groups: the number of parameter groups concerned; ``of``: of so many.
    :ivar steps: the number of steps since then; ``total``: all steps of the optimizer.
    :ivar rate: the last rate. ``highest``: the highest rate before; 0 if there was none.
    :ivar unchanged: a sampled weight has stayed bitwise the same since then; ``None`` if none was sampled.
    :ivar scheduler: the class of the scheduler of the optimizer; empty if none was found.
    :ivar given: the line of the user's function that returns the factor; ``returns``: the number of such lines.
    :ivar scheduled: the line that makes the scheduler, or that sets the rate; ``made``: that makes the optimizer.
    """

    optimizer: str
    groups: int
    of: int
    step: int
    steps: int
    total: int
    rate: float
    highest: float
    unchanged: bool | None
    scheduler: str
    given: Site | None
    returns: int
    scheduled: Site | None
    made: Site | None


@record
@dataclass(frozen=True, slots=True)
class LeftInEvaluation:
    """A model that was trained in train mode first, and then in evaluation mode to the end.

    :ivar model: its name; ``since``: the first step in evaluation mode.
    :ivar evaluation, train: numbers of observed steps in each mode.
    :ivar affected: the classes of its modules that behave differently in evaluation mode.
    :ivar calls: lines that may have turned it on.
    """

    model: str
    since: int
    evaluation: int
    train: int
    affected: tuple[str, ...]
    calls: tuple[Site, ...]


@record
@dataclass(frozen=True, slots=True)
class TinyUpdates:
    """A parameter that has gradients, and that each measured step, or each from one on, changed by a tiny part of its
    norm.

    :ivar steps: the number of these steps.
    :ivar largest: the largest update, relative to the parameter: both are 2-norms.
    :ivar first, last: the largest of the first five, and of the last five.
    :ivar since: the first of these steps if larger updates came before; 0 if none did.
    """

    parameter: str
    steps: int
    largest: float
    first: float
    last: float
    since: int = 0


@record
@dataclass(frozen=True, slots=True)
class FreezeAttempt:
    """An ``attribute`` of a module or parameter that is False, has no meaning for it, and should freeze it.

    :ivar owner: the name of the module or parameter. ``class_name``: the class of the module; empty for a parameter.
    :ivar parameters: the parameters that an optimizer trains nevertheless.
    :ivar step: the step in which it was noticed.
    :ivar lines: the lines that assign False to such an attribute.
    """

    owner: str
    class_name: str
    attribute: str
    parameters: tuple[str, ...]
    step: int
    lines: tuple[Site, ...] = ()


@record
@dataclass(frozen=True, slots=True)
class StateNotCopied:
    """A state dict whose tensors are the parameters' own memory, loaded back after they had changed: a load in vain.

    :ivar model: the class of the module that loads it.
    :ivar step: the first step in which it was loaded in vain; ``loads``: how often it was.
    :ivar taken_at: the step in which the state dict was taken.
    :ivar steps: the number of steps of an optimizer between the two. ``loaded_over``: another state was loaded between.
    :ivar shared: the state is that of another module, or of the same one by another name, whose parameters are the same
        memory, and it was loaded just after it was taken.
    :ivar taken: the lines that may have taken it; for ``shared``, those that may have made both models share memory.
    :ivar exact: the call that took this state was observed.
    :ivar loaded: the line that loads it.
    """

    model: str
    step: int
    loads: int
    taken_at: int
    steps: int
    loaded_over: bool
    shared: bool
    taken: tuple[Site, ...]
    exact: bool
    loaded: Site | None
