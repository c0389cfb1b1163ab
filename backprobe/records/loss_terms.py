"""Records of terms of a loss that have no graph, and of samples that carry no gradient."""

from __future__ import annotations

from dataclasses import dataclass

from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class LostTerm:
    """A number that is added to a loss, was computed from trained parameters, and has no graph.

    :ivar how: the operation that left the graph, or ``no_grad`` if gradient mode was off.
    :ivar cuts: where the graph was lost: the line that turned gradient mode off, or that of the operation, and the
        lines where the value went to Python and came back.
    :ivar added: the line that adds the term to the loss.
    :ivar parameters: some of the parameters that the term depends on.
    :ivar step: the first step in which it was observed.
    :ivar reborn: the script set ``requires_grad`` of the value that had left the graph: the term has a graph that ends
        there.
    :ivar is_derivative: it is no term of its own but a derivative in one, as in the residual of a differential
        equation; ``added`` is the line that adds it to something with a graph.
    """

    how: str
    cuts: tuple[Site, ...]
    added: Site | None
    parameters: tuple[str, ...]
    step: int
    reborn: bool = False
    is_derivative: bool = False


@record
@dataclass(frozen=True, slots=True)
class SampleWithoutGradient:
    """A sample that a loss uses, drawn without a graph from a distribution that the loss trains by a divergence only.

    :ivar how: ``sample`` or ``torch.normal``.
    :ivar distribution: the class of the distribution; empty for ``torch.normal``.
    :ivar site: the line that draws; ``failed``: the line of the backward call.
    :ivar parameters: some of the parameters that the distribution depends on.
    :ivar step: the first step in which it was observed.
    """

    how: str
    distribution: str
    site: Site
    failed: Site | None
    parameters: tuple[str, ...]
    step: int


@record
@dataclass(frozen=True, slots=True)
class DetachedState:
    """A recurrent module whose hidden state is detached at every step of time within one backward call.

    :ivar name: the class of the module; ``module``: its path.
    :ivar pairs: the most pairs of calls in one backward call, of which the later one got the detached state of the
        earlier one.
    :ivar backwards: the number of observed backward calls; ``step``: the first step.
    :ivar detached: the line that detaches the state; ``called``: the line that calls the module.
    """

    name: str
    module: str | None
    pairs: int
    backwards: int
    step: int
    detached: Site | None
    called: Site | None


@record
@dataclass(frozen=True, slots=True)
class EqualStates:
    """A prediction and its bootstrapped target that are computed from equal values, in each inspected step.

    :ivar module: the outermost module that computes the prediction.
    :ivar rows: the rows of a batch; ``steps``: the number of steps; ``first``: the first of them.
    :ivar made: the lines that made the batches of states and of next states, as far as they are known.
    :ivar called: the lines that call the module with them; ``compared``: the line that compares their results.
    :ivar returned: lines of methods that return an array into which their class writes.
    :ivar stored: lines that store transitions.
    """

    module: str | None
    rows: int
    steps: int
    first: int
    made: tuple[Site | None, Site | None]
    called: tuple[Site | None, Site | None]
    compared: Site | None
    returned: tuple[Site, ...]
    stored: tuple[Site, ...]
