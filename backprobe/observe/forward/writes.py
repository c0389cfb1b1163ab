"""In-place writes: the op that changed a storage, and the version of its tensors afterwards.

Note [Versions and addresses]: a version counter belongs to a storage and its views, and another storage may get the
same address later. A write counts as one to a saved tensor only if it came after the save and left a higher version
than the saved one.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from ...basics.torch_texts import IN_PLACE_DETAIL
from ...ops import info, writes_in_place
from ...source.frames import CodeLocation, Frames, variables
from ...source.roots import ModuleCallRef
from ...torch_internals import private
from ...torch_internals.references import IdentityMap
from .modules import ModuleWatch


def kind_of(func: object) -> Any:
    """Return how `func` writes in place.

    ``True``: always. A pair: the argument that makes it write, and the positions that it then writes to. ``None``:
    never.
    """
    name = getattr(func, "__name__", "")
    if writes_in_place(name):
        return True
    how = info(name).conditional_write
    is_module_function = str(getattr(func, "__module__", None) or "").startswith("torch.nn")
    return (how.argument, how.positions) if how is not None and is_module_function else None


#: Steps of one optimizer from which the number of writes per parameter is learnt; the most lines remembered that step
#: an optimizer.
LEARNING_STEPS, MAX_STEP_LINES = 3, 8


@dataclass(frozen=True)
class Write:
    """An op's write to a storage. ``seq`` is the node counter when it ran.

    :ivar inferred: the line was not observed to write; it is one of `candidates`, the likeliest first.
    """

    storage: int
    version: int
    seq: int
    op: str
    spot: CodeLocation | None
    where: ModuleCallRef | None
    inferred: bool = False
    candidates: tuple[CodeLocation, ...] = ()


@dataclass(frozen=True)
class OptimizerStep:
    """An optimizer's step that writes to a storage.

    :ivar spot: the line that called it; ``None`` if the step was not observed.
    :ivar lines: lines from which this optimizer has stepped, the latest last.
    :ivar bumps: how often one step writes to the storage; ``None`` if that is not known, or varies.
    """

    seq: int
    op: str
    spot: CodeLocation | None
    lines: tuple[CodeLocation, ...]
    bumps: int | None


class _StepHabits:
    """The lines that step one optimizer, and how often a step writes to each parameter."""

    def __init__(self) -> None:
        """Start without steps."""
        self.lines: dict[CodeLocation, None] = {}
        self._steps = 0
        self._versions_before: dict[int, int] = {}
        #: Writes of a step to each parameter; -1 if they vary.
        self._writes_per_step: IdentityMap[int] = IdentityMap(private.tensor_ref)

    def begin_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Keep the version counters before a step, in the first ``LEARNING_STEPS`` steps."""
        learns = self._steps < LEARNING_STEPS
        self._versions_before = {id(p): version for p, version in _versions(optimizer)} if learns else {}

    def end_step(self, optimizer: torch.optim.Optimizer, spot: CodeLocation | None) -> None:
        """Learn how often the step wrote to each parameter, and keep `spot` among the lines that step the optimizer."""
        if self._versions_before:
            self._steps += 1
            for p, version in _versions(optimizer):
                bumps = version - self._versions_before.get(id(p), version)
                if bumps:
                    self._writes_per_step[p] = bumps if self._writes_per_step.get(p) in (None, bumps) else -1
            self._versions_before = {}
        if spot is not None:
            self.lines.pop(spot, None)
            self.lines[spot] = None
            if len(self.lines) > MAX_STEP_LINES:
                del self.lines[next(iter(self.lines))]

    def writes_per_step(self, parameter: torch.Tensor) -> int | None:
        """Return how often a step writes to `parameter`; ``None`` if that is not known, or varies."""
        bumps = self._writes_per_step.get(parameter)
        return None if bumps == -1 else bumps


def _versions(optimizer: torch.optim.Optimizer) -> list[tuple[torch.Tensor, int]]:
    """Return the parameters of an optimizer with their version counters; empty if one of them has none."""
    with contextlib.suppress(RuntimeError, AttributeError):  # inference tensors have no version
        return [(p, p._version) for group in optimizer.param_groups for p in group["params"]]
    return []


