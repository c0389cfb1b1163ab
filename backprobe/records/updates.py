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
    (the gradients still have the factor of a ``GradScaler``), ``tiny-bound`` (next to nothing of them is left).

    :ivar by_value: the calls are of ``clip_grad_value_``.
    :ivar optimizer: the optimizer that steps with gradients that are not clipped, or with the little that is left;
        ``made`` its line.
    :ivar step: the first step that is known to be concerned.
    :ivar calls: the number of calls that were examined.
    :ivar bound: the bound of the last call. ``norm``: the largest total norm with which the optimizer stepped; for
        ``scaled`` the median norm before clipping, with the factor divided out, for ``tiny-bound`` the median norm of
        the latest calls before clipping. ``scale``: the factor.
    :ivar given: the line that assigns the variable which the call is given.
    :ivar stepped: the line that steps the optimizer, if it was observed in such a step.
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
    stepped: Site | None = None


@record
@dataclass(frozen=True, slots=True)
class ScaledGradients:
    """Steps of ``optimizer`` with gradients that still have the factor ``scale`` of a ``GradScaler``.

    :ivar step: the first of them; ``steps``: how many were examined.
    :ivar stepped: the line that steps; ``backward``: the backward call that gave the gradients; ``made``: the line of
        the optimizer.
    """

    optimizer: str
    step: int
    steps: int
    scale: float
    stepped: Site | None
    backward: Site | None
    made: Site | None


@record
@dataclass(frozen=True, slots=True)
class ZeroedElements:
    """Elements of a parameter whose gradients the script sets to zero, and that the ``optimizer`` moves all the same.

    :ivar rows: the numbers of the rows that they are, of ``row_count``; empty if they are no whole rows. ``share``:
        theirs of the elements that were compared.
    :ivar moved: how far they moved from the first of these steps to the end of the run, relative to their norm;
        ``None`` if they were zero. ``regrown``: of those that were zero at first, the share that is not any more.
    :ivar why: ``decay`` or ``momentum``; empty if it may be either.
    :ivar first, last: the first and the last observed step in which they moved; ``looks``: how many did.
    :ivar by_hook: a hook of the parameter sets the gradients to zero, and not a line after the backward call.
    :ivar zeroed: the lines that set them to zero: of the hooks, or those that were observed to write.
    :ivar stepped: the line that steps; ``made``: the line of the optimizer.
    :ivar inferred: some of them got no gradient that a hook could set to zero: its mask is zero there.
    """

    parameter: str
    optimizer: str
    rows: tuple[int, ...]
    row_count: int
    share: float
    moved: float | None
    regrown: float
    why: str
    first: int
    last: int
    looks: int
    by_hook: bool
    zeroed: tuple[Site, ...]
    stepped: Site | None
    made: Site | None
    inferred: bool = False


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
class NegativeRate:
    """Steps of ``optimizer`` with a learning rate below zero, in groups that have gradients and are not maximized.

    :ivar step: the first examined one of them; ``steps``: how many of the examined steps there were.
    :ivar groups: the number of parameter groups concerned; ``of``: of so many.
    :ivar lowest: the lowest rate; ``highest``: the highest rate before.
    :ivar scheduler: the class of the scheduler of the optimizer; empty if none was found.
    :ivar given: a line of the user's function that returns the factor; ``returns``: the number of lines that may be it.
    :ivar scheduled: the line that makes the scheduler, or that sets the rate; ``made``: that makes the optimizer.
    """

    optimizer: str
    step: int
    steps: int
    groups: int
    of: int
    lowest: float
    highest: float
    scheduler: str
    given: Site | None
    returns: int
    scheduled: Site | None
    made: Site | None


@record
@dataclass(frozen=True, slots=True)
class RaisedRate:
    """A learning rate of ``optimizer`` that rose above the rate it began with.

    :ivar base: the rate that the optimizer was made with, or that its schedule scales; the highest of its groups.
    :ivar rates: the highest rate of the groups, as pairs of a step and the rate from that step on. Small changes are
        left out.
    :ivar assigned: a line of the script that assigns a rate.
    :ivar made: the line that makes the optimizer.
    """

    optimizer: str
    base: float
    rates: tuple[tuple[int, float], ...]
    assigned: Site | None
    made: Site | None


