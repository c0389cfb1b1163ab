"""Detects variational autoencoders whose posterior has become equal to the prior, so that codes carry nothing.

Note [Posteriors]: a loss with the divergence of a normal distribution from the standard normal has its means and
variances in its graph, as tensors that nodes have saved. The divergence of each sample follows from them. Beside it the
graph says with which weight each element of the reconstruction is counted: one divided by all elements of the batch, if
that term is a mean. In the evidence lower bound both terms have the same weight. The factors by which the divergence
is multiplied follow from the same graph.

The first calls of a line are measured, if they are recorded, and then fewer and fewer: a collapse late in a long run is
measured in steps that are not recorded. If codes were used while the divergence counted as much as in the bound, and a
factor went on to grow until they were lost, that factor is the reason.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple

import torch

from ... import thresholds
from ...records import CollapsedPosterior, GrownFactor, Node, Site
from ...source.factors import factor_computed
from ...source.frames import CodeLocation
from ...torch_internals import private
from ...torch_internals.async_scalars import fetch
from ...torch_internals.loss_terms import (
    Comparison,
    NormalDivergence,
    Scale,
    Term,
    comparison_of,
    normal_divergence,
    scales_of,
    terms_of,
)
from ..backward.active_backward import ActiveBackward
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: The most lines that are followed, and the most lines without a divergence.
MAX_LINES, MAX_LINES_WITHOUT = 8, 100
#: Maximum number of first calls of a line that are all read.
MAX_FIRST_LOOKS = 64
#: Interval, in calls of a line, between later looks.
LOOK_INTERVAL = 8
#: Interval between looks at calls that are not recorded, as a share of the steps until now.
LATER_INTERVAL_SHARE = 1 / 64
#: The most looks that are kept; of more, every second one of the older half is dropped.
MAX_LOOKS = 512
#: The most elements of means that are read.
MAX_ELEMENTS = 1 << 22
#: A loss with a divergence has one of these nodes.
_LOGARITHM_NODES = ("ExpBackward0", "LogBackward0")


class _Look(NamedTuple):
    """A measured step.

    :ivar divergence: the mean divergence of a sample; ``ratio``: the weight of the divergence as a multiple of that of
        an element's error, if the loss has one.
    :ivar excess: how many times as much the divergence counts as in the evidence lower bound, apart from the number of
        elements that an error is averaged over.
    :ivar factors: the numbers by which the divergence is multiplied, the outermost first.
    """

    step: int
    divergence: torch.Tensor
    ratio: float | None
    excess: float
    factors: tuple[float, ...]


class _Measured(NamedTuple):
    """The divergence in the graph of a loss: its values, the error beside it, and the nodes that multiply it."""

    look: _Look
    divergence: NormalDivergence
    compared: tuple[Term, Comparison] | None
    scales: list[Scale]


@dataclass
class _Line:
    """A line that calls backward from a loss with a divergence.

    :ivar first: the first measured step; ``count``: the number of recorded calls that were measured.
    :ivar codes: the number of elements of a sample's code; ``op`` and ``elements``: what compares a sample, and in how
        many elements.
    :ivar scales: the lines that multiply the divergence by numbers, the outermost first.
    """

    first: int
    codes: int
    site: Site | None
    compared: Site | None = None
    op: str = ""
    elements: int = 0
    looks: list[_Look] = field(default_factory=list)
    count: int = 0
    scales: tuple[Site | None, ...] = ()

    def add(self, look: _Look) -> None:
        """Keep a look, and drop older ones if there are too many."""
        self.looks.append(look)
        if len(self.looks) > MAX_LOOKS:
            del self.looks[1 : MAX_LOOKS // 2 : 2]


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
        if looks >= MAX_FIRST_LOOKS and self._calls % LOOK_INTERVAL:
            return
        with private.measuring():
            self._look(running, line)

    def sentinel_call_begins(self, spot: CodeLocation | None, roots: Sequence[object]) -> None:
        """Measure the divergence in an unrecorded call of a known line, from time to time."""
        line = self._lines.get(spot)
        if line is not None and len(roots) == 1:
            self._look_later(line, roots[0])

    def root_sampled(self, root: object) -> None:
        """Measure the divergence in a call of a fast-path step, from time to time, if one line only has a divergence:
        the place of the call is not known.
        """
        if len(self._lines) == 1:
            self._look_later(next(iter(self._lines.values())), root)

    def _look_later(self, line: _Line, root: object) -> None:
        """Measure the divergence in an unrecorded call from `root`, if the last look was enough steps ago."""
        last, step = line.looks[-1].step, self._context.steps.index
        if step - last < max(LOOK_INTERVAL, step * LATER_INTERVAL_SHARE):
            return
        start = getattr(root, "grad_fn", None)
        if start is None:
            return
        with private.measuring():
            measured = self._measured(start)
            if measured is not None and measured.divergence.means[0].numel() == line.codes:
                line.add(measured.look)

    def _look(self, running: ActiveBackward, line: _Line | None) -> None:
        """Measure the mean divergence of a sample, if the loss of the call has one; `line`: the state of its line, if
        known.
        """
        measured = self._measured(running.starts[0])
        if measured is None:
            self._without[running.spot] += 1
            return
        if line is None:
            site, codes = (
                self._node(running, measured.divergence.squares.node).site,
                measured.divergence.means[0].numel(),
            )
            line = self._lines[running.spot] = _Line(measured.look.step, codes, site)
        line.count += 1
        line.add(measured.look)
        if len(line.scales) != len(measured.scales):
            line.scales = tuple(self._node(running, scale.node).site for scale in measured.scales)
        if measured.compared is not None and not line.op:
            term, how = measured.compared
            node = self._node(running, term.node)
            line.op, line.elements = node.op or how.op, how.elements // len(measured.divergence.means)
            line.compared = node.site

    def _measured(self, root: Any) -> _Measured | None:
        """Return what the loss that node `root` made says of its divergence; ``None`` if it has none that can be
        read.
        """
        terms = terms_of(root)
        found = normal_divergence(terms)
        if found is None or private.is_unsafe_to_read(found.means) or found.means.numel() > MAX_ELEMENTS:
            return None
        mean, variance = found.means, found.variances
        each = (mean.square() + variance - 1 - variance.log()).flatten(1).sum(1) / 2
        compared = _comparison(terms, found)
        ratio = found.weight / compared[1].weight if compared is not None else None
        scales = scales_of(root, found.squares)
        look = _Look(
            self._context.steps.index,
            each.mean(),
            ratio,
            _excess(found, compared[1] if compared is not None else None),
            tuple(scale.factor for scale in scales),
        )
        return _Measured(look, found, compared, scales)

    def _node(self, running: ActiveBackward, node: object) -> Node:
        """Return the record of a node of the graph."""
        return running.live.layout(self._names).nodes[running.graph.nodes.index(node)]

    def records(self) -> Iterator[CollapsedPosterior]:
        """Yield a record of each line whose last measured divergences are all almost zero."""
        for spot, line in self._lines.items():
            steps = [look.step for look in line.looks]
            if len(steps) < thresholds.POSTERIOR_LAST_LOOKS or steps[-1] - line.first < thresholds.POSTERIOR_MIN_STEPS:
                continue
            with private.measuring():
                divergences = fetch([look.divergence for look in line.looks])
            if all(
                value < thresholds.POSTERIOR_MAX_DIVERGENCE for value in divergences[-thresholds.POSTERIOR_LAST_LOOKS :]
            ):
                yield CollapsedPosterior(
                    steps[-thresholds.POSTERIOR_LAST_LOOKS],
                    steps[-1],
                    divergences[-1],
                    line.codes,
                    line.op,
                    line.elements,
                    line.looks[-1].ratio,
                    line.site,
                    line.compared,
                    self._names.frames.site(spot),
                    self._grown(line, divergences),
                )

    def _grown(self, line: _Line, divergences: Sequence[float]) -> GrownFactor | None:
        """Return the factor that grew until the codes of a line were lost; ``None`` if no factor is the reason.

        :param divergences: the measured divergences of its looks, of which the last are almost zero.
        """
        looks = line.looks
        lost = len(looks)
        while lost and divergences[lost - 1] < thresholds.POSTERIOR_MAX_DIVERGENCE:
            lost -= 1
        begin = lost
        while begin and divergences[begin - 1] >= thresholds.POSTERIOR_MAX_DIVERGENCE:
            begin -= 1
        if begin == lost or lost == len(looks) or looks[lost].excess < thresholds.KL_FACTOR_MIN_EXCESS:
            return None
        at = next((k for k in range(begin, lost) if looks[k].excess >= 1), lost - 1)
        before, after = looks[at], looks[-1]
        around = divergences[max(at - 1, begin) : min(at + 2, lost)]
        if min(around) < thresholds.POSTERIOR_MIN_CARRIED or len(before.factors) != len(after.factors):
            return None
        growths = [abs(new / old) if old else 0.0 for old, new in zip(before.factors, after.factors, strict=True)]
        k = max(range(len(growths)), key=growths.__getitem__, default=-1)
        if k < 0 or growths[k] < thresholds.KL_FACTOR_MIN_GROWTH or len(line.scales) != len(growths):
            return None
        site = line.scales[k]
        same_line = [n for n, other in enumerate(line.scales) if n == k or (site is not None and other == site)]
        late = before.step + 0.75 * (after.step - before.step)
        middle = next(look for look in looks[at:] if look.step >= late and len(look.factors) == len(growths))
        values = [abs(math.prod(look.factors[n] for n in same_line)) for look in (before, middle, after)]
        return GrownFactor(
            before.step,
            divergences[at],
            values[0],
            values[2],
            values[2] > thresholds.KL_FACTOR_MIN_LATE_GROWTH * values[1],
            site,
            factor_computed(site, self._names.frames.users_files()) if site is not None else None,
        )


def _comparison(terms: list[Term], divergence: NormalDivergence) -> tuple[Term, Comparison] | None:
    """Return the term that compares the reconstruction, the one with the largest weight in all; ``None`` if none."""
    others = [(one, comparison_of(one)) for one in terms if one.node not in divergence.nodes]
    compared = [(term, how) for term, how in others if how is not None]
    return max(compared, key=lambda one: one[1].weight * one[1].elements, default=None)


def _excess(divergence: NormalDivergence, compared: Comparison | None) -> float:
    """Return how many times as much the divergence counts as in the evidence lower bound.

    The number of elements of a sample is left out if the error is a mean over them: then the form of the loss is the
    reason for it, and no factor. Without an error, the divergence is taken for a mean over the batch.
    """
    batch = len(divergence.means)
    if compared is None:
        return divergence.weight * batch
    is_mean = abs(compared.weight * compared.elements - 1) < 1e-3
    return divergence.weight / compared.weight / (compared.elements / batch if is_mean else 1)
