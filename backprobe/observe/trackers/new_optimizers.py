"""Detects optimizers that are made anew again and again over the same parameters, and so lose their state."""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from dataclasses import dataclass, field

import torch

from ... import thresholds
from ...records import NewOptimizers, Site
from ...source.calls import calls_of_method
from ...source.frames import CodeLocation
from ...torch_internals import private
from ...torch_internals.async_scalars import fetch
from ...torch_internals.measure import is_float, spread
from ...torch_internals.optimizers import parameters_of
from ..schedule.budget import StepRoom
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Most sequences of optimizers, and number of known optimizers above which those that are gone are dropped.
MAX_SEQUENCES, MAX_KNOWN = 50, 1000
#: Most parameters that are compared, and most of their elements.
MAX_COMPARED_PARAMETERS, MAX_COMPARED_ELEMENTS = 8, 64
#: Number of steps after the last new optimizer of a suspect sequence in which no step takes the fast path.
OBSERVED_STEPS = 2 * thresholds.NEW_OPTIMIZER_MAX_STEPS
#: Maximum number of optimizers, and of steps of each, that are inspected closely to find the line that makes them.
MAX_SEARCHED, MAX_STEPS_OF_SEARCH = 3, 3


@dataclass
class _Sequence:
    """Optimizers of one class over the same parameters, one after the other.

    :ivar ends: references to the first and the last parameter; ``count``: the number of parameters.
    :ivar latest: a reference to the last optimizer; ``steps`` of it, and ``begun``: the step in which it began;
        ``has_passed``: some of them took the fast path.
    :ivar made: the number of optimizers; ``is_least``: more may have taken the fast path. ``fewest, most``: numbers of
        steps of one, if all of them were observed.
    :ivar kept: the weights after the last step, if they are compared; ``carried``: for each new optimizer whether it
        found them unchanged, or a tensor that tells so.
    :ivar stateful: the number of optimizers that were observed to have a state for each parameter; ``given``: of those
        that had one before their first step.
    :ivar until: the step up to which no step takes the fast path.
    """

    name: str
    ends: tuple[weakref.ref[torch.Tensor], weakref.ref[torch.Tensor]]
    count: int
    latest: weakref.ref[torch.optim.Optimizer]
    steps: int = 0
    begun: int = 0
    has_passed: bool = False
    made: int = 0
    is_least: bool = False
    fewest: int = sys.maxsize
    most: int = 0
    kept: list[torch.Tensor] | None = None
    carried: list[bool | torch.Tensor] = field(default_factory=list)
    stateful: int = 0
    given: int = 0
    spots: Counter[CodeLocation] = field(default_factory=Counter)
    stepped: CodeLocation | None = None
    until: int = 0

    @property
    def is_long(self) -> bool:
        """Return whether the last optimizer did more than a few steps: it does not belong to the others."""
        return self.steps > thresholds.NEW_OPTIMIZER_MAX_STEPS

    @property
    def without_long(self) -> int:
        """The number of optimizers made, without the last one if it did many steps."""
        return self.made - self.is_long

    def count_steps(self) -> None:
        """Count the steps of the last optimizer, if all of them were observed: later ones may take the fast path."""
        if not self.is_long and not self.has_passed and len(self.carried) < thresholds.NEW_OPTIMIZER_COMPARED:
            self.fewest, self.most = min(self.fewest, self.steps), max(self.most, self.steps)


