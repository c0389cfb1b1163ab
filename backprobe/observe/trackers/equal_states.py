"""Finds bootstrapped targets that are computed from the same values as the prediction: no state follows another.

Note [Equal states]: in temporal difference learning, the target of a state's value is a reward plus the value of the
next state. If a simulator returns one array that it overwrites, and a replay memory keeps references to it, the state
and the next state of each stored transition are equal. A pair of calls is reported if all of this holds:

- The two calls multiply inputs with the same parameters, or with parameters of equal shapes, as those of a target
  network. Their inputs are floating-point tensors without a graph that come from different tensors, are in different
  memory, and are equal: a sum with a weight for each position tells, because an input may be freed after its call.
- To the result of one call, or to what follows from it, other data are added: a number for each row. The sum has no
  graph, and is compared with what follows from the result of the other call, which has one. So a teacher's output is
  not meant, as no data are added to it; nor are two views of one batch.
- What the data are added to is not zero everywhere: in a bandit, each episode ends with its first action.
- This holds in each closely inspected step that compares such results, in at least two, and the values differ between
  steps: states that never change say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import NamedTuple

import torch

from ... import thresholds
from ...ops import canonical, canonical_names
from ...records import EqualStates, Step
from ...source.frames import CodeLocation
from ...source.overwritten import appended_transitions, returned_and_overwritten
from ...source.roots import ModuleCallRef
from ...torch_internals import private
from ...torch_internals.async_scalars import fetch
from ...torch_internals.structure import tensors_in
from ..forward.followed_tensors import (
    ADDITIONS,
    CASTS,
    DIFFERENCES,
    SCALINGS,
    SHAPES,
    TRANSPOSES,
    FollowedTensors,
)
from ..forward.oplog import op_name
from ..forward.torch_call_recorder import Op
from ..tracker import Tracker
from ..tracker_context import TrackerContext

_Tensor = torch.Tensor
#: Operations whose result has the values of its input, or values that follow from them alone.
_SAME_SOURCE = SHAPES | TRANSPOSES | CASTS | SCALINGS | ADDITIONS | DIFFERENCES | canonical_names("clone detach")
#: Maximum number of calls that are kept in a step, of elements of an input that are compared, and of pairs of lines.
MAX_CALLS, MAX_ELEMENTS, MAX_PAIRS = 32, 1 << 22, 50
#: Maximum number of steps in which one pair of calls is compared.
MAX_STEPS = 64
#: Maximum number of data tensors that are kept from one step to the next.
MAX_SOURCES = 1000
#: Methods of modules: the line that calls the module is further out.
_FORWARDS = ("forward", "__call__")


class _Source(NamedTuple):
    """Data that calls get: its number in the step, and the line that made it, if that is known."""

    number: int
    made: CodeLocation | None


class _Place(NamedTuple):
    """The place of a call: the source of its input, the line that calls it, and the call of the module."""

    source: _Source
    spot: CodeLocation | None
    where: ModuleCallRef | None


class _Input(NamedTuple):
    """The facts that are kept of an input, which may be freed as soon as the call is over.

    :ivar address: of its memory; ``total``: a weighted sum of its elements, which tells whether two inputs are equal.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    address: int
    total: torch.Tensor


class _Call(NamedTuple):
    """The first operation of a call that uses parameters.

    :ivar given: its input; ``shape``: that of the parameter; ``place``: where the module is called.
    """

    given: _Input
    shape: tuple[int, ...]
    place: _Place


class _Results(NamedTuple):
    """The calls that a tensor follows from, by their positions; and those whose results other data were added to."""

    calls: frozenset[int]
    bootstrapped: frozenset[int] = frozenset()


@dataclass
class _Pair:
    """Two lines that call a module, and a line that compares their results.

    :ivar measured: three numbers for each step, which may be on an accelerator: whether the inputs are equal, whether
        what rewards were added to is not zero everywhere, and a weighted sum of the inputs, which tells whether they
        differ between steps.
    """

    prediction: _Place
    target: _Place
    rows: int
    first: int
    last: int = -1
    measured: list[torch.Tensor] = field(default_factory=list)
    is_ruled_out: bool = False


