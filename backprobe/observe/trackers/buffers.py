"""Detects buffers that became NaN or Inf, and running statistics that move although their layers are frozen.

Note [Looks at buffers]: a batch whose loss the script skips meets no backward call, but it has changed the running
statistics of every normalisation layer. So buffers are read when a step is over: after the steps of
``is_observed_step`` and some others, and when the script ends. The largest absolute values of all buffers are read
together. After the other recorded steps, and some that are not, a few elements of two buffers show whether all have to
be read: a NaN spreads to the statistics of the last layer. Buffers on an accelerator are read many looks later, without
waiting, or when the script ends: Note [Nothing waits].
"""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import nn

from ... import thresholds
from ...records import BadBuffers, BufferWrite, FrozenStatistics, LedgerBuffer, Site, Step
from ...source.assignments import assigned_in, freezes, writes_to
from ...source.calls import calls_of_method
from ...source.control_flow import nonfinite_checks
from ...source.dataflow import is_singular, singular_before
from ...source.frames import CodeLocation
from ...source.roots import ModuleCallRef, RootModule
from ...source.sites import is_before
from ...torch_internals import private
from ...torch_internals.async_scalars import Later, capturing, fetch
from ...torch_internals.measure import spread
from ...torch_internals.references import IdentityMap
from ..ledger.buffer_history import BatchCount, BufferHistory
from ..ledger.changed_by import change_by
from ..schedule.budget import StepRoom
from ..schedule.observed_steps import (
    FIRST_OBSERVED_STEPS,
    MIN_ROWS_APART,
    OBSERVATION_INTERVAL,
    OBSERVED_STEPS_IN_A_ROW,
    ends_observed_row,
    is_observed_step,
    rows_apart,
)
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Maximum number of steps after a change of the graph that are followed by a look.
MAX_STEPS_AFTER_CHANGE = 10
#: Maximum number of changes of a run that are followed by looks.
MAX_CHANGES = 4
#: Maximum number of layers that are checked after every step whether they were frozen.
MAX_SAMPLED_LAYERS = 4
#: The most elements of a buffer that is read (a larger one is a table or a mask), and the most buffers.
MAX_ELEMENTS, MAX_BUFFERS = 65536, 2000
#: Maximum number of elements of a buffer that are read after a step.
MAX_SAMPLED_ELEMENTS = 32
#: Interval, in steps, between looks after steps that are not recorded.
UNRECORDED_INTERVAL = 8
#: Maximum number of lines of one role in a record.
MAX_LINES = 3
#: A call that switches to train mode, not back to an earlier mode.
_TRAIN_CALL = re.compile(r"\.train\((True|mode=True)?\)")
#: The functions by which these layers write to their buffers in training mode.
NORM_WRITES = ("add_", "batch_norm", "instance_norm")
#: The layers with running statistics.
NORMS = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.SyncBatchNorm,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
)


@dataclass
class _FirstCall:
    """The first call of a module: its number among those of all modules, and the line."""

    order: int = sys.maxsize
    spot: CodeLocation | None = None


@dataclass
class _Buffer:
    """A buffer that is read, by its name in its module.

    :ivar path: of the module in its outermost module.
    :ivar calls: the first calls of the module and of its outermost module: the modules may be gone when the run ends.
    :ivar is_statistics: it is a running statistic of a normalisation layer.
    :ivar last_finite_step, first_bad_step: the last step at whose end it was finite, and the first later step at whose
        end it was not; -1 for none. ``bad_value``: its value at that time.
    :ivar count: of the batches of its module, if that is a normalisation layer; ``history``: its changes.
    """

    module: weakref.ref[nn.Module]
    root: RootModule
    path: str
    class_name: str
    calls: tuple[_FirstCall, _FirstCall]
    name: str
    is_statistics: bool
    count: BatchCount | None = None
    last_finite_step: int = -1
    first_bad_step: int = -1
    bad_value: str = ""
    history: BufferHistory = field(default_factory=BufferHistory)

    def tensor(self) -> Any:
        """Return the tensor that the module has under this name now; ``None`` if the module or the buffer is gone."""
        module = self.module()
        # Not of the dictionary of buffers: that of a ScriptModule has no ``get``.
        return dict(module._buffers.items()).get(self.name) if module is not None else None

    def note(self, step: int, value: float) -> None:
        """Note that the largest absolute value was `value` after `step`."""
        if value - value == 0.0:
            self.last_finite_step, self.first_bad_step = step, -1
        elif self.last_finite_step >= 0 and self.first_bad_step < 0 and (value != value or self.is_statistics):
            self.first_bad_step, self.bad_value = step, "NaN" if value != value else "Inf"