@record
@dataclass(frozen=True, slots=True)
class AccumulationNames:
    """Names that the script gives to a library as the number of accumulated batches.

    :ivar names: variables, and attributes without their objects.
    """

    names: tuple[str, ...]


@record
@dataclass(frozen=True, slots=True)
class UndividedLoss:
    """Backward calls of which ``count`` add up their gradients in a step, each from a loss, or with a term of it, that
    is a mean over its own batch, and that nothing divides by their number.

    :ivar by: ``transformers`` (its Trainer leaves the division to the loss), ``accelerate`` (its ``backward``, which
        divides, is not called), or ``term`` (the script divides other terms of the loss).
    :ivar operation: the operation that gives the loss or the term, as autograd calls its node.
    :ivar step: the first such step; ``steps``: how many of the examined steps there were.
    :ivar made: the line that computes the loss or the term; ``backward``: the line of the backward call.
    :ivar divides: for ``term``, the line that divides another term.
    :ivar given: the line that gives a library the number of accumulated batches.
    """

    by: str
    operation: str
    count: int
    step: int
    steps: int
    made: Site | None
    backward: Site | None
    divides: Site | None = None
    given: Site | None = None


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
class FrozenInTraining:
    """A frozen part of a model that ran in training mode while something else was trained, to the end of the run.

    :ivar part: its path; ``class_name``: its class. ``others``: the paths of other such parts.
    :ivar since, last: the first and the last observed step in training mode.
    :ivar evaluation: the number of observed optimizer steps before them in evaluation mode.
    :ivar norms: the number of its layers with running statistics, ``norm_class``: the class of the first. ``moved``: by
        how many standard deviations the running means moved: the root mean square of the layer that moved most.
    :ivar dropouts: the number of its dropout layers. ``learned``: the same script had trained it before.
    :ivar evaluated: lines that call ``eval`` on it by its name: if there are none, and it was never in evaluation mode
        either, its running statistics may have moved as they should. ``switched``: lines that may have put it into
        training mode;
        ``frozen``: lines that freeze parameters; ``called``: the line that calls it.
    """

    part: str
    class_name: str
    others: tuple[str, ...]
    since: int
    last: int
    evaluation: int
    norms: int
    norm_class: str
    moved: float
    dropouts: int
    learned: bool
    evaluated: tuple[Site, ...] = ()
    switched: tuple[Site, ...] = ()
    frozen: tuple[Site, ...] = ()
    called: Site | None = None


@record
@dataclass(frozen=True, slots=True)
class TinyUpdates:
    """A parameter that has gradients, and that each measured step, or each from one on, changed by a tiny part of its
    norm.

    :ivar steps: the number of these steps.
    :ivar largest: the largest update, relative to the parameter: both are 2-norms.
    :ivar first, last: the largest of the first five, and of the last five.
    :ivar since: the first of these steps if larger updates came before; 0 if none did. ``until``: the last of them.
    """

    parameter: str
    steps: int
    largest: float
    first: float
    last: float
    since: int
    until: int


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
class NothingLoaded:
    """A load with ``strict=False`` of a state dict of which the module has no name.

    :ivar model: the class of the module; ``step``: the first step in which it was done, ``loads`` times.
    :ivar given: how many tensors the state dict has; ``names``: some of their names; ``own``: some of the module's.
    :ivar prefix: without it ``matching`` of the names would be the same; empty if there is none. ``in_state``: it is
        before the names of the state dict, otherwise before the module's.
    :ivar loaded: the line that loads it.
    """

    model: str
    step: int
    loads: int
    given: int
    names: tuple[str, ...]
    own: tuple[str, ...]
    prefix: str
    in_state: bool
    matching: int
    loaded: Site | None


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
    :ivar own: the line takes the state of a module and loads it into the same one, ``loads`` times.
    :ivar computed: new tensors were loaded, and had the values that the parameters had each time.
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
    own: bool = False
    computed: bool = False


