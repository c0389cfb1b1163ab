"""Detects parameters that stopped getting gradients because they were frozen or cut off.

Backward calls of one line reached them up to some step and not after it.

Note [Stopped learning]: each line that calls backward is tracked separately, so that training parts of a model in turns
causes no finding. A parameter has stopped learning if the line has continued without it for some time, longer than any
earlier time without it, and if no other line reaches it either.
"""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch

from ... import thresholds
from ...basics.torch_texts import UNREDUCED, UNREDUCED_INDICES
from ...records import Site, StoppedLearning, Unreduced
from ...source.assignments import freezes
from ...source.calls import calls_of_method, constructions
from ...source.frames import CodeLocation
from ...source.grad_switches import puts_mode_back
from ...source.roots import clean_path
from ...torch_internals import code_objects, private
from ...torch_internals.replicas import count_of_parameters, in_ddp, own_parameters
from ...torch_internals.structure import is_a
from ..backward.active_backward import ActiveBackward
from ..backward.layouts import LiveLayout
from ..backward.pending_call_record import PendingCallRecord
from ..forward.leaves import LeafTensor
from ..schedule.seen_optimizers import SeenOptimizer
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Maximum number of investigations per run.
MAX_INSPECTIONS = 3
#: Names of functions that evaluate, save or inspect a model, and do not train it.
_EVALUATING_FUNCTION = re.compile(
    r"(on_|_)*((save|export|evaluate?|validat\w*|predict|generate|sample|infer|inference|plot|summar\w*|report|dump|log"
    r"|snapshot|visuali\w*)(_(?!.*freez)\w+)?)"
)


class _StopReason(NamedTuple):
    """The reason why a parameter is missing, its line, the leaf to report, and the optimizers that hold it."""

    why: str
    site: Site | None
    leaf: LeafTensor
    holders: tuple[SeenOptimizer, ...]


@dataclass
class _MissingParameter:
    """A parameter that a line no longer reaches.

    :ivar call, recorded, step: of the first call without it: its number, the number of recorded calls until then, its
        step. ``counts``: calls of its module until then. ``evaluated``: its module was put in evaluation mode since the
        previous call.
    :ivar reached_parameter: a parameter that the line still reaches, and the calls of its module.
    :ivar reason: the reason, determined while the model was alive: it may be gone when the script ends.
    """

    leaf: LeafTensor
    call: int
    recorded: int
    step: int
    counts: tuple[int, int]
    reached_parameter: tuple[LeafTensor, tuple[int, int]] | None
    evaluated: bool
    reason: _StopReason | None = None


@dataclass
class _Line:
    """The backward calls of one line: all calls, recorded ones, and recorded ones in a row with the same layout."""

    calls: int = 0
    recorded: int = 0
    calls_of_layout: int = 0
    layout: LiveLayout | None = None
    leaves: dict[int, LeafTensor] = field(default_factory=dict)
    missing: dict[int, _MissingParameter] = field(default_factory=dict)
    #: By id of a leaf: the largest number of calls without it before it was reached again.
    longest_gaps: dict[int, int] = field(default_factory=dict)
    #: Ids of the outermost modules that were in training mode in the last recorded call.
    training: frozenset[int] = frozenset()
    #: The number of calls at which the reasons are determined again.
    next_reason_check: int = 0


@dataclass
class _FrozenGroup:
    """References to the tensors that one line froze in one step, and to those that have been thawed since."""

    tensors: set[weakref.ref[torch.Tensor]] = field(default_factory=set)
    thawed: set[weakref.ref[torch.Tensor]] = field(default_factory=set)


@dataclass
class _FrozenTensor:
    """A tensor whose ``requires_grad`` was turned off, with ``group``, the tensors frozen by the same line and step.

    ``is_by_library``: by a library's code. ``evaluating_function``: the function around it that evaluates, saves or
    inspects a model. ``was_frozen_before``: the same line had frozen it before, and it had been thawed in between.
    ``is_thawed``: it has been thawed.
    """

    ref: weakref.ref[torch.Tensor]
    spot: CodeLocation | None
    group: _FrozenGroup
    is_by_library: bool
    evaluating_function: CodeType | None = None
    was_frozen_before: bool = False
    is_thawed: bool = False


