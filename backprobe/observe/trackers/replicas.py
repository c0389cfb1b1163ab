"""Records checksums of parameters that other ranks hold too.

The checksums are compared when the records of all ranks are merged.

Note [Steps measured on all ranks]: ranks do not communicate, so all must choose the same steps: the first sixteen,
then four between each power of two and the next. These do not depend on the budget for recorded steps, which differs
between ranks.
"""

from __future__ import annotations

import weakref
from dataclasses import replace
from types import FrameType
from typing import Any, NamedTuple

import torch
import torch.distributed

from ...ops import info, writes_in_place
from ...records import Replica, Replicas, ReplicaState, Site
from ...source.assignments import key_given, scheduler_stepped, writes_to
from ...source.calls import calls_of_method
from ...source.control_flow import loop_of
from ...source.frames import CodeLocation
from ...source.rng_calls import draws_inside
from ...torch_internals import private, replicas
from ...torch_internals.optimizers import parameters_of
from ...torch_internals.references import IdentityMap
from ..backward.active_backward import ActiveBackward
from ..backward.pending_call_record import PendingCallRecord
from ..forward.oplog import op_name
from ..tracker import Tracker
from ..tracker_context import TrackerContext
from .collective_wait import in_use

#: Maximum number of checksums that are kept per run, and of writes that are recorded.
MAX_CHECKSUMS, MAX_WRITES = 300_000, 1000
#: Maximum number of lines that used gradients, per step; and of steps with unobserved writes, per tensor.
MAX_USING_LINES, MAX_UNOBSERVED_STEPS = 6, 16
#: Optimizers that average the weights of all ranks only at intervals.
_INTERVAL_AVERAGING = frozenset({"PostLocalSGDOptimizer"})


def is_measured_step(step: int) -> bool:
    """Return whether checksums are taken in a step: Note [Steps measured on all ranks]."""
    return step < 16 or step % (1 << (step.bit_length() - 3)) == 0


class _RunningStep(NamedTuple):
    """A running step of an optimizer: checksums of its tensors and of their gradients before the step."""

    optimizer: torch.optim.Optimizer | None
    step: int
    before: list[int | None]
    gradients: list[int | None]
    settings: tuple[tuple[tuple[str, float], ...], ...]
    unsynced: tuple[Site, ...]
    touched: tuple[Site, ...]
    given: list[int | None]