@record
@dataclass(frozen=True, slots=True)
class ReferenceNotCopied:
    """A term of a loss that compares parameters with tensors that share their memory, and is zero for ever.

    :ivar step: the first observed step with it; ``steps``: the number of observed steps, in all of which it was so.
    :ivar parameters: their names.
    :ivar site: the line that compares; ``kept``: the lines that may have kept the parameters without a copy.
    """

    op: str
    step: int
    steps: int
    parameters: tuple[str, ...]
    site: Site | None
    kept: tuple[Site, ...] = ()


@record
@dataclass(frozen=True, slots=True)
class MergedUpdates:
    """A frozen parameter to which the product of two trained ones was added again and again between steps.

    The product was not subtracted before the next step, and the factors stayed as they were.

    :ivar parameter: its name; ``factors``: those of the trained ones.
    :ivar count: how often it was added; ``step``: the step before which it was added first, ``last``: before which it
        was added last. ``steps``: the steps of optimizers until the end.
    :ivar lines: the lines that may have added it. ``exact``: there is one, which was observed. ``called``: the line
        that called its function, and ``stepped`` the line of the step that came next.
    """

    parameter: str
    factors: tuple[str, ...]
    count: int
    step: int
    last: int
    steps: int
    lines: tuple[Site, ...]
    exact: bool
    called: Site | None
    stepped: Site | None


@record
@dataclass(frozen=True, slots=True)
class WeightsPutBack:
    """Replacements of an ``optimizer``'s weights between two of its steps that undo the steps before them.

    :ivar how: ``same`` (each puts back the same earlier values), ``average`` (each moves the weights back towards the
        values after the replacement before it, to different degrees).
    :ivar step: the step before which it happened first; ``last``: before which it did last.
    :ivar count: the number of replacements. ``lost``: how many steps there were before each of them, in the middle.
    :ivar steps: the steps of the optimizer until the end. ``since``: for ``same``, the step before which the weights
        had the values first; -1 if unknown.
    :ivar share: for ``average``, the median share of the movement since the last replacement that was undone.
    :ivar parameters: the sampled parameters.
    :ivar replaced: the step before which each of the first replacements happened.
    :ivar lines: the lines that were observed to replace the weights. ``exact``: there is one, and the values that it
        wrote were observed. ``called``: the line that called the function that does it.
    """

    optimizer: str
    how: str
    step: int
    last: int
    count: int
    lost: int
    steps: int
    since: int
    share: float
    parameters: tuple[str, ...]
    replaced: tuple[int, ...]
    lines: tuple[Site, ...]
    exact: bool
    called: Site | None
    stepped: Site | None


@record
@dataclass(frozen=True, slots=True)
class NewOptimizers:
    """Optimizers of one class that were made one after the other over the same parameters, each with a new state.

    The weights stayed as the optimizer before had left them.

    :ivar made: how many of them stepped, or if ``is_least`` the least number of them.
    :ivar fewest, most: steps of one.
    :ivar parameters: how many parameters each holds.
    :ivar made_at: the line that makes them, ``inferred`` or observed; ``stepped``: where they step.
    """

    optimizer: str
    made: int
    is_least: bool
    fewest: int
    most: int
    parameters: int
    made_at: Site | None
    inferred: bool
    stepped: Site | None


@record
@dataclass(frozen=True, slots=True)
class EqualUnits:
    """A weight all of whose rows are equal, in each step that was examined, and get equal gradients.

    :ivar parameter: its name; ``owner``: the class of its module; ``rows``: their number. ``blocks``: the rows are
        equal in each of so many blocks, as those of the gates of an LSTM.
    :ivar first, last: the first and the last step that was examined; ``looks``: how many were.
    :ivar exact: the rows were equal bit for bit in all of them, and so were the gradients' rows.
    :ivar value: the value of all elements of the weight at first, if they were all equal.
    :ivar given: the lines of the script that may have initialised it. ``observed``: there is one, which was seen to.
    """

    parameter: str
    owner: str
    rows: int
    blocks: int
    first: int
    last: int
    looks: int
    exact: bool
    value: float | None
    given: tuple[Site, ...] = ()
    observed: bool = False