class NewOptimizerTracker(Tracker):
    """Tracker of optimizers whose parameters were those of an earlier one of the same class.

    The first optimizer of a sequence costs nothing. Later ones are compared with the one before: whether they begin
    without state, and find the weights as it left them.
    """

    def __init__(self, context: TrackerContext) -> None:
        """Start without optimizers, and limit the fast path while a sequence is observed."""
        self._context = context
        self._by_optimizer: dict[int, _Sequence] = {}
        self._sequences: dict[tuple[str, int, int], _Sequence] = {}
        self._finished_sequences: list[_Sequence] = []
        context.fast_path_limits.append(self._steps_until_observed)

    def _steps_until_observed(self, step: int, room: StepRoom) -> int:
        """Return how many steps from `step` on may take the fast path: none while a suspect sequence is observed."""
        is_observed = any(
            one.until > step and len(one.carried) < thresholds.NEW_OPTIMIZER_COMPARED
            for one in self._sequences.values()
        )
        return 0 if is_observed else sys.maxsize

    def optimizer_begins(self, optimizer: object) -> None:
        """Note an optimizer that is about to step for the first time."""
        known = self._by_optimizer.get(id(optimizer))
        if known is None or known.latest() is not optimizer:
            self._note_first_step(optimizer, False)

    def _note_first_step(self, optimizer: torch.optim.Optimizer, has_passed: bool) -> None:
        """Note that an optimizer steps for the first time. `has_passed`: it did so in a fast-path step."""
        parameters = parameters_of(optimizer)
        if not parameters:
            return
        sequence = self._sequence_of(optimizer, parameters)
        step, previous = self._context.steps.index, sequence.steps
        if sequence.made:
            sequence.count_steps()
        sequence.latest, sequence.steps, sequence.begun = weakref.ref(optimizer), 0, step
        sequence.made, sequence.has_passed = sequence.made + 1, has_passed
        if len(self._by_optimizer) >= MAX_KNOWN:
            self._by_optimizer = {by: one for by, one in self._by_optimizer.items() if one.latest() is not None}
        self._by_optimizer[id(optimizer)] = sequence
        seen = self._context.steps.optimizers.get(id(optimizer))
        if seen is not None and seen.spot is not None:
            sequence.spots[seen.spot] += 1
        if sequence.made == 1:
            return
        sequence.until = step + OBSERVED_STEPS
        if not sequence.spots and sequence.made <= MAX_SEARCHED and previous <= MAX_STEPS_OF_SEARCH:
            self._context.inspect_until(step + previous + 2)  # the line that makes the next one is recorded then
        kept, sequence.kept = sequence.kept, None
        if not has_passed and len(sequence.carried) < thresholds.NEW_OPTIMIZER_COMPARED:
            with private.measuring():
                sequence.given += any(_has_state(optimizer, p) for p in _choose_parameters(parameters))
                if kept is not None:
                    sequence.carried.append(_are_equal(kept, _samples(parameters)))

    def _sequence_of(self, optimizer: object, parameters: list[torch.Tensor]) -> _Sequence:
        """Return the sequence of a new optimizer: one that is not kept if it would be one too many."""
        ends = private.tensor_ref(parameters[0]), private.tensor_ref(parameters[-1])
        name = type(optimizer).__name__
        key = name, id(ends[0]), len(parameters)
        found = self._sequences.get(key)
        if found is not None and found.ends[0] is ends[0] and found.ends[1] is ends[1]:
            if found.steps <= thresholds.NEW_OPTIMIZER_MAX_STEPS:
                return found
            self._finish_sequence(found)  # its last optimizer did a training of its own
        found = _Sequence(name, ends, len(parameters), weakref.ref(optimizer))
        if len(self._sequences) >= MAX_SEQUENCES:
            self._sequences = {key: one for key, one in self._sequences.items() if one.ends[0]() is not None}
        if len(self._sequences) < MAX_SEQUENCES:
            self._sequences[key] = found
        return found

    def _finish_sequence(self, sequence: _Sequence) -> None:
        """Keep a sequence that is over, if a record is to be made of it."""
        if sequence.without_long >= thresholds.NEW_OPTIMIZER_MIN_MADE and len(self._finished_sequences) < MAX_SEQUENCES:
            self._finished_sequences.append(sequence)

    def optimizer_ended(self, optimizer: object) -> None:
        """Count a step, and copy samples of the weights, if the next optimizer of the sequence is to be compared with
        them.
        """
        sequence = self._by_optimizer.get(id(optimizer))
        if sequence is None or sequence.latest() is not optimizer:
            return
        sequence.steps += 1
        sequence.kept = None
        if sequence.made == 1 or sequence.is_long or len(sequence.carried) >= thresholds.NEW_OPTIMIZER_COMPARED:
            return
        parameters = parameters_of(optimizer)
        with private.measuring():
            if sequence.steps == 1:
                sequence.stateful += any(_has_state(optimizer, p) for p in _choose_parameters(parameters))
                sequence.stepped = sequence.stepped or self._context.frames.spot(sys._getframe())
            sequence.kept = _samples(parameters)

    def fast_path_ended(self, steps: int, seconds: float, between: bool) -> None:
        """Note for all sequences that some of their optimizers and steps may not have been observed."""
        for sequence in self._sequences.values():
            sequence.is_least = sequence.is_least or sequence.made > 1
            sequence.has_passed = True  # its last optimizer may have taken a part of these steps

    def fast_path_optimizer_stepped(self, optimizer: object, seq: int) -> None:
        """Note that an optimizer stepped in the fast path: for the first time, or more often than was observed."""
        sequence = self._by_optimizer.get(id(optimizer))
        if sequence is None or sequence.latest() is not optimizer:
            self._note_first_step(optimizer, True)
        else:
            sequence.steps = max(sequence.steps + 1, self._context.steps.index - sequence.begun)
            sequence.kept, sequence.has_passed = None, True

    def records(self) -> tuple[NewOptimizers, ...]:
        """Return a record of each sequence of optimizers that were made without state over weights that went on."""
        found = []
        for one in (*self._finished_sequences, *self._sequences.values()):
            if (
                one.without_long < thresholds.NEW_OPTIMIZER_MIN_MADE
                or one.given
                or one.stateful < thresholds.NEW_OPTIMIZER_COMPARED
            ):
                continue
            with private.measuring():
                away = iter(fetch([known.float() for known in one.carried if isinstance(known, torch.Tensor)]))
                carried = [next(away) if isinstance(known, torch.Tensor) else known for known in one.carried]
            if len(carried) < thresholds.NEW_OPTIMIZER_COMPARED or not all(carried):
                continue
            found.append(self._record(one))
        return tuple(found)

    def _record(self, one: _Sequence) -> NewOptimizers:
        """Return the record of a sequence, with the line that makes the optimizers, observed or inferred."""
        one.count_steps()
        site = self._context.frames.site
        made = site(one.spots.most_common(1)[0][0]) if one.spots else None
        inferred = self._constructing_line(one.name) if made is None else None
        counts = one.without_long, one.is_least, one.fewest, one.most, one.count
        return NewOptimizers(one.name, *counts, made or inferred, inferred is not None, site(one.stepped))

    def _constructing_line(self, name: str) -> Site | None:
        """Return the only line of the script that makes optimizers of a class and was not observed to make another."""
        frames = self._context.frames
        others = {frames.site(seen.spot) for seen in self._context.steps.optimizers.values()}
        lines = {line for line, *_ in calls_of_method(frames, name)} - others
        return lines.pop() if len(lines) == 1 else None


