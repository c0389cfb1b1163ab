"""Records of parameters over a whole run, and of reasons why a gradient does not reach one."""

from __future__ import annotations

from dataclasses import dataclass

from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter and its use over a whole run.

    ``reached``: backward calls that gave it a gradient; ``alive``: one of these gradients was not exactly zero.
    ``trained``: an optimizer holds it; ``None`` if no optimizer stepped. ``calls``: how often its module was called
    with gradient mode on, ``quiet_calls``: with it off.
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
    #: Whether it replaced another parameter of that name.
    replaced: bool = False
    #: The line that turned gradient mode off for its module's calls without it.
    turned_off: Site | None = None
    #: It became part of its model after the optimizer had been made.
    added: bool = False
    #: The line that would use it, or the outermost enclosing module that was never called, and that did not run.
    used: Site | None = None
    #: The line that thawed it, after an optimizer had been made.
    thawed: Site | None = None
    #: That was not observed: ``thawed`` is the only line that does such a thing, if there is only one.
    thawed_unseen: bool = False


@record
@dataclass(frozen=True, slots=True)
class FreeParameter:
    """A ``Parameter`` that belongs to no module, or another leaf that an optimizer holds; the fields mean the same."""

    name: str
    shape: tuple[int, ...]
    requires_grad: bool
    reached: int
    alive: bool
    trained: bool | None


#: Collectives whose result has no graph.
COLLECTIVES = ("all_gather", "all_gather_into_tensor", "all_gather_object")


@record
@dataclass(frozen=True, slots=True)
class Cut:
    """A forward operation whose inputs had a graph and whose result has none: the gradient stops there.

    One of ``COLLECTIVES`` was found in the source only: its inputs are unknown.
    """

    op: str
    site: Site | None
    module: str | None
    parameters: tuple[str, ...]
    count: int = 1
    #: The step in which it was first observed, and the last one in which its result entered a graph again.
    step: int = 0
    arrived: int | None = None
    #: It is in a compiled region, which was executed again to observe it. ``off``: gradient mode was off there.
    compiled: bool = False
    off: bool = False
    #: Its result went through NumPy.
    numpy: bool = False
    #: For a checkpoint: the only line of the script that turns checkpointing on or makes it reentrant.
    enabled: Site | None = None


@record
@dataclass(frozen=True, slots=True)
class StoppedLearning:
    """Parameters that backward calls of the line ``failed`` reached until step ``step``, and not after it.

    ``reason``: ``cut`` (their module runs as before), ``quiet`` (it runs with gradient mode off, turned off at
    ``site``), ``evaluated`` (it was put in evaluation mode since, perhaps at ``site``), ``frozen`` (``requires_grad``
    was turned off at ``site``, by a library, during an evaluation or a save, or together with parameters that were
    thawed again), ``replaced`` (``parameters`` belong to a similar model, which is reached instead and which no
    optimizer holds; the optimizer of the earlier ones was made at ``site``), ``removed`` (a tensor that does not learn
    replaced them in the model; the optimizer that holds them was made at ``site``), ``uncalled`` (their module is no
    longer called).
    """

    parameters: tuple[str, ...]
    step: int
    reason: str
    site: Site | None
    failed: Site | None


@record
@dataclass(frozen=True, slots=True)
class GradientUse:
    """Gradients of backward calls at ``backward`` that ``optimizer`` uses wrongly.

    ``how``: ``again`` (it uses the same gradients again in its next steps, at ``stepped``, from ``step`` on: they are
    never cleared), ``cleared`` (it finds none, from ``step`` on: they are cleared before it steps, or it steps before
    there are any), ``unused`` (it never stepped); without an optimizer ``by-hand`` (the updates at ``stepped`` use
    gradients that are never cleared) and ``rebound`` (``stepped`` assigns the update to a variable, and no weight
    changes). ``cleared``: the only line of the script that calls ``zero_grad``, or
    that can have done so between backward and step. ``made``: the line that created the optimizer.
    """

    optimizer: str
    how: str
    step: int
    stepped: Site | None
    backward: Site | None
    cleared: Site | None = None
    made: Site | None = None


@record
@dataclass(frozen=True, slots=True)
class Unreduced:
    """Parameters that data-parallel training waited for: the backward of ``failed`` in step ``step`` gave no gradient.

    ``frozen`` is the line that turned ``requires_grad`` off; otherwise ``sites`` are the lines that decide whether they
    are used, and use them, if known. ``before``: an earlier backward gave them one. ``wrapped``: the line of the script
    that wrapped the model, if there is one such line.
    """

    parameters: tuple[str, ...]
    step: int
    frozen: Site | None
    sites: tuple[Site, ...]
    failed: Site | None
    before: bool
    wrapped: Site | None = None


