"""Detects low-rank updates that are added to a frozen weight again and again, and are not taken out before training.

Note [Merged updates]: a layer with a frozen weight and two trained factors computes with the weight plus the product of
the factors. For an evaluation or a checkpoint, the product may be added to the weight itself, and must be subtracted
again. Before each step of an optimizer, a few elements of some frozen weights are read from memory. If they have
changed since the step before, the change is compared with the product of each pair of trained matrices of the same
layer that has the weight's shape. Copies that follow another model, codebooks, masks and weights that are loaded change
otherwise. Methods that merge on purpose set a factor to zero at the same time: then the product is zero.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType

import torch

from ... import thresholds
from ...records import MergedUpdates
from ...source.assignments import writes_to
from ...source.frames import CodeLocation
from ...torch_internals import private
from ...torch_internals.async_scalars import capturing
from ...torch_internals.measure import spread
from ...torch_internals.memory_samples import MemorySample, has_memory
from ...torch_internals.optimizers import ids_held_by
from ..schedule.budget import StepRoom
from ..schedule.observed_steps import OBSERVATION_INTERVAL
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Most frozen weights that are sampled: one read takes a microsecond in each step. Most modules that are searched, and
#: the most parameters of a module that counts as a layer.
MAX_WEIGHTS, MAX_MODULES, MAX_LAYER_PARAMETERS = 3, 10_000, 16
#: Most pairs of factors of a weight, and most elements of their product: it is computed after each change.
MAX_PAIRS, MAX_ELEMENTS = 8, 1 << 24
#: Most changes of a weight after which it is not compared any more.
MAX_CHANGES = 200
#: Maximum number of steps before the expected next change that are inspected closely, to see its line.
MAX_STEPS_BEFORE_EXPECTED = 2
#: Maximum number of changes that are awaited so.
MAX_LOOKS = 4
#: References to two factors, and whether the weight is their product transposed.
_Pair = tuple[weakref.ref[torch.Tensor], weakref.ref[torch.Tensor], bool]
#: A line, and the line of the user's that calls its function.
_Line = tuple[CodeLocation, CodeLocation | None]


@dataclass
class _Weight:
    """A frozen weight and the trained matrices of its layer whose product has its shape.

    :ivar value: its sample before the last step. ``merges``: changes that added ``pair``'s product, ``others``: all
        other changes; ``first``, ``last``: the steps before which the product was added.
    """

    sample: MemorySample
    pairs: list[_Pair]
    value: bytes | None
    pair: _Pair | None = None
    merges: int = 0
    others: int = 0
    first: int = -1
    last: int = -1
    lines: Counter[_Line] = field(default_factory=Counter)


class MergedUpdatesTracker(Tracker):
    """Tracker of low-rank updates that stay in a frozen weight: Note [Merged updates]."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without weights; hooks are called before each optimizer step, also in the fast path."""
        self._context, self._frames = context, context.frames
        self._weights: dict[int, _Weight] = {}
        #: The numbers of outermost modules and of optimizers at the last search, and its step.
        self._seen, self._searched = (0, 0), -1
        self._step_count = 0
        self._stepped: CodeLocation | None = None
        #: Lines that wrote to the weights since the last step.
        self._writing_lines: set[_Line] = set()
        #: The step before which a weight may change next, the step of the last change, and how many more times writes
        #: are inspected.
        self._expected_step, self._last_change, self._inspections_left = sys.maxsize, 0, MAX_LOOKS
        self._is_inspecting = False
        self._hooks = context.step_hooks(self, self._before_step, self._after_step)
        context.fast_path_limits.append(self._steps_until_expected)

    def observing_begins(self) -> None:
        """Attach the hooks around optimizer steps."""
        self._hooks.attach()

    def observing_pauses(self) -> None:
        """Forget the values: what happens from now on is not observed."""
        for one in self._weights.values():
            one.value = None

    # Weights

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Search for frozen weights with trained factors: not in steps that take the fast path."""
        step = self._context.steps.index
        seen = len(self._context.modules.roots), len(self._context.steps.optimizers)
        due = step != self._searched and (step & (step - 1) == 0 or step % OBSERVATION_INTERVAL == 0)
        if (due or seen != self._seen) and not capturing() and len(self._weights) < MAX_WEIGHTS:
            self._seen, self._searched = seen, step
            with private.measuring():
                self._search(ids_held_by(optimizer))

    def _search(self, held: set[int]) -> None:
        """Follow some frozen weights of layers that have factors among the parameters `held` by the optimizer."""
        found: dict[int, tuple[torch.Tensor, list[_Pair]]] = {}
        for _, model in self._context.modules.models():
            for module in list(model.modules())[:MAX_MODULES]:
                own = list(module.parameters())[: MAX_LAYER_PARAMETERS + 1]
                if len(own) > MAX_LAYER_PARAMETERS:
                    continue
                factors = [p for p in own if p.requires_grad and id(p) in held and p.dim() == 2 and has_memory(p)]
                for weight in own if len(factors) > 1 else ():
                    if weight.requires_grad or id(weight) in found or id(weight) in self._weights:
                        continue
                    pairs = _pairs_of(weight, factors)
                    if pairs:
                        found[id(weight)] = weight, pairs
        for weight, pairs in spread(list(found.values()), MAX_WEIGHTS - len(self._weights)):
            sample = MemorySample(weight)
            self._weights[id(weight)] = _Weight(sample, pairs, sample.read())

    # Steps of optimizers: in fast-path steps, too

    def _before_step(self, optimizer: object) -> None:
        """Compare the sampled weights with those before the last step."""
        changed = False
        for one in self._weights.values():
            now = one.sample.read()
            if now != one.value:
                before, is_over = one.value, one.merges + one.others >= MAX_CHANGES
                # A weight of another size was cast.
                if now is not None and before is not None and len(now) == len(before) and not is_over:
                    with private.measuring():
                        self._note_change(one, before, now)
                    changed = True
                one.value = now
        if changed:
            self._stepped = self._stepped or self._frames.spot(sys._getframe(1))
            step = self._context.steps.index
            self._expected_step = 2 * step - self._last_change if self._inspections_left else sys.maxsize
            self._last_change, self._is_inspecting = step, False

    def _after_step(self, optimizer: object) -> None:
        """Forget the lines that wrote before the step, and inspect writes before the next expected change."""
        self._step_count += 1
        if self._writing_lines:
            self._writing_lines.clear()
        step = self._context.steps.index
        if step >= self._expected_step - MAX_STEPS_BEFORE_EXPECTED:
            if step > self._expected_step:
                self._expected_step, self._is_inspecting = sys.maxsize, False
            elif self._inspections_left and not self._is_inspecting:
                self._inspections_left -= 1
                self._is_inspecting = True
                self._context.inspect_until(self._expected_step + 1)

    def _steps_until_expected(self, step: int, room: StepRoom) -> int:
        """Return how many steps from `step` on may take the fast path: until shortly before the next expected
        change.
        """
        if not self._inspections_left or step > self._expected_step:
            return sys.maxsize
        return max(0, self._expected_step - MAX_STEPS_BEFORE_EXPECTED - step)

    def _note_change(self, one: _Weight, before: bytes, now: bytes) -> None:
        """Note whether a weight changed by the product of two factors, and the lines that may have changed it."""
        weight = one.sample.ref()
        pair = _added_pair(weight, one, before, now) if weight is not None and not weight.requires_grad else None
        if pair is None:
            one.others += 1
            return
        step = self._context.steps.index
        one.pair, one.merges, one.last = pair, one.merges + 1, step
        one.first = step if one.first < 0 else one.first
        one.lines.update(self._writing_lines)

    # Lines that write

    def wrote(self, func: object, written: list[torch.Tensor], seq: int, frame: FrameType) -> None:
        """Note the line of an in-place write to the memory of a followed weight."""
        for tensor in written if self._weights else ():
            if private.is_dense(tensor) and self._is_followed(tensor):
                self._note_line(frame)

    def data_assigned(self, tensor: torch.Tensor, frame: FrameType) -> None:
        """Note the line that assigns ``.data`` of a followed weight."""
        one = self._weights.get(id(tensor))
        if one is not None and one.sample.ref() is tensor:
            self._note_line(frame)

    def _is_followed(self, tensor: torch.Tensor) -> bool:
        """Return whether `tensor` shares the memory of a followed weight."""
        try:
            with private.disable_function_modes(), private.hide_ops():
                address = tensor.untyped_storage().data_ptr()
        except (RuntimeError, NotImplementedError):  # a tensor without memory
            return False
        return any(one.sample.storage == address for one in self._weights.values())

    def _note_line(self, frame: FrameType) -> None:
        """Note the user's line at `frame`, and the line that called its function."""
        inner = self._frames.first(frame)
        spot = self._frames.spot(inner)
        if inner is not None and spot is not None:
            self._writing_lines.add((spot, self._frames.spot(inner.f_back)))

    # Records

    def records(self) -> Iterator[MergedUpdates]:
        """Yield a record for each weight to which the same product was added again and again, and hardly anything
        else.
        """
        leaves, site = self._context.names.leaves, self._frames.site
        for one in self._weights.values():
            if (
                one.merges < thresholds.MERGED_UPDATE_MIN_MERGES
                or one.others > thresholds.MERGED_UPDATE_MAX_OTHER_SHARE * one.merges
                or one.pair is None
            ):
                continue
            name, *factors = leaves.names_of((one.sample.ref, *one.pair[:2])) or ("",)
            if not name or len(factors) != len(one.pair[:2]):
                continue
            exact = len(one.lines) == 1
            (spot, caller), _ = one.lines.most_common(1)[0] if one.lines else ((None, None), 0)
            written = tuple(at for at in (site(spot),) if at is not None) or tuple(writes_to(self._frames, name))
            called = site(caller) if exact and caller != self._stepped else None
            numbers = one.merges, one.first, one.last, self._step_count
            yield MergedUpdates(name, tuple(factors), *numbers, written, exact, called, site(self._stepped))


