"""Records of steps, and of the optimizers that end them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class ParameterStat:
    """2-norms of a parameter, its gradient and its last update (new minus old), if measured."""

    name: str
    weight: float | None
    grad: float | None
    update: float | None


@record
@dataclass(frozen=True, slots=True)
class Step:
    """A backward call, or several that accumulate, and the optimizer step after them.

    ``loss`` is the sum of the scalar roots of the accumulated backward calls, ``calls`` of them, divided by the
    ``scale`` of a ``GradScaler``. ``seconds`` runs from the end of the previous step; ``watching`` is the part of it
    spent on measuring, as far as known.

    :ivar resident: resident memory of the process in bytes at the end of the step, if the system reports it.
    :ivar allocated: bytes of tensors on CUDA devices then, if there are any.
    :ivar graphs: graphs older than the previous step that were alive when the step began.
    :ivar clip_norm: the total norm of gradients that ``torch.nn.utils.clip_grad_norm_`` found, if it was called once.
    """

    index: int
    seconds: float
    loss: float | None
    backwards: tuple[int, ...]
    parameters: tuple[ParameterStat, ...] = ()
    watching: float = 0.0
    calls: int = 1
    scale: float = 1.0
    resident: int | None = None
    allocated: int | None = None
    graphs: int = 0
    clip_norm: float | None = None


@record
@dataclass(frozen=True, slots=True)
class StepPhases:
    """Seconds of the parts of a recorded step on the host's clock, without backprobe's own work.

    :ivar before: from the end of the last step to the first call of a module with gradient mode on: loading data,
        evaluation, and all else that the script does there.
    :ivar forward: from a call of an outermost module to the backward call; ``backward``: in backward calls.
    :ivar optimizer: in steps of optimizers.
    :ivar rest: between these, after the first backward call: clipping, a loss scaler, logging.
    """

    step: int
    before: float
    forward: float
    backward: float
    optimizer: float
    rest: float

    @property
    def seconds(self) -> float:
        """Return the seconds of all parts together."""
        return self.before + self.forward + self.backward + self.optimizer + self.rest


@dataclass(frozen=True, slots=True)
class BriefSteps:
    """Steps in a row of which little is known, in columns: a run of very short steps has millions of them.

    The fields are those of ``Step``; a column has one entry per step.

    :ivar first: the number of the first step.
    :ivar watching: seconds that measuring took in each step; no more than the step itself took.
    :ivar counts: the number of backward calls.
    :ivar backwards: the numbers of all these calls, one step after the other.
    :ivar losses: the loss; of no meaning where ``calls`` is 0.
    :ivar clip_norms: ``clip_norm``; -1 if unknown.
    """

    first: int
    watching: float
    graphs: int
    seconds: Sequence[float]
    losses: Sequence[float]
    calls: Sequence[int]
    scales: Sequence[float]
    counts: Sequence[int]
    clip_norms: Sequence[float]
    backwards: Sequence[int]

    def __len__(self) -> int:
        return len(self.seconds)

    def __iter__(self) -> Iterator[Step]:
        """Iterate over the steps."""
        return self.last(len(self))

    def last(self, count: int) -> Iterator[Step]:
        """Iterate over the last `count` steps, or all if there are fewer."""
        since = max(len(self) - count, 0)
        begin = sum(self.counts[:since])
        for at in range(since, len(self)):
            seconds, calls, end = self.seconds[at], self.calls[at], begin + self.counts[at]
            loss, watching = (self.losses[at] if calls else None), min(self.watching, seconds)
            numbers, begin = tuple(self.backwards[begin:end]), end
            clip = None if self.clip_norms[at] == -1.0 else self.clip_norms[at]
            known = self.first + at, seconds, loss, numbers, (), watching, calls, self.scales[at]
            yield Step(*known, graphs=self.graphs, clip_norm=clip)


@record
@dataclass(frozen=True, slots=True)
class LossGrowth:
    """The growth of a loss until it is NaN or Inf, and is not finite again. Losses are without their signs.

    :ivar since: the last step with a loss that is not far above its lowest level; ``first``: that loss.
    :ivar until: the last step with a finite loss; ``last``: that loss.
    :ivar medians: the medians of the losses in equal stretches from the one to the other, in order.
    """

    since: int
    first: float
    until: int
    last: float
    medians: tuple[float, ...]


@record
@dataclass(frozen=True, slots=True)
class OptimizerSeen:
    """An optimizer: its class, the line that created it, and counts of its tensors.

    ``orphans``: tensors that no longer belong to a module and never got a gradient. ``empty``: groups without tensors;
    ``twice``: tensors given more than once; ``frozen``: tensors that required no gradient when it stepped. ``given``:
    the line that assigns the variable from which it got its parameters.
    """

    name: str
    site: Site | None
    tensors: int
    orphans: int
    groups: int = 1
    empty: int = 0
    twice: int = 0
    frozen: int = 0
    given: Site | None = None
