"""Training steps: where one ends, and the norms of weights, gradients and updates.

Note [Where a step ends]: a step is an update. What an optimizer's step ends is over when the next forward or backward
begins: several optimizers that step one after the other end one step, critic and generator that take turns one each. A
``GradScaler`` that skips the optimizer ends one too, when it updates its scale. ``autograd.grad`` ends none: a penalty
or an inner loop belongs to the update after it.

Where no optimizer has stepped yet, one was seen being made, or not. If so, all is one step until it steps. If not, the
script updates by hand: a backward call that finds gradients already there accumulates into the same step, and one that
finds none begins a new one; ``autograd.grad`` ends a step where its graph goes and it makes none. What cannot be known:
an update that the script itself leaves out is one step with the next, and what comes after the last is one of its own.

Note [Sampling updates]: norms of weights and updates are not free, an update needs a copy: they are taken in the first
steps, and then as often as a hundredth of the run's time allows, and copies are bounded.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch.optim import optimizer as optim

from ...records import OptimizerSeen, ParameterStat, Step
from ...source.frames import Spot
from ...torchside import private
from ...torchside.held import allocated, resident
from ...torchside.measure import is_float
from ...torchside.norms import holds, norm
from ..events import Events
from ..forward.naming import Naming
from .cost import Cost
from .losses import Losses, loss_scale

#: Bytes of weights copied at once to see an update.
COPY_LIMIT = 64 << 20
#: Backward calls after which an optimizer that was made is not waited for any longer.
UNAIDED = 100
_clock = time.perf_counter


@dataclass
class SeenOptimizer:
    """An optimizer: its class, where it was made, references to what it holds."""

    name: str
    spot: Spot | None
    refs: dict[int, weakref.ref[Any]]
    ref: weakref.ref[Any]
    #: Parameters of the modules in sight where it was made; empty where none was.
    present: dict[int, weakref.ref[Any]] = field(default_factory=dict)
    groups: int = 1


class StepWatch:
    """Counts steps and measures parameters around optimizer steps.

    :param on_step: called with each finished ``Step``.
    """

    def __init__(
        self, names: Naming, events: Events, cost: Cost, on_step: Callable[[Step], None], first: int = 3
    ) -> None:
        self._names, self._events, self._cost, self._on_step, self._first = names, events, cost, on_step, first
        self._handles: list[Any] = []
        self.paused = True
        self.index = 0
        #: Graphs of earlier steps that are alive, as far as somebody counts them.
        self.graphs = 0
        self.stepped = self.stepping = False
        self.ever_stepped = False
        self.losses = Losses(lambda: loss_scale(names.frames))
        self.backwards: list[int] = []
        #: Backward calls of this step that wrote gradients.
        self._written = 0
        #: Parameters that an optimizer held when it stepped.
        self.held: dict[int, weakref.ref[Any]] = {}
        #: By id: those that were seen being made, or stepping.
        self.optimizers: dict[int, SeenOptimizer] = {}
        self.stepped_by: set[int] = set()
        #: Whether a step is over when the optimizers have stepped that ended one before, not when the next begins.
        self.ends_early: Callable[[], bool] = lambda: False
        #: Those that stepped in this step, and in steps before.
        self._turn: set[int] = set()
        self._turns: set[frozenset[int]] = set()
        self._sizes: dict[int, int] = {}
        self._stats: dict[str, list[float | None]] = {}
        self._copies: list[tuple[str, Any, Any]] = []
        self._rotate = 0
        self._begin = self._last = self._paused_at = _clock()
        self._held: tuple[float, int | None, int | None] = (0.0, None, None)
        #: Seconds that norms of weights and updates took.
        self.spent = 0.0
        self._pid, self._thread = os.getpid(), threading.get_ident()

    def start(self) -> None:
        self._last += _clock() - self._paused_at  # a pause is no part of a step
        self.paused = False
        self._handles = self._handles or [
            optim.register_optimizer_step_pre_hook(self._before),
            optim.register_optimizer_step_post_hook(self._after),
        ]

    def pause(self) -> None:
        """See nothing until ``start``. The hooks stay: this may be called from one of them."""
        if not self.paused:
            self._paused_at = _clock()
        self.paused = True
        self._copies.clear()

    def remove(self) -> None:
        """Take the hooks off, and finish nothing."""
        self.pause()
        while self._handles:
            self._handles.pop().remove()

    def stop(self) -> None:
        self.remove()
        if os.getpid() == self._pid and (self.stepped or self.backwards):
            self.finish()

    @property
    def sampled(self) -> bool:
        now = _clock()
        return self.index < self._first or self.spent < 0.01 * (now - self._begin)

    def finish(self) -> None:
        """The step is over: emit it and begin the next."""
        now = _clock()
        stats = tuple(ParameterStat(name, *values) for name, values in self._stats.items())
        seconds = now - self._last
        mine = self._cost.step_over(seconds)
        loss, calls, scale = self.losses.take()
        held = *self._memory(now), self.graphs
        step = Step(self.index, seconds, loss, tuple(self.backwards), stats, mine, calls, scale, *held)
        self.index += 1
        self._last = now
        if self._turn and len(self._turns) < 100:
            self._turns.add(frozenset(self._turn))
        self._turn.clear()
        self.stepped, self.backwards, self._stats, self._written = False, [], {}, 0
        self._on_step(step)

    def _memory(self, now: float) -> tuple[int | None, int | None]:
        """Bytes of this process and of its accelerator, looked up a hundred times a second at most."""
        if now >= self._held[0]:
            self._held = now + 0.01, resident(), allocated()
        return self._held[1:]

    def _mine(self) -> bool:
        return not self.paused and os.getpid() == self._pid and threading.get_ident() == self._thread

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._mine():
            mark = self._events.own.mark()
            self.stepping = True
            self._events.tell("optimizer_begins", optimizer)
            try:
                self._measure(optimizer)
            except Exception as error:
                self._events.fault(self, error)
            self._events.own.since(mark)

    def _measure(self, optimizer: Any) -> None:
        begin = _clock()
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if self._sizes.get(id(optimizer)) != len(parameters):
            self._sizes[id(optimizer)] = len(parameters)
            known = self._known(optimizer, None)
            known.groups = len(optimizer.param_groups)
            for p in parameters:
                self.held[id(p)] = known.refs[id(p)] = private.tensor_ref(p)
        if self.sampled:
            named = [(self._names.of(p), p) for p in parameters if isinstance(p, torch.Tensor)]
            if (
                private.in_mode()
            ):  # of the user's, which does not see what we compute (Note [Unseen by the user's modes])
                named = [(name, p) for name, p in named if private.is_plain(p) and private.is_plain(p.grad)]
            with private.unseen(), torch.no_grad(), private.unnoticed():
                weights = norms([p for _, p in named])
                grads = norms([p.grad for _, p in named])
                for (name, _), w, g in zip(named, weights, grads, strict=True):
                    self._stats[name] = [w, g, None]
                self._copy(named)
            self.spent += _clock() - begin

    def _copy(self, named: list[tuple[str, Any]]) -> None:
        """Copy as many weights as the bound allows, beginning where the last sample ended."""
        used = 0
        count = len(named)
        for at in range(count):
            name, p = named[(self._rotate + at) % count]
            size = p.numel() * p.element_size()
            if used + size > COPY_LIMIT and used:
                self._rotate = (self._rotate + at) % count
                break
            if p.grad is None or p.layout is not torch.strided or size > COPY_LIMIT:
                continue
            used += size
            here = private.local(p)
            if here is not None:
                self._copies.append((name, p, here.detach().clone()))

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not self._mine():
            return
        mark = self._events.own.mark()
        self.stepped_by.add(id(optimizer))
        self.stepping, self.stepped, self.ever_stepped = False, True, True
        self._events.tell("optimizer_over", optimizer)
        if self._copies:
            try:
                self._compare()
            except Exception as error:
                self._events.fault(self, error)
        self._turn.add(id(optimizer))
        if self.index >= self._first and self._complete() and self.ends_early():
            self.finish()
        self._events.own.since(mark)

    def _complete(self) -> bool:
        """Whether all have stepped that are known to step in one step."""
        return self._turn in self._turns and not any(self._turn < turn for turn in self._turns)

    def _compare(self) -> None:
        begin = _clock()
        with private.unseen(), torch.no_grad(), private.unnoticed():
            differences = [_difference(private.local(p).detach(), old) for _, p, old in self._copies]
            for (name, _, _), value in zip(self._copies, norms(differences), strict=True):
                if name in self._stats:
                    self._stats[name][2] = value
        self._copies.clear()
        self.spent += _clock() - begin

    @property
    def alone(self) -> bool:
        """Whether no optimizer is known that would say where a step ends."""
        return not self.optimizers and not self.ever_stepped

    @property
    def listed(self) -> dict[int, weakref.ref[Any]] | None:
        """Parameters that an optimizer held when it stepped; ``None`` where none has."""
        return self.held if self.ever_stepped else None

    @property
    def present(self) -> list[dict[int, weakref.ref[Any]]]:
        """By optimizer that stepped, the parameters in sight where it was made."""
        return [o.present for o in self.optimizers.values() if o.present and o.refs]

    def records(self) -> tuple[OptimizerSeen, ...]:
        """The optimizers that stepped."""
        frames, leaves = self._names.frames, self._names.leaves
        return tuple(
            OptimizerSeen(o.name, frames.site(o.spot), len(o.refs), leaves.orphans(o.refs), o.groups)
            for o in self.optimizers.values()
        )

    def made(self, optimizer: Any, spot: Any, modules: Callable[[], list[Any]]) -> None:
        """An optimizer is being made, or given more parameters, at `spot`, where `modules` are in sight."""
        known = self.optimizers.get(id(optimizer))
        if len(self.optimizers) < 1000 and (known is None or known.ref() is not optimizer):
            known = self._known(optimizer, spot)
            known.present = {id(p): private.tensor_ref(p) for m in modules() for p in m.parameters()}

    def _known(self, optimizer: Any, spot: Spot | None) -> SeenOptimizer:
        known = self.optimizers.get(id(optimizer))
        if known is None or known.ref() is not optimizer:
            known = SeenOptimizer(type(optimizer).__name__, spot, {}, weakref.ref(optimizer))
            self.optimizers[id(optimizer)] = known
            self._sizes.pop(id(optimizer), None)
        return known

    def some_held(self) -> list[Any]:
        """A few of the parameters that optimizers hold."""
        return [p for p in (ref() for ref in islice(self.held.values(), 4)) if p is not None]

    def scaler_updates(self, scale: Any) -> None:
        """A ``GradScaler`` is about to update its `scale`: the iteration is over, also where the optimizer was left
        out."""
        self.losses.scaled(scale)
        self.stepped = self.stepped or bool(self.backwards)

    def grad_over(self) -> None:
        """``autograd.grad`` was called with a graph that is gone now, and made none."""
        if not (self.optimizers or self.ever_stepped or self.stepping or self._written):
            self.stepped = True

    def writes(self, leaves: list[Any]) -> None:
        """A backward call that adds gradients to `leaves` begins."""
        if not self.accumulates(leaves):
            self.finish()
        self._written += 1
        self.losses.begins()

    def accumulates(self, leaves: list[Any]) -> bool:
        """Whether a backward call into `leaves` belongs to the running step (Note [Where a step ends])."""
        if self.stepping:  # an optimizer that calls a closure
            return True
        if self.stepped:
            return False
        if self.ever_stepped or not self._written or (self.optimizers and self._written < UNAIDED):
            return True
        for leaf in leaves:
            grad = leaf.grad
            grad = private.local(grad) if grad is not None else None
            if grad is None:
                continue
            if grad.layout is not torch.strided or grad.device.type != "cpu":
                return True
            with torch.no_grad():
                return bool(grad.detach().count_nonzero())
        return False


def _difference(new: Any, old: Any) -> Any:
    """`new` minus `old`, which is used up. In half precision the difference itself would be rounded."""
    return new.float() - old if old.dtype in (torch.float16, torch.bfloat16) else old.neg_().add_(new)


def norms(tensors: list[Any]) -> list[float | None]:
    """2-norms, one synchronisation for each device; ``None`` for what is not a dense tensor of floats. Of a distributed
    one that of the part that is here: Note [No collective of ours]."""
    tensors = [None if t is None or private.is_partial(t) else private.local(t) for t in tensors]
    out: list[float | None] = [None] * len(tensors)
    groups: dict[Any, list[int]] = {}
    for i, t in enumerate(tensors):
        if t is None or t.layout is not torch.strided or not is_float(t) or t.is_meta:
            continue
        if t.is_cpu:
            out[i] = _norm(t)
        else:
            groups.setdefault((t.device, t.dtype, type(t)), []).append(i)
    for indices in groups.values():
        single = torch.float32 if tensors[indices[0]].dtype in (torch.float16, torch.bfloat16) else None
        try:
            measured = torch._foreach_norm([tensors[i].detach() for i in indices], 2, single)
            values = torch.stack(list(measured)).tolist()
        except (RuntimeError, NotImplementedError, TypeError):  # a subclass (distributed, quantised) that has no norm
            continue
        for i, value in zip(indices, values, strict=True):
            out[i] = value if holds(value) else _norm(tensors[i])
    return out


def _norm(tensor: Any) -> float | None:
    try:
        return norm(tensor.detach())
    except (RuntimeError, NotImplementedError, TypeError):
        return None
