"""Detects weights that are put back between two steps of their optimizer, so that the steps before are lost.

Note [Weights put back]: before each step of an optimizer, a few elements of one of its parameters are compared with
those after its last step, and read from its memory, because writes through ``.data`` do not change its version. A swap
that is taken back before the step is not seen. Whatever replaces weights rarely and goes on with the same optimizer,
its state and its learning rate is described by values: it put back the same values each time, or it moved the weights
back on the way that they had come, as a lagging average does. A step straight back towards the last replacement is
none, as Lookahead and Reptile interpolate, unless it goes nearly all the way; nor is one towards zero (weights that are
shrunk). What replaces weights every few steps is not followed any more.
"""

from __future__ import annotations

import re
import sys
import threading
import weakref
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import median
from types import FrameType

import torch
from torch import nn

from ... import thresholds
from ...records import Site, WeightsPutBack
from ...source.calls import calls_of_method
from ...source.frames import CodeLocation
from ...source.loops import names_around
from ...torch_internals import private, state_dicts
from ...torch_internals.measure import spread
from ...torch_internals.memory_samples import MemorySample, has_memory
from ...torch_internals.optimizers import parameters_of
from ...torch_internals.sharding import has_several_ranks
from ..schedule.budget import StepRoom
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Most optimizers that are followed, and parameters of one that are sampled.
MAX_OPTIMIZERS, MAX_SAMPLED = 16, 3
#: Interval, in steps, between samples of all parameters; the first one is sampled after each step: one sample takes a
#: microsecond.
SAMPLE_INTERVAL = 4
#: Most replacements and earlier states of an optimizer that are remembered.
MAX_REPLACEMENTS, MAX_STATES = 200, 64
#: Maximum number of steps before the expected next replacement that are inspected closely, to see its line.
MAX_STEPS_BEFORE_EXPECTED = 2
#: Maximum number of replacements that are awaited so.
MAX_LOOKS = 3
#: Names of loops and functions that train anew on purpose, for each of many.
TRAINS_ANEW = re.compile(
    r"(^|_)(folds?|tasks?|seeds?|trials?|clients?|episodes?|repeats?|reps?|members?|subjects?|rounds?|candidates?"
    r"|configs?|lrs?|lambdas?|workers?|ensembles?|sweep|search|bootstraps?|resamples?|grid|reptile|maml|meta|adapt\w*"
    r"|prun\w*|rewind\w*|sparsit\w*|finder|benchmark\w*)(_|$|\d)",
    re.IGNORECASE,
)
#: Methods by which the weights of a model are replaced.
REPLACING = ("copy_to", "load_state_dict", "apply_shadow", "copy_")
#: The values of the sampled elements of each parameter.
_Values = tuple[bytes, ...]
#: A line, and the line of the user's that calls its function.
_Line = tuple[CodeLocation, CodeLocation | None]


@dataclass(frozen=True, slots=True)
class _Replacement:
    """Weights that were replaced.

    :ivar step: it happened before this step; ``lost`` steps of the optimizer since the last one.
    :ivar since: the step before which the weights had these values first; ``None`` if that was not seen.
    :ivar values: the values; ``share``: of the movement that it undid, in the parameter where it is the least;
        ``None`` if it did not move back.
    :ivar sets_anew: the optimizer's state or learning rate is another one too, or other optimizers stepped.
    :ivar others: how many steps other optimizers made since the last step.
    """

    step: int
    lost: int
    since: int | None
    values: _Values
    share: float | None
    sets_anew: bool
    others: int


@dataclass
class _FollowedOptimizer:
    """An optimizer.

    :ivar start: the values of its samples after the last replacement, or at first; ``after``: after the last step; for
        those but the first, a few steps before it at most.
    :ivar states: by values, the step before which the weights had them.
    :ivar steps: its steps since the last replacement; ``total_steps``: all its steps; ``steps_of_all_optimizers``: the
        steps of all optimizers at its last step.
    :ivar state, rate: the identity of its state and whether it has one, and the rate, in the last step.
    :ivar is_over: it is not followed any more.
    """

    ref: weakref.ref[torch.optim.Optimizer]
    name: str
    samples: tuple[MemorySample, ...]
    names: tuple[str, ...]
    start: _Values
    after: list[bytes | None]
    states: dict[_Values, int]
    steps: int = 0
    total_steps: int = 0
    steps_of_all_optimizers: int = 0
    state: tuple[int, bool] = 0, False
    rate: object = 0.0
    brief_replacements: int = 0
    is_over: bool = False
    found: list[_Replacement] = field(default_factory=list)
    lines: Counter[_Line] = field(default_factory=Counter)
    exact_lines: int = 0
    spot: CodeLocation | None = None


