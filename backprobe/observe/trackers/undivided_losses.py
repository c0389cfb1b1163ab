"""Finds losses that are means over their own batch, and that nothing divides by the number of accumulated batches.

Note [Undivided losses]: gradients of several backward calls add up in ``.grad``. If each loss is the mean over its own
batch, their sum is as many times too large as there are calls. Such a sum may be meant, and many scripts choose their
learning rate for it. So a loss is reported only if something was to divide it:

- The Trainer of transformers leaves the division to the loss (Note [Libraries that accumulate]).
- An accelerator was given the number of these calls, and its ``backward``, which divides, is not called.
- The script divides other terms of the same loss by it.

What a loss is divided by stands in its graph: all factors between a term and the root are constants of nodes. A loss
is a mean over its own batch if the weights of its elements add up to one, or if those of one element of each sample do.
A loss that is divided by the number of labels in all batches has smaller weights. A step counts only if

- all its calls were examined, are made at one line and have their loss from one line,
- no factor of a mean is one divided by the number of calls, and no mean of elements has that weight,
- the script did not touch the gradients between the calls and the step, and no parameter has a hook, as these can
  divide, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Set
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple

from ... import thresholds
from ...basics.accumulation import divisors_in, is_count_of_batches
from ...records import Site, Step, UndividedLoss
from ...source.calls import lines_giving, names_given_to
from ...source.frames import CodeLocation
from ...torch_internals import private
from ...torch_internals.loss_terms import Path, Share, paths_of, share_of
from ..backward.accumulating_libraries import COUNT_KEYWORDS, accelerate_count, backward_caller
from ..backward.active_backward import ActiveBackward
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Maximum number of calls that are examined: eight steps of 64 calls.
MAX_CALLS = 512
#: Maximum number of lines that are remembered.
MAX_LINES = 16
#: Maximum number of leaves whose hooks are examined.
MAX_LEAVES = 200


class _Part(NamedTuple):
    """A term of a loss.

    :ivar share: how it was averaged; ``None`` if unknown.
    :ivar factors: constants that multiply it, each with the line that does.
    """

    operation: str
    made: Site | None
    share: Share | None
    factors: tuple[tuple[float, Site | None], ...]

    def is_mean(self) -> bool:
        """Return whether the term is a mean over its own batch that nothing divides."""
        if self.share is None:
            return False
        if self.share.is_mean:
            return thresholds.UNDIVIDED_LOSS_MIN_WEIGHT <= self.share.weight <= thresholds.UNDIVIDED_LOSS_MAX_WEIGHT
        return any(math.isclose(one, 1, rel_tol=thresholds.UNDIVIDED_LOSS_SUM_TOLERANCE) for one in self.share.sums)

    def is_divided(self, count: int) -> bool:
        """Return whether the term is a mean that is divided by `count`."""
        if self.share is None or self.share.is_mean:
            return any(_is_close(factor * count) for factor, _ in self.factors)
        return any(_is_close(one * count) for one in self.share.sums)

    def line_of_division(self, count: int, names: Set[str]) -> Site | None:
        """Return the line that divides by `count`, under a name that says what it is; ``None`` if there is none.

        :param names: names that the script gives to a library as the number of accumulated batches.
        """
        lines = (site for factor, site in self.factors if site is not None and _is_close(factor * count))
        counts = (site for site in lines if any(is_count_of_batches(one, names) for one in divisors_in(site.text)))
        return next(counts, None)


class _Call(NamedTuple):
    """A backward call of the running step.

    :ivar items: the number of labels by which a library expects the loss to be divided.
    """

    spot: CodeLocation | None
    library: str
    items: float | None
    parts: tuple[_Part, ...]


class _Verdict(NamedTuple):
    """The undivided part of a loss: see ``UndividedLoss``."""

    by: str
    operation: str
    made: Site | None
    divides: Site | None = None


@dataclass
class _Line:
    """A line of backward calls with an undivided loss.

    :ivar step: the first step with one; ``steps``: how many there were.
    """

    verdict: _Verdict
    count: int
    step: int
    steps: int = 0


class UndividedLossesTracker(Tracker):
    """Tracker of losses that nothing divides by the number of backward calls: Note [Undivided losses]."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without lines."""
        self._context, self._frames = context, context.frames
        self._lines: dict[CodeLocation | None, _Line] = {}
        #: Lines at which a step was divided, or is not known to be undivided.
        self._others: set[CodeLocation | None] = set()
        self._calls_left, self._calls_of_last_step = MAX_CALLS, 1
        #: Names that the script gives to a library as the number of accumulated batches, once they are needed.
        self._names: frozenset[str] | None = None
        # Of the running step: its examined calls, how many there were, and whether something may have divided its
        # gradients.
        self._calls: list[_Call] = []
        self._count = 0
        self._is_touched = False

    def graph_walked(self, running: ActiveBackward, frame: FrameType) -> None:
        """Read the terms of a loss whose gradients are accumulated with those of other calls."""
        if running.inside is not None or running.kind == "autograd.grad":
            return
        self._count += 1
        may_accumulate = self._count > 1 or self._calls_of_last_step > 1
        if not may_accumulate or not self._calls_left or len(running.starts) != 1 or running.starts[0] is None:
            return
        self._calls_left -= 1
        with private.measuring():
            caller = backward_caller(frame)
            parts = tuple(self._part(path, running.scale) for path in paths_of(running.starts[0]) if path.weight)
        self._calls.append(_Call(running.spot, caller.library, caller.items, parts))
        leaves = (leaf for _, leaf in running.graph.leaves[:MAX_LEAVES])
        self._is_touched = self._is_touched or any(map(_has_hooks, leaves))

    def _part(self, path: Path, scale: float) -> _Part:
        """Return the term at the end of a path from the root; `scale`: the factor of a scaler, to be divided out."""
        made_by = self._context.recorder.made_by_node
        factors = tuple((factor, made_by(node)) for node, factor in path.scalings)
        return _Part(path.node.name(), made_by(path.node), share_of(path, scale), factors)

    def grad_read_or_set(self, value: object, put: bool, frame: FrameType) -> None:
        """Note that the script's own code has the gradients: it may divide them."""
        self._is_touched = self._is_touched or self._frames.is_user(frame.f_code)

    def step_ended(self, step: Step) -> None:
        """Examine the calls of a step of which all were recorded."""
        calls, touched, self._calls_of_last_step = self._calls, self._is_touched, step.calls
        self._calls, self._count, self._is_touched = [], 0, False
        if step.calls < 2 or len(calls) != step.calls or touched:
            return
        if self._names is None:
            self._names = frozenset(names_given_to(self._frames, COUNT_KEYWORDS))
        spot, names = calls[0].spot, self._names
        verdicts = {(call.spot, _verdict(call, step.calls, names)) for call in calls}
        verdict = next(iter(verdicts))[1] if len(verdicts) == 1 else None
        known = self._lines.get(spot)
        if verdict is None or (known is not None and known.verdict != verdict):
            self._others.update(call.spot for call in calls[:MAX_LINES])
        elif known is None and len(self._lines) < MAX_LINES:
            self._lines[spot] = _Line(verdict, step.calls, step.index, 1)
        elif known is not None:
            known.steps, known.count = known.steps + 1, max(known.count, step.calls)

    def observing_pauses(self) -> None:
        """Forget the running step."""
        self._calls, self._count, self._is_touched = [], 0, False

    def records(self) -> Iterator[UndividedLoss]:
        """Yield a record of each line of which no step had a loss that is divided."""
        for spot, line in self._lines.items():
            if line.steps >= thresholds.UNDIVIDED_LOSS_MIN_STEPS and spot not in self._others:
                verdict, given = line.verdict, lines_giving(self._frames, COUNT_KEYWORDS)
                backward = self._frames.site(spot)
                if verdict.by == "transformers" and verdict.made in (None, backward):
                    continue  # the loss is a library's own
                yield UndividedLoss(
                    verdict.by,
                    verdict.operation,
                    line.count,
                    line.step,
                    line.steps,
                    verdict.made,
                    backward,
                    verdict.divides,
                    given[0] if len(given) == 1 else None,
                )


