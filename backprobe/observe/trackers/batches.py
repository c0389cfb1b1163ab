"""Saves the batches of steps with an alarm or an error: the arguments of the outermost modules.

Note [Held batches]: the arguments of a step are known before it is known whether they will be needed. So references
to them are held for the running step, and for a step whose statistics have not been checked yet. They are copied when
an alarm or an error occurs, and released when the next step begins. The version counters of tensors reveal in-place
writes in between. A tensor with a graph is never held, because it would keep the graph alive.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from pathlib import Path
from threading import get_ident
from types import FrameType
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn

from ...basics.errors import BackprobeError
from ...basics.files import replacing
from ...records import KeptBatch, Unseen
from ...store.batches import Batch, BatchCall, LeftOut, file_of, packed
from ...torch_internals import private
from ...torch_internals.called_with import keywords
from ...torch_internals.module_hooks import ModuleHooks
from ...torch_internals.structure import is_a, parts
from ..backward.pending_call_record import PendingCallRecord
from ..schedule.settings import Settings
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Maximum number of calls per step, values per call, levels of nested containers, and nodes at the end of a graph that
#: are searched for a loss.
MAX_CALLS, MAX_VALUES, MAX_DEPTH, MAX_LOSS_NODES = 16, 1000, 8, 32
#: Maximum number of batches that a run saves for alarms, and for errors.
MAX_ALARM_BATCHES, MAX_ERROR_BATCHES = 16, 3
#: Parts of node names that identify a loss, and names of the saved tensors that are its targets.
_LOSS_NODES, _TARGET_TENSORS = ("Loss", "CrossEntropy", "KlDiv"), ("target", "targets")
_PLAIN_TYPES = (bool, int, float, str)


class _HeldTensor:
    """A tensor, and its version counter when it was passed."""

    __slots__ = ("tensor", "version")

    def __init__(self, tensor: torch.Tensor) -> None:
        """Hold a tensor, and note its version to see later whether it was written to."""
        self.tensor = tensor
        self.version = None if tensor.is_inference() else tensor._version


class _Call:
    """A call of an outermost module."""

    __slots__ = ("args", "kind", "kwargs", "name", "trained")

    def __init__(self, module: nn.Module, name: str, args: Any, kwargs: Any) -> None:
        """Hold the tensors among the arguments of a call of `module`."""
        self.kind, self.name = type(module).__name__, name
        self.trained = next(module.parameters(), None) is not None
        count = [0]
        self.args, self.kwargs = _hold_tensors(args, count), _hold_tensors(kwargs, count)


class _StepArguments:
    """The arguments of one step's calls, and the targets of its losses."""

    def __init__(self) -> None:
        self.calls: deque[_Call] = deque(maxlen=MAX_CALLS)
        self.count = 0
        self.targets: list[_HeldTensor] = []