@record
@dataclass(frozen=True, slots=True)
class Stray:
    """Trainable tensors that ``parameters()`` of the outermost module does not list, and no optimizer holds.

    ``owner`` is the module whose ``attribute`` holds them, ``how`` names the container; ``site`` is the line that
    assigned it, and ``filled`` the line that adds to it later. ``optimized`` is whether any optimizer stepped.
    """

    parameters: tuple[str, ...]
    owner: str
    attribute: str
    how: str
    site: Site | None
    optimized: bool
    filled: Site | None = None


@record
@dataclass(frozen=True, slots=True)
class NoGradient:
    """A gradient that is not available.

    ``kind`` is ``grad-mode`` (a backward call met a root without a graph that was built while gradient mode was off,
    turned off at ``site``), ``inference`` (an op met a tensor created in inference mode) or ``nonleaf`` (``.grad`` was
    read from a tensor that is not a leaf).
    """

    kind: str
    site: Site | None
    failed: Site | None
    module: str | None
    tensor: str
    count: int = 1
    #: The line that created the non-leaf tensor.
    made: Site | None = None
    #: Of a root without a graph: whether gradient mode and the line were observed. If the line was inferred, all lines
    #: that it could be; and the step.
    observed: bool = True
    candidates: tuple[Site, ...] = ()
    step: int | None = None


@record
@dataclass(frozen=True, slots=True)
class FrozenLoss:
    """A backward call at ``failed``, in ``step``, whose root has no graph because ``parameters`` were frozen.

    ``site`` is the line that turned ``requires_grad`` off, and ``caller`` the line that called its function, if that
    decides what is frozen. ``observed``: the modules that made the loss, gradient mode, and the line were observed;
    otherwise the line is one of ``candidates``. ``before``: an earlier call at this line gave them gradients.
    """

    parameters: tuple[str, ...]
    step: int
    site: Site | None
    failed: Site | None
    caller: Site | None = None
    observed: bool = True
    before: bool = False
    candidates: tuple[Site, ...] = ()


@record
@dataclass(frozen=True, slots=True)
class RefusedOp:
    """An operation of the forward at ``site``, in ``step``, that autograd refused with the error ``text``.

    ``reason`` is ``split``, ``leaf``, ``leaf view``, ``no-grad view``, ``custom view``, ``inference``, ``out``,
    ``flag`` or ``copied``. ``made`` is the line that made the tensor, ``observed`` or else inferred from the source.
    ``op``: for ``split``, the node that made it; ``attribute``: for ``copied``, that of ``module`` which holds it.
    """

    reason: str
    text: str
    site: Site | None
    made: Site | None
    observed: bool
    step: int
    module: str | None
    op: str = ""
    attribute: str = ""


@record
@dataclass(frozen=True, slots=True)
class PaddingRowUsed:
    """Embeddings in which single ids are looked up, and the padding row, which gets no gradient, is one of them.

    :ivar parameters: the tables; ``row``: their padding row.
    :ivar share: the largest share of lookups of a table that are of this row.
    :ivar step: the first step in which it was looked up.
    :ivar sites: lines that give a ``padding_idx``.
    """

    parameters: tuple[str, ...]
    row: int
    share: float
    step: int
    sites: tuple[Site, ...]


@record
@dataclass(frozen=True, slots=True)
class MisalignedTargets:
    """A loss over tokens whose targets are not the next tokens of the looked-up sequence.

    :ivar offset: the target of a position is the token so many positions after it: 1 is right for a language model.
    :ivar share: the share of targets for which that holds; ``tokens``: how many were compared, in ``calls`` calls.
    :ivar step: the first step in which it was seen.
    :ivar lines: lines that shift something called a label or target.
    """

    offset: int
    share: float
    tokens: int
    calls: int
    step: int
    lines: tuple[Site, ...]