def _pairs_of(weight: torch.Tensor, factors: list[torch.Tensor]) -> list[_Pair]:
    """Return the pairs of `factors` whose product has the shape of a frozen `weight`, or that of its transpose."""
    if weight.dim() != 2 or not weight.is_floating_point() or not has_memory(weight) or weight.numel() > MAX_ELEMENTS:
        return []
    shape = tuple(weight.shape)
    found: list[_Pair] = []
    for left in factors:
        for right in factors:
            product = left.shape[0], right.shape[1]
            if left is not right and left.shape[1] == right.shape[0] and product in (shape, shape[::-1]):
                found.append((private.tensor_ref(left), private.tensor_ref(right), product != shape))
    return found[:MAX_PAIRS]


def _added_pair(weight: torch.Tensor, one: _Weight, before: bytes, now: bytes) -> _Pair | None:
    """Return the factors of which a positive multiple of the product was added to `weight`; ``None`` if none was."""
    old, new = (torch.frombuffer(bytearray(value), dtype=weight.dtype).double() for value in (before, now))
    change = new - old
    for pair in one.pairs:
        left, right = pair[0](), pair[1]()
        if left is None or right is None:
            continue
        product = left.detach() @ right.detach()
        product = (product.t() if pair[2] else product).to(weight.dtype).contiguous()
        values = one.sample.of(product)
        if values is None:
            continue
        added = torch.frombuffer(bytearray(values), dtype=weight.dtype).double()
        norms = float(added.norm() * change.norm())
        if norms > 0 and math.isfinite(norms) and float(added @ change) >= thresholds.MERGED_UPDATE_MIN_COSINE * norms:
            return pair
    return None