@dataclass
class _Layer:
    """The running statistics of a normalisation layer.

    :ivar versions: version counters of its parameters; ``trained``: they changed while the layer was not frozen.
    :ivar frozen_since: the first step after which it was frozen; -1: it is not. ``before``: the statistics then.
    :ivar last_look, batch_count: the step of the last look, and the version counter of the number of batches then.
    :ivar compared_pairs, moves: looks at successive steps, and how many of them found that the statistics had changed.
    :ivar moved_share: the share of channels that have moved by more than a standard deviation. ``learned``: the
        statistics were of data when the layer was frozen.
    """

    module: weakref.ref[nn.Module]
    root: RootModule
    path: str
    class_name: str
    calls: tuple[_FirstCall, _FirstCall]
    versions: tuple[int, ...] = ()
    trained: bool = False
    frozen_since: int = -1
    before: tuple[torch.Tensor, torch.Tensor] | None = None
    last_look: int = -1
    batch_count: int = -1
    compared_pairs: int = 0
    moves: int = 0
    moved_share: Any = None
    learned: torch.Tensor | bool = True

    @property
    def is_moving(self) -> bool:
        """Whether the statistics changed in nearly all compared pairs of steps while the layer was frozen."""
        return (
            self.moves >= thresholds.FROZEN_STATISTICS_MIN_MOVES
            and self.moves >= thresholds.FROZEN_STATISTICS_MIN_MOVING_SHARE * self.compared_pairs
        )