def _verdict(call: _Call, count: int, names: Set[str]) -> _Verdict | None:
    """Return what nothing divides by `count` in the loss of a call, although something was to; ``None`` if nothing.

    :param names: names that the script gives to a library as the number of accumulated batches.
    """
    by = call.library
    if not by and accelerate_count() == count:
        by = "accelerate"
    elif by != "transformers":
        by = ""
    if by and not any(part.is_divided(count) for part in call.parts):
        means = [part for part in call.parts if part.is_mean() and not _is_share_of_items(part, call)]
        return _Verdict(by, means[0].operation, means[0].made) if means else None
    lines = [part.line_of_division(count, names) for part in call.parts]
    divides = next((line for line in lines if line is not None), None)
    others = [part for part, line in zip(call.parts, lines, strict=True) if line is None and not part.is_divided(count)]
    return _Verdict("term", others[0].operation, others[0].made, divides) if divides and others else None


def _is_share_of_items(part: _Part, call: _Call) -> bool:
    """Return whether a Trainer's loss may divide the sum in a term by the number of labels in all batches."""
    if call.library != "transformers" or part.share is None or part.share.is_mean:
        return False
    return call.items is None or _is_close(part.share.weight * call.items)


def _is_close(value: float) -> bool:
    """Return whether a factor is one, as exactly as factors are compared."""
    return math.isclose(value, 1, rel_tol=thresholds.UNDIVIDED_LOSS_FACTOR_TOLERANCE)


def _has_hooks(leaf: Any) -> bool:
    """Return whether a hook may change the gradient of a leaf."""
    return bool(leaf._backward_hooks or getattr(leaf, "_post_accumulate_grad_hooks", None))