def _has_state(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> bool:
    """Return whether an optimizer keeps a tensor like the parameter, as momentum is."""
    state = optimizer.state.get(parameter) if parameter in optimizer.state else None
    if not isinstance(state, dict):
        return False
    tensors = (value for value in state.values() if isinstance(value, torch.Tensor))
    return any(value.shape == parameter.shape for value in tensors if value.dim() or not parameter.dim())


def _choose_parameters(parameters: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return some parameters, at even distances."""
    chosen: list[torch.Tensor] = spread(parameters, MAX_COMPARED_PARAMETERS)
    return chosen


def _samples(parameters: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return copies of some elements of some parameters, at even distances."""
    able = [p for p in _choose_parameters(parameters) if private.is_readable(p) and is_float(p) and p.numel()]
    flat = [p.detach().view(-1) for p in able if p.is_contiguous()]
    return [spread(one, MAX_COMPARED_ELEMENTS).clone() for one in flat]


def _are_equal(before: list[torch.Tensor], now: list[torch.Tensor]) -> bool | torch.Tensor:
    """Return whether samples are equal; on an accelerator, return a tensor with the answer, which is not waited for."""
    if not before or len(before) != len(now) or any(a.device != b.device for a, b in zip(before, now, strict=True)):
        return False
    if all(one.is_cpu for one in before):
        return all(torch.equal(a, b) for a, b in zip(before, now, strict=True))
    if len({one.device for one in before}) > 1 or any(a.shape != b.shape for a, b in zip(before, now, strict=True)):
        return False
    return torch.stack([(a == b).all() for a, b in zip(before, now, strict=True)]).all()