class Batches(Tracker):
    """Tracker that holds the arguments of the running step, and saves copies if an alarm or an error occurs."""

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        """Return whether batches are saved at all: not with ``--max-batch-mb 0``."""
        return settings.max_batch_mb > 0

    def __init__(self, context: TrackerContext) -> None:
        """Start without arguments; module hooks are registered when observing begins."""
        self._context, self._own = context, context.events.own
        self._max_bytes = context.settings.max_batch_mb << 20
        self._hooks = ModuleHooks(self._enter, self._leave)
        self._pid, self._thread = os.getpid(), get_ident()
        #: Number of module calls that are running, and of module calls since the outermost one began.
        self._depth = self._call_count = 0
        #: The arguments by step.
        self._arguments: dict[int, _StepArguments] = {}
        self._step = -1
        #: Steps whose statistics have not been checked yet.
        self._unchecked_steps: set[int] = set()
        self._saved_batches: dict[int, KeptBatch] = {}
        self._error_count = self._alarms = 0
        #: The last step with an error.
        self._last_bad_step = -2
        #: Steps whose batch should have been saved but was not available; and the error of the last batch that could
        #: not be written.
        self._unavailable_steps: set[int] = set()
        self._write_error: str | None = None

    # Attach and detach

    def observing_begins(self) -> None:
        """Register hooks on all module calls, and remember the thread: only its calls are noted."""
        self._thread = get_ident()
        self._hooks.on()

    def observing_pauses(self) -> None:
        """Remove the hooks, save the running step's batch if the script raised an error in it, and release what is
        held.
        """
        self._hooks.off()
        error = self._context.raised
        steps = self._context.steps
        if os.getpid() == self._pid and isinstance(error, Exception) and not steps.has_stepped:
            self._save_bad_batch(steps.index, f"the script raised {type(error).__name__}")
        self._arguments.clear()
        self._depth, self._step = 0, -1

    # Arguments of a step

    def _enter(self, module: nn.Module, args: object) -> None:
        """Hold the arguments of an outermost module call that begins. A module hook."""
        if private.compiling():
            return
        if get_ident() != self._thread:
            return
        self._depth += 1
        self._call_count += 1
        if self._depth > 1:
            return
        self._call_count = 1
        mark = self._own.begin()
        try:
            with private.disable_function_modes():
                self._note_arguments(module, args, sys._getframe(1))
        except Exception as error:
            self._context.events.faults.add(type(self).__name__, error)
        self._own.since(mark)

    def _leave(self, module: nn.Module, args: object, output: object) -> None:
        """Note that a module call is over, and charge the cost of our hooks after an outermost one. A module hook."""
        if private.compiling():
            return
        if self._depth and get_ident() == self._thread:
            self._depth -= 1
            if not self._depth:  # the cost of torch calling our hooks
                self._own.clocked += self._call_count * self._context.modules.overhead

    def _note_arguments(self, module: nn.Module, args: object, frame: FrameType) -> None:
        """Hold the arguments of an outermost module call; release those of the last step, unless it waits for its
        statistics.

        :param frame: the frame of the module's call, which has the keyword arguments.
        """
        if private.graph_task() != -1:  # a checkpoint's recomputation
            return
        step = self._context.steps.next_forward_step
        if step != self._step:
            if self._step not in self._unchecked_steps:
                self._arguments.pop(self._step, None)
            self._step = step
        if not torch.is_grad_enabled() or private.in_transform():
            return
        step_arguments = self._arguments.setdefault(step, _StepArguments())
        step_arguments.count += 1
        step_arguments.calls.append(_Call(module, self._name_of(module), args, keywords(frame) or {}))

    def _name_of(self, module: nn.Module) -> str:
        """Return the full name of a module, or the label of its outermost module; empty if it is not known."""
        found = self._context.modules.root_and_path(module)
        return (self._context.modules.full_name(*found) or found[0].label) if found is not None else ""

    def sentinel_call_begins(self, spot: object, roots: object) -> None:
        """Hold the targets of the loss of an unrecorded call, if the step is to be measured."""
        if self._context.steps.index >= self._context.next_measured_step:
            self._hold_targets(roots)

    def graph_walked(self, running: Any, frame: FrameType | None) -> None:
        """Hold the targets of the loss of an outermost recorded call."""
        if running.inside is None:
            self._hold_targets(running.roots)

    def _hold_targets(self, roots: Any) -> None:
        """Hold the targets of the loss functions in the part of the graph next to `roots`, to store them with the
        batch.
        """
        step_arguments = self._arguments.get(self._context.steps.index)
        waiting = [root.grad_fn for root in roots if getattr(root, "grad_fn", None) is not None]
        if step_arguments is None or private.in_transform() or private.in_mode():
            return
        visited = set(waiting)
        for node in waiting:  # the list grows during the loop
            if any(one in node.name() for one in _LOSS_NODES):
                self._targets_of(node, step_arguments)
            for child, _ in node.next_functions:
                if child is not None and child not in visited and len(visited) < MAX_LOSS_NODES:
                    visited.add(child)
                    waiting.append(child)

    def _targets_of(self, node: object, step_arguments: _StepArguments) -> None:
        """Hold the targets that a loss's `node` saved, unless a module call got the same memory as an argument."""
        for name, slot in private.saved_slots(node):
            if name not in _TARGET_TENSORS:
                continue
            value, packed_away = private.slot_content(slot) or (None, True)
            if packed_away or not isinstance(value, torch.Tensor) or not private.is_plain(value):
                continue
            if value.requires_grad and not value.is_leaf:
                continue
            passed = [
                one
                for call in step_arguments.calls
                for one in (*_held_tensors_in(call.args), *_held_tensors_in(call.kwargs))
            ]
            if len(step_arguments.targets) < MAX_CALLS and not any(
                _is_same_memory(value, one.tensor) for one in (*passed, *step_arguments.targets)
            ):
                step_arguments.targets.append(_HeldTensor(value))

    # Alarms and errors

    def measurement_begins(self, step: int) -> None:
        """Keep the arguments of `step` until its statistics were checked."""
        self._unchecked_steps.add(step)
        self._depth = 0  # an interrupted forward does not call the leave hook

    def measurement_ended(self, step: int) -> None:
        """Release the arguments of `step`, whose statistics were checked, unless it is still running."""
        self._unchecked_steps.discard(step)
        if step != self._step:
            self._arguments.pop(step, None)

    def alarm(self, alarm: Any) -> None:
        """Save the batch of the step in which an alarm occurred, for at most ``MAX_ALARM_BATCHES`` alarms."""
        if (
            alarm.step not in self._saved_batches
            and self._alarms < MAX_ALARM_BATCHES
            and self._save_batch(alarm.step, alarm.kind)
        ):
            self._alarms += 1

    def call_failed(self, what: str) -> None:
        """Save the batch of a step in which an unrecorded backward call failed, except for an overflow with a
        ``GradScaler``.
        """
        if what.startswith("a gradient") and self._context.steps.losses.current_scale is not None:
            return  # an overflow, which the GradScaler handles
        self._save_bad_batch(self._context.steps.index, what)

    def backward_recorded(self, running: object, recorded: PendingCallRecord) -> None:
        """Save the batch of a step in which a recorded call raised, or its loss or a gradient is not finite."""
        if not recorded.has_trouble:
            return
        if recorded.raised is not None:
            self._save_bad_batch(recorded.step, "backward raised an error")
        elif any(root.bad for root in recorded.roots):
            self._save_bad_batch(recorded.step, "the loss is not finite")
        elif "loss_scale" not in recorded.arguments:
            self._save_bad_batch(recorded.step, "a gradient is not finite")

    def _save_bad_batch(self, step: int, why: str) -> None:
        """Save the batch of `step` because of an error, unless the step before was bad, too, or enough batches are
        saved.
        """
        follows, self._last_bad_step = step <= self._last_bad_step + 1, step  # NaN weights make every later step bad
        if (
            not follows
            and step not in self._saved_batches
            and self._error_count < MAX_ERROR_BATCHES
            and self._save_batch(step, why)
        ):
            self._error_count += 1

    def _save_batch(self, step: int, why: str) -> bool:
        """Copy the batch of `step` and store it; return whether it was stored.

        :param why: the kind of the alarm, or the error in words.
        """
        step_arguments = self._arguments.get(step)
        if step_arguments is None or not step_arguments.calls:
            self._unavailable_steps.add(step)
            return False
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            batch, nbytes = self._copy_batch(step, why, step_arguments)
        folder = self._context.record_to
        if folder is None:
            self._context.batches[step] = batch
        else:
            try:
                write_batch(folder, batch)
            except BackprobeError as error:
                self._write_error = str(error)
                return False
        self._unavailable_steps.discard(step)
        self._saved_batches[step] = KeptBatch(step, why, file_of(step), nbytes, len(batch.calls), batch.notes)
        return True

    def _copy_batch(self, step: int, why: str, step_arguments: _StepArguments) -> tuple[Batch, int]:
        """Return a copy of the batch on the CPU, within the space that is left, and the number of its bytes."""
        copies = _Copies(self._max_bytes)
        calls = tuple(
            BatchCall(
                call.name,
                call.kind,
                call.trained,
                copies.of(call.args, f"argument {{}} of {call.name or call.kind}"),
                copies.of(call.kwargs, f"argument {{}} of {call.name or call.kind}"),
            )
            for call in step_arguments.calls
        )
        targets = tuple(copies.of(one, f"target {i}") for i, one in enumerate(step_arguments.targets))
        self._max_bytes = copies.room
        if step_arguments.count > len(calls):
            copies.notes.append(f"the last {len(calls)} of {step_arguments.count} calls are there")
        return Batch(step, why, calls, targets, tuple(copies.notes)), copies.used

    # Results

    def records(self) -> tuple[KeptBatch, ...]:
        """Return what was saved, a record for each batch."""
        return tuple(self._saved_batches.values())

    def unseen(self) -> list[Unseen]:
        """Return batches that should have been saved and were not available, or could not be written."""
        found = []
        if self._unavailable_steps:
            text = "no call of a module with gradient mode on was seen in these steps"
            found.append(Unseen("batches that were to be kept", len(self._unavailable_steps), text, hides=False))
        if self._write_error is not None:
            found.append(Unseen("batch that was to be kept", 1, self._write_error, hides=False))
        return found