class WriteLog:
    """Log of the latest in-place writes."""

    def __init__(self, frames: Frames, modules: ModuleWatch, limit: int = 65_536) -> None:
        """Start an empty log of at most `limit` writes: later ones replace the oldest."""
        self._frames, self._modules = frames, modules
        self._writes: deque[tuple[Any, ...]] = deque(maxlen=limit)
        #: The node counter when the first backward call began: earlier writes are set-up.
        self._trains_from: int | None = None
        self._habits: IdentityMap[_StepHabits] = IdentityMap()
        #: Tensors that ``.data`` returned: each has a version counter of its own.
        self._data: dict[int, weakref.ref[torch.Tensor]] = {}
        #: Writes through ``.data``.
        self.silent: deque[Write] = deque(maxlen=4096)

    def data_read(self, tensor: torch.Tensor, out: object, frame: FrameType) -> None:
        """Remember `out`, the result of ``x.data``: it shares the memory of ``x``, but not the version counter."""
        if len(self._data) > 4096:
            self._data = {k: r for k, r in self._data.items() if r() is not None}
        self._data[id(out)] = private.tensor_ref(out)

    def wrote(self, func: object, written: list[torch.Tensor], seq: int, frame: FrameType) -> None:
        """Log an in-place write of `func` to each tensor in `written`, with the user's line and the running module
        call.
        """
        spot, stack = self._frames.spot(frame), self._modules.stack
        where = stack[-1] if stack else None
        for t in written:
            if isinstance(t, torch.Tensor):
                known = self._data.get(id(t))
                through_data = known is not None and known() is t
                (self._add_silent if through_data else self._add)(t, seq, func, spot, where)

    def wrote_in_step(self, func: object, written: list[torch.Tensor], seq: int, frame: FrameType) -> None:
        """Record writes of a script-defined optimizer through ``.data``, which no version counter shows."""
        for t in written:
            known = self._data.get(id(t))
            if known is not None and known() is t:
                self._add_silent(t, seq, func, self._frames.spot(frame), None)

    def backward_begins(self) -> None:
        """Note the node counter at the first backward call: writes before it are set-up."""
        if self._trains_from is None:
            self._trains_from = private.next_sequence_nr()

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Keep the version counters of an optimizer's parameters, to learn how often a step writes to them."""
        known = self._habits.get(optimizer)
        if known is None:
            known = self._habits[optimizer] = _StepHabits()
        known.begin_step(optimizer)

    def optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """Log one entry for an optimizer step; the tensors that it wrote to are looked up when needed."""
        spot = self._frames.spot(sys._getframe())
        if (known := self._habits.get(optimizer)) is not None:
            known.end_step(optimizer, spot)
        self._writes.append((None, 0, private.next_sequence_nr(), weakref.ref(optimizer), spot, None))

    def fast_path_optimizer_stepped(self, optimizer: torch.optim.Optimizer, seq: int) -> None:
        """Log an optimizer step that was not observed, made when the node counter was `seq`."""
        self._writes.append((None, 0, seq, weakref.ref(optimizer), None, None))

    def _add(
        self, tensor: torch.Tensor, seq: int, op: object, spot: CodeLocation | None, where: ModuleCallRef | None
    ) -> None:
        """Log a write of `op` to `tensor`: its storage address and new version; nothing if it has no storage or
        version.
        """
        try:
            if _is_fake(tensor):
                return
            self._writes.append((tensor.untyped_storage().data_ptr(), tensor._version, seq, op, spot, where))
        except (RuntimeError, NotImplementedError, AttributeError):  # no storage, or one made in inference mode
            return

    def _add_silent(
        self, tensor: torch.Tensor, seq: int, op: object, spot: CodeLocation | None, where: ModuleCallRef | None
    ) -> None:
        """Log a write through ``.data``, whose result has a version counter of its own."""
        try:
            if _is_fake(tensor):
                return
            name = getattr(op, "__name__", str(op))
            self.silent.append(Write(tensor.untyped_storage().data_ptr(), tensor._version, seq, name, spot, where))
        except (RuntimeError, NotImplementedError, AttributeError):
            return

    def statistics_after(self, storage: int, seq: int) -> Write | None:
        """Return the last write of a normalisation to its running statistics in `storage` after node `seq`.

        ``None`` if none.
        No version counter shows such a write.
        """
        for pointer, version, at, op, spot, where in reversed(self._writes):
            if at <= seq:
                return None
            if pointer == storage and type(kind_of(op)) is tuple:
                return Write(storage, version, at, op.__name__, spot, where)
        return None

    def first_after(self, storage: int, seq: int, version: int, found: int | None = None) -> Write | None:
        """Return the write that took `storage` past `version` after node `seq`; ``None`` if there is none.

        All ops since must have been recorded.

        :param found: the current version.
        """
        steps: list[OptimizerStep] = []
        for pointer, after, at, op, spot, where in self._writes:
            if at <= seq:
                continue
            if pointer is None:
                steps += self._step_to(storage, op(), at, spot)
            elif pointer == storage and after > version:
                if steps and after > version + 1:  # one of these steps came first
                    break
                name = op if isinstance(op, str) else getattr(op, "__name__", str(op))
                return Write(pointer, after, at, name, spot, where)
        return self._first_of(storage, version, found, steps) if steps else None

    def explained_by_steps(self, storage: int, seq: int, version: int, found: int) -> bool:
        """Return whether optimizer steps after node `seq` account for all writes from `version` to `found`.

        If so, the log lacks no write to `storage`, although ops were not recorded.
        """
        bumps = [step.bumps for step in self.steps_after(storage, seq)]
        return bool(bumps) and None not in bumps and sum(filter(None, bumps)) == found - version

    def of_steps(self, storage: int, seq: int, version: int, found: int) -> Write | None:
        """Return the optimizer step that took `storage` past `version`, if ops were not recorded since node `seq`.

        ``None`` unless optimizer steps account for every write and the first one's line is known.
        """
        first = next(iter(self.steps_after(storage, seq)), None)
        if first is None or first.spot is None or not self.explained_by_steps(storage, seq, version, found):
            return None
        return Write(storage, version + 1, first.seq, first.op, first.spot, None)

    def steps_after(self, storage: int, seq: int) -> list[OptimizerStep]:
        """Return the steps, after node `seq`, of optimizers that hold a parameter in `storage`."""
        return [
            step
            for pointer, _, at, op, spot, _ in self._writes
            if pointer is None and at > seq
            for step in self._step_to(storage, op(), at, spot)
        ]

    def lines_that_wrote(self, storage: int) -> list[tuple[int, str, CodeLocation]]:
        """Return (counter, op, line) of the recorded writes to `storage` since training began, the oldest first.

        The op is ``"step"`` for a step of an optimizer that holds it.
        """
        found = []
        for pointer, _, at, op, spot, _ in self._writes:
            if self._trains_from is None or at < self._trains_from:
                continue
            if spot is not None and pointer == storage:
                found.append((at, getattr(op, "__name__", str(op)), spot))
            elif spot is not None and pointer is None and self._step_to(storage, op(), at, spot):
                found.append((at, "step", spot))
        return found

    def lines_before_training(self) -> set[CodeLocation]:
        """Return the lines that wrote before the first backward call began, and not since."""
        early: dict[bool, set[CodeLocation]] = {True: set(), False: set()}
        for _, _, at, _, spot, _ in self._writes:
            if spot is not None:
                early[self._trains_from is None or at < self._trains_from].add(spot)
        return early[True] - early[False]

    def lines(self) -> Iterator[tuple[str, CodeLocation]]:
        """Yield (op, line) of all recorded writes except those of optimizers, the latest first."""
        for pointer, _, _, op, spot, _ in reversed(self._writes):
            if pointer is not None and spot is not None:
                yield getattr(op, "__name__", str(op)), spot

    def _first_of(self, storage: int, version: int, found: int | None, steps: list[OptimizerStep]) -> Write:
        """Return the first of `steps` that wrote to `storage`, which was past `version` afterwards."""
        bumps = [step.bumps for step in steps]
        all_wrote = found is not None and None not in bumps and sum(filter(None, bumps)) == found - version
        known = steps[0].spot is not None and (all_wrote or len({step.spot for step in steps}) == 1)
        lines = [spot for step in steps for spot in (step.spot, *(() if step.spot else reversed(step.lines)))]
        candidates = tuple(dict.fromkeys(line for line in lines if line is not None))
        first = steps[0].spot or next(iter(candidates), None)
        return Write(
            storage, version + 1, steps[0].seq, steps[0].op, first, None, not known, () if known else candidates
        )

    def _step_to(self, storage: int, optimizer: object, seq: int, spot: CodeLocation | None) -> list[OptimizerStep]:
        """Return a step of `optimizer` in a list if it holds a parameter in `storage`; otherwise an empty list."""
        held = None if optimizer is None else _held_in(optimizer, storage)
        if held is None:
            return []
        known = self._habits.get(optimizer)
        lines = tuple(known.lines) if known is not None else ()
        bumps = known.writes_per_step(held) if known is not None else None
        return [OptimizerStep(seq, f"{type(optimizer).__name__}.step", spot, lines, bumps)]