class BufferTracker(Tracker):
    """Tracker that reads the buffers of all models: Note [Looks at buffers]."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without buffers, and limit the fast path: it must end where the buffers are to be read again."""
        self._context, self._modules, self._frames = context, context.modules, context.frames
        self._buffers: list[_Buffer] = []
        self._layers: list[_Layer] = []
        #: The modules in ``_buffers`` and ``_layers``.
        self._known_modules: IdentityMap[bool] = IdentityMap()
        #: The first calls of modules with buffers and of outermost modules, and the number of those that were seen.
        self._first_calls: IdentityMap[_FirstCall] = IdentityMap()
        self._call_count = 0
        #: The numbers of batches of normalisation layers; and the buffers by their tensors.
        self._batch_counts: list[tuple[weakref.ref[nn.Module], BatchCount]] = []
        self._buffer_by_tensor: IdentityMap[_Buffer] = IdentityMap(private.tensor_ref)
        self._later = Later()
        #: The step that ended last, and the number of outermost modules at the last search for modules.
        self._last_step = self._root_count = 0
        #: Whether a call of a module with buffers was seen in the running step.
        self._was_called = False
        #: The number of frozen layers among the first ones, after the step that ended last.
        self._frozen_count = 0
        #: The step before which every step is followed by a look, because the graph changed; how often this may happen.
        self._look_until, self._changes_left = 0, MAX_CHANGES
        context.fast_path_limits.append(self._steps_until_look)

    def novelty_found(self, step: int) -> None:
        """Look after the next steps: a part of the model may have been frozen."""
        self._look_after_next_steps(step)

    def _look_after_next_steps(self, step: int) -> None:
        """Have the buffers read after each of the next steps, at most ``MAX_CHANGES`` times a run."""
        if self._changes_left and step >= self._look_until:
            self._changes_left -= 1
            self._look_until = step + MAX_STEPS_AFTER_CHANGE

    def module_returned(self, module: nn.Module, where: ModuleCallRef, output: object) -> None:
        """Note the line of the first call of each outermost module and each module with buffers."""
        if module._buffers or not where.path:
            self._was_called = True
            first = self._first_call(module)
            if first.order == sys.maxsize:
                first.order, first.spot = self._call_count, self._frames.spot(sys._getframe())
                self._call_count += 1

    def _first_call(self, module: nn.Module) -> _FirstCall:
        """Return the order and line of a module's first call: an entry made now if there is none, and filled in at the
        call.
        """
        found = self._first_calls.get(module)
        if found is None:
            found = self._first_calls[module] = _FirstCall()
        return found

    def step_ended(self, step: Step) -> None:
        """Read all buffers after the step if it is due, if layers were just frozen, or if a few elements are not
        finite.
        """
        self._last_step = step.index
        frozen = self._frozen_count
        if self._layers:
            self._frozen_count = self._count_frozen()
            if self._frozen_count > frozen:
                self._look_after_next_steps(step.index)
        doubled = step.index & (step.index - 1) == 0
        if doubled or step.index < self._look_until or is_observed_step(step.index) or self._is_suspicious():
            self._check_buffers(step.index)
        self._was_called = False

    def _is_suspicious(self) -> bool:
        """Return whether a few elements of a running variance or of another buffer, which were finite before, are NaN
        or Inf.
        """
        due = self._was_called or self._last_step % UNRECORDED_INTERVAL == 0
        if not due or not self._buffers or capturing():
            return False
        last = next((one for one in reversed(self._buffers) if one.is_statistics and one.name == "running_var"), None)
        other = next((one for one in reversed(self._buffers) if not one.is_statistics), None)
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            watched = [
                one for one in (last, other) if one is not None and one.first_bad_step < 0 and one.last_finite_step >= 0
            ]
            bad = [one for one in watched if _has_bad_sample(one)]
        for one in watched if not bad else ():
            one.last_finite_step = self._last_step
        return bool(bad)

    def ended(self) -> None:
        """Read the buffers for the last time, and wait for values that are still on an accelerator."""
        self._check_buffers(max(self._last_step, self._context.steps.index - 1))
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            self._later.flush()

    def _count_frozen(self) -> int:
        """Return how many of the first layers are frozen."""
        modules = [module for layer in self._layers[:MAX_SAMPLED_LAYERS] if (module := layer.module()) is not None]
        with private.disable_function_modes():
            return sum(not any(p is not None and p.requires_grad for p in one._parameters.values()) for one in modules)

    def _steps_until_look(self, step: int, room: StepRoom) -> int:
        """Return how many steps from `step` on may take the fast path: until the buffers are read again.

        If steps are long, the buffers are read in all steps of an observed row, otherwise in its first.
        """
        if not room.long_steps and FIRST_OBSERVED_STEPS <= step <= OBSERVATION_INTERVAL and step >= self._look_until:
            return (
                OBSERVATION_INTERVAL // 2 if step <= OBSERVATION_INTERVAL // 2 else OBSERVATION_INTERVAL
            ) - step  # steps 32 and 64
        apart = (rows_apart(room) if room.long_steps else MIN_ROWS_APART) * OBSERVATION_INTERVAL
        kept = OBSERVED_STEPS_IN_A_ROW if room.long_steps else 1
        first = max(FIRST_OBSERVED_STEPS, self._look_until) if room.long_steps else self._look_until
        return 0 if step < first or step % apart < kept else apart - step % apart

    def _check_buffers(self, step: int) -> None:
        """Read all buffers and check all frozen layers after `step`; now and then search for new modules first."""
        if not self._modules.roots or capturing():
            return
        if (
            step & (step - 1) == 0
            or step % OBSERVATION_INTERVAL == 0
            or step == self._look_until - 1
            or len(self._modules.roots) != self._root_count
        ):
            self._root_count = len(self._modules.roots)
            with private.disable_function_modes():
                self._find_modules()
        if not self._buffers:
            return
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            self._read_buffers(step)
            for layer in self._layers:
                self._check_layer(layer, step)

    def _find_modules(self) -> None:
        """Start to read the buffers of modules that were not known yet, in all outermost modules."""
        for root in self._modules.roots:
            model = root.ref()
            for module in model.modules() if model is not None else ():
                if module not in self._known_modules and module._buffers and len(self._buffers) < MAX_BUFFERS:
                    assert model is not None
                    self._add(root, model, module)

    def _add(self, root: RootModule, model: nn.Module, module: nn.Module) -> None:
        """Start to read the buffers of `module`, and to check its running statistics if it is a normalisation layer.

        :param root: the outermost module `model`, in which the module has its path.
        """
        self._known_modules[module] = True
        path = root.path_of(module)
        if path is None:
            root.scan()
            path = root.path_of(module) or ""
        ref, kind = weakref.ref(module), type(module).__name__
        is_norm = isinstance(module, NORMS)
        count = BatchCount() if is_norm else None
        if count is not None:
            self._batch_counts.append((ref, count))
        calls = self._first_call(module), self._first_call(model)
        for name, buffer in module._buffers.items():
            self._buffers.append(_Buffer(ref, root, path, kind, calls, name, is_norm, count))
            if buffer is not None:
                self._buffer_by_tensor[buffer] = self._buffers[-1]
        if is_norm and module.track_running_stats and module._parameters:
            self._layers.append(_Layer(ref, root, path, kind, calls))

    # What changes

    def wrote(self, func: object, written: list[torch.Tensor], seq: int, frame: FrameType) -> None:
        """Note a write of `func` to a buffer of a model in a recorded step: by a normalisation in training, or by
        another line.
        """
        name = getattr(func, "__name__", "")
        for tensor in written if self._buffers else ():
            one = self._buffer_by_tensor.get(tensor)
            if one is None:
                continue
            if one.is_statistics and name in NORM_WRITES:
                one.history.ran_in_training = True
            elif (change := change_by(self._frames, frame, name)) is not None:
                one.history.add_write(change)

    def _update_histories(self, step: int, values: dict[int, float]) -> None:
        """Compare all buffers with their last comparison, and count the changes in their histories.

        :param values: largest absolute values after `step` of those that were read, by position in ``_buffers``.
        """
        for ref, count in self._batch_counts:
            module: Any = ref()
            count.compare(module.num_batches_tracked if module is not None else None)
        for i, one in enumerate(self._buffers):
            tensor = one.tensor()
            if tensor is not None and private.is_plain(tensor) and not tensor.is_meta:
                forwards = one.count is not None and one.count.only_forwards
                one.history.compare(step, tensor, values.get(i), forwards)
                if one.history.changes and tensor not in self._buffer_by_tensor:
                    self._buffer_by_tensor[tensor] = one

    def _history_records(self) -> Iterator[LedgerBuffer]:
        """Yield records of how buffers changed; buffers of one module with equal histories share one."""
        found: dict[tuple[int, LedgerBuffer], list[str]] = {}
        for one in self._buffers:
            known = one.history
            if not known.comparisons:
                continue
            site = self._frames.site
            writes = tuple(BufferWrite(call, site(spot), times) for (spot, call), times in known.writes.items())
            called = self._call_site(one) if known.forward_changes else None
            numbers = known.comparisons, known.changes, known.first_change, known.last_change, known.forward_changes
            what = one.bad_value if one.first_bad_step >= 0 else ""
            record = LedgerBuffer(
                (), one.class_name, *numbers, called, writes, known.unexplained_changes, what, one.first_bad_step
            )
            name = self._name(one.root, f"{one.path}.{one.name}".lstrip("."))
            found.setdefault((id(one.calls[0]), record), []).append(name)
        for (_, record), names in found.items():
            yield replace(record, names=tuple(names))

    # NaN and Inf

    def _read_buffers(self, step: int) -> None:
        """Read the largest absolute value of every buffer after `step`, all buffers of a device and dtype at once.

        Values on an accelerator are noted when they arrive. Then update the histories of changes.
        """
        values: dict[int, float] = {}
        places = {id(one): i for i, one in enumerate(self._buffers)}
        groups: dict[object, list[tuple[_Buffer, torch.Tensor]]] = {}
        for one in self._buffers:
            tensor = one.tensor()
            if tensor is not None and _is_readable(tensor):
                groups.setdefault((tensor.device, tensor.dtype), []).append((one, tensor))
        for group in groups.values():
            buffers = [one for one, _ in group]
            largest = torch.stack(torch._foreach_norm([tensor for _, tensor in group], float("inf")))
            if largest.is_cpu:
                read = largest.tolist()
                _note_values(buffers, step, read)
                values.update(zip((places[id(one)] for one in buffers), read, strict=True))
            else:
                self._later.add_all(largest, partial(_note_values, buffers, step))
        self._update_histories(step, values)

    # Frozen layers

    def _check_layer(self, layer: _Layer, step: int) -> None:
        """Check after `step` whether a layer is frozen, and if so, whether its running statistics still change.

        Training the layer, or an update of its parameters from outside, starts the count again.
        """
        module: Any = layer.module()
        if module is None or module.running_mean is None or module.running_var is None:
            return
        parameters = [p for p in module._parameters.values() if p is not None]
        versions = tuple(p._version for p in parameters)
        changed = bool(layer.versions) and versions != layer.versions
        frozen = bool(parameters) and not any(p.requires_grad for p in parameters)
        layer.versions = versions
        if not frozen or (changed and layer.frozen_since >= 0):  # something else moves it, as an average of weights
            layer.trained = layer.trained or (changed and not frozen)
            layer.frozen_since, layer.before, layer.moved_share = -1, None, None
            layer.compared_pairs = layer.moves = 0
            return
        layer.trained = layer.trained or (changed and layer.last_look >= 0)
        batches = module.num_batches_tracked
        count = batches._version if batches is not None else -1
        if layer.frozen_since < 0:
            if _is_readable(module.running_mean) and _is_readable(module.running_var):
                layer.frozen_since = step
                layer.before = module.running_mean.clone(), module.running_var.clone()
                layer.learned = has_learned(module)
        else:
            if step == layer.last_look + 1:
                layer.compared_pairs += 1
                layer.moves += count > layer.batch_count
            if layer.is_moving and (ends_observed_row(step) or layer.moved_share is None):
                layer.moved_share = _moved_share(layer, module)
        layer.last_look, layer.batch_count = step, count

    # Records

    def records(self) -> tuple[BadBuffers | FrozenStatistics | LedgerBuffer, ...]:
        """Return records of buffers that are not finite, of frozen layers that move, and of the changes of all
        buffers.
        """
        return (*self._bad_buffer_records(), *self._frozen_statistics_records(), *self._history_records())

    def _bad_buffer_records(self) -> Iterator[BadBuffers]:
        """Yield one record of all buffers that became NaN or Inf, about the first of them, if there are any."""
        bad = [one for one in self._buffers if one.first_bad_step >= 0]
        if not bad:
            return
        bad.sort(key=lambda one: (one.first_bad_step, one.calls[0].order))
        first = bad[0]
        written: tuple[Site, ...] = ()
        if not first.is_statistics:
            lines = writes_to(self._frames, f"{first.path}.{first.name}")
            assigned = assigned_in(self._frames, first.name) if not lines else None
            written = tuple(lines[:MAX_LINES]) if assigned is None else (assigned,)
        called = self._call_site(first)
        singular = singular_before(called, self._frames) if called is not None else None
        yield BadBuffers(
            tuple(self._name(one.root, f"{one.path}.{one.name}".lstrip(".")) for one in bad),
            self._name(first.root, first.path),
            first.class_name,
            first.bad_value,
            max(one.last_finite_step for one in bad if one.first_bad_step == first.first_bad_step),
            first.first_bad_step,
            first.is_statistics,
            called,
            written,
            singular if singular is not None and is_singular(singular) else None,
            nonfinite_checks(self._frames)[:MAX_LINES],
        )

    def _call_site(self, one: _Buffer | _Layer) -> Site | None:
        """Return the line that calls the module; if that was not seen, the line that calls the outermost module."""
        return next((self._frames.site(call.spot) for call in one.calls if call.spot is not None), None)

    def _name(self, root: RootModule, path: str) -> str:
        """Return the name of the module or buffer at `path` in its outermost module, as the user knows it."""
        return self._modules.full_name(root, path)

    def _frozen_statistics_records(self) -> Iterator[FrozenStatistics]:
        """Yield one record of all frozen layers whose running statistics move, if there are any."""
        moving = [
            one for one in self._layers if one.frozen_since >= 0 and one.is_moving and isinstance(one.before, tuple)
        ]
        if not moving:
            return
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            shift = max(fetch([one.moved_share for one in moving if one.moved_share is not None]), default=0.0)
        first = moving[0]
        frozen = tuple(freezes(self._frames))
        yield FrozenStatistics(
            tuple(self._name(one.root, one.path) for one in moving),
            first.class_name,
            min(one.frozen_since for one in moving),
            max(one.last_look for one in moving),
            shift,
            any(one.trained for one in moving),
            self._call_site(first),
            frozen[:MAX_LINES],
            self._train_call(frozen),
        )

    def _train_call(self, frozen: tuple[Site, ...]) -> Site | None:
        """Return the call of ``train()`` that likeliest put a frozen layer in train mode.

        This is the first one after a line that freezes, in the same function; otherwise the first one.
        """
        calls = [one.site for one in calls_of_method(self._frames, "train") if _TRAIN_CALL.search(one.site.text)]
        after = [call for site in frozen for call in calls if is_before(site, call)]
        return next(iter(after or calls), None)