class _Copies:
    """Copier of held values, within `room` bytes. A tensor that occurs twice is copied once."""

    def __init__(self, room: int) -> None:
        """Start without copies; `room` is the number of bytes that they may take."""
        self.room, self.used = room, 0
        self.notes: list[str] = []
        self._known: dict[int, Any] = {}

    def of(self, value: object, note: str, path: str = "") -> Any:
        """Return `value` with copies in place of held tensors, also in containers.

        :param note: what to call a tensor in the notes, with a placeholder for its `path` in the containers.
        """
        if isinstance(value, _HeldTensor):
            key = id(value.tensor)
            if key not in self._known:
                self._known[key] = self._copy(value, note.format(path))
            return self._known[key]
        if isinstance(value, (list, tuple)):
            return type(value)([self.of(one, note, f"{path}[{i}]" if path else str(i)) for i, one in enumerate(value)])
        if isinstance(value, dict):
            return {k: self.of(one, note, f"{path}[{k!r}]" if path else str(k)) for k, one in value.items()}
        return value

    def _copy(self, held: _HeldTensor, what: str) -> Any:
        """Return a copy of a held tensor on the CPU; a ``LeftOut`` with the reason if it cannot be copied or is too
        large.
        """
        here = private.local(held.tensor)
        if here is None:
            return self._note_left_out(what, "its memory was given back")
        if not private.is_plain(here) or here.layout is not torch.strided or here.is_quantized:
            return self._note_left_out(what, f"it is a {type(here).__name__} of another layout than dense")
        if private.is_unsafe_to_read(here) or here.dtype is torch.complex128:
            return self._note_left_out(what, "its values cannot be read, or not be written")
        size = here.numel() * here.element_size()
        if size > self.room:
            return self._note_left_out(what, f"{size >> 20:,} MiB, beyond the space for batches")
        if held.version is not None and held.tensor._version != held.version:
            self.notes.append(f"{what} was changed in place after the call: these are the values after that")
        self.room -= size
        self.used += size
        return here.detach().to("cpu", copy=True).contiguous().resolve_conj().resolve_neg()

    def _note_left_out(self, what: str, why: str) -> LeftOut:
        """Note that the tensor `what` is left out, and return the placeholder for it."""
        self.notes.append(f"{what} is left out: {why}")
        return LeftOut(why)


