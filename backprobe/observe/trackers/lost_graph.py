"""Records why a loss has no graph: gradient mode was off while it was computed, or its parameters are frozen.

Note [Losses without a graph]: the cause is decided by what ran in the failed step. The outermost module calls of a
recorded step show whether gradient mode was on for each, and whether what it returned has a graph. If all parameters
of a module are frozen, calling it with gradient mode on gives no graph: then a ``no_grad`` block elsewhere in the step
is not the cause. In a step that is not recorded, only the present is known: whether gradient mode is off, and whether
all parameters that this line's earlier calls reached are frozen. The line that did it is then inferred from the source.
"""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from ...basics.torch_texts import NO_GRAPH
from ...records import FrozenLoss, NoGradient, Site
from ...source.definitions import use_of
from ...source.frames import CodeLocation
from ...source.grad_switches import blocks_around_value, freezes_always, freezing_lines, grad_mode_lines
from ...torch_internals import private
from ...torch_internals.optimizers import parameters_of
from ..backward.active_backward import ActiveBackward
from ..backward.layouts import LiveLayout
from ..backward.pending_call_record import PendingCallRecord
from ..forward.leaves import LeafTensor
from ..forward.modules import OutermostCall
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Maximum number of records, of tracked backward lines, and of graphs for each line.
MAX_RECORDS, MAX_LINES, MAX_GRAPHS_PER_LINE = 20, 100, 8
#: Maximum number of lines in ``candidates``.
MAX_CANDIDATES = 5


@dataclass
class _Freeze:
    """A tensor whose ``requires_grad`` was turned off: the user's line, and the line that called its function."""

    ref: weakref.ref[torch.Tensor]
    spot: CodeLocation | None
    caller: CodeLocation | None


@dataclass
class _Cause:
    """The cause of a loss without a graph: frozen leaves, or else gradient mode.

    :ivar lines: the observed lines that turned gradient mode off.
    :ivar sure: every module call that may have made the loss was observed and agrees.
    """

    frozen: list[LeafTensor] = field(default_factory=list)
    lines: list[Site | None] = field(default_factory=list)
    sure: bool = True