class ReplicaWatch(Tracker):
    """Tracker that takes checksums before and after the steps of optimizers, if there are other ranks."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without checksums."""
        self._context, self._names = context, context.names
        self._tensors: dict[str, Replica] = {}
        self._states: list[ReplicaState] = []
        #: By optimizer: its number of tensors, its number, and the names of and references to its tensors and buffers.
        self._optimizer_tensors: IdentityMap[tuple[int, int, list[str], list[Any]]] = IdentityMap()
        self._optimizer_count = 0
        self._running_step: _RunningStep | None = None
        self._step_depth, self._checksum_count = 0, 0
        self._backward_spot: CodeLocation | None = None
        #: The names of the tensors and buffers of optimizers.
        self._name_by_tensor: IdentityMap[str] = IdentityMap(private.tensor_ref)
        self._writes: list[tuple[int, str, str, CodeLocation | None]] = []
        #: By optimizer: version counters of its tensors after its last step. They are cheap, and show writes in steps
        #: in which no mode is active.
        self._versions: IdentityMap[list[int]] = IdentityMap()
        #: By name: the steps before which an optimizer's tensor was written to since the optimizer's previous step.
        self._unobserved_writes: dict[str, list[int]] = {}
        self._rank: tuple[int, int] = (0, 1)
        #: DDP wrappers around models; and their communication hooks by name, with the lines that draw random numbers in
        #: them.
        self._wrappers: list[weakref.ref[torch.nn.Module]] = []
        self._communication_hooks: dict[str, tuple[Site, ...]] = {}
        #: Some ranks make more updates than others.
        self._is_uneven = False
        #: Lines that used gradients since the backward.
        self._gradient_uses: dict[CodeLocation, None] = {}
        #: Checksums of the gradients after the backward, by leaf; and the step of that backward.
        self._gradient_checksums: IdentityMap[int | None] = IdentityMap(private.tensor_ref)
        self._gradient_checksums_step = -1
        #: By parameter: the line that last wrote random numbers to it; and for each dtype that it had, the first line
        #: that assigned its ``.data``, also by name.
        self._random_writes: IdentityMap[CodeLocation | None] = IdentityMap(private.tensor_ref)
        self._data_assignments: IdentityMap[dict[object, CodeLocation | None]] = IdentityMap(private.tensor_ref)
        self._data_assignments_by_name: dict[str, dict[object, CodeLocation | None]] = {}
        #: By name of a replica: the line that last wrote random numbers to it.
        self._random_writes_by_name: dict[str, CodeLocation | None] = {}

    def backward_recorded(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Take checksums of the gradients after an outermost call, in measured steps, if there are other ranks."""
        self._step_depth = 0
        if running.inside is None:
            self._backward_spot = running.spot
            self._gradient_uses.clear()
            looks = (
                not self._is_uneven
                and is_measured_step(self._context.steps.index)
                and self._checksum_count <= MAX_CHECKSUMS
            )
            if looks and in_use() and torch.distributed.get_world_size() > 1:
                self._checksum_gradients([leaf for _, leaf in running.graph.leaves])

    def _checksum_gradients(self, leaves: list[torch.Tensor]) -> None:
        """Take a checksum of the gradient of each of `leaves`, and keep it until the optimizer steps."""
        if self._gradient_checksums_step != self._context.steps.index:
            self._gradient_checksums_step = self._context.steps.index
            self._gradient_checksums.clear()
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            sums = replicas.bits_of([leaf.grad for leaf in leaves])
        for leaf, total in zip(leaves, sums, strict=True):
            self._gradient_checksums[leaf] = total

    def sentinel_call_begins(self, spot: CodeLocation | None, roots: object) -> None:
        """Note the line of an unrecorded backward call, and forget the lines that used earlier gradients."""
        self._step_depth, self._backward_spot = 0, spot
        self._gradient_uses.clear()

    def grad_read_or_set(self, value: object, put: bool, frame: FrameType) -> None:
        """Note the line that reads or sets a gradient between the backward call and the optimizer's step."""
        if (
            (self._name_by_tensor or self._gradient_checksums)
            and not self._step_depth
            and len(self._gradient_uses) < MAX_USING_LINES
        ):
            spot = self._context.frames.spot(frame)
            if spot is not None:
                self._gradient_uses[spot] = None

    def wrote(self, func: object, written: list[torch.Tensor], seq: int, frame: FrameType) -> None:
        """Note in-place writes to tensors of optimizers, and lines that fill parameters with random numbers."""
        name = op_name(func)
        if (
            writes_in_place(name)
            and info(name).is_random
            and not self._step_depth
            and len(self._random_writes) < MAX_WRITES
        ):
            for tensor in written:
                whole = tensor if tensor._base is None else tensor._base
                if isinstance(whole, torch.nn.Parameter):
                    self._random_writes[whole] = self._context.frames.spot(frame)
        if self._name_by_tensor and not self._step_depth and len(self._writes) < MAX_WRITES:
            for tensor in written:
                replica = self._name_by_tensor.get(tensor)
                if replica is not None:
                    self._writes.append((self._context.steps.index, replica, name, self._context.frames.spot(frame)))

    def data_assigned(self, tensor: object, frame: FrameType) -> None:
        """Note the line that assigns ``.data`` of a parameter, the first one for each dtype that it has had."""
        replica = self._name_by_tensor.get(tensor)
        if isinstance(tensor, torch.nn.Parameter) and len(self._data_assignments) < MAX_WRITES:
            dtypes = self._data_assignments.get(tensor)
            if dtypes is None:
                dtypes = self._data_assignments[tensor] = {}
                if replica is not None:
                    self._data_assignments_by_name[replica] = dtypes
            if tensor.dtype not in dtypes:
                dtypes[tensor.dtype] = self._context.frames.spot(frame)
        if replica is not None and not self._step_depth and len(self._writes) < MAX_WRITES:
            spot = self._context.frames.spot(frame)
            self._writes.append((self._context.steps.index, replica, "assignment to .data", spot))

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Take checksums of the optimizer's tensors and gradients before its step, in measured steps with other
        ranks.
        """
        self._step_depth += 1
        step = self._context.steps.index
        if self._step_depth == 1 and (versions := self._versions.pop(optimizer)) is not None:
            self._note_unobserved_writes(optimizer, versions, step)
        if (
            self._step_depth > 1
            or self._is_uneven
            or not is_measured_step(step)
            or type(optimizer).__name__ in _INTERVAL_AVERAGING
            or not in_use()
        ):
            return
        self._rank = torch.distributed.get_rank(), torch.distributed.get_world_size()
        if self._rank[1] < 2 or self._checksum_count > MAX_CHECKSUMS:
            return
        tensors = self._list_tensors(optimizer)[2]
        self._is_uneven = any(replicas.joins(one) for one in self._live_wrappers())
        if self._is_uneven:
            return
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            before = replicas.bits_of(tensors)
            gradients = replicas.bits_of([None if t is None else t.grad for t in tensors])
        settings = tuple(_numeric_settings(group) for group in optimizer.param_groups)
        touched = tuple(site for spot in self._gradient_uses if (site := self._context.frames.site(spot)) is not None)
        given = [None if t is None else self._gradient_checksums.get(t) for t in tensors]
        self._running_step = _RunningStep(
            optimizer, step, before, gradients, settings, self._no_sync_lines(), touched, given
        )

    def _note_unobserved_writes(self, optimizer: torch.optim.Optimizer, versions: list[int], step: int) -> None:
        """Note which tensors of `optimizer` were written to since its last step, by their version counters.

        :param versions: the counters after the last step; -1 if there is none.
        """
        known = self._optimizer_tensors.get(optimizer)
        for name, ref, before in zip(*known[2:], versions, strict=True) if known is not None else ():
            if before >= 0 and replicas.version_of(ref()) not in (before, -1):
                steps = self._unobserved_writes.setdefault(name, [])
                if len(steps) < MAX_UNOBSERVED_STEPS:
                    steps.append(step)

    def optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """Take checksums of the tensors after the optimizer's step, and add the state of all replicas in this step."""
        self._step_depth = max(self._step_depth - 1, 0)
        known = self._optimizer_tensors.get(optimizer)
        if known is not None and not self._step_depth and not self._is_uneven:
            self._versions[optimizer] = [replicas.version_of(ref()) for ref in known[3]]
        self._gradient_uses.clear()
        for group in optimizer.param_groups:  # those of other optimizers are kept
            for p in group["params"]:
                self._gradient_checksums.pop(p)
        now = self._running_step
        if now is None or now.optimizer is not optimizer:
            return
        self._running_step = None
        number, names, tensors = self._list_tensors(optimizer)
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            after = replicas.bits_of(tensors)
        order = {name: at for at, name in enumerate(names)}
        places = [order.get(name) for name in self._tensors]
        before, gradients, bits, given = (
            tuple(None if at is None else row[at] for at in places)
            for row in (now.before, now.gradients, after, now.given)
        )
        backward = self._context.frames.site(self._backward_spot)
        details = backward, now.settings, now.unsynced, now.touched, given
        self._states.append(ReplicaState(now.step, number, before, gradients, bits, *details))
        self._checksum_count += 4 * len(names)

    def _live_wrappers(self) -> list[torch.nn.Module]:
        """Return the DDP wrappers that are alive."""
        return [one for one in (ref() for ref in self._wrappers) if one is not None]

    def _no_sync_lines(self) -> tuple[Site, ...]:
        """Return the lines that call ``no_sync``, if a wrapper did not reduce gradients; otherwise nothing."""
        if all(map(replicas.syncs, self._live_wrappers())):
            return ()
        return tuple(site for site, *_ in calls_of_method(self._context.frames, "no_sync")[:3])

    def _list_tensors(self, optimizer: torch.optim.Optimizer) -> tuple[int, list[str], list[torch.Tensor]]:
        """List the tensors that ranks should have alike: the parameters of `optimizer`, and the models' buffers.
        :returns: the optimizer's number, and the names and tensors.
        """
        held = [p for p in parameters_of(optimizer) if isinstance(p, torch.Tensor)]
        known = self._optimizer_tensors.get(optimizer)
        if known is not None and known[0] == len(held):
            return known[1], known[2], [ref() for ref in known[3]]
        how, order, parts, buffers = self._describe_models()
        held.sort(key=lambda p: order.get(id(p), len(order)))
        names: list[str] = []
        tensors: list[torch.Tensor] = []
        for p in held:
            name = self._names.of(p)
            mesh, placements, place = replicas.place_of(p)
            kind = "dtensor" if placements else how.get(id(p), "")
            if id(p) in parts:
                kind = "fsdp"
                place = place or (self._rank[0],)
            self._add(name, p, Replica(name, tuple(p.shape), kind, place, mesh, placements), names, tensors)
        for name, buffer in buffers:
            self._add(name, buffer, Replica(name, tuple(buffer.shape), "buffer"), names, tensors)
        number = known[1] if known is not None else self._optimizer_count
        self._optimizer_count += known is None
        self._optimizer_tensors[optimizer] = len(held), number, names, [private.tensor_ref(t) for t in tensors]
        return number, names, tensors

    def _add(
        self, name: str, tensor: torch.Tensor, replica: Replica, names: list[str], tensors: list[torch.Tensor]
    ) -> None:
        """Append a tensor and its name to the lists of an optimizer, and know it as a replica from now on."""
        self._tensors.setdefault(name, replica)
        names.append(name)
        tensors.append(tensor)
        self._name_by_tensor[tensor] = name
        if tensor in self._random_writes:
            self._random_writes_by_name[name] = self._random_writes.get(tensor)
        if (dtypes := self._data_assignments.get(tensor)) is not None:
            self._data_assignments_by_name[name] = dtypes

    def _describe_models(self) -> tuple[dict[int, str], dict[int, int], set[int], list[tuple[str, torch.Tensor]]]:
        """Describe the parameters and buffers of all models.

        :returns: by id of a parameter, the mechanism that keeps it equal; by id, its position in its model; the ids of
            the parameters in FSDP; the names and tensors of buffers.
        """
        how: dict[int, str] = {}
        order: dict[int, int] = {}
        parts: set[int] = set()
        buffers: list[tuple[str, torch.Tensor]] = []
        self._wrappers.clear()
        for _, module in self._names.modules.models():
            for _, wrapper in replicas.in_ddp(module):
                ignored = getattr(wrapper, "parameters_to_ignore", ())
                self._wrappers.append(weakref.ref(wrapper))
                how.update({id(p): "ddp" for name, p in wrapper.module.named_parameters() if name not in ignored})
                buffers += replicas.kept_buffers(wrapper)
                for hook in replicas.comm_hooks(wrapper):
                    code = getattr(hook, "__code__", None)
                    if code is not None and self._context.frames.is_user(code):
                        self._communication_hooks[hook.__name__] = draws_inside(code.co_filename, code.co_firstlineno)
            parts |= replicas.in_fsdp1(module) | replicas.in_fsdp2(module)
            for p in module.parameters():
                order.setdefault(id(p), len(order))
        return how, order, parts, buffers

    def records(self) -> tuple[Replicas, ...]:
        """Return one record of all checksums, and of the lines that may explain differences; empty if none were
        taken.
        """
        if not self._states:
            return ()
        site = self._context.frames.site
        written = tuple((step, name, what, site(spot)) for step, name, what, spot in self._writes)
        width = len(self._tensors)
        states = tuple(
            replace(
                s,
                before=_padded(s.before, width),
                gradients=_padded(s.gradients, width),
                after=_padded(s.after, width),
                given=_padded(s.given, width),
            )
            for s in self._states
        )
        drawn = tuple(
            (name, line) for name, spot in self._random_writes_by_name.items() if (line := site(spot)) is not None
        )
        put = tuple(
            (name, line)
            for name, own in self._data_assignments_by_name.items()
            if len(own) > 1 and (line := site(next(iter(own.values())))) is not None
        )
        setters = tuple((key, line) for key in self._changing_settings() if (line := self._setting_line(key)))
        hooks = tuple(self._communication_hooks.items())
        tensors = tuple(self._tensors.values())
        changed_in = tuple(
            (
                t.name,
                tuple(self._unobserved_writes[t.name]),
                tuple(writes_to(self._context.frames, t.name)[:MAX_USING_LINES]),
            )
            for t in tensors
            if t.how != "buffer" and t.name in self._unobserved_writes
        )
        touched = dict.fromkeys(line for s in states for line in s.touched)
        loops = tuple((line, loop) for line in touched if (loop := loop_of(line)) is not None)
        seeded: tuple[Site, ...] = ()
        if any(one.how == "dtensor" for one in tensors):
            seeded = tuple(line for line, *_ in calls_of_method(self._context.frames, "manual_seed")[:MAX_USING_LINES])
        return (Replicas(*self._rank, tensors, states, written, setters, drawn, put, hooks, seeded, changed_in, loops),)

    def _setting_line(self, key: str) -> Site | None:
        """Return the line that sets an optimizer's setting, or steps the scheduler that sets it."""
        frames = self._context.frames
        return key_given(frames, key) or (scheduler_stepped(frames) if key == "lr" else None)

    def _changing_settings(self) -> list[str]:
        """Return the settings of optimizers that changed during the run."""
        seen: dict[tuple[int, int, str], set[float]] = {}
        for state in self._states:
            for at, group in enumerate(state.settings):
                for key, value in group:
                    seen.setdefault((state.optimizer, at, key), set()).add(value)
        return sorted({key for (_, _, key), values in seen.items() if len(values) > 1})


def _numeric_settings(group: dict[str, object]) -> tuple[tuple[str, float], ...]:
    """Return the numeric settings of a parameter group, sorted by name."""
    found = []
    for key, value in group.items():
        if isinstance(value, torch.Tensor) and value.numel() == 1 and value.is_cpu:
            value = value.item()
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found.append((key, float(value)))
    return tuple(sorted(found))


def _padded(row: tuple[int | None, ...], width: int) -> tuple[int | None, ...]:
    """Return a row padded to `width`: fewer tensors were known when it was recorded."""
    return row + (None,) * (width - len(row))