@record
@dataclass(frozen=True, slots=True)
class ClimbingUpdates:
    """Updates that a script makes by hand, and that add a positive multiple of the gradient to each parameter.

    :ivar loss: the operation that gives the loss, as autograd calls its node: it measures an error.
    :ivar updates: how many were checked: all of them, from the first on.
    :ivar rate: the factor of the last one.
    :ivar updated: the line that changes the parameters; ``backward``: the line of the backward call.
    """

    parameters: tuple[str, ...]
    loss: str
    updates: int
    rate: float
    updated: Site | None
    backward: Site | None


@record
@dataclass(frozen=True, slots=True)
class RepeatedModule:
    """A module with trained parameters that stands several times in a container, since an expression repeats it.

    :ivar container: the name of the container, and ``container_class`` its class; ``module``: the class of the module.
    :ivar attribute: the attribute that holds the container, and ``owners`` the classes of the module that has it; empty
        for an outermost module.
    :ivar count: in how many of the ``places`` of the container it stands.
    :ivar parameters: those that are trained, with ``elements`` in all.
    :ivar lines: the expressions that may have repeated it. ``registered``: they repeat an attribute of ``self``.
    """

    container: str
    container_class: str
    module: str
    attribute: str
    owners: tuple[str, ...]
    count: int
    places: int
    parameters: tuple[str, ...]
    elements: int
    step: int
    lines: tuple[Site, ...] = ()
    registered: bool = False


@record
@dataclass(frozen=True, slots=True)
class RefusedUpdate:
    """A call at ``site``, in ``step``, of an optimizer, a scheduler or a gradient scaler, that torch refused with the
    error ``text``, and that ended the script.

    ``reason`` is ``over`` (a scheduler was stepped more often than it is made for), ``groups`` (a loaded state is of
    other groups), ``state`` (a state has the shapes of other parameters), ``resized`` (it has a shape that no parameter
    has any more), ``sparse`` (sparse gradients), ``empty`` (no parameters were given), ``no-leaf``, ``twice`` (a
    parameter that is no leaf, or is in two groups), ``first-rate`` (a scheduler resumes on an optimizer that never had
    one), ``closure`` or ``metrics`` (``step`` needs this argument), ``unscaled-twice``, ``stepped-twice``,
    ``unscaled-late``, ``half`` (gradients in half precision) or ``nothing-unscaled`` (of a gradient scaler); otherwise
    it is empty.

    :ivar owner: the class that refused; ``optimizer``: that of its optimizer, if there is one.
    :ivar given, wanted: numbers that do not agree: for ``over`` of calls, for ``groups`` of parameters.
    :ivar parameters: the names of the parameters that failed the check.
    :ivar operation: the operation that made the tensor, for ``no-leaf``.
    :ivar source: its line; for ``resized`` a line that resizes parameters, from the source code.
    :ivar made: the line of the optimizer.
    """

    reason: str
    text: str
    owner: str
    optimizer: str
    step: int
    given: int
    wanted: int
    parameters: tuple[str, ...]
    operation: str
    site: Site
    source: Site | None
    made: Site | None


@record
@dataclass(frozen=True, slots=True)
class ModuleBackward:
    """A method ``backward`` of a module that computes gradients, and that nothing called: autograd does not.

    :ivar modules: the names of the modules; ``class_name``: their class.
    :ivar step: the first step in which they were called with gradients enabled; ``steps``: the steps of the run.
    :ivar defined: the line of the method; ``called``: a line that calls one of the modules.
    :ivar forward: the first and the last line of the class's own forward, in the file of the method; (0, 0) if unknown.
    :ivar is_certain: no line of the script can call it, and the interpreter would show it if it had run.
    :ivar possible: lines that call a method of this name of an object that is not known.
    """

    modules: tuple[str, ...]
    class_name: str
    step: int
    steps: int
    defined: Site
    called: Site | None
    forward: tuple[int, int]
    is_certain: bool
    possible: tuple[Site, ...] = ()