class LostGraphTracker(Tracker):
    """Tracker of backward calls from a loss that has no graph."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without freezes and graphs."""
        self._context, self._names, self._modules = context, context.names, context.modules
        self._found: list[NoGradient | FrozenLoss] = []
        self._freezes_by_id: dict[int, _Freeze] = {}
        #: The lines that froze any tensor, and those that called their functions.
        self._freezing_lines: set[CodeLocation | None] = set()
        #: By line: the graphs of its backward calls.
        self._graphs: dict[CodeLocation | None, dict[int, LiveLayout]] = {}
        #: Whether the last change of gradient mode was observed: no unrecorded backward call came after it.
        self._mode_observed = False
        #: The lines that turned gradient mode off in recorded steps.
        self._harmless: set[Site | None] = set()

    # Freezing and gradient mode

    def requires_grad_set(self, tensor: torch.Tensor, on: bool, frame: FrameType) -> None:
        """Note the line that freezes a tensor, with the line that called its function; forget it if the tensor is
        thawed.
        """
        if on:
            self._freezes_by_id.pop(id(tensor), None)
        elif tensor.requires_grad and len(self._freezes_by_id) < 100_000:
            frames, first = self._names.frames, self._names.frames.first(frame)
            spot = (first.f_code, first.f_lasti) if first is not None else None
            caller = frames.spot(first.f_back) if first is not None and first.f_code.co_name != "<module>" else None
            self._freezes_by_id[id(tensor)] = _Freeze(private.tensor_ref(tensor), spot, caller)
            self._freezing_lines |= {spot, caller}

    def grad_mode_set(self, on: bool, frame: FrameType) -> None:
        """Note that gradient mode changes are observed now, and the line that turns it off."""
        self._mode_observed = True
        if not on and len(self._harmless) < MAX_LINES:
            self._harmless.add(self._names.frames.site(self._names.frames.spot(frame)))

    def sentinel_call_begins(self, spot: CodeLocation | None, roots: Sequence[object]) -> None:
        """Note that changes of gradient mode are not observed: an unrecorded call is made."""
        self._mode_observed = False

    def fast_path_calls(self, spot: CodeLocation | None, count: int) -> None:
        """Note that changes of gradient mode are not observed: calls took the fast path."""
        self._mode_observed = False

    # Backward calls

    def backward_recorded(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Remember the graph of a call, or record why its root has none or is a leaf."""
        raised, roots = recorded.raised, running.roots
        if raised is None and len(running.graph.nodes) == len(roots) and all(map(_is_leaf_loss, roots)):
            # Only leaves were reached: such a loss may have been given requires_grad after it was computed.
            self._find_cause(running, recorded.step, forced=True)
        elif raised is None:
            graphs = self._graphs.get(running.spot)
            if graphs is None and len(self._graphs) < MAX_LINES:
                graphs = self._graphs[running.spot] = {}
            if graphs is not None and len(graphs) < MAX_GRAPHS_PER_LINE:
                graphs[id(running.live)] = running.live
        elif raised.node is None and NO_GRAPH in raised.text:
            self._find_cause(running, recorded.step, forced=False)

    def _find_cause(self, running: ActiveBackward, step: int, forced: bool) -> None:
        """Find why the roots of a call have no graph, and keep a record of it.

        :param forced: the call did not raise, because the roots are leaves that the script made require a gradient.
        """
        if len(self._found) >= MAX_RECORDS:
            return
        frames, roots = self._names.frames, running.roots
        failed = frames.site(running.spot)
        if any(isinstance(r, torch.Tensor) and r.is_inference() for r in roots):
            site = use_of(frames, "inference_mode", failed.file if failed else "") or self._modules.grad_off.last
            if site is not None:
                self._add_record(NoGradient("grad-mode", site, failed, "", "", observed=False, step=step))
            return
        recorded = self._context.recorder.recording
        cause = self._observed_cause(running.spot) if recorded else self._present_cause(running.spot)
        if cause is None:
            if not (recorded or forced):
                self._add_record(self._block_around_loss(failed, step))
        elif not cause.frozen:
            self._add_record(self._grad_mode_record(cause, step, failed))
        elif not forced or self._reached_by(running.spot):
            self._add_record(self._frozen_loss_record(cause, step, failed))

    def _add_record(self, found: NoGradient | FrozenLoss | None) -> None:
        """Keep a record, unless there is one for the same lines."""
        lines = [(one.site, one.failed) for one in self._found]
        if found is not None and (found.site, found.failed) not in lines:
            self._found.append(found)

    def _observed_cause(self, spot: CodeLocation | None) -> _Cause | None:
        """Return the cause in a recorded step, from its outermost module calls; ``None`` if they do not tell one.

        See Note [Losses without a graph]. `spot`: the line of the backward call.
        """
        modules, off_now = self._modules, not torch.is_grad_enabled()
        calls = modules.outermost
        if not calls:
            if off_now:
                return _Cause(lines=[modules.grad_off.last], sure=False)
            return self._present_cause(spot)
        graphless = [call for call in calls if not call.has_graph]
        off = [call for call in graphless if not call.grad_on]
        frozen = self._frozen_in(call for call in graphless if call.grad_on)
        if frozen:
            trained = [call for call in off if self._leaves_of(call.module(), trainable=True)]
            if len(graphless) == len(calls) and not trained:
                return _Cause(frozen, sure=not off_now)
            # Another module made values with a graph, or would have: the frozen one was to learn if it did before.
            if calls[-1] in graphless and calls[-1].grad_on and self._was_meant_to_learn(frozen):
                return _Cause(frozen, sure=False)
        if off and len(off) == len(calls):
            return _Cause(lines=list(dict.fromkeys(call.turned_off for call in off)))
        lines = modules.quiet_lines()
        if lines:
            return _Cause(lines=lines)
        return _Cause(lines=[modules.grad_off.last], sure=False) if off_now else None

    def _present_cause(self, spot: CodeLocation | None) -> _Cause | None:
        """Return the cause in an unrecorded step, from what is frozen and whether gradient mode is off now; ``None`` if
        unknown.
        """
        reached = self._reached_by(spot)
        leaves = [leaf for leaf in reached if leaf.ref() is not None]
        if leaves and not any(map(_is_trainable, leaves)):
            return _Cause(leaves, sure=False)
        if not torch.is_grad_enabled():
            return _Cause(sure=False)
        by_root: dict[int, list[LeafTensor]] = {}
        for leaf in leaves:
            by_root.setdefault(id(leaf.root), []).append(leaf)
        for mine in by_root.values():  # one of several models that this line trains
            if mine[0].root is not None and not any(map(_is_trainable, mine)):
                return _Cause(mine, sure=False)
        if not reached:
            held = [p for one in self._parameters_by_optimizer() for p in one]
            known = [one for p in held if (one := self._names.leaves.known(p)) is not None]
            if known and not any(p.requires_grad for p in held):
                return _Cause(known, sure=False)
        return None

    # Leaves

    def _reached_by(self, spot: CodeLocation | None) -> list[LeafTensor]:
        """Return the leaves that earlier backward calls of a line reached."""
        graphs = self._graphs.get(spot, {}).values()
        return list({id(leaf): leaf for graph in graphs for leaf in graph.named.values()}.values())

    def _leaves_of(self, module: Any, trainable: bool) -> list[LeafTensor]:
        """Return the parameters of a module that require a gradient, or those that do not."""
        tensors = [p for p in module.parameters() if p.requires_grad is trainable] if module is not None else []
        return [leaf for p in tensors if (leaf := self._names.leaves.known(p)) is not None]

    def _frozen_in(self, calls: Iterable[OutermostCall]) -> list[LeafTensor]:
        """Return the parameters of the modules of `calls`, if all of them are frozen."""
        found: dict[int, LeafTensor] = {}
        for call in calls:
            module = call.module()
            if module is None or any(p.requires_grad for p in module.parameters()):
                return []
            found |= {id(leaf): leaf for leaf in self._leaves_of(module, trainable=False)}
        return list(found.values())

    def _was_meant_to_learn(self, frozen: list[LeafTensor]) -> bool:
        """Return whether backward calls reached frozen leaves before, or an optimizer holds nothing but frozen ones."""
        if any(leaf.reached for leaf in frozen):
            return True
        mine = {id(leaf.ref()) for leaf in frozen}
        return any(mine >= {id(p) for p in held} for held in self._parameters_by_optimizer() if held)

    def _parameters_by_optimizer(self) -> list[list[torch.Tensor]]:
        """Return the parameters that each optimizer holds."""
        optimizers = [one.ref() for one in self._context.steps.optimizers.values()]
        return [parameters_of(one) for one in optimizers if one is not None]

    # Records

    def _frozen_loss_record(self, cause: _Cause, step: int, failed: Site | None) -> FrozenLoss:
        """Return the record of a loss whose parameters are frozen, with the line that froze them or candidates for
        it.
        """
        frames = self._names.frames
        learned = [leaf for leaf in cause.frozen if leaf.reached] or cause.frozen
        names = tuple(self._names.leaves.name(leaf) for leaf in learned)
        before = any(leaf.reached for leaf in learned)
        freezes = [self._freeze_of(leaf) for leaf in learned]
        lines = list(dict.fromkeys((one.spot, one.caller) for one in freezes if one is not None))
        if lines and self._context.recorder.recording and None not in freezes:
            site, caller = frames.site(lines[-1][0]), frames.site(lines[-1][1])
            if site is not None and freezes_always(site):
                caller = None
            others = tuple(s for one, _ in lines[:-1] if (s := frames.site(one)) is not None and s != site)
            return FrozenLoss(names, step, site, failed, caller, cause.sure, before, others[:MAX_CANDIDATES])
        candidates = self._freezing_candidates(learned, lines)
        site = candidates[0] if candidates else None
        return FrozenLoss(names, step, site, failed, None, False, before, tuple(candidates[:MAX_CANDIDATES]))

    def _freeze_of(self, leaf: LeafTensor) -> _Freeze | None:
        """Return where the tensor of `leaf` was frozen, if that was observed."""
        tensor = leaf.ref()
        known = self._freezes_by_id.get(id(tensor)) if tensor is not None else None
        return known if known is not None and known.ref() is tensor else None

    def _freezing_candidates(self, leaves: list[LeafTensor], observed: list[Any]) -> list[Site]:
        """Return the lines that may have frozen `leaves`, likeliest first.

        :param observed: lines that were observed to freeze some of them, with the lines that called their functions.
        """
        frames = self._names.frames
        mine = {frames.site(spot) for pair in observed for spot in pair}
        others = {frames.site(spot) for spot in self._freezing_lines} - mine
        labels = {leaf.root.label for leaf in leaves if leaf.root is not None and leaf.root.label}
        names = [re.compile(rf"\b{re.escape(label.rpartition('.')[2])}\b") for label in labels]

        def order(site: Site) -> tuple[bool, bool, bool]:
            """Return the sort key of a candidate: observed lines first, then those that name the model."""
            return site not in mine, site in others, not any(name.search(site.text) for name in names)

        return sorted(freezing_lines(frames), key=order)

    def _grad_mode_record(self, cause: _Cause, step: int, failed: Site | None) -> NoGradient | None:
        """Return the record of a loss computed with gradient mode off, with the observed line or else inferred ones."""
        lines = [line for line in cause.lines if line is not None]
        observed = bool(lines) and self._mode_observed and self._context.recorder.recording
        if observed:
            sure, others = cause.sure and len(lines) == 1, tuple(lines) if len(lines) > 1 else ()
            return NoGradient("grad-mode", lines[-1], failed, "", "", observed=sure, candidates=others, step=step)
        return self._inferred_record(grad_mode_lines(self._names.frames, self._running_lines()), step, failed)

    def _block_around_loss(self, failed: Site | None, step: int) -> NoGradient | None:
        """Return a record if the loss was computed in a block that turns gradient mode off.

        Blocks that ran in recorded steps, in which the loss had a graph, are excluded.
        """
        if failed is None or not torch.is_grad_enabled():
            return None
        lines = [line for line in blocks_around_value(self._names.frames, failed) if line not in self._harmless]
        return self._inferred_record(lines, step, failed)

    def _inferred_record(self, lines: list[Site], step: int, failed: Site | None) -> NoGradient | None:
        """Return a record that names the likeliest of `lines`, which turn gradient mode off; ``None`` if there is
        none.
        """
        known = self._modules.grad_off.last
        site = known if known in lines[1:] else lines[0] if lines else None
        if site is None:
            return None
        candidates = tuple(lines[:MAX_CANDIDATES])
        return NoGradient("grad-mode", site, failed, "", "", observed=False, candidates=candidates, step=step)

    def _running_lines(self) -> list[Site]:
        """Return the lines at which the user's functions on this thread's stack are."""
        frames, found, frame = self._names.frames, [], sys._getframe(1)
        while (frame := frames.first(frame)) is not None:
            site = frames.site((frame.f_code, frame.f_lasti))
            found += [site] if site is not None else []
            frame = frame.f_back  # type: ignore[assignment]
        return found

    def records(self) -> tuple[NoGradient | FrozenLoss, ...]:
        """Return the records of losses without a graph."""
        return tuple(self._found)


def _is_leaf_loss(root: Any) -> bool:
    """Return whether a root is a single number without a graph, and no parameter."""
    return root.grad_fn is None and root.numel() == 1 and not isinstance(root, torch.nn.Parameter)


def _is_trainable(leaf: LeafTensor) -> bool:
    """Return whether the tensor of a leaf exists and requires a gradient."""
    tensor = leaf.ref()
    return tensor is not None and bool(tensor.requires_grad)
