"""Training steps: detects where each one ends.

Note [Where a step ends]: a step is an update. After an optimizer's step, the training step is over when the next
forward or backward begins: several optimizers that step one after the other end one step; a critic and a generator that
alternate end one each. A ``GradScaler`` that skips the optimizer also ends a step, when it updates its scale.
``autograd.grad`` ends none: a penalty or an inner loop belongs to the update after it.

Before any optimizer has stepped, it matters whether one was seen being created. If so, everything is one step until it
steps. If not, the script updates by hand: a backward call that finds gradients accumulates into the same step, and one
that finds none begins a new step; ``autograd.grad`` without ``retain_graph`` and ``create_graph`` ends a step. Two
things cannot be known: an update that the script itself skips makes one step with the next, and work after the last
update is a step of its own.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from array import array
from operator import sub
from typing import Any

import torch
from torch.optim import optimizer as optim

from ...records import BriefSteps, Step
from ...torch_internals import code_objects, gradient_clipping, private
from ...torch_internals.memory_usage import allocated, resident
from ..events import Events
from ..forward.naming import Naming
from ..recording_state import RecordingState
from .cost import Cost
from .losses import Losses, NotedLoss, is_zero, loss_scale
from .samples import AcceleratorClipNorm, AcceleratorNorms, Samples
from .seen_optimizers import SeenOptimizers
from .step_hooks import StepHooks

#: The losses and the norms of a step that are still on an accelerator.
OnAccelerator = tuple[list[Any], list[AcceleratorNorms | AcceleratorClipNorm]]

#: Backward calls after which an optimizer that was created, but never steps, is no longer waited for.
MAX_CALLS_BEFORE_FIRST_STEP = 100
_clock, _next_seq, _compiling = time.perf_counter, private.next_sequence_nr, private.compiling


class StepWatch:
    """Detects where training steps begin and end, and makes a record of each.

    :ivar has_stepped: an optimizer has stepped in the running step, so that the next forward or backward ends it.
    :ivar is_stepping: an optimizer is inside its ``step``.
    :param ends_early: end a step as soon as all optimizers that belong to it have stepped, unless a backward call is
        running. Otherwise a step ends when the next one begins.
    :param start_steps: in this many steps at the start, parameters are sampled and no step ends early.
    """

    def __init__(
        self,
        names: Naming,
        events: Events,
        cost: Cost,
        state: RecordingState,
        ends_early: bool = False,
        start_steps: int = 3,
        share: float | None = None,
    ) -> None:
        """Start paused, at step 0.

        :param names: names of parameters; ``cost``: charged with our time in each step; ``state``: whether a backward
            call runs.
        :param share: the share of the time that sampling parameters may take.
        """
        self._names, self._events, self._cost, self._start_steps = names, events, cost, start_steps
        self._state, self._may_end_early = state, ends_early
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self.is_paused = True
        self.index = 0
        #: Graphs of earlier steps that are alive, if they are counted.
        self.live_graphs = 0
        self.has_stepped = self.is_stepping = False
        self._final_position: tuple[int, bool] | None = None
        self.has_ever_stepped = False
        self.losses = Losses(lambda: loss_scale(names.frames))
        #: Indices of the backward calls of the running step.
        self.call_indices: list[int] = []
        #: The number of backward calls of the running step that add to gradients.
        self._accumulating_calls = 0
        #: Whether some optimizer calls a closure: its backward calls come while it steps, also in the fast path.
        self._calls_closures = False
        self.optimizers = SeenOptimizers(names, self._forget_optimizer)
        #: Ids of optimizers that stepped outside the fast path.
        self.recorded_optimizers: set[int] = set()
        #: How many more steps take the fast path, and the step at which the fast path began.
        self.fast_path_left = self._fast_path_begin = 0
        #: Whether norms are taken of tensors on an accelerator: in recorded steps.
        self.samples_accelerators = True
        #: If one optimizer ends each fast-path step, as critic and generator do in turn: maps the id of each such
        #: optimizer to its set in ``_optimizer_sets``. Otherwise empty.
        self.fast_path_optimizers: dict[int, frozenset[int]] = {}
        #: Whether a call of the running step took the fast path.
        self.has_fast_path_call = False
        #: The node counter at the end of the last step that ended early, and the ids of the optimizers that stepped in
        #: it.
        self._early_end: tuple[int, frozenset[int]] = -1, frozenset()
        #: Whether fast-path steps get deferred records, as far as possible.
        self.defers_records = False
        #: The time at which each fast-path step ended; and for each backward call in these steps, the step, the index
        #: of the call, and its contribution to the loss.
        self._step_ends: list[float] = []
        self.noted_calls: list[tuple[int, int, NotedLoss]] = []
        #: How many more backward calls the running step may have on the fast path. With more calls than the last step
        #: had, it is unknown whether gradients were cleared between them.
        self.calls_left = 0
        #: The last stretch of fast-path steps: its first step, the time at which it began, and when each step ended.
        self._last_stretch: tuple[int, float, list[float]] = 0, 0.0, []
        #: Ids of the optimizers that have stepped in the running step; and the sets of optimizers that stepped in one
        #: training step each.
        self._step_optimizers: set[int] = set()
        self._optimizer_sets: set[frozenset[int]] = set()
        #: The total norms that gradient clipping computed in the running step; and those of fast-path steps, each with
        #: the index of its step.
        self._clip_norms: list[float | AcceleratorClipNorm | None] = []
        self._deferred_clip_norms: list[tuple[int, float | AcceleratorClipNorm]] = []
        self.samples = Samples(names, share)
        self._step_began = self._paused_at = _clock()
        #: The time of the next read; the bytes used by this process and by its accelerator at the last one.
        self._memory_cache: tuple[float, int | None, int | None] = (0.0, None, None)
        self._pid, self._thread = os.getpid(), threading.get_ident()
        self._clip_listener = self.note_clip_norm
        #: The hooks of trackers, which are paused and removed with those of this object.
        self.tracker_hooks: list[StepHooks] = []

    def start(self) -> None:
        """Begin or resume observing: register hooks before and after every optimizer's step, and listen to gradient
        clipping.
        """
        self._step_began += _clock() - self._paused_at  # a pause is no part of a step
        self._cost.resume()
        self.is_paused = False
        gradient_clipping.listen(self._clip_listener)
        self._handles = self._handles or [
            optim.register_optimizer_step_pre_hook(self._optimizer_pre_hook),
            optim.register_optimizer_step_post_hook(self._optimizer_post_hook),
        ]

    def note_compiled_optimizer_step(self) -> None:
        """Note that an optimizer stepped in compiled code, which calls none of its hooks."""
        self.has_stepped = True

    def set_live_graphs(self, alive: int) -> None:
        """Set the number of graphs of earlier steps that are alive."""
        self.live_graphs = alive

    def sample_accelerators(self, on: bool) -> None:
        """Set whether norms of tensors on an accelerator are measured."""
        self.samples_accelerators = on

    def pause(self) -> None:
        """Observe nothing until ``start``. The hooks stay, because this may be called from one of them."""
        if not self.is_paused:
            self._paused_at = _clock()
        self.is_paused = True
        self.leave_fast_path()
        self.samples.drop_copies()
        for hooks in self.tracker_hooks:
            hooks.pause()

    def remove(self) -> None:
        """Remove the hooks on optimizers and scalers without finishing the running step."""
        self.pause()
        gradient_clipping.unlisten(self._clip_listener)
        for hooks in self.tracker_hooks:
            hooks.remove()
        while self._handles:
            self._handles.pop().remove()

    @property
    def position(self) -> tuple[int, bool]:
        """Return the index of the running step and whether its optimizer has stepped, or both as they were when
        observing ended.
        """
        return self._final_position or (self.index, self.has_stepped)

    def mark_end(self) -> None:
        """Fix ``position``: observing ends here."""
        self._final_position = self._final_position or (self.index, self.has_stepped)

    def stop(self) -> None:
        """Remove the hooks, and finish the running step if anything happened in it. A forked child finishes no step."""
        self.remove()
        if os.getpid() == self._pid and (self.has_stepped or self.call_indices or self._accumulating_calls):
            self.finish()

    def finish(self) -> None:
        """End the running training step, and begin the next.

        Emits the step's record unless the step took the fast path.
        """
        if self.fast_path_left:
            self._end_fast_path_step()
            return
        if self.noted_calls:
            self._take_noted_calls()
        now = _clock()
        seconds = now - self._step_began
        mine = self._cost.charge_steps(seconds)
        loss, calls, scale, away = self.losses.take()
        norms, sampled_away = self.samples.take()
        norms_away: list[AcceleratorNorms | AcceleratorClipNorm] = [*sampled_away]
        clip = self._take_clip_norm()
        if isinstance(clip, AcceleratorClipNorm):
            norms_away.append(clip)
            clip = None
        held = *self._memory_in_use(now), self.live_graphs, clip
        step = Step(self.index, seconds, loss, tuple(self.call_indices), norms, mine, calls, scale, *held)
        self.index += 1
        self._step_began = now
        self._reset_step()
        self._fast_path_begin = self.index
        self._events.step_finished.emit(step, away, norms_away)

    def _can_end_now(self) -> bool:
        """Return whether a step may end before the next one begins: as configured, and outside of backward calls."""
        return self._may_end_early and not self._state.in_call

    def _reset_step(self) -> None:
        """Clear what is known of the running step, after adding its set of optimizers to the known sets."""
        if self._step_optimizers and len(self._optimizer_sets) < 100:
            self._optimizer_sets.add(frozenset(self._step_optimizers))
        self._step_optimizers.clear()
        self.has_stepped, self.has_fast_path_call, self.call_indices, self._accumulating_calls = False, False, [], 0

    def note_clip_norm(self, norm: Any) -> None:
        """Record the total norm of gradients that ``clip_grad_norm_`` computed; on an accelerator, without waiting for
        it.
        """
        if not self._is_observed_here():
            return
        found: float | AcceleratorClipNorm | None = None
        try:
            with private.disable_function_modes():
                if type(norm) is torch.Tensor and not private.is_unsafe_to_read(norm, ignores_our_modes=True):
                    with private.hide_from_dispatch_modes():
                        found = float(norm.item()) if norm.is_cpu else AcceleratorClipNorm(norm.detach().reshape(1))
        except Exception as error:
            self._events.fault(self, error)
        self._clip_norms.append(found)

    def _take_clip_norm(self) -> float | AcceleratorClipNorm | None:
        """Return and reset the norm that clipping computed in this step; ``None`` if it was not called exactly once."""
        norms, self._clip_norms = self._clip_norms, []
        return norms[0] if len(norms) == 1 else None

    def _defer_clip_norm(self) -> None:
        """Keep the clip norm of a fast-path step that is over for its deferred record."""
        found = self._take_clip_norm()
        if found is not None and self.defers_records:
            self._deferred_clip_norms.append((self.index, found))

    def enter_fast_path(self, steps: int, defers_records: bool = False) -> None:
        """Let the next `steps` steps take the fast path (Note [Steps that pass]).

        :param defers_records: they get deferred records.
        """
        self.fast_path_left, self.defers_records, self.calls_left = steps, defers_records, self.losses.summed_calls
        if steps:
            single = all(len(turn) == 1 for turn in self._optimizer_sets) and not self._calls_closures
            self.fast_path_optimizers = (
                {by: turn for turn in self._optimizer_sets for by in turn} if single and self._can_end_now() else {}
            )

    def emit_fast_path_steps(self) -> None:
        """Emit the optimizers that stepped during the fast path, in order: their writes may matter later."""
        for optimizer, at in self.optimizers.take_fast_path_steps():
            self._events.fast_path_optimizer_stepped.emit(optimizer, at)

    def _end_fast_path_step(self) -> None:
        """End a step that took the fast path, without a record; end the fast path after the last one of its steps."""
        if self._clip_norms:
            self._defer_clip_norm()
        self._step_ends.append(_clock())
        if self.call_indices:  # calls that were counted before the step took the fast path
            loss, calls, scale, away = self.losses.take()
            self.noted_calls += [(self.index, number, NotedLoss()) for number in self.call_indices[:-1]]
            self.noted_calls.append((self.index, self.call_indices[-1], NotedLoss(loss, calls, scale, away)))
        self.index += 1
        self.fast_path_left -= 1
        self.calls_left = self.losses.summed_calls
        self._reset_step()
        if not self.fast_path_left:
            self.leave_fast_path(True)

    def leave_fast_path(self, between: bool = False) -> None:
        """End the fast path at once, also for the running step.

        :param between: no step is running.
        """
        steps, ends, self._step_ends = self.index - self._fast_path_begin, self._step_ends, []
        self._last_stretch = self._fast_path_begin, self._step_began, ends
        self.fast_path_left, self.fast_path_optimizers, self._fast_path_begin = 0, {}, self.index
        if steps and os.getpid() == self._pid:
            before, self._step_began = self._step_began, ends[-1] if ends else _clock()
            self._events.fast_path_ended.emit(steps, self._step_began - before, between)
        elif self.noted_calls:
            self._take_noted_calls()

    def deferred_records(self, overhead: float) -> tuple[BriefSteps | None, dict[int, OnAccelerator]]:
        """Return the deferred records of the last stretch, and by step, its numbers that are on an accelerator.

        Returns no records if there are none to make. Clears the notes that were taken for them.

        :param overhead: seconds that backprobe took in each step.
        """
        (first, before, ends), notes = self._last_stretch, self._take_noted_calls()
        clips, self._deferred_clip_norms = self._deferred_clip_norms, []
        size = len(ends)
        away: dict[int, OnAccelerator] = {}
        if not self.defers_records or not size or first + size != self.index:
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
        return BriefSteps(
            first, overhead, self.live_graphs, seconds, losses, calls, scales, counts, norms, backwards
        ), away

    def _take_noted_calls(self) -> list[tuple[int, int, NotedLoss]]:
        """Return the noted calls of finished steps, in order, and clear all noted calls.

        The noted calls of the running step are added to that step.
        """
        notes, self.noted_calls = self.noted_calls, []
        notes.sort()  # by step and number of the call
        loss, numbers = NotedLoss(), self.call_indices
        while notes and notes[-1][0] == self.index:
            _, number, noted = notes.pop()
            numbers, loss = [*numbers, number], noted.plus(loss)
        self.call_indices = sorted({*numbers})
        self.losses.add_fast_path_losses(loss)
        return notes

    def _memory_in_use(self, now: float) -> tuple[int | None, int | None]:
        """Return the bytes used by this process and by its accelerator, from a cache.

        They are read at most a hundred times a second, and rarely enough to take at most a thousandth of the time.
        """
        if now >= self._memory_cache[0]:
            held = resident(), allocated()
            self._memory_cache = now + max(0.01, 1000 * (_clock() - now)), *held
        return self._memory_cache[1:]

    def _is_observed_here(self) -> bool:
        """Return whether steps are observed in this process and thread."""
        return not self.is_paused and os.getpid() == self._pid and threading.get_ident() == self._thread

    def _optimizer_pre_hook(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Handle the beginning of any optimizer's ``step``: emit the events, note new parameters and sample some.

        In the fast path it does next to nothing, but ends the fast path if the optimizer is not expected in it.
        """
        if _compiling():  # Dynamo traces this function: return at once, so that nothing breaks the graph or enters it
            return
        if id(optimizer) in self.fast_path_optimizers:
            return
        if self._is_observed_here():
            if self.fast_path_optimizers or (
                self.fast_path_left and not self.optimizers.has(optimizer)
            ):  # the fast path does not expect it
                self.leave_fast_path()
            self.is_stepping = True
            if self.fast_path_left:
                return
            mark = self._events.own.begin()
            try:
                with private.disable_function_modes():
                    self._events.optimizer_begins.emit(optimizer)
                    self._begin_optimizer_step(optimizer)
            except Exception as error:
                self._events.fault(self, error)
            closure = next(filter(callable, (*args[1:], *kwargs.values())), None)
            if closure is not None:
                self._calls_closures = True
                self._events.closure_step_begins.emit(optimizer, closure)
            elif code_objects.is_builtin_optimizer(optimizer):
                self._events.builtin_optimizer_begins.emit(optimizer)
            self._events.own.since(mark)

    def _begin_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Note the optimizer's parameters if they are new, and measure some before the step if it is a step for
        samples.
        """
        groups, known = optimizer.param_groups, self.optimizers.see(optimizer)
        sizes = [len(group["params"]) for group in groups]
        new = known.count != sum(sizes)
        sampled = self.index < self._start_steps or self.samples.is_due(self.index, known.sampled_step)
        if not (new or sampled):
            return
        parameters = [p for group in groups for p in group["params"]]
        if new:
            self.optimizers.note_parameters(known, parameters, sizes)
        known.frozen_parameters = sum(not p.requires_grad for p in parameters)
        if sampled:
            known.sampled_step = self.index
            self.samples.measure_before_step(parameters, self.samples_accelerators)

    def _optimizer_post_hook(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        """Handle the end of any optimizer's ``step``: emit ``optimizer_ended``, and end the training step if all have
        stepped.

        If each optimizer ends a fast-path step alone, it only counts that step.
        """
        if _compiling():
            return
        by, now = id(optimizer), _next_seq()
        if (
            self.has_fast_path_call
            and self.fast_path_left > 1
            and by in self.fast_path_optimizers
            and not self.call_indices
        ):
            if self._clip_norms:
                self._defer_clip_norm()
            self._step_ends.append(_clock())
            self.fast_path_left -= 1
            self.index += 1
            self.calls_left, self._accumulating_calls, self.has_fast_path_call = self.losses.summed_calls, 0, False
            self.optimizers.fast_path_counters[by] = now
            self._early_end = now, self.fast_path_optimizers[by]
            return
        if not self._is_observed_here():
            return
        mark = self._events.own.begin() if not self.fast_path_left else None
        if mark is None:
            self.optimizers.fast_path_counters[by] = now
        self.is_stepping, self.has_stepped, self.has_ever_stepped = False, True, True
        self._step_optimizers.add(by)
        try:
            with private.disable_function_modes():
                if mark is not None:
                    self.recorded_optimizers.add(by)
                    if (known := self.optimizers.get(by)) is not None:
                        known.last_counter, known.step = now, self.index
                    self._events.optimizer_ended.emit(optimizer)
                    self.samples.measure_updates()
                if self._belongs_to_ended_step(by, now):
                    self._extend_ended_step()
                elif self.index >= self._start_steps and self._all_have_stepped() and self._can_end_now():
                    self._early_end = now, frozenset(self._step_optimizers)
                    self.finish()
        except Exception as error:
            self._events.fault(self, error)
        if mark is not None:
            self._events.own.since(mark)

    def _belongs_to_ended_step(self, by: int, now: int) -> bool:
        """Return whether an optimizer that steps now belongs to the step that has just ended early.

        It does if another optimizer ended that step, and since then no node was made and backward was not called.
        """
        at, turn = self._early_end
        return (
            at == now
            and by not in turn
            and not (self.has_fast_path_call or self.call_indices or self._accumulating_calls)
        )

    def _extend_ended_step(self) -> None:
        """Add the optimizers that stepped now to the step that ended too early; later steps wait for all of the set."""
        at, turn = self._early_end
        self._early_end = at, turn | self._step_optimizers
        self._optimizer_sets.add(self._early_end[1])
        self._step_optimizers.clear()
        self.has_stepped, self.fast_path_optimizers = False, {}

    def _all_have_stepped(self) -> bool:
        """Return whether all optimizers that are known to step in one training step have stepped."""
        if len(self._optimizer_sets) == 1:
            return self._step_optimizers in self._optimizer_sets
        return self._step_optimizers in self._optimizer_sets and not any(
            self._step_optimizers < turn for turn in self._optimizer_sets
        )

    @property
    def no_optimizer_seen(self) -> bool:
        """Return whether no optimizer was created or stepped so far: nothing else would mark the end of a step."""
        return not self.optimizers and not self.has_ever_stepped

    @property
    def next_forward_step(self) -> int:
        """Return the index of the step to which a forward that begins now belongs."""
        over = self.has_stepped or (self.no_optimizer_seen and bool(self.call_indices or self._accumulating_calls))
        return self.index + over

    @property
    def optimized_parameters(self) -> dict[int, weakref.ref[torch.Tensor]] | None:
        """Return the parameters that an optimizer held when it stepped; ``None`` if no optimizer has stepped."""
        return self.optimizers.held_parameters if self.has_ever_stepped else None

    def _forget_optimizer(self, by: int) -> None:
        """Forget a freed optimizer, whose id was `by`: a new one may get the same id."""
        self.fast_path_optimizers.pop(by, None)
        self._optimizer_sets = {
            turn for turn in self._optimizer_sets if by not in turn or len(turn) == 1
        }  # no step waits for it

    def note_scaler_update(self, scale: object) -> None:
        """Note that a ``GradScaler`` is about to update its `scale`.

        The iteration is over, even if the optimizer was skipped.
        """
        self.losses.note_scale_update(scale)
        self.has_stepped = self.has_stepped or bool(self.call_indices)

    def note_autograd_grad(self) -> None:
        """Note that an ``autograd.grad`` call with neither ``retain_graph`` nor ``create_graph`` returned.

        It ends the step if no optimizer is known and no backward call added to gradients.
        """
        if not (self.optimizers or self.has_ever_stepped or self.is_stepping or self._accumulating_calls):
            self.has_stepped = True

    def begin_accumulating_call(self, leaves: list[torch.Tensor]) -> None:
        """Begin a backward call that adds gradients to `leaves`; first end the step if the call is not part of it."""
        if not self.belongs_to_step(leaves):
            self.finish()
        self._accumulating_calls += 1
        self.losses.begin_call()

    @property
    def calls_closure_again(self) -> bool:
        """Return whether an optimizer is stepping and the running backward call is not the first of the step."""
        return self.is_stepping and self._accumulating_calls > 1

    def belongs_to_step(self, leaves: list[torch.Tensor]) -> bool:
        """Return whether a backward call into `leaves` belongs to the running step (Note [Where a step ends])."""
        if self.is_stepping:  # an optimizer that calls a closure
            return True
        if self.has_stepped:
            return False
        if (
            self.has_ever_stepped
            or not self._accumulating_calls
            or (self.optimizers and self._accumulating_calls < MAX_CALLS_BEFORE_FIRST_STEP)
        ):
            return True
        for leaf in leaves:
            if leaf.grad is not None:
                return is_zero(leaf.grad) is not True
        return False