def _held_in(optimizer: torch.optim.Optimizer, storage: int) -> torch.Tensor | None:
    """Return the parameter held by `optimizer` whose memory is `storage`; ``None`` if there is none."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            if isinstance(p, torch.Tensor) and not _is_fake(p):
                with contextlib.suppress(RuntimeError, NotImplementedError):  # no storage
                    if p.untyped_storage().data_ptr() == storage:
                        return p
    return None


def targets(kind: Any, args: Sequence[object], kwargs: Mapping[str, object] | None) -> list[Any]:
    """Return the tensors that a call writes, for a function of this `kind` (see ``kind_of``)."""
    if kind is True:
        first = args[0] if args else (kwargs or {}).get("tensor")
        return list(first) if isinstance(first, (list, tuple)) else [first]
    keyword, positions = kind
    if not (kwargs or {}).get(keyword):
        return []
    return [args[i] for i in positions if i < len(args)]


@dataclass(frozen=True)
class ObservedMutation:
    """The subject of an in-place error: the saved tensor, and the write to it."""

    saved_name: str
    producer: str
    shape: tuple[int, ...]
    saved_version: int
    found_version: int
    storage: int | None
    write: Write | None


def mutation(
    text: str, saved_by: list[tuple[str, Any]], seq: int, log: WriteLog, noted: bool = True
) -> ObservedMutation | None:
    """Return the write behind torch's in-place error `text`; ``None`` if `text` is no such error.

    The error was raised while a node ran that has sequence number `seq` and saves the tensors `saved_by`.

    :param noted: all ops since were recorded: a write that is not in the log did not come from Python.
    """
    match = IN_PLACE_DETAIL.search(text)
    if match is None:
        return None
    shape = tuple(int(n) for n in match["shape"].split(",") if n.strip())
    found, saved = int(match["found"]), int(match["saved"])
    for name, tensor in saved_by:
        if tensor._version != found or tuple(tensor.shape) != shape:
            continue
        storage = tensor.untyped_storage().data_ptr()
        if noted:
            write = log.first_after(storage, seq, saved, found)
        else:
            write = log.of_steps(storage, seq, saved, found)
        return ObservedMutation(name, _short(match["op"]), shape, saved, found, storage, write)
    return ObservedMutation("", _short(match["op"]), shape, saved, found, None, None)


def _is_fake(tensor: torch.Tensor) -> bool:
    """Return whether `tensor` has no memory, so that torch would warn if its address were read."""
    return not private.is_plain(tensor) and tensor.untyped_storage().device.type == "meta"


def _short(op: str | None) -> str:
    """Return the part of an op's name after the last colon."""
    return (op or "").rpartition(":")[2]