class PutBackWeightsTracker(Tracker):
    """Tracker of weights that are replaced between two steps of their optimizer (Note [Weights put back])."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without optimizers; register hooks around their steps, and limit the fast path before expected
        replacements.
        """
        self._context, self._frames = context, context.frames
        self._followed: dict[int, _FollowedOptimizer] = {}
        self._past_optimizers: list[_FollowedOptimizer] = []
        self._step_count = 0
        #: Lines that wrote to the weights since the last step, and lines that loaded these values into them.
        self._writing_lines: set[_Line] = set()
        self._loads: list[tuple[_Line, dict[int, bytes]]] = []
        #: The step before which the weights may be replaced next, and how many more times writes are inspected then.
        self._expected_step, self._inspections_left = sys.maxsize, MAX_LOOKS
        self._is_inspecting = False
        self._hooks = context.step_hooks(self, self._before_step, self._after_step)
        self._thread = threading.get_ident()
        context.fast_path_limits.append(self._steps_until_expected)
        context.restorers.append(self.observing_pauses)

    def observing_begins(self) -> None:
        """Attach the hooks around optimizer steps, and listen to state dicts that are taken and loaded."""
        self._thread = threading.get_ident()
        state_dicts.listen(self)
        self._hooks.attach()

    def observing_pauses(self) -> None:
        """Stop listening to state dicts, and forget the weights after the last step: what happens from now on is not
        observed.
        """
        state_dicts.unlisten(self)
        for one in self._all_followed():  # what happens while observing pauses is not known
            one.after = [None] * len(one.samples)

    def _all_followed(self) -> list[_FollowedOptimizer]:
        """Return all optimizers that are or were followed."""
        return [*self._past_optimizers, *self._followed.values()]

    # Steps of optimizers: in fast-path steps, too

    def _before_step(self, optimizer: object) -> None:
        """Compare the first sample of the weights with its values after the last step; note a replacement if they
        differ.

        Called before each step of any optimizer, also in the fast path; a new optimizer is followed from now on.
        """
        one = self._followed.get(id(optimizer))
        if one is None or one.ref() is not optimizer:
            with private.measuring():
                self._follow(optimizer)
        elif not one.is_over and one.samples[0].read() != one.after[0]:
            self._note_replacement(one, optimizer, sys._getframe(1))

    def _after_step(self, optimizer: object) -> None:
        """Read the samples of the weights after an optimizer's step, and forget lines that wrote before it."""
        self._step_count += 1
        one = self._followed.get(id(optimizer))
        if one is None or one.is_over or one.ref() is not optimizer:
            return
        one.after[0] = one.samples[0].read()
        if not one.steps % SAMPLE_INTERVAL:
            one.after[1:] = [sample.read() for sample in one.samples[1:]]
        one.steps += 1
        one.total_steps += 1
        one.steps_of_all_optimizers = self._step_count
        one.state, one.rate = _state_of(optimizer), _rate_of(optimizer)
        if self._writing_lines:
            self._writing_lines.clear()
        if self._loads:
            self._loads.clear()
        if self._context.steps.index >= self._expected_step - MAX_STEPS_BEFORE_EXPECTED:
            self._inspect_writes()

    def _follow(self, optimizer: object) -> None:
        """Follow an optimizer that is about to step for the first time, unless another one trains its weights too."""
        displaced = self._followed.pop(id(optimizer), None)
        if displaced is not None:
            self._past_optimizers.append(displaced)
        if len(self._followed) + len(self._past_optimizers) >= MAX_OPTIMIZERS:
            return
        weights = parameters_of(optimizer)
        trained = [p for p in weights if isinstance(p, torch.Tensor) and p.requires_grad and has_memory(p)]
        matrices = [p for p in trained if p.dim() > 1] or trained
        # The smallest first: few rows of a large embedding move in a step.
        chosen = sorted(spread(matrices, MAX_SAMPLED), key=lambda p: int(p.numel()))
        samples = tuple(map(MemorySample, chosen))
        start = tuple([sample.read() for sample in samples])
        values = tuple(value for value in start if value is not None)
        held = {id(p) for p in weights}
        shared = [
            one
            for one in self._followed.values()
            if one.ref() is not None and any(id(sample.ref()) in held for sample in one.samples)
        ]
        for one in shared:
            one.is_over = True
        leaves = self._context.names.leaves
        names = tuple(leaves.name(leaves.get(p)) for p in chosen)
        self._followed[id(optimizer)] = _FollowedOptimizer(
            *(weakref.ref(optimizer), type(optimizer).__name__, samples, names, values, list(start)),
            states={values: self._context.steps.index},
            is_over=not samples or len(values) < len(samples) or bool(shared),
        )

    def _note_replacement(self, one: _FollowedOptimizer, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        """Note that the weights were replaced, if all samples that training moved have changed since the last step."""
        read = tuple([sample.read() for sample in one.samples])
        now = tuple(value for value in read if value is not None)
        after = tuple(value for value in one.after if value is not None)
        if any(len(n) != len(s) for n, s in zip(now, one.start, strict=False)):  # cast to another dtype
            one.is_over = True
            return
        if len(now) < len(read) or len(after) < len(now):  # other memory, or not observed
            one.start, one.steps = (now, 0) if len(now) == len(read) else (one.start, 0)
            one.is_over = one.is_over or len(now) < len(read)
            return
        moved = [a != s for a, s in zip(after, one.start, strict=True)]
        if any(n == a and m for n, a, m in zip(now, after, moved, strict=True)):
            return  # a part of the weights only
        lost, one.steps = one.steps, 0
        start, one.start = one.start, now
        if lost < thresholds.PUT_BACK_MIN_LOST_STEPS:
            one.brief_replacements += 1
            one.is_over = one.brief_replacements > thresholds.PUT_BACK_MAX_BRIEF_REPLACEMENTS
            return
        if len(one.found) >= MAX_REPLACEMENTS:
            return
        others = self._step_count - one.steps_of_all_optimizers
        anew = _state_of(optimizer) != one.state or not _is_near(_rate_of(optimizer), one.rate)
        formats = [sample.format for sample in one.samples]
        rows = [row for row, m in zip(zip(start, after, now, formats, strict=True), moved, strict=True) if m]
        shares = [_undone_share(*row) for row in rows]
        known = [share for share in shares if share is not None]
        share = min(known) if known and len(known) == len(shares) else None
        if not all(map(_is_finite, after, formats)) or self._is_new_training(frame):
            anew = True
        step = self._context.steps.index
        one.found.append(_Replacement(step, lost, one.states.get(now), now, share, anew, others))
        self._remember_state(one, now, step)
        one.spot = one.spot or self._frames.spot(frame)
        self._note_lines(one, now, frame)
        if self._inspections_left and not one.exact_lines:
            self._expected_step = step + lost

    def _remember_state(self, one: _FollowedOptimizer, values: _Values, step: int) -> None:
        """Remember before which step the weights had these `values` first, for at most ``MAX_STATES`` values."""
        if len(one.states) < MAX_STATES:
            one.states.setdefault(values, step)

    def _is_new_training(self, frame: FrameType | None) -> bool:
        """Return whether the names of the loops and functions around a step say that training begins anew."""
        while frame is not None:
            if self._frames.is_user(frame.f_code):
                site = self._frames.site(self._frames.spot(frame))
                if site is not None and any(map(TRAINS_ANEW.search, names_around(site))):
                    return True
            frame = frame.f_back
        return False

    # Lines that replace weights

    def _note_lines(self, one: _FollowedOptimizer, now: _Values, frame: FrameType | None) -> None:
        """Count the lines that may have made the replacement: a load of just these values, or else all that wrote.

        :param now: the values of the samples after the replacement.
        :param frame: the frame of the step that follows it.
        """
        ids = [id(sample) for sample in one.samples]
        loads = {line for line, given in self._loads if [given.get(i) for i in ids] == list(now)}
        found = loads if len(loads) == 1 else self._writing_lines or loads
        one.exact_lines += len(found) == 1
        running = set()
        while frame is not None:
            running.add(frame.f_code)
            frame = frame.f_back
        # The call of a function that also runs the step says nothing.
        one.lines.update((spot, caller if spot[0] not in running else None) for spot, caller in found)

    def _line_of(self, frame: FrameType | None) -> _Line | None:
        """Return the user's innermost line from `frame` outwards, and the line that calls its function; ``None`` if no
        user code runs.
        """
        inner = self._frames.first(frame)
        spot = self._frames.spot(inner)
        return None if spot is None else (spot, self._frames.spot(inner.f_back))

    def _steps_until_expected(self, step: int, room: StepRoom) -> int:
        """Return how many steps from `step` on may take the fast path: until shortly before the next expected
        replacement.
        """
        if not self._inspections_left or step > self._expected_step:
            return sys.maxsize
        return max(0, self._expected_step - MAX_STEPS_BEFORE_EXPECTED - step)

    def _inspect_writes(self) -> None:
        """Request close inspection of the steps up to the expected replacement, to see the line that writes."""
        step = self._context.steps.index
        if step > self._expected_step:
            self._expected_step, self._is_inspecting = sys.maxsize, False
        elif self._inspections_left and not self._is_inspecting:
            self._inspections_left -= 1
            self._is_inspecting = True
            self._context.inspect_until(self._expected_step + 1)

    def wrote(self, func: object, written: list[torch.Tensor], seq: int, frame: FrameType) -> None:
        """Note the line of an in-place write to sampled weights, while a replacement is expected."""
        if self._is_inspecting:
            for tensor in written:
                if private.is_dense(tensor) and self._is_sampled(tensor):
                    self._note_line(frame)

    def data_assigned(self, tensor: torch.Tensor, frame: FrameType) -> None:
        """Note the line that assigns ``.data`` of a sampled parameter, while a replacement is expected."""
        if self._is_inspecting and any(s.ref() is tensor for one in self._followed.values() for s in one.samples):
            self._note_line(frame)

    def _is_sampled(self, tensor: torch.Tensor) -> bool:
        """Return whether `tensor` shares the memory of a sampled parameter."""
        try:
            with private.disable_function_modes(), private.hide_ops():
                address = tensor.untyped_storage().data_ptr()
        except (RuntimeError, NotImplementedError):  # a tensor without memory
            return False
        return any(sample.storage == address for one in self._followed.values() for sample in one.samples)

    def _note_line(self, frame: FrameType) -> None:
        """Note the user's line at `frame` as one that wrote to the weights since the last step."""
        line = self._line_of(frame)
        if line is not None:
            self._writing_lines.add(line)

    def taken(self, module: nn.Module, state: object, frame: FrameType) -> None:
        """Remember the weights when the state dict of a module is taken: it may be loaded later."""
        if threading.get_ident() != self._thread or private.tracing():
            return
        try:
            with private.disable_function_modes():
                for one in self._followed.values():
                    read = tuple([sample.read() for sample in one.samples]) if not one.is_over else ()
                    values = tuple(value for value in read if value is not None)
                    if values and len(values) == len(read):
                        self._remember_state(one, values, self._context.steps.next_forward_step)
        except Exception as error:
            self._context.events.fault(self, error)

    def described(self, state: object, metadata: object) -> None:
        """Nothing to note."""

    def loads(self, module: nn.Module, state: object, assign: bool, strict: bool, frame: FrameType) -> None:
        """Note the line that loads a state dict into sampled parameters, and the values that it gives them."""
        if threading.get_ident() != self._thread or private.tracing() or not isinstance(state, dict):
            return
        if not self._followed or len(self._loads) > MAX_STATES:
            return
        try:
            line = self._line_of(frame)
            with private.disable_function_modes(), private.hide_ops():
                samples = {id(s.ref()): s for one in self._followed.values() for s in one.samples if not one.is_over}
                given: dict[int, bytes] = {}
                for name, parameter in nn.Module.named_parameters(module, remove_duplicate=False):
                    sample = samples.get(id(parameter))
                    value = sample.of(state.get(name)) if sample is not None else None
                    if sample is not None and value is not None:
                        given[id(sample)] = value
            if given and line is not None:
                self._loads.append((line, given))
        except Exception as error:
            self._context.events.fault(self, error)

    # What is known

    def records(self) -> Iterator[WeightsPutBack]:
        """Yield a record for each optimizer whose weights were put back to equal values, or moved back as by an
        average.
        """
        for one in self._all_followed():
            found = list(one.found)
            if found and one.steps < thresholds.PUT_BACK_MIN_LOST_STEPS:
                found.pop()  # hardly any training follows, as after the best weights
            if (
                len(found) < thresholds.PUT_BACK_MIN_REPLACEMENTS
                or one.brief_replacements > 1
                or any(each.sets_anew for each in found)
            ):
                continue
            if len({each.values for each in found}) == 1 and not any(each.others for each in found):
                yield self._record(one, found, "same", 0.0)
                continue
            least = (
                thresholds.PUT_BACK_MIN_LOST_STEPS
                if len(found) >= thresholds.PUT_BACK_AVERAGE_MANY_REPLACEMENTS
                else thresholds.PUT_BACK_AVERAGE_MIN_LOST_STEPS
            )
            may_be_average = [_may_be_average(each, least) for each in found]
            if not may_be_average[0]:  # the way since the first step may be longer than the average is
                del found[0], may_be_average[0]
            if len(found) >= thresholds.PUT_BACK_MIN_REPLACEMENTS and all(may_be_average) and not has_several_ranks():
                yield self._record(one, found, "average", median(each.share or 0.0 for each in found))

    def _record(self, one: _FollowedOptimizer, found: list[_Replacement], how: str, share: float) -> WeightsPutBack:
        """Return the record of an optimizer's replacements and of the lines that made them.

        :param how: ``same`` (values put back) or ``average`` (moved back); then `share` of the movement was undone.
        """
        site = self._frames.site
        exact = len(one.lines) == 1 and one.exact_lines > 0
        seen = [line for line, _ in one.lines.most_common(3)]
        lines = tuple(at for spot, _ in seen if (at := site(spot)) is not None)
        called = site(seen[0][1]) if exact else None
        since = found[0].since if found[0].since is not None else -1
        steps = tuple(each.step for each in found[:8])
        lost = int(median(each.lost for each in found))
        numbers = found[0].step, found[-1].step, len(found), lost, one.total_steps, since, share
        stepped = site(one.spot)
        where = lines or self._candidates(), exact, called if called != stepped else None, stepped
        return WeightsPutBack(one.name, how, *numbers, one.names, steps, *where)

    def _candidates(self) -> tuple[Site, ...]:
        """Return the calls in the user's code that may replace weights: those of the first method that it calls."""
        for method in REPLACING:
            found = calls_of_method(self._frames, method)
            if found:
                return tuple(call.site for call in found[:3])
        return ()


def _may_be_average(one: _Replacement, least: int) -> bool:
    """Return whether a replacement undid a share of the movement of `least` steps or more as a lagging average does.

    The weights are none that the optimizer had before.
    """
    enough = one.lost >= least and one.others < thresholds.PUT_BACK_MAX_OTHER_STEPS and one.since is None
    return (
        enough
        and one.share is not None
        and thresholds.PUT_BACK_AVERAGE_MIN_SHARE <= one.share <= thresholds.PUT_BACK_AVERAGE_MAX_SHARE
    )


def _undone_share(start: bytes, after: bytes, now: bytes, format: str) -> float | None:
    """Return the share of the movement from `start` to `after` that the way to `now` undoes.

    ``None`` if it leads elsewhere, or straight back, or rather to zero.
    """
    if not format:
        return None
    first, last, new = (array(format, values) for values in (start, after, now))
    way = [b - a for a, b in zip(first, last, strict=True)]
    back = [a - b for a, b in zip(last, new, strict=True)]
    product, to_zero = _dot(way, back), _dot(last, back)
    squares = _dot(way, way), _dot(back, back), _dot(last, last)
    if not all(square > 0 and isfinite(square) for square in squares):
        return None
    cosine = product / (squares[0] * squares[1]) ** 0.5
    share = product / squares[0]
    is_interpolated = cosine >= thresholds.PUT_BACK_COLLINEAR and share < thresholds.PUT_BACK_NEARLY_ALL_SHARE
    if (
        cosine < thresholds.PUT_BACK_AVERAGE_MIN_COSINE
        or is_interpolated
        or to_zero / (squares[2] * squares[1]) ** 0.5 >= cosine
    ):
        return None
    return share


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the dot product of two vectors of the same length."""
    return sum(x * y for x, y in zip(a, b, strict=True))


def _is_finite(values: bytes, format: str) -> bool:
    """Return whether all numbers in `values`, of the ``array`` type code `format`, are finite; true without a
    format.
    """
    return not format or all(map(isfinite, array(format, values)))


def _state_of(optimizer: torch.optim.Optimizer) -> tuple[int, bool]:
    """Return the identity of the optimizer's state, and whether it has any: a new optimizer state begins anew."""
    return id(optimizer.state), bool(optimizer.state)


def _rate_of(optimizer: torch.optim.Optimizer) -> object:
    """Return the learning rate of the optimizer's first parameter group."""
    return optimizer.param_groups[0].get("lr")


def _is_near(rate: object, before: object) -> bool:
    """Return whether two learning rates are about equal; also true if they cannot be compared."""
    if not isinstance(rate, float) or not isinstance(before, float):
        return True
    return abs(rate - before) <= thresholds.PUT_BACK_SAME_RATE_TOLERANCE * max(abs(rate), abs(before))