def _is_readable(tensor: Any) -> bool:
    """Return whether a buffer has values of floating point that can be read."""
    return private.is_readable(tensor) and tensor.is_floating_point() and 0 < tensor.numel() <= MAX_ELEMENTS


def _has_bad_sample(one: _Buffer) -> bool:
    """Return whether some elements of a buffer are NaN, or Inf in running statistics."""
    tensor = one.tensor()
    if tensor is None or not _is_readable(tensor) or not tensor.is_cpu or not tensor.is_contiguous():
        return False
    value = float(spread(tensor.view(-1), MAX_SAMPLED_ELEMENTS).sum())
    return value != value or (one.is_statistics and value - value != 0.0)


def _note_values(buffers: list[_Buffer], step: int, largest: list[float]) -> None:
    """Note the largest absolute value of each buffer after `step`."""
    for one, value in zip(buffers, largest, strict=True):
        one.note(step, value)


def _moved_share(layer: _Layer, module: Any) -> torch.Tensor | None:
    """Return the share of channels whose statistics have moved far since the layer was frozen.

    It is zero if they had hardly left their initial values when the layer was frozen: those say nothing about data.
    """
    if layer.before is None:
        return None
    return share_of_far_channels((module.running_mean, module.running_var), layer.before) * layer.learned


def share_of_far_channels(
    one: tuple[torch.Tensor, torch.Tensor], other: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    """Return the share of channels whose (mean, variance) are far apart.

    That is a mean by more than a standard deviation of `other`, or a variance by a factor of four.
    """
    (mean, var), (other_mean, other_var) = one, other
    far = (mean - other_mean).square() > other_var
    wide = (var > 4 * other_var) | (4 * var < other_var)
    return (far | wide).float().mean()


def has_learned(module: Any) -> torch.Tensor | bool:
    """Return whether running statistics are of data, rather than little more than the initial zeros and ones.

    The initial variance fades by a factor in each batch; checkpoints may lack the number of batches.
    """
    batches = module.num_batches_tracked
    if batches is None:
        return module.running_mean.any()
    kept = 1 - module.momentum if module.momentum is not None else 1.0
    return (batches >= thresholds.STATISTICS_MIN_BATCHES) | (module.running_var.min() < 0.99 * kept**batches)