class EqualStatesTracker(Tracker):
    """Tracker of predictions and bootstrapped targets that are computed from equal values: Note [Equal states]."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without pairs."""
        self._context, self._frames = context, context.frames
        self._pairs: dict[tuple[CodeLocation | None, CodeLocation | None, CodeLocation | None], _Pair] = {}
        # Of the running step.
        self._sources: FollowedTensors[_Source] = FollowedTensors()
        self._results: FollowedTensors[_Results] = FollowedTensors()
        self._calls: dict[int, _Call] = {}
        #: By call: whether what rewards were added to is not zero everywhere.
        self._valued: dict[int, torch.Tensor] = {}
        self._next_source = self._next_call = 0

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Forget the tensors of the last step, but not the data that was made after its optimizer stepped."""
        if inspecting:
            self._sources.keep_living(MAX_SOURCES)
        self._forget()

    def step_ended(self, step: Step) -> None:
        """Forget the tensors of the step: the next one may not be recorded."""
        self._forget()

    def observing_pauses(self) -> None:
        """Forget all tensors."""
        self._sources.clear()
        self._forget()

    def _forget(self) -> None:
        """Forget all that belongs to the running step only."""
        self._results.clear()
        self._calls.clear()
        self._valued.clear()

    def op_inspected(self, op: Op) -> None:
        """Note data, calls with data, and what follows from their results; compare a prediction with its target."""
        if op.optimizing or not isinstance(op.out, (_Tensor, tuple)) or private.in_transform():
            return
        tensors = op.tensors()
        known = self._results.of(tensors)
        if known:
            self._follow(op, tensors, known)
            return
        parameter = next((one for one in tensors if isinstance(one, torch.nn.Parameter)), None)
        if parameter is not None:
            self._note_call(op, tensors[0], parameter)
        elif isinstance(op.out, _Tensor) and not op.out.requires_grad and op.out.is_floating_point():
            self._note_data(op, tensors)

    def _note_data(self, op: Op, tensors: list[torch.Tensor]) -> None:
        """Note the source of data: that of the only tensor that they follow from, or the line that makes them."""
        if len(tensors) == 1 and canonical(op_name(op.func)) in _SAME_SOURCE:
            self._sources.put(op.out, self._source_of(tensors[0]))
            return
        self._next_source += 1
        self._sources.put(op.out, _Source(self._next_source, self._frames.spot_of_op(op.frame)))

    def _source_of(self, tensor: torch.Tensor) -> _Source:
        """Return the source of a tensor; one that is not known gets a new one."""
        known = self._sources.get(tensor)
        if known is None:
            self._next_source += 1
            known = _Source(self._next_source, None)
            self._sources.put(tensor, known)
        return known

    def _note_call(self, op: Op, given: torch.Tensor, parameter: torch.nn.Parameter) -> None:
        """Note a call with data that has several rows, and that its result follows from it."""
        if given is parameter or given.requires_grad or not given.is_floating_point() or given.dim() < 2:
            return
        if not private.is_dense(given) or len(given) < 2 or given.numel() > MAX_ELEMENTS:
            return
        if private.is_unsafe_to_read(given):
            return
        self._next_call += 1
        stack = self._context.modules.stack
        self._calls[self._next_call] = _Call(
            _input_of(given),
            tuple(parameter.shape),
            _Place(self._source_of(given), self._calling_line(op.frame), stack[0] if stack else None),
        )
        self._calls.pop(self._next_call - MAX_CALLS, None)
        self._put(op.out, _Results(frozenset((self._next_call,))))

    def _calling_line(self, frame: FrameType) -> CodeLocation | None:
        """Return the line of the script that calls a module, outside of forwards."""
        at = self._frames.first(frame)
        while at is not None and at.f_code.co_name in _FORWARDS:
            outer = self._frames.first(at.f_back)
            if outer is None:
                break
            at = outer
        return self._frames.spot(at)

    def _put(self, out: object, results: _Results) -> None:
        """Note what the tensors in `out` follow from."""
        for tensor in tensors_in(out):
            self._results.put(tensor, results)

    def _follow(self, op: Op, tensors: list[torch.Tensor], known: list[_Results]) -> None:
        """Note which calls a result follows from, and whether data were added; compare a prediction with a target."""
        calls = frozenset().union(*(one.calls for one in known))
        bootstrapped = frozenset().union(*(one.bootstrapped for one in known))
        name = canonical(op_name(op.func))
        if name in ADDITIONS or name in DIFFERENCES:
            added = [one for one in tensors if self._results.get(one) is None]
            given = [call.given.shape for number in calls if (call := self._calls.get(number)) is not None]
            if any(_is_reward(one, given) for one in added) and not bootstrapped:
                value = next(one for one in tensors if self._results.get(one) is not None)
                if not private.is_unsafe_to_read(value):
                    bootstrapped = calls
                    with private.measuring():
                        self._valued.update(dict.fromkeys(calls, value.detach().any()))
        self._put(op.out, _Results(calls, bootstrapped))
        if bootstrapped and len(tensors) > 1:
            targets = [one for one in tensors if not one.requires_grad]
            predictions = [one for one in tensors if one.requires_grad]
            of_targets = {call for one in self._results.of(targets) for call in one.bootstrapped}
            of_predictions = {call for one in self._results.of(predictions) for call in one.calls}
            if of_targets and of_predictions:
                self._compare(op, of_predictions - of_targets, of_targets)

    def _compare(self, op: Op, predictions: set[int], targets: set[int]) -> None:
        """Compare the inputs of the calls that a prediction and a target follow from, and note whether they are equal.

        All calls of the target count: one call may choose the action, and another may value it.
        """
        calls = [self._calls.get(call) for call in (*sorted(predictions), *sorted(targets))]
        known = [call for call in calls if call is not None]
        if not predictions or len(known) < len(calls):
            return
        first, last = known[0], known[-1]
        pair_key = self._frames.spot_of_op(op.frame), first.place.spot, last.place.spot
        pair, step = self._pairs.get(pair_key), self._context.steps.index
        if pair is not None and (pair.is_ruled_out or pair.last == step or len(pair.measured) >= 3 * MAX_STEPS):
            return
        if pair is None:
            if len(self._pairs) >= MAX_PAIRS:
                return
            pair = self._pairs[pair_key] = _Pair(first.place, last.place, first.given.shape[0], step)
        others = known[len(predictions) :]
        pair.is_ruled_out = not all(_are_comparable(first, other) for other in others)
        pair.prediction, pair.target, pair.last = first.place, last.place, step
        if not pair.is_ruled_out:
            with private.measuring():
                equal = torch.stack([first.given.total == other.given.total for other in others]).all()
                valued = torch.stack([self._valued[call] for call in targets]).any()
                pair.measured += [equal.double(), valued.double(), first.given.total]

    def records(self) -> Iterator[EqualStates]:
        """Yield a record of each pair of calls whose inputs were equal in all steps, and differed between steps."""
        site, files = self._frames.site, self._frames.users_files()
        for (compared, _, _), pair in self._pairs.items():
            with private.measuring():
                numbers = iter(fetch(pair.measured))
            steps = [(equal, total) for equal, valued, total in zip(numbers, numbers, numbers, strict=True) if valued]
            if (
                pair.is_ruled_out
                or not all(equal for equal, _ in steps)
                or len(set(steps)) < thresholds.EQUAL_STATES_MIN_STEPS
            ):
                continue
            prediction, target = pair.prediction, pair.target
            yield EqualStates(
                self._context.modules.place_of(prediction.where),
                pair.rows,
                len(steps),
                pair.first,
                (site(prediction.source.made), site(target.source.made)),
                (site(prediction.spot), site(target.spot)),
                site(compared),
                tuple(returned_and_overwritten(files)),
                tuple(appended_transitions(files)),
            )


def _is_reward(tensor: torch.Tensor, given: list[tuple[int, ...]]) -> bool:
    """Return whether a tensor may hold rewards: it has no graph, and one number for each row of an input.

    :param given: the shapes of the inputs.
    """
    if tensor.requires_grad or not tensor.is_floating_point():
        return False
    return any(tensor.numel() in (shape[0], math.prod(shape[:-1])) for shape in given)


def _input_of(tensor: torch.Tensor) -> _Input:
    """Return what is kept of an input."""
    with private.measuring():
        kind = tuple(tensor.shape), tensor.dtype, tensor.device
        return _Input(*kind, tensor.data_ptr(), _weighted_sum(tensor))


def _weighted_sum(tensor: torch.Tensor) -> torch.Tensor:
    """Return a sum of the elements of a tensor in which each position has another weight."""
    elements = tensor.detach().double().flatten()
    return elements @ torch.arange(1, len(elements) + 1, dtype=elements.dtype, device=elements.device)


def _are_comparable(one: _Call, other: _Call) -> bool:
    """Return whether the inputs of two calls may be equal: from different sources, in different memory, and of one
    shape, dtype and device.
    """
    if one.place.source.number == other.place.source.number or one.shape != other.shape:
        return False
    return one.given[:3] == other.given[:3] and one.given.address != other.given.address
