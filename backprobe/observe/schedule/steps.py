"""Training steps: detects where each one ends.

Note [Where a step ends]: a step is an update. After an optimizer's step, the training step is over when the next
forward or backward begins: several optimizers that step one after the other end one step; a critic and a generator that
alternate end one each. A ``GradScaler`` that skips the optimizer also ends a step, when it updates its scale.
``autograd.grad`` ends none: a penalty or an inner loop belongs to the update after it.

Before any optimizer has stepped, it matters whether one was seen being created. If so, everything is one step until it
steps. If not, the script updates by hand: a backward call that finds gradients accumulates into the same step, and one
that finds none begins a new step; ``autograd.grad`` ends a step if its graph is freed and it makes none. Two things
cannot be known: an update that the script itself skips makes one step with the next, and work after the last update is
a step of its own.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter, sub
from typing import Any

import torch
from torch.optim import optimizer as optim

from ...records import BriefSteps, OptimizerSeen, Step
from ...source.frames import CodeLocation
from ...torch_internals import code_objects, gradient_clipping, private
from ...torch_internals.memory_usage import allocated, resident
from ..events import Events
from ..forward.naming import Naming
from ..recording_state import RecordingState
from .cost import Cost
from .losses import Losses, NotedLoss, is_zero, loss_scale
from .samples import AcceleratorClipNorm, AcceleratorNorms, Samples
from .step_hooks import StepHooks

#: Of a step: its losses that are on an accelerator, and norms.
OnAccelerator = tuple[list[Any], list[AcceleratorNorms | AcceleratorClipNorm]]

#: Backward calls after which an optimizer that was created, but never steps, is no longer waited for.
MAX_CALLS_BEFORE_FIRST_STEP = 100
#: References to parameters of optimizers above which those to freed parameters are dropped.
MAX_HELD = 100_000
#: Freed optimizers that are still reported after a later one has got their id.
MAX_FREED_OPTIMIZERS = 16
_clock, _next_seq, _compiling = time.perf_counter, private.next_sequence_nr, private.compiling


@dataclass
class SeenOptimizer:
    """An optimizer: its class, where it was created, and weak references to the parameters that it holds."""

    name: str
    spot: CodeLocation | None
    refs: dict[int, weakref.ref[torch.Tensor]]
    ref: weakref.ref[torch.optim.Optimizer]
    #: Parameters of the modules that were visible where it was created; empty if there were none.
    present: dict[int, weakref.ref[Any]] = field(default_factory=dict)
    groups: int = 1
    empty: int = 0
    twice: int = 0
    frozen: int = 0
    #: The node counter when it stepped last, and the step in which it did so the last time that this was recorded.
    last: int = -1
    step: int = -1


class StepWatch:
    """Counter of training steps, which also measures parameters around optimizer steps.

    :param ends_early: a step ends when all optimizers that belong to it have stepped, rather than when the next step
        begins, unless a backward call is running.
    """

    def __init__(
        self,
        names: Naming,
        events: Events,
        cost: Cost,
        state: RecordingState,
        ends_early: bool = False,
        first: int = 3,
        share: float | None = None,
    ) -> None:
        self._names, self._events, self._cost, self._first = names, events, cost, first
        self._state, self._early = state, ends_early
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self.paused = True
        self.index = 0
        #: Graphs of earlier steps that are alive, if they are counted.
        self.graphs = 0
        self.stepped = self.stepping = False
        self._ended_at: tuple[int, bool] | None = None
        self.ever_stepped = False
        self.losses = Losses(lambda: loss_scale(names.frames))
        self.backwards: list[int] = []
        #: Backward calls of this step that wrote gradients.
        self._written = 0
        #: Parameters that an optimizer held when it stepped, by the id of the reference: a new parameter may have the
        #: id of a freed one.
        self.held: dict[int, weakref.ref[Any]] = {}
        #: By id: the optimizers that were seen being created, or stepping. Negative numbers: those that were freed, and
        #: whose id a later one has.
        self.optimizers: dict[int, SeenOptimizer] = {}
        self._displaced = 0
        self.stepped_by: set[int] = set()
        #: How many more steps take the fast path, and the step at which the fast path began.
        self.passing = self._began_to = 0
        #: Whether norms are taken of tensors on an accelerator: in recorded steps.
        self.samples_away = True
        #: If each fast-path step is ended by one optimizer, as by critic and generator in turn: their ids, each with
        #: its group.
        self.only: dict[int, frozenset[int]] = {}
        #: Whether a call of the running step took the fast path.
        self.called = False
        #: By id of an optimizer: the node counter when it stepped during the fast path.
        self._stepped: dict[int, int] = {}
        #: Of the last step that ended before the next began: the node counter at its end, and the optimizers that
        #: stepped in it.
        self._ended: tuple[int, frozenset[int]] = -1, frozenset()
        #: Whether fast-path steps get deferred records, as far as possible.
        self.tells = False
        #: When each fast-path step ended; and of each call in them the step, its number, and its contribution to the
        #: loss.
        self._ends: list[float] = []
        self.noted: list[tuple[int, int, NotedLoss]] = []
        #: How many more calls the running step can have: with more it is unknown whether gradients were cleared between
        #: them.
        self.room = 0
        self._stretch: tuple[int, float, list[float]] = 0, 0.0, []
        #: The optimizers that stepped in this step; and the groups that stepped together in earlier steps.
        self._turn: set[int] = set()
        #: What clipping found in the running step; and in each fast-path step, with its number.
        self._clip_norms: list[float | AcceleratorClipNorm | None] = []
        self._passed_clip_norms: list[tuple[int, float | AcceleratorClipNorm]] = []
        self._turns: set[frozenset[int]] = set()
        self._sizes: dict[int, int] = {}
        self.samples = Samples(names, share)
        self._last = self._paused_at = _clock()
        self._held: tuple[float, int | None, int | None] = (0.0, None, None)
        self._pid, self._thread = os.getpid(), threading.get_ident()
        self._noted_clip = self.clipped
        #: The hooks of trackers, which are paused and removed with those of this object.
        self.tracker_hooks: list[StepHooks] = []

    def start(self) -> None:
        self._last += _clock() - self._paused_at  # a pause is no part of a step
        self._cost.goes_on()
        self.paused = False
        gradient_clipping.listen(self._noted_clip)
        self._handles = self._handles or [
            optim.register_optimizer_step_pre_hook(self._before),
            optim.register_optimizer_step_post_hook(self._after),
        ]

    def note_stepped(self) -> None:
        """Note that an optimizer stepped in compiled code, which calls none of its hooks."""
        self.stepped = True

    def count_graphs(self, alive: int) -> None:
        """Note how many graphs of earlier steps are alive."""
        self.graphs = alive

    def sample_accelerators(self, on: bool) -> None:
        """Take norms of tensors on an accelerator from now on or not."""
        self.samples_away = on

    def pause(self) -> None:
        """Observe nothing until ``start``. The hooks stay, because this may be called from one of them."""
        if not self.paused:
            self._paused_at = _clock()
        self.paused = True
        self.stop_passing()
        self.samples.forget()
        for hooks in self.tracker_hooks:
            hooks.pause()

    def remove(self) -> None:
        """Remove the hooks without finishing the step."""
        self.pause()
        gradient_clipping.unlisten(self._noted_clip)
        for hooks in self.tracker_hooks:
            hooks.remove()
        while self._handles:
            self._handles.pop().remove()

    @property
    def position(self) -> tuple[int, bool]:
        """Return the step, and whether its optimizer has stepped: now, or when observing ended."""
        return self._ended_at or (self.index, self.stepped)

    def mark_end(self) -> None:
        """Remember the position in which observing ended."""
        self._ended_at = self._ended_at or (self.index, self.stepped)

    def stop(self) -> None:
        self.remove()
        if os.getpid() == self._pid and (self.stepped or self.backwards or self._written):
            self.finish()

    def finish(self) -> None:
        """End the step, emit its record unless it took the fast path, and begin the next."""
        if self.passing:
            self._pass()
            return
        if self.noted:
            self._take_notes()
        now = _clock()
        seconds = now - self._last
        mine = self._cost.step_ended(seconds)
        loss, calls, scale, away = self.losses.take()
        norms, sampled_away = self.samples.take()
        norms_away: list[AcceleratorNorms | AcceleratorClipNorm] = [*sampled_away]
        clip = self._take_clip_norm()
        if isinstance(clip, AcceleratorClipNorm):
            norms_away.append(clip)
            clip = None
        held = *self._memory(now), self.graphs, clip
        step = Step(self.index, seconds, loss, tuple(self.backwards), norms, mine, calls, scale, *held)
        self.index += 1
        self._last = now
        self._next()
        self._began_to = self.index
        self._events.step_finished.emit(step, away, norms_away)

    def _ends_early(self) -> bool:
        return self._early and not self._state.in_call

    def _next(self) -> None:
        if self._turn and len(self._turns) < 100:
            self._turns.add(frozenset(self._turn))
        self._turn.clear()
        self.stepped, self.called, self.backwards, self._written = False, False, [], 0

    def clipped(self, norm: Any) -> None:
        """Note the total norm of gradients that clipping found."""
        if not self._mine():
            return
        found: float | AcceleratorClipNorm | None = None
        try:
            with private.unseen():
                if type(norm) is torch.Tensor and not private.hands_off(norm, past_ours=True):
                    with private.undispatched():
                        found = float(norm.item()) if norm.is_cpu else AcceleratorClipNorm(norm.detach().reshape(1))
        except Exception as error:
            self._events.fault(self, error)
        self._clip_norms.append(found)

    def _take_clip_norm(self) -> float | AcceleratorClipNorm | None:
        """Return and reset what clipping found in this step; ``None`` if it was not called exactly once."""
        norms, self._clip_norms = self._clip_norms, []
        return norms[0] if len(norms) == 1 else None

    def _pass_clip_norm(self) -> None:
        """Keep what clipping found in a fast-path step that is over."""
        found = self._take_clip_norm()
        if found is not None and self.tells:
            self._passed_clip_norms.append((self.index, found))

    def let_pass(self, steps: int, tells: bool = False) -> None:
        """Let the next `steps` steps take the fast path: Note [Steps that pass]. `tells`: they get deferred records."""
        self.passing, self.tells, self.room = steps, tells, self.losses.plain
        if steps:
            single = all(len(turn) == 1 for turn in self._turns)
            self.only = {by: turn for turn in self._turns for by in turn} if single and self._ends_early() else {}

    def tell_passed(self) -> None:
        """Report the optimizers that stepped during the fast path, since their writes may matter later."""
        stepped, self._stepped = self._stepped, {}
        for by, at in sorted(stepped.items(), key=itemgetter(1)):
            known = self.optimizers.get(by)
            optimizer = known.ref() if known is not None else None
            if known is not None and optimizer is not None:
                known.last = at
                self._events.fast_path_optimizer_stepped.emit(optimizer, at)

    def _pass(self) -> None:
        """End a step that took the fast path."""
        if self._clip_norms:
            self._pass_clip_norm()
        self._ends.append(_clock())
        if self.backwards:  # calls that were counted before the step took the fast path
            loss, calls, scale, away = self.losses.take()
            self.noted += [(self.index, number, NotedLoss()) for number in self.backwards[:-1]]
            self.noted.append((self.index, self.backwards[-1], NotedLoss(loss, calls, scale, away)))
        self.index += 1
        self.passing -= 1
        self.room = self.losses.plain
        self._next()
        if not self.passing:
            self.stop_passing(True)

    def stop_passing(self, between: bool = False) -> None:
        """End the fast path now, for the running step, too. `between`: no step is running."""
        steps, ends, self._ends = self.index - self._began_to, self._ends, []
        self._stretch = self._began_to, self._last, ends
        self.passing, self.only, self._began_to = 0, {}, self.index
        if steps and os.getpid() == self._pid:
            before, self._last = self._last, ends[-1] if ends else _clock()
            self._events.fast_path_ended.emit(steps, self._last - before, between)
        elif self.noted:
            self._take_notes()

    def have_passed(self, mine: float) -> tuple[BriefSteps | None, dict[int, OnAccelerator]]:
        """Return the deferred records of the fast-path steps; and by step, what of it is on an accelerator.

        :param mine: seconds that recording took in each.
        """
        (first, before, ends), notes = self._stretch, self._take_notes()
        clips, self._passed_clip_norms = self._passed_clip_norms, []
        size = len(ends)
        away: dict[int, OnAccelerator] = {}
        if not self.tells or not size or first + size != self.index:
            return None, {}
        losses, scales = array("d", [0.0]) * size, array("d", [1.0]) * size
        calls, counts, backwards = array("i", [0]) * size, array("i", [0]) * size, array("q")
        for step, number, noted in notes:
            at = step - first
            counts[at] += 1
            backwards.append(number)
            if noted.calls:
                losses[at] += noted.value or 0.0
                calls[at] += noted.calls
                scales[at] = noted.scale
                if noted.away:
                    away.setdefault(step, ([], []))[0].extend(noted.away)
        norms = array("d", [-1.0]) * size
        for step, norm in clips:
            if isinstance(norm, float):
                norms[step - first] = norm
            else:
                away.setdefault(step, ([], []))[1].append(norm)
        seconds = array("d", map(sub, ends, (before, *ends)))
        return BriefSteps(first, mine, self.graphs, seconds, losses, calls, scales, counts, norms, backwards), away

    def _take_notes(self) -> list[tuple[int, int, NotedLoss]]:
        """Return the notes of calls in earlier steps, in the order of the calls; clear all notes.

        The running step leaves the fast path: the calls noted for it become part of it.
        """
        notes, self.noted = self.noted, []
        notes.sort()  # by step and number of the call
        loss, numbers = NotedLoss(), self.backwards
        while notes and notes[-1][0] == self.index:
            _, number, noted = notes.pop()
            numbers, loss = [*numbers, number], noted.and_(loss)
        self.backwards = sorted({*numbers})
        self.losses.passed(loss)
        return notes

    def _memory(self, now: float) -> tuple[int | None, int | None]:
        """Return the bytes used by this process and by its accelerator, from a cache.

        They are read at most a hundred times a second, and rarely enough to take at most a thousandth of the time.
        """
        if now >= self._held[0]:
            held = resident(), allocated()
            self._held = now + max(0.01, 1000 * (_clock() - now)), *held
        return self._held[1:]

    def _mine(self) -> bool:
        return not self.paused and os.getpid() == self._pid and threading.get_ident() == self._thread

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if _compiling():  # Dynamo traces this function: return at once, so that nothing breaks the graph or enters it
            return
        if id(optimizer) in self.only:
            return
        if self._mine():
            if self.only or (self.passing and not self._is_known(optimizer)):  # the fast path does not expect it
                self.stop_passing()
            self.stepping = True
            if self.passing:
                return
            mark = self._events.own.begin()
            try:
                with private.unseen():
                    self._events.optimizer_begins.emit(optimizer)
                    self._begins(optimizer)
            except Exception as error:
                self._events.fault(self, error)
            closure = next(filter(callable, (*args[1:], *kwargs.values())), None)
            if closure is not None:
                self._events.closure_step_begins.emit(optimizer, closure)
            elif code_objects.is_builtin_optimizer(optimizer):
                self._events.builtin_optimizer_begins.emit(optimizer)
            self._events.own.since(mark)

    def _begins(self, optimizer: torch.optim.Optimizer) -> None:
        groups = optimizer.param_groups
        count, sampled = sum(len(group["params"]) for group in groups), self.samples.due(self.index < self._first)
        new = self._sizes.get(id(optimizer)) != count
        if not (new or sampled):
            return
        parameters = [p for group in groups for p in group["params"]]
        if new:
            self._sizes[id(optimizer)] = count
            known = self._known(optimizer, None)
            known.groups, known.empty = len(groups), sum(not group["params"] for group in groups)
            known.twice = count - len({id(p) for p in parameters})
            for p in parameters:
                ref = private.tensor_ref(p)
                self.held[id(ref)] = known.refs[id(p)] = ref
            if len(self.held) > MAX_HELD:
                self.held = {key: ref for key, ref in self.held.items() if ref() is not None}
        self._known(optimizer, None).frozen = sum(not p.requires_grad for p in parameters)
        if sampled:
            self.samples.before(parameters, self.samples_away)

    def _after(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        if _compiling():
            return
        by, now = id(optimizer), _next_seq()
        if self.called and self.passing > 1 and by in self.only and not self.backwards:
            if self._clip_norms:
                self._pass_clip_norm()
            self._ends.append(_clock())
            self.passing -= 1
            self.index += 1
            self.room, self._written, self.called = self.losses.plain, 0, False
            self._stepped[by] = now
            self._ended = now, self.only[by]
            return
        if not self._mine():
            return
        mark = self._events.own.begin() if not self.passing else None
        if mark is None:
            self._stepped[by] = now
        self.stepping, self.stepped, self.ever_stepped = False, True, True
        self._turn.add(by)
        try:
            with private.unseen():
                if mark is not None:
                    self.stepped_by.add(by)
                    if (known := self.optimizers.get(by)) is not None:
                        known.last, known.step = now, self.index
                    self._events.optimizer_ended.emit(optimizer)
                    self.samples.after()
                if self._belongs_before(by, now):
                    self._joins()
                elif self.index >= self._first and self._complete() and self._ends_early():
                    self._ended = now, frozenset(self._turn)
                    self.finish()
        except Exception as error:
            self._events.fault(self, error)
        if mark is not None:
            self._events.own.since(mark)

    def _belongs_before(self, by: int, now: int) -> bool:
        """Return whether an optimizer steps in the step that has just ended.

        That is so if nothing was computed since another one stepped.
        """
        at, turn = self._ended
        return at == now and by not in turn and not (self.called or self.backwards or self._written)

    def _joins(self) -> None:
        """Add the optimizer to the step that ended too early; from now on, steps wait for all of the group."""
        at, turn = self._ended
        self._ended = at, turn | self._turn
        self._turns.add(self._ended[1])
        self._turn.clear()
        self.stepped, self.only = False, {}

    def _complete(self) -> bool:
        """Return whether all optimizers have stepped that are known to step in one step."""
        if len(self._turns) == 1:
            return self._turn in self._turns
        return self._turn in self._turns and not any(self._turn < turn for turn in self._turns)

    @property
    def alone(self) -> bool:
        """Return whether no optimizer is known that would mark the end of a step."""
        return not self.optimizers and not self.ever_stepped

    @property
    def coming(self) -> int:
        """Return the step that a forward which begins now belongs to."""
        over = self.stepped or (self.alone and bool(self.backwards or self._written))
        return self.index + over

    @property
    def listed(self) -> dict[int, weakref.ref[torch.Tensor]] | None:
        """Return the parameters that an optimizer held when it stepped; ``None`` if no optimizer has stepped."""
        return self.held if self.ever_stepped else None

    def goes_on(self, ref: weakref.ref[torch.optim.Optimizer], since: int) -> bool:
        """Return whether an optimizer that holds the tensor has stepped since the node counter was at `since`."""
        return any(
            max(o.last, self._stepped.get(by, -1)) > since and any(ref is one for one in o.refs.values())
            for by, o in self.optimizers.items()
        )

    @property
    def present(self) -> list[dict[int, weakref.ref[Any]]]:
        """Return, for each optimizer that stepped, the parameters that were visible where it was created."""
        return [o.present for o in self.optimizers.values() if o.present and o.refs]

    def records(self) -> tuple[OptimizerSeen, ...]:
        """Return records of the optimizers that stepped."""
        frames, leaves = self._names.frames, self._names.leaves
        found = []
        for o in self.optimizers.values():
            told = len(o.refs), leaves.orphans(o.refs), o.groups, o.empty, o.twice, o.frozen
            found.append(OptimizerSeen(o.name, frames.site(o.spot), *told))
        return tuple(found)

    def made(self, optimizer: Any, spot: Any, modules: Callable[[], list[Any]]) -> None:
        """Note an optimizer that is being created, or given more parameters, at `spot`, where `modules` are visible."""
        known = self.optimizers.get(id(optimizer))
        if len(self.optimizers) < 1000 and (known is None or known.ref() is not optimizer):
            known = self._known(optimizer, spot)
            parameters = {id(p): p for m in modules() for p in m.parameters()}
            known.present = {key: private.tensor_ref(p) for key, p in parameters.items()}
            for p in parameters.values():
                if not p.requires_grad:
                    self._names.leaves.left_out(p)

    def _is_known(self, optimizer: torch.optim.Optimizer) -> bool:
        known = self.optimizers.get(id(optimizer))
        return known is not None and known.ref() is optimizer

    def _freed(self, by: int) -> None:
        """Forget an optimizer that is gone: a new one may get the same id."""
        self.only.pop(by, None)
        self._sizes.pop(by, None)
        if (known := self.optimizers.get(by)) is not None:
            known.last = max(known.last, self._stepped.pop(by, -1))
        self._turns = {turn for turn in self._turns if by not in turn or len(turn) == 1}  # no step waits for it

    def _known(self, optimizer: object, spot: CodeLocation | None) -> SeenOptimizer:
        known = self.optimizers.get(id(optimizer))
        if known is None or known.ref() is not optimizer:
            by = id(optimizer)
            if known is not None and self._displaced < MAX_FREED_OPTIMIZERS:
                self._displaced += 1
                self.optimizers[-self._displaced] = known
            ref = weakref.ref(optimizer, lambda _: self._freed(by))
            known = SeenOptimizer(type(optimizer).__name__, spot, {}, ref)
            self.optimizers[id(optimizer)] = known
            self._sizes.pop(id(optimizer), None)
        return known

    def some_held(self) -> list[Any]:
        """Return up to four of the parameters that optimizers hold."""
        alive = (o for o in self.optimizers.values() if o.ref() is not None)
        parameters = (ref() for o in alive for ref in o.refs.values())
        return list(islice((p for p in parameters if p is not None), 4))

    def scaler_updates(self, scale: object) -> None:
        """Note that a ``GradScaler`` is about to update its `scale`.

        The iteration is over, even if the optimizer was skipped.
        """
        self.losses.scaled(scale)
        self.stepped = self.stepped or bool(self.backwards)

    def grad_over(self) -> None:
        """Note a call of ``autograd.grad`` whose graph is freed and that made none."""
        if not (self.optimizers or self.ever_stepped or self.stepping or self._written):
            self.stepped = True

    def writes(self, leaves: list[torch.Tensor]) -> None:
        """Note that a backward call begins that adds gradients to `leaves`."""
        if not self.accumulates(leaves):
            self.finish()
        self._written += 1
        self.losses.begins()

    @property
    def calls_closure_again(self) -> bool:
        """Whether an optimizer is stepping and the running backward call is not the first of the step."""
        return self.stepping and self._written > 1

    def accumulates(self, leaves: list[torch.Tensor]) -> bool:
        """Return whether a backward call into `leaves` belongs to the running step (Note [Where a step ends])."""
        if self.stepping:  # an optimizer that calls a closure
            return True
        if self.stepped:
            return False
        if self.ever_stepped or not self._written or (self.optimizers and self._written < MAX_CALLS_BEFORE_FIRST_STEP):
            return True
        for leaf in leaves:
            if leaf.grad is not None:
                return is_zero(leaf.grad) is not True
        return False