def names_of_storage(storage: int | None, modules: ModuleWatch) -> tuple[Any, str] | None:
    """Return (root, name) of the parameter or buffer that lives in `storage`."""
    if storage is None:
        return None
    for root, module in modules.models():
        for name, t in (*module.named_parameters(), *module.named_buffers()):
            if isinstance(t, torch.Tensor) and t.layout is torch.strided and t.untyped_storage().data_ptr() == storage:
                return root, name
    return None


def parameter_with_gradient(storage: int | None, modules: ModuleWatch) -> str:
    """Return the name of the parameter whose gradient lives in `storage`."""
    for _, module in modules.models() if storage is not None else ():
        for name, p in module.named_parameters():
            grad = p.grad
            if grad is not None and grad.layout is torch.strided:
                with contextlib.suppress(RuntimeError, NotImplementedError):
                    if grad.untyped_storage().data_ptr() == storage:
                        return str(name)
    return ""


def variables_of(storage: int | None, frame: FrameType | None, frames: Frames) -> Iterator[str]:
    """Yield the names of variables in the user's frames for tensors in `storage`, innermost function first."""
    while frame is not None and storage is not None:
        if frames.is_user(frame.f_code):
            for name, value in variables(frame).items():
                if type(value) is torch.Tensor and value.layout is torch.strided:
                    try:
                        lives_there = value.untyped_storage().data_ptr() == storage
                    except (RuntimeError, NotImplementedError):
                        continue
                    if lives_there:
                        yield name
        frame = frame.f_back


def variable_of(storage: int | None, frame: FrameType, frames: Frames) -> str:
    """Return the name of a variable in the user's frames that refers to a tensor in `storage`.

    Empty if there is none.
    """
    return next(variables_of(storage, frame, frames), "")