@record
@dataclass(frozen=True, slots=True)
class GrownFactor:
    """A factor of a divergence in the loss of a variational autoencoder that grew beyond the evidence lower bound.

    :ivar step: the measured step in which the divergence counted as much as in that bound, or the first one after it.
    :ivar divergence: the mean divergence of a sample's posterior from the prior in that step, in nats.
    :ivar before, after: the factor in that step, and in the last measured step.
    :ivar is_growing: it still grew in the last quarter of the steps between them.
    :ivar multiplied: the line that multiplies the divergence by the factor.
    :ivar computed: the line that computes the factor, as far as the source tells.
    """

    step: int
    divergence: float
    before: float
    after: float
    is_growing: bool
    multiplied: Site | None
    computed: Site | None


@record
@dataclass(frozen=True, slots=True)
class EndNeverLearned:
    """A token that ends and pads rows of tokens, and is never a target of the loss over them.

    :ivar ignored: the class that the loss ignores; ``None`` if weights of zero leave the token out.
    :ivar blanked: the line that was seen to replace the token by it, or to find the token. ``candidates``: if there is
        none, lines of the source that may be why targets are left out.
    :ivar stop: the line of the script that stops to draw tokens at it, if there is one.
    :ivar masked: a mask of the script counts the first one in each row as a token, and the others as padding.
    :ivar rows: the number of rows that were compared, in ``calls`` backward calls; ``step``: the first step with them.
    """

    token: int
    ignored: int | None
    blanked: Site | None
    candidates: tuple[Site, ...]
    stop: Site | None
    masked: bool
    rows: int
    calls: int
    step: int


@record
@dataclass(frozen=True, slots=True)
class CollapsedPosterior:
    """A variational autoencoder whose posterior is equal to the prior at the end of the run.

    :ivar first, last: the first and last of the last measured steps, all of which show it.
    :ivar divergence: the mean divergence of a sample's posterior from the prior in the last one, in nats.
    :ivar codes: the number of elements of a sample's code.
    :ivar op, elements: the operation that compares the reconstruction, and the elements of a sample; empty and 0 if
        it is not known.
    :ivar ratio: the weight of the divergence in the loss, as a multiple of that of an element of the reconstruction.
    :ivar site, compared: the lines of the divergence and of the comparison; ``failed``: that of the backward call.
    :ivar grown: the factor of the divergence that grew until the codes were lost, if there is one.
    """

    first: int
    last: int
    divergence: float
    codes: int
    op: str
    elements: int
    ratio: float | None
    site: Site | None
    compared: Site | None
    failed: Site | None
    grown: GrownFactor | None = None


@record
@dataclass(frozen=True, slots=True)
class BlankTargets:
    """Targets of ``ctc_loss`` that are its blank.

    :ivar blank: the class of the blank; ``count``: how many targets are it, of ``targets``, in ``calls`` calls.
    :ivar step: the first step in which it was seen.
    """

    blank: int
    count: int
    targets: int
    calls: int
    step: int


@record
@dataclass(frozen=True, slots=True)
class InvertedMask:
    """A mask that hides all tokens of sequences, and leaves their padding visible.

    :ivar op: the operation that uses it; ``made``: the line that made the mask, if it is known; ``used`` that of the
        operation.
    :ivar padding: the id of the padding. ``rows``: sequences with padding that were compared, in ``steps`` steps.
    :ivar step: the first step in which it was seen.
    """

    op: str
    module: str | None
    made: Site | None
    used: Site | None
    padding: int
    rows: int
    steps: int
    step: int


@record
@dataclass(frozen=True, slots=True)
class UnlearnedRows:
    """Rows of a layer's weight whose gradient was zero at each of the last looks, while other rows had one.

    :ivar owner: the class of the layer. ``rows``: the first 100 of them; ``count``: their number, of ``row_count``.
    :ivar learned: how many of them had a gradient before.
    :ivar since, last: the step of the look from which on half of them were zero, and of the last look.
    :ivar looks: the number of looks in a row at which each was zero.
    :ivar backward: the line of the backward call.
    """

    parameter: str
    owner: str
    rows: tuple[int, ...]
    count: int
    row_count: int
    learned: int
    since: int
    last: int
    looks: int
    backward: Site | None


@record
@dataclass(frozen=True, slots=True)
class IgnoredGradient:
    """A custom function whose backward never reads the gradients that it is given, in a call in which they were not one
    and it returned a gradient.

    :ivar node: the name of its node, in ``module``; ``step``: that of the call.
    :ivar parameters: those whose gradients go through it.
    :ivar returned: the line that returns the gradients; ``applied``: that applies it; ``backward``: the backward call.
    """

    step: int
    node: str
    module: str | None
    parameters: tuple[str, ...]
    returned: Site | None
    applied: Site | None
    backward: Site | None