class StoppedLearningTracker(Tracker):
    """Tracker that compares the parameters that successive backward calls of a line reach."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without lines."""
        self._context, self._names, self._modules = context, context.names, context.modules
        self._lines: dict[Any, _Line] = {}
        self._frozen_tensors: dict[int, _FrozenTensor] = {}
        #: The current step, and the tensors that were frozen in it, by line.
        self._frozen_in_step: tuple[int, dict[CodeLocation | None, _FrozenGroup]] = (0, {})
        #: The user's functions in which backward calls are made.
        self._backward_functions: set[CodeType] = set()
        #: Line and step of the last call.
        self._last_call: tuple[CodeLocation | None, int] = (None, 0)
        self._inspection_count = 0

    def requires_grad_set(self, tensor: torch.Tensor, on: bool, frame: FrameType) -> None:
        """Record the line that froze a parameter, or that a frozen parameter was thawed."""
        if not on:
            if len(self._frozen_tensors) > 100_000 or not tensor.requires_grad:
                return
            mine = frame.f_code.co_filename == code_objects.MODULE_FILE or self._names.frames.is_user(frame.f_code)
            spot = self._names.frames.spot(frame)
            before = self._frozen_tensors.get(id(tensor))
            again = before is not None and before.ref() is tensor and before.is_thawed and before.spot == spot
            if self._frozen_in_step[0] != self._context.steps.index:
                self._frozen_in_step = self._context.steps.index, {}
            together = self._frozen_in_step[1].setdefault(spot, _FrozenGroup())
            together.tensors.add(ref := private.tensor_ref(tensor))
            beside = self._evaluating_function(frame)
            self._frozen_tensors[id(tensor)] = _FrozenTensor(ref, spot, together, not mine, beside, again)
            return
        known = self._frozen_tensors.get(id(tensor))
        if known is not None and known.ref() is tensor:
            known.is_thawed = True
            known.group.thawed.add(known.ref)

    def _evaluating_function(self, frame: FrameType) -> CodeType | None:
        """Return the user's function around `frame` whose name says that it does not train, if there is one."""
        return next((code for code in self._user_codes(frame) if _EVALUATING_FUNCTION.fullmatch(code.co_name)), None)

    def _user_codes(self, frame: FrameType | None) -> Iterator[CodeType]:
        """Yield the code objects of the user's functions that run from `frame` outwards."""
        while frame is not None:
            if self._names.frames.is_user(frame.f_code):
                yield frame.f_code
            frame = frame.f_back

    def sentinel_call_begins(self, spot: CodeLocation | None, roots: Sequence[object]) -> None:
        """Count an unrecorded call, assumed to reach the parameters of the line's last recorded call."""
        line = self._lines.get(spot)
        if line is not None:
            line.calls += 1

    def fast_path_calls(self, spot: CodeLocation | None, count: int) -> None:
        """Count fast-path calls, assumed to reach the parameters of the line's last recorded call."""
        line = self._lines.get(spot) if spot is not None or len(self._lines) != 1 else next(iter(self._lines.values()))
        if line is not None:
            line.calls += count

    def backward_recorded(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Note which parameters this line's call no longer reaches, and which it reaches again.

        In the second call with the same layout, request close inspection of the next step, which may show the reason.
        """
        if running.inside is not None or recorded.raised is not None or running.kind == "autograd.grad":
            return
        line = self._lines.get(running.spot)
        if line is None:
            if len(self._lines) > 100:
                return
            line = self._lines[running.spot] = _Line()
            self._backward_functions.update(self._user_codes(sys._getframe()))
        line.calls += 1
        line.recorded += 1
        self._last_call = running.spot, recorded.step
        live, training, line.training = running.live, line.training, self._training_roots()
        if live is line.layout:
            line.calls_of_layout += 1
            if (
                line.missing
                and line.calls_of_layout == thresholds.STOPPED_CALLS_BEFORE_INSPECTION
                and self._inspection_count < MAX_INSPECTIONS
            ):
                self._inspection_count += 1
                self._context.inspect_until(recorded.step + 2)
            self._update_reasons(line)
            return
        line.layout, line.calls_of_layout = live, 1
        before, line.leaves = line.leaves, {id(leaf): leaf for leaf in live.named.values() if leaf.root is not None}
        counts = self._modules.counts
        other = next((leaf for key, leaf in line.leaves.items() if key in before), None)
        beside = (other, counts(other.owner)) if other is not None else None
        for key in [key for key in before if key not in line.leaves]:
            leaf = before[key]
            owner = leaf.owner() if leaf.owner is not None else None
            evaluated = owner is not None and not owner.training and id(leaf.root) in training
            at = line.calls, line.recorded, recorded.step
            line.missing[key] = _MissingParameter(leaf, *at, counts(leaf.owner), beside, evaluated)
            line.next_reason_check = 0
        for key in line.missing.keys() & line.leaves.keys():
            line.longest_gaps[key] = max(line.longest_gaps.get(key, 0), line.calls - line.missing.pop(key).call)
        self._update_reasons(line)

    def _training_roots(self) -> frozenset[int]:
        """Return the ids of the outermost modules that are in training mode."""
        roots = ((id(root), root.ref()) for root in self._modules.roots)
        return frozenset(number for number, module in roots if module is not None and module.training)

    def records(self) -> tuple[StoppedLearning | Unreduced, ...]:
        """Return records of the parameters that stopped learning, grouped by line and reason."""
        groups: dict[Any, list[_MissingParameter]] = {}
        for spot, line in self._lines.items():
            for key, missing in line.missing.items():
                missing_calls = line.calls - missing.call + 1
                min_missing_calls, share = (
                    max(thresholds.STOPPED_MIN_MISSING_CALLS, 3 * line.longest_gaps.get(key, 0)),
                    thresholds.STOPPED_MIN_MISSING_SHARE * missing.call,
                )
                if missing.call <= thresholds.STOPPED_MIN_MISSING_CALLS or missing_calls < max(
                    min_missing_calls, min(share, thresholds.STOPPED_MIN_CALLS_AFTER_CUT)
                ):
                    continue
                judged = self._stop_reason(missing, line) if missing.leaf.ref() is not None else missing.reason
                if any(key in other.leaves for other in self._lines.values()) or judged is None:
                    continue
                why, site, leaf, holders = judged
                # An optimizer that holds it went on stepping: training was not simply over.
                if not any(one.step >= missing.step + thresholds.STOPPED_MIN_MISSING_CALLS - 1 for one in holders):
                    continue
                if why != "cut" and missing_calls < share:
                    continue
                groups.setdefault((spot, why, site), []).append(replace(missing, leaf=leaf))
        found = []
        for (spot, reason, site), mine in groups.items():
            if reason:
                names = tuple(self._names.leaves.name(one.leaf) for one in mine)
                failed = self._names.frames.site(spot)
                found.append(StoppedLearning(names, min(one.step for one in mine), reason, site, failed))
        return (*found, *self._unreduced_records())

    def _update_reasons(self, line: _Line) -> None:
        """Determine why the parameters missing from `line` are missing, while their models exist.

        The number of calls between two updates grows, so it costs little.
        """
        if not line.missing or line.calls < line.next_reason_check:
            return
        line.next_reason_check = (
            line.calls + 1 + (line.calls - max(missing.call for missing in line.missing.values())) // 4
        )
        for key, missing in line.missing.items():
            # A parameter that comes and goes (a randomly dropped layer) must be missing for longer than ever before.
            if missing.leaf.ref() is not None and line.calls - missing.call + 1 >= 3 * line.longest_gaps.get(key, 0):
                missing.reason = self._stop_reason(missing, line)

    def _stop_reason(self, missing: _MissingParameter, line: _Line) -> _StopReason | None:
        """Return why `line` does not reach a parameter any more: replaced, removed, frozen or cut; ``None`` if no
        optimizer holds it.
        """
        holders = self._optimizers_holding(missing.leaf)
        if not holders:
            return None
        holder = max(holders, key=lambda one: one.step)
        other = self._replacing_parameter(missing.leaf, line)
        if other is not None:
            return _StopReason("replaced", self._names.frames.site(holder.spot), other, holders)
        if _is_replaced(missing.leaf):
            return _StopReason("removed", self._names.frames.site(holder.spot), missing.leaf, holders)
        return _StopReason(*self._freeze_or_cut(missing, line.recorded - missing.recorded + 1), missing.leaf, holders)

    def _unreduced_records(self) -> list[Unreduced]:
        """Return records of parameters that DDP waited for, if the script ended with its error about unused ones."""
        spot, step = self._last_call
        line = self._lines.get(spot)
        if self._context.raised is None or UNREDUCED not in str(self._context.raised) or line is None:
            return []
        leaves, frames = self._names.leaves, self._names.frames
        waited = self._parameters_in_error(str(self._context.raised))
        if waited:
            step = max(self._context.steps.index - 1, 0)
        else:
            waited = [leaf for leaf in leaves.of_same_models(line.leaves.values()) if id(leaf) not in line.leaves]
        groups: dict[tuple[Site | None, tuple[Site, ...], bool], list[LeafTensor]] = {}
        for leaf in waited:
            if not (leaf.reached or leaf.requires_grad):
                continue
            tensor = leaf.ref()
            frozen = self._frozen_tensors.get(id(tensor)) if tensor is not None and not tensor.requires_grad else None
            site = frames.site(frozen.spot) if frozen is not None and frozen.ref() is tensor else None
            choices = () if site is not None else tuple(leaves.choices(leaf))
            groups.setdefault((site, choices, bool(leaf.reached)), []).append(leaf)
        wrapped = constructions(frames, "DistributedDataParallel")
        wrapper = wrapped[0] if len(wrapped) == 1 else None
        return [
            Unreduced(tuple(map(leaves.name, mine)), step, site, choices, frames.site(spot), before, wrapper)
            for (site, choices, before), mine in groups.items()
        ]

    def _parameters_in_error(self, error: str) -> list[LeafTensor]:
        """Return the parameters whose numbers DDP's error gives; none if it cannot be told which they are.

        The numbers count the parameters that required a gradient when DDP was set up, in the order of ``parameters()``:
        those that require one now, and those that got one before they were frozen.
        """
        leaves = self._names.leaves
        found = UNREDUCED_INDICES.search(error)
        roots = (module for root in self._modules.roots if (module := root.ref()) is not None)
        wrapped = list({id(wrapper): wrapper for module in roots for _, wrapper in in_ddp(module)}.values())
        if found is None or len(wrapped) != 1:
            return []
        trained = []
        for tensor in own_parameters(wrapped[0]):
            leaf = leaves.known(tensor)
            if tensor.requires_grad or (leaf is not None and leaf.reached):
                trained.append(leaf)
        if len(trained) != count_of_parameters(wrapped[0]):
            return []
        return [leaf for number in map(int, found[1].split()) if (leaf := trained[number]) is not None]

    def _optimizers_holding(self, leaf: LeafTensor) -> tuple[SeenOptimizer, ...]:
        """Return the optimizers that hold a parameter."""
        number, optimizers = id(leaf.ref()), self._context.steps.optimizers.values()
        return tuple(one for one in optimizers if (r := one.refs.get(number)) and r() is not None)

    def _replacing_parameter(self, leaf: LeafTensor, line: _Line) -> LeafTensor | None:
        """Return the parameter of the same name in another model of the same class that the line reaches instead.

        :returns: ``None`` if there is none, or if an optimizer holds it.
        """
        if leaf.root is None:
            return None
        mine = leaf.path, leaf.shape, leaf.root.class_name
        for one in line.leaves.values():
            if (
                one.root is not None
                and one.root is not leaf.root
                and mine == (one.path, one.shape, one.root.class_name)
            ):
                return None if self._optimizers_holding(one) else one
        return None

    def _freeze_or_cut(self, missing: _MissingParameter, missing_calls: int) -> tuple[str, Site | None]:
        """Return why a line does not reach a parameter of the model any more, and the line that causes it.

        :returns: an empty reason if the parameter was frozen on purpose, or is gone.
        """
        leaf, frames = missing.leaf, self._names.frames
        tensor = leaf.ref()
        if tensor is None:
            return "", None
        frozen = self._frozen_tensors.get(id(tensor))
        if not tensor.requires_grad:
            if frozen is None or frozen.ref() is not tensor:  # frozen in an unrecorded step
                lines = freezes(frames)
                is_shared = self._is_module_shared(missing, missing_calls - 1)
                is_mistaken = len(lines) == 1 and (is_shared or puts_mode_back(lines[0], frames.users_files()))
                return ("frozen", lines[0]) if is_mistaken else ("", None)
            site = frames.site(frozen.spot)
            is_in_evaluation = (
                frozen.evaluating_function is not None and frozen.evaluating_function not in self._backward_functions
            ) or (site is not None and puts_mode_back(site, frames.users_files()))
            is_intended = not (frozen.is_by_library or is_in_evaluation or frozen.was_frozen_before)
            if (
                is_intended
                and not self._is_partly_thawed(leaf, frozen)
                and not self._is_module_shared(missing, missing_calls)
            ):
                return "", None
            return "frozen", site
        if missing.evaluated:
            at = {site for site, *_ in calls_of_method(frames, "eval")}
            return "evaluated", at.pop() if len(at) == 1 else None
        calls, calls_without_grad_mode = self._calls_since(leaf, missing.counts)
        if calls or self._modules.counts(leaf.owner) == (0, 0):  # never called: its other methods run
            return "cut", None
        evaluated = self._calls_since(*missing.reached_parameter)[1] if missing.reached_parameter is not None else 0
        if calls_without_grad_mode - evaluated > missing_calls / 2:
            return "quiet", self._modules.turned_off(leaf.owner, has_learned=True)
        return "uncalled", None  # another module, or an earlier output, is used instead

    def _calls_since(self, leaf: LeafTensor, then: tuple[int, int]) -> tuple[int, int]:
        """Return the numbers of calls of a parameter's module since `then`, with gradient mode on and off."""
        calls, calls_without_grad_mode = self._modules.counts(leaf.owner)
        return calls - then[0], calls_without_grad_mode - then[1]

    def _is_module_shared(self, missing: _MissingParameter, missing_calls: int) -> bool:
        """Return whether the parameter's module is called more often since it was frozen.

        This happens if the script uses it both as a model to train and as a frozen one.
        """
        calls, before = self._calls_since(missing.leaf, missing.counts)[0], missing.counts[0]
        return (
            before > 0 and calls * missing.recorded >= thresholds.STOPPED_SHARED_MODULE_RATIO * before * missing_calls
        )

    def _is_partly_thawed(self, leaf: LeafTensor, frozen: _FrozenTensor) -> bool:
        """Return whether `leaf` was frozen together with its whole model, another part of which was thawed again."""
        reached = self._names.leaves.reached()
        mine = {one.ref for one in reached if one.root is leaf.root and one.ref() is not None}
        return mine <= frozen.group.tensors and not mine.isdisjoint(frozen.group.thawed)


def _is_replaced(leaf: LeafTensor) -> bool:
    """Return whether a tensor that does not learn has replaced the parameter in its model."""
    module, tensor = leaf.root.ref() if leaf.root is not None else None, leaf.ref()
    if module is None or tensor is None or any(p is tensor for p in module.parameters()):
        return False
    for path, owner in module.named_modules():
        held = {**vars(owner), **owner._buffers, **owner._parameters}
        for name, value in held.items():
            learns = not is_a(value, torch.Tensor) or value.requires_grad
            if not learns and clean_path(module, f"{path}.{name}".strip(".")) == leaf.path:
                return True
    return False
