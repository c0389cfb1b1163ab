"""Detects variational autoencoders whose posterior has become equal to the prior, so that codes carry nothing.

Note [Posteriors]: a loss with the divergence of a normal distribution from the standard normal has its means and
variances in its graph, as tensors that nodes have saved. The divergence of each sample follows from them. Beside it the
graph says with which weight each element of the reconstruction is counted: one divided by all elements of the batch, if
that term is a mean. In the evidence lower bound both terms have the same weight.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType

import torch

from ...records import CollapsedPosterior, Node, Site
from ...source.frames import CodeLocation
from ...torch_internals import private
from ...torch_internals.async_scalars import fetch
from ...torch_internals.loss_terms import NormalDivergence, Term, comparison_of, normal_divergence, terms_of
from ..backward.active_backward import ActiveBackward
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: The most lines that are followed, and the most lines without a divergence.
MAX_LINES, MAX_LINES_WITHOUT = 8, 100
#: So many calls of a line are read; of later ones one out of so many.
FIRST_LOOKS, INTERVAL = 64, 8
#: The most elements of means that are read.
MAX_ELEMENTS = 1 << 22
#: The last looks, of which each must show a collapse, and the number of steps between the first look and the last.
LAST_LOOKS, MIN_STEPS = 5, 100
#: The divergence of a sample, in nats, below which its code says nothing of it.
MAX_DIVERGENCE = 0.05
#: A loss with a divergence has one of these nodes.
_LOGARITHM_NODES = ("ExpBackward0", "LogBackward0")


@dataclass
class _Line:
    """A line that calls backward from a loss with a divergence.

    :ivar first: the first measured step; ``count``: how many there are.
    :ivar codes: the number of elements of a sample's code; ``op`` and ``elements``: what compares a sample, and in how
        many elements.
    :ivar ratio: the weight of the divergence as a multiple of that of an element's error, in the last measured step.
    :ivar looks: the last measured steps, each with the mean divergence of a sample.
    """

    first: int
    codes: int
    site: Site | None
    compared: Site | None = None
    op: str = ""
    elements: int = 0
    ratio: float | None = None
    looks: deque[tuple[int, torch.Tensor]] = field(default_factory=lambda: deque(maxlen=LAST_LOOKS))
    count: int = 0


class PosteriorTracker(Tracker):
    """Tracker of the divergence between posterior and prior: Note [Posteriors]."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without lines."""
        self._context, self._names = context, context.names
        self._lines: dict[CodeLocation | None, _Line] = {}
        #: Calls of each line whose loss had no divergence.
        self._without: Counter[CodeLocation | None] = Counter()
        self._calls = 0

    def graph_walked(self, running: ActiveBackward, frame: FrameType) -> None:
        """Measure the divergence in the loss of an outermost call, in the first calls of its line and some later
        ones.
        """
        graph, line = running.graph, self._lines.get(running.spot)
        if (
            running.inside is not None
            or len(running.starts) != 1
            or not any(n in graph.plan.distinct for n in _LOGARITHM_NODES)
        ):
            return
        if line is None and (len(self._lines) >= MAX_LINES or len(self._without) >= MAX_LINES_WITHOUT):
            return
        self._calls += 1
        looks = line.count if line is not None else self._without[running.spot]
        if looks >= FIRST_LOOKS and self._calls % INTERVAL:
            return
        with private.measuring():
            self._look(running, line)

    def _look(self, running: ActiveBackward, line: _Line | None) -> None:
        """Measure the mean divergence of a sample, if the loss of the call has one; `line`: the state of its line, if
        known.
        """
        terms = terms_of(running.starts[0])
        found = normal_divergence(terms)
        if found is None or private.is_unsafe_to_read(found.means) or found.means.numel() > MAX_ELEMENTS:
            self._without[running.spot] += 1
            return
        mean, variance, step = found.means, found.variances, self._context.steps.index
        if line is None:
            site = self._node(running, found.squares).site
            line = self._lines[running.spot] = _Line(step, mean[0].numel(), site)
        each = (mean.square() + variance - 1 - variance.log()).flatten(1).sum(1) / 2
        line.looks.append((step, each.mean()))
        line.count += 1
        self._weigh(running, line, terms, found)

    def _weigh(self, running: ActiveBackward, line: _Line, terms: list[Term], divergence: NormalDivergence) -> None:
        """Compare the weight of the divergence with that of the largest error among the terms of the loss."""
        others = [(one, comparison_of(one)) for one in terms if one.node not in divergence.nodes]
        compared = [(term, how) for term, how in others if how is not None]
        if not compared:
            return
        term, how = max(compared, key=lambda one: one[1].weight * one[1].elements)
        line.ratio = divergence.weight / how.weight
        if not line.op:
            node = self._node(running, term)
            line.op, line.elements = node.op or how.op, how.elements // len(divergence.means)
            line.compared = node.site

    def _node(self, running: ActiveBackward, term: Term) -> Node:
        """Return the record of the node that made a term of the loss."""
        return running.live.layout(self._names).nodes[running.graph.nodes.index(term.node)]

    def records(self) -> Iterator[CollapsedPosterior]:
        """Yield a record of each line whose last measured divergences are all almost zero."""
        for spot, line in self._lines.items():
            steps = [step for step, _ in line.looks]
            if len(steps) < LAST_LOOKS or steps[-1] - line.first < MIN_STEPS:
                continue
            with private.measuring():
                divergences = fetch([value for _, value in line.looks])
            if all(value < MAX_DIVERGENCE for value in divergences):
                yield CollapsedPosterior(
                    steps[0],
                    steps[-1],
                    divergences[-1],
                    line.codes,
                    line.op,
                    line.elements,
                    line.ratio,
                    line.site,
                    line.compared,
                    self._names.frames.site(spot),
                )
