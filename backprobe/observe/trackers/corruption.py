"""Detects gradients and weights that became NaN or Inf outside the backward: by the script, a hook or an optimizer.

Note [Changes between backward calls]: a weight that is bad when a step begins was finite in the previous backward, if
that backward gave it a finite gradient. Only a few things can have happened since: lines that used its gradient, hooks
that ran after the gradient was accumulated, lines that wrote to the weight, and the optimizer's step. If the script or
a hook touched the gradients, the tracker checks before the optimizer's step whether they are still finite, as long as
these checks take less than 1% of the run's time.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from ...basics.torch_texts import HOOKED_VIEW
from ...records import GradientHook, Spoilt
from ...source.definitions import result_of, written_in_loop
from ...source.frames import CodeLocation
from ...torch_internals import code_objects, private
from ...torch_internals.measure import Norms
from ...torch_internals.optimizers import ids_held_by, parameters_of
from ..backward.active_backward import ActiveBackward
from ..backward.layouts import LiveLayout
from ..backward.pending_call_record import PendingCallRecord
from ..forward.oplog import op_name, spot_of
from ..tracker import Tracker
from ..tracker_context import TrackerContext

if TYPE_CHECKING:
    from ...records import Site

_clock = time.perf_counter
#: Maximum number of records per run.
MAX_RECORDS = 20
#: Maximum number of tensor hooks whose registering line is remembered.
MAX_REMEMBERED_HOOKS = 10_000
#: The node that calls a module's backward hooks.
_MODULE_HOOK_NODE = f"{HOOKED_VIEW}Backward"


#: Weak references by id of the tensor.
_References: TypeAlias = dict[int, weakref.ref[Any]]


def _is_among(tensor: torch.Tensor, references: _References) -> bool:
    """Return whether one of `references` is to `tensor`, not to a freed tensor that had its id."""
    ref = references.get(id(tensor))
    return ref is not None and ref() is tensor


class CorruptionTracker(Tracker):
    """Tracker of what changes gradients and weights between backward calls."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without known leaves: nothing is followed before a backward call gave finite gradients."""
        self._context, self._names, self._frames = context, context.names, context.frames
        #: References, by id, to the leaves to which the backward calls since the last update gave finite gradients.
        self._finite_leaves: _References = {}
        self._references_by_layout: dict[LiveLayout, _References] = {}
        #: The same for gradients that were used since then; and the lines that did so, with the op that wrote to them,
        #: if any.
        self._used_gradients: _References = {}
        self._gradient_uses: dict[CodeLocation, str] = {}
        self._last_use: object = None
        #: Lines and ops that wrote to weights since then, with the ids of the weights.
        self._weight_writes: dict[tuple[CodeLocation | None, str], set[int]] = {}
        #: Optimizers that have stepped since then and their lines; and whether an earlier change of gradients was not
        #: checked.
        self._optimizer_steps: list[tuple[weakref.ref[torch.optim.Optimizer], CodeLocation | None]] = []
        self._has_unchecked_change = False
        #: The cause of the bad values was recorded, or searched for in vain.
        self._cause_known = False
        self._check_s, self._start_time = 0.0, _clock()
        #: By sequence number of a node whose tensor has a hook: the hook's code and the line that registered it.
        self._tensor_hooks: dict[int, tuple[object, CodeLocation | None]] = {}
        self._found: list[Spoilt] = []
        self._hook_records: list[GradientHook] = []

    # Events between two backward calls

    def grad_read_or_set(self, value: object, put: bool, frame: FrameType) -> None:
        """Note the line that uses or replaces a gradient since the last finite backward call."""
        if not self._finite_leaves:
            return
        if value is not None:
            self._used_gradients[id(value)] = private.tensor_ref(value)
        code = frame.f_code
        at = (code, frame.f_lasti)
        if at == self._last_use:
            return
        self._last_use = at
        if code.co_filename not in code_objects.KEEPS_FINITE and (spot := self._frames.spot(frame)) is not None:
            self._gradient_uses[spot] = "assignment to .grad" if put else self._gradient_uses.get(spot, "")

    def wrote(self, func: object, written: list[torch.Tensor], seq: int, frame: FrameType) -> None:
        """Note the line and op that wrote in place to a weight, or to a gradient that the script used."""
        if not self._finite_leaves or frame.f_code.co_filename in code_objects.KEEPS_FINITE:
            return
        spot = self._frames.spot(frame)
        mine = {id(t) for t in written if _is_among(t, self._finite_leaves)}
        if mine:
            self._weight_writes.setdefault((spot, op_name(func)), set()).update(mine)
        elif spot is not None and (
            spot in self._gradient_uses or any(_is_among(t, self._used_gradients) for t in written)
        ):
            self._gradient_uses[spot] = self._gradient_uses.get(spot) or op_name(func)

    def data_assigned(self, tensor: torch.Tensor, frame: FrameType) -> None:
        """Note the line that assigns ``.data`` of a weight."""
        if _is_among(tensor, self._finite_leaves):
            self._weight_writes.setdefault((self._frames.spot(frame), "assignment to .data"), set()).add(id(tensor))

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Check whether gradients that lines or hooks touched are still finite before the optimizer uses them.

        The check is left out if such checks have taken too much time.
        """
        if not self._finite_leaves or self._cause_known:
            return
        held = [p for p in parameters_of(optimizer) if _is_among(p, self._finite_leaves)]
        hooked = [p for p in held if getattr(p, "_post_accumulate_grad_hooks", None)]
        if not (self._gradient_uses or hooked):
            return
        self._has_unchecked_change = self._check_s > 0.01 * (_clock() - self._start_time) + 0.05
        if self._has_unchecked_change:
            return
        begin = _clock()
        bad = _nonfinite_items([(p, p.grad) for p in held if p.grad is not None])
        self._check_s += _clock() - begin
        if bad:
            self._cause_known = True
            self._record_bad_gradients(bad, [p for p in bad if p in hooked])

    def _record_bad_gradients(self, bad: list[object], hooked: list[torch.Tensor]) -> None:
        """Record why the gradients of `bad`, finite after their backward, are not finite any more."""
        if hooked and not self._gradient_uses:
            hook = next(iter(hooked[0]._post_accumulate_grad_hooks.values()))
            self._add_record("hooked gradient", bad, getattr(hook, "__name__", "a hook"), result_of(hook))
        elif self._gradient_uses:
            writers = {spot: op for spot, op in self._gradient_uses.items() if op} or self._gradient_uses
            spot, op = next(iter(writers.items()))
            self._add_record("gradient", bad, op, self._frames.site(spot), sure=len(writers) == 1 and not hooked)

    def optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that an optimizer stepped, and its line; the uses of gradients before it are over."""
        if self._finite_leaves:
            self._optimizer_steps.append((weakref.ref(optimizer), self._frames.spot(sys._getframe())))
            self._gradient_uses.clear()

    # Events of backward calls

    def hook_registered(self, tensor: torch.Tensor, hook: object, frame: FrameType) -> None:
        """Remember the code and the line of a hook that the script registers on a tensor with a node."""
        if len(self._tensor_hooks) >= MAX_REMEMBERED_HOOKS:
            self._tensor_hooks.clear()
        self._tensor_hooks[tensor.grad_fn._sequence_nr()] = (getattr(hook, "__code__", None), self._frames.spot(frame))

    def backward_returned(self, running: ActiveBackward) -> None:
        """Record the script's hooks in the graph of a call with bad gradients: one of them may have made a gradient
        bad.
        """
        if not running.watch.norms.bad or len(self._hook_records) >= MAX_RECORDS or self._cause_known:
            return
        index, graph = running.index, running.graph
        for i, seq in enumerate(graph.seqs):
            code, spot = self._tensor_hooks.get(seq, (None, None))
            if spot is not None:
                self._hook_records.append(GradientHook(index, i, result_of(code), self._frames.site(spot)))
            elif graph.plan.names[i] == _MODULE_HOOK_NODE:
                hook = self._find_module_hook(running, i)
                if hook is not None:
                    self._hook_records.append(GradientHook(index, i, result_of(hook), None, True))
        for i, leaf in graph.leaves:
            for hook in (leaf._backward_hooks or {}).values():
                self._hook_records.append(GradientHook(index, i, result_of(hook), None))

    def _find_module_hook(self, running: ActiveBackward, i: int) -> object:
        """Return a hook of the module whose backward hooks node `i` calls; ``None`` if there is none."""
        path = running.live.layout(self._names).nodes[i].module
        for root, model in self._names.modules.models():
            for name, module in model.named_modules():
                if self._names.modules.full_name(root, name) == path or (name == path and not path):
                    for hook in (*module._backward_pre_hooks.values(), *module._backward_hooks.values()):
                        return hook
        return None

    def backward_recorded(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Note which leaves a call gave finite gradients; if it is bad, record what made a weight bad since the last
        call.
        """
        if recorded.kind == "autograd.grad" or running.inside is not None or recorded.raised is not None:
            return
        if recorded.has_trouble:
            if self._optimizer_steps and not self._cause_known:
                self._record_bad_weights(running)
            self._cause_known, self._finite_leaves = True, {}
        else:
            mine = self._references_by_layout.get(running.live)
            if mine is None:
                if len(self._references_by_layout) > 16:
                    self._references_by_layout.clear()
                mine = self._references_by_layout[running.live] = {
                    id(v): private.tensor_ref(v) for _, v in running.graph.leaves
                }
            self._finite_leaves = (
                mine
                if self._optimizer_steps or not self._finite_leaves or mine is self._finite_leaves
                else self._finite_leaves | mine
            )
            self._cause_known = self._has_unchecked_change = False
        self._forget_events()

    def sentinel_call_begins(self, spot: CodeLocation | None, roots: Sequence[object]) -> None:
        """Forget which values were finite, because the events of an unrecorded step are unknown."""
        if self._finite_leaves or self._optimizer_steps:
            self._finite_leaves = {}
            self._forget_events()

    def fast_path_calls(self, spot: CodeLocation | None, count: int) -> None:
        """Forget which values were finite: calls of the fast path are not observed."""
        self.sentinel_call_begins(spot, ())

    def _forget_events(self) -> None:
        """Forget the steps, writes and uses of gradients since the last backward call."""
        self._optimizer_steps.clear()
        self._weight_writes.clear()
        self._gradient_uses.clear()
        self._used_gradients.clear()
        self._last_use = None

    def _record_bad_weights(self, running: ActiveBackward) -> None:
        """Record what made a weight bad since the last call, in the first call that is not finite."""
        bad = _nonfinite_items([(p, p) for _, p in running.graph.leaves if _is_among(p, self._finite_leaves)])
        if not bad:
            return
        numbers = {id(p) for p in bad}
        writers = [key for key, ids in self._weight_writes.items() if ids & numbers]
        if writers:
            spot, op = writers[0]
            self._add_record("weight", bad, op, self._frames.site(spot), sure=len(writers) == 1, ago=1)
            return
        for ref, spot in self._optimizer_steps:
            optimizer = ref()
            if optimizer is None:
                continue
            held = ids_held_by(optimizer)
            if numbers & held:
                op = f"{type(optimizer).__name__}.step"
                inside = written_in_loop(type(optimizer).step)
                mine = inside is not None and self._frames.is_users_file(inside.file)
                site, why = inside if mine else self._frames.site(spot), _describe_bad_setting(optimizer)
                setting = next(_nonfinite_settings(optimizer), None)
                made = self._context.values.nongraph.number_origin(setting[1] != setting[1]) if setting else None
                if made is not None and (line := self._frames.site(spot_of(made.entry))) is not None:
                    site, why = line, f"{why}, of a number that {op_name(made.entry[2])} gave"
                return self._add_record("update", bad, op, site, why, not self._has_unchecked_change, 1)

    def _add_record(
        self, what: str, bad: list[object], op: str, site: Site | None, why: str = "", sure: bool = True, ago: int = 0
    ) -> None:
        """Add a record of bad gradients or weights (`what`), unless there are ``MAX_RECORDS``.

        :param bad: the parameters; `op` and `site`: what made them bad; `ago`: how many steps before the running one.
        """
        if len(self._found) < MAX_RECORDS:
            names = tuple(self._names.of(p) for p in bad)
            step = max(self._context.steps.index - ago, 0)
            self._found.append(Spoilt(step, what, names, op, site, None, why, sure))

    def records(self) -> tuple[object, ...]:
        """Return the records of values that became bad, and of hooks in graphs of bad calls."""
        return (*self._found, *self._hook_records)


def _nonfinite_items(pairs: Iterable[tuple[object, torch.Tensor]]) -> list[Any]:
    """Return the first element of each of `pairs` whose second, a readable tensor, is not finite."""
    with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
        norms = Norms(sums=True, plain=True)
        here = [
            (p, private.local(t)) for p, t in pairs if t.layout is torch.strided and not private.is_unsafe_to_read(t)
        ]
        slots = [(p, norms.take(t.detach())) for p, t in here if t is not None]
        norms.flush()
    return [p for p, slot in slots if slot in norms.bad]


def _nonfinite_settings(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, float]]:
    """Yield the name and value of each setting of an optimizer that is not finite."""
    for group in optimizer.param_groups:
        yield from ((name, value) for name, value in group.items() if isinstance(value, float) and value - value != 0.0)


def _describe_bad_setting(optimizer: torch.optim.Optimizer) -> str:
    """Describe the first setting of an optimizer that is not finite, or an eps that is 0 in a parameter's dtype.

    The text is empty if there is none.
    """
    for name, value in _nonfinite_settings(optimizer):
        return f"its {name} is {value}"
    for group in optimizer.param_groups:
        eps = group.get("eps")
        halves = {p.dtype for p in group["params"] if p.dtype in (torch.float16, torch.bfloat16)}
        for dtype in halves if isinstance(eps, float) and eps > 0.0 else ():
            if not torch.tensor(eps, dtype=dtype):
                return f"its eps of {eps:g} is 0 in {str(dtype).removeprefix('torch.')}"
        if eps == 0.0:
            return "its eps is 0"
    return ""