def write_batch(folder: Path, batch: Batch) -> None:
    """Write `batch` into the folder of a run.

    :raises BackprobeError: it cannot be written.
    """
    tensors, header = packed(batch)
    path = folder / file_of(batch.step)
    try:
        with replacing(path) as part:
            save_file(tensors, part, header)
    except (OSError, SafetensorError, ValueError, RuntimeError, KeyError) as error:
        raise BackprobeError(f"the batch of step {batch.step} cannot be written to {path}: {error}") from None


def _hold_tensors(value: Any, count: list[int], depth: int = MAX_DEPTH) -> Any:
    """Return `value` with its tensors replaced by ``_HeldTensor``, in new containers.

    Dataclasses and mappings become dicts.
    """
    count[0] += 1
    if is_a(value, torch.Tensor):
        made = value.requires_grad and not value.is_leaf
        return LeftOut("it was computed by the step itself") if made else _HeldTensor(value)
    if value is None or type(value) in _PLAIN_TYPES:
        return value
    inside = parts(value) if depth and count[0] < MAX_VALUES else None
    if inside is None:
        return LeftOut(f"a {type(value).__name__}")
    if is_a(value, (tuple, list)):
        made_of = [_hold_tensors(part.value, count, depth - 1) for part in inside]
        return tuple(made_of) if is_a(value, tuple) else made_of
    named = [part for part in inside if type(part.key) in (int, str)]
    return {part.key: _hold_tensors(part.value, count, depth - 1) for part in named}


def _held_tensors_in(value: object) -> list[_HeldTensor]:
    """Return the held tensors in `value`, also in nested containers."""
    if isinstance(value, _HeldTensor):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [found for one in inside for found in _held_tensors_in(one)]


def _is_same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors are the same memory."""
    if not private.is_plain(a) or not private.is_plain(b) or a.device != b.device:
        return False
    return bool(a.data_ptr() == b.data_ptr() and a.shape == b.shape)
