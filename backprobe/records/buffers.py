"""Records of buffers of modules that are not what they should be."""

from __future__ import annotations

from dataclasses import dataclass

from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class BadBuffers:
    """Buffers that were finite and became NaN or Inf, and still were when they were last read.

    :ivar names: their paths in the model, in the order in which their modules are called; ``class_name``: the class of
        the module of the first; ``module``: its path.
    :ivar what: ``NaN`` or ``Inf``.
    :ivar after, step: the last step after which they were read and finite, and the first after which they were not.
    :ivar statistics: the first is a running statistic of one of torch's normalisation layers.
    :ivar called: the line that calls the module of the first; ``written``: the lines that write to the buffer.
    :ivar singular: the line before the call that may have made the value, by the source. ``checks``: conditions in the
        script that test a value for NaN or Inf.
    """

    names: tuple[str, ...]
    module: str
    class_name: str
    what: str
    after: int
    step: int
    statistics: bool
    called: Site | None
    written: tuple[Site, ...] = ()
    singular: Site | None = None
    checks: tuple[Site, ...] = ()


@record
@dataclass(frozen=True, slots=True)
class FrozenStatistics:
    """Running statistics of normalisation layers that moved although all parameters of the layers were frozen.

    :ivar modules: the paths of the layers; ``class_name``: the class of the first.
    :ivar since, step: the first step after which the layers were frozen, and the last after which they were read.
    :ivar shift: of the layer that moved most: the share of channels that moved by more than a standard deviation.
    :ivar trained: the same script had trained the layers before.
    :ivar frozen: lines that may have frozen them; ``called``: the line that calls the first.
    :ivar switched: the line that likeliest put them in train mode.
    """

    modules: tuple[str, ...]
    class_name: str
    since: int
    step: int
    shift: float
    trained: bool
    called: Site | None
    frozen: tuple[Site, ...] = ()
    switched: Site | None = None


@record
@dataclass(frozen=True, slots=True)
class StaleStatistics:
    """A copy of a model in eval mode whose weights were averaged, while its running statistics never changed.

    :ivar copy: the name of the copy where its weights are written; ``layers``: the paths of its layers.
    :ivar apart: of the layer with most of them: the share of channels whose statistics are far from the model's.
    :ivar called: a call of the copy was seen.
    :ivar written: the line that writes to its weights; ``loop``: the loop over parameters around it.
    """

    copy: str
    layers: tuple[str, ...]
    apart: float
    called: bool
    written: Site | None
    loop: Site | None


@record
@dataclass(frozen=True, slots=True)
class UntrainedBatches:
    """Batches without gradients that changed the running statistics of a layer that is trained on other batches.

    :ivar layer: its path; ``class_name``: its class.
    :ivar turns: how often such batches came between trained ones; ``first_step``: the first observed step with them.
    :ivar apart: the share of channels of these batches that are far from those of trained batches.
    :ivar shifted: the largest share of channels whose running statistics were far from trained batches, in an observed
        call in evaluation mode or at the end; ``evaluated``: such a call was observed.
    :ivar called: a line that calls the model for such batches; ``switched``: the last call of ``train()`` before it.
    """

    layer: str
    class_name: str
    turns: int
    first_step: int
    apart: float
    shifted: float
    evaluated: bool
    called: Site | None
    switched: Site | None = None
