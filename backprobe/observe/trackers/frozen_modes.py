"""Detects frozen parts of a model that are in training mode.

Note [Frozen parts]: a part is a largest module none of whose parameters is trained. Frozen parts in training mode are
common and often meant, so that alone is no finding. The script must have had the part in evaluation mode, for several
steps of an optimizer or by a call of ``eval`` that names it; or the running statistics must have moved far although
the input of the part has no graph. The tracker notes the mode in each step. It reads tensors in the first steps, in
rows of later ones, and after the mode has changed.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import nn

from ... import thresholds
from ...records import FrozenInTraining
from ...source.frames import CodeLocation
from ...source.roots import ModuleCallRef, RootModule
from ...torch_internals import private
from ...torch_internals.async_scalars import capturing
from ...torch_internals.memory_samples import WriteSample
from ...torch_internals.optimizers import ids_held_by
from ...torch_internals.references import IdentityMap
from ...torch_internals.structure import tensors_in
from ..schedule.observed_steps import OBSERVATION_INTERVAL, ends_observed_row, is_observed_step
from ..tracker import Tracker
from ..tracker_context import TrackerContext
from .buffers import NORMS, has_learned
from .evaluation_mode import AFFECTED
from .frozen_mode_lines import judge

#: Maximum number of steps after a change of mode that are followed by a look at tensors.
MAX_STEPS_AFTER_CHANGE = 16
#: Interval, in steps, between two comparisons of statistics.
COMPARISON_INTERVAL = 8
#: The most parts that are followed, layers of a part whose statistics are compared, and parameters that are sampled.
MAX_PARTS, MAX_NORMS, MAX_SAMPLED_PARAMETERS = 8, 16, 3
#: The most modules of a model that are searched.
MAX_MODULES = 10_000


@dataclass
class _Statistics:
    """The running statistics of a layer when its part was first seen in training mode."""

    module: weakref.ref[nn.Module]
    mean: torch.Tensor
    var: torch.Tensor


@dataclass
class Part:
    """A frozen part of a model: Note [Frozen parts].

    :ivar leaf: a layer whose mode stands for that of the part: one with running statistics, if it has any.
    :ivar norms, dropouts: its layers with running statistics, and of dropout.
    :ivar evaluation: steps in evaluation mode before those in training mode. ``steps``, ``since``, ``last``: the number
        of steps in training mode, the first, the last.
    :ivar looked, count: the step of the last look, and the number of batches of ``leaf`` then.
    :ivar pairs, updates: looks at successive steps, and how many found that the statistics had been updated.
    :ivar quiet, loud: recorded calls in training mode with gradient mode off, and on; ``graphs``: calls whose output
        had a graph.
    :ivar learned, trained: its statistics were of data when it was found, and the script had trained it before.
    :ivar before: statistics of its layers at the first look. ``moved``: by how many standard deviations they moved.
    :ivar changes: how often its parameters were found changed; ``changed``: flags of that on an accelerator.
    """

    ref: weakref.ref[nn.Module]
    root: RootModule
    path: str
    class_name: str
    leaf: weakref.ref[nn.Module]
    norms: list[weakref.ref[nn.Module]]
    norm_class: str
    dropouts: int
    samples: list[WriteSample]
    evaluation: int = 0
    steps: int = 0
    since: int = -1
    last: int = -1
    looked: int = -1
    count: int = -1
    pairs: int = 0
    updates: int = 0
    quiet: int = 0
    loud: int = 0
    graphs: int = 0
    learned: torch.Tensor | bool = False
    trained: bool = False
    before: list[_Statistics] = field(default_factory=list)
    moved: torch.Tensor | float = 0.0
    changes: int = 0
    changed: list[torch.Tensor] = field(default_factory=list)
    called: CodeLocation | None = None
    stepped: CodeLocation | None = None

    def restart(self) -> None:
        """Forget the steps in training mode: counts and statistics begin anew."""
        self.steps, self.since, self.last, self.looked, self.count = 0, -1, -1, -1, -1
        self.pairs = self.updates = self.quiet = self.loud = self.graphs = 0
        self.before, self.moved, self.stepped = [], 0.0, None

    @property
    def is_long_enough(self) -> bool:
        """Return whether it was in training mode for long enough."""
        return self.steps >= thresholds.FROZEN_MODE_MIN_TRAINING_STEPS

    @property
    def is_updated(self) -> bool:
        """Return whether the running statistics were updated in enough of the steps in training mode."""
        return (
            self.updates >= thresholds.FROZEN_MODE_MIN_UPDATES
            and self.updates >= thresholds.FROZEN_MODE_MIN_UPDATED_SHARE * self.pairs
        )


class FrozenModeTracker(Tracker):
    """Tracker of the modes of frozen parts: Note [Frozen parts]."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without parts; hooks are called before each optimizer step, also in the fast path."""
        self._context = context
        self._parts: list[Part] = []
        #: The parts by their modules, and parts whose parameters follow another model.
        self._parts_by_module: IdentityMap[Part] = IdentityMap()
        self._follows_other_model: IdentityMap[bool] = IdentityMap()
        #: Whether outermost modules have layers with modes.
        self._has_affected_layers: IdentityMap[bool] = IdentityMap()
        #: The numbers of outermost modules and of optimizers at the last search, and its step.
        self._seen, self._searched, self._search_again = (0, 0), -1, False
        #: The last step whose modes were noted.
        self._step = -1
        self._hooks = context.step_hooks(self, before=self._before_optimizer_step)

    def observing_begins(self) -> None:
        """Attach the hooks before optimizer steps."""
        self._hooks.attach()

    def novelty_found(self, step: int) -> None:
        """Search for frozen parts: one may have been frozen."""
        self._search_again = True

    def requires_grad_set(self, tensor: torch.Tensor, on: bool, frame: FrameType) -> None:
        """Search for frozen parts before the next step of an optimizer."""
        self._search_again = True

    def module_returned(self, module: nn.Module, where: ModuleCallRef, output: object) -> None:
        """Note the line that calls a frozen part, and in training mode, whether with gradient mode and with a graph."""
        part = self._parts_by_module.get(module) if self._parts else None
        if part is None:
            return
        if part.called is None:
            part.called = self._context.frames.spot(sys._getframe())
        leaf = part.leaf()
        if leaf is not None and leaf.training:
            if torch.is_grad_enabled():
                part.loud += 1
                part.graphs += any(t.requires_grad for t in tensors_in(output, most=32, depth=4))
            else:
                part.quiet += 1

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Search for frozen parts: not in steps that take the fast path."""
        step = self._context.steps.index
        if capturing():
            return
        seen = len(self._context.modules.roots), len(self._context.steps.optimizers)
        due = step != self._searched and (step & (step - 1) == 0 or step % OBSERVATION_INTERVAL == 0)
        if due or seen != self._seen or self._search_again:
            self._seen, self._searched, self._search_again = seen, step, False
            with private.measuring():
                self._search_parts(optimizer)

    def _before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Note whether each part is in training mode; in some steps also look whether its tensors have changed."""
        if not self._parts:
            return
        step = self._context.steps.index
        if step != self._step:
            self._step = step
            self._note_modes(step)
        if (is_observed_step(step) or self._has_changed()) and not capturing():
            with private.measuring():
                for part in tuple(self._parts):
                    self._check_tensors(part, step, optimizer)

    def _has_changed(self) -> bool:
        """Return whether a part was switched to training mode a few steps ago."""
        return any(0 < part.steps <= MAX_STEPS_AFTER_CHANGE for part in self._parts)

    def _note_modes(self, step: int) -> None:
        """Note for each frozen part whether it is in training mode in this step."""
        for part in self._parts:
            leaf = part.leaf()
            if leaf is None:
                continue
            if not leaf.training:
                if part.steps:
                    part.restart()
                part.evaluation += 1
                continue
            if not part.steps:
                part.since, part.stepped = step, self._context.frames.spot(sys._getframe())
            part.steps, part.last = part.steps + 1, step

    # Frozen parts

    def _search_parts(self, optimizer: torch.optim.Optimizer) -> None:
        """Add the frozen parts of all models that are new, until ``MAX_PARTS`` are followed."""
        held = self._held_parameter_ids(optimizer)
        for root, model in self._context.modules.models():
            if len(self._parts) >= MAX_PARTS:
                return
            affected = self._has_affected_layers.get(model)
            if affected is None:
                affected = self._has_affected_layers[model] = any(map(_has_mode, model.modules()))
            if affected:
                for module in _frozen_parts(model, held):
                    if (
                        module not in self._parts_by_module
                        and module not in self._follows_other_model
                        and len(self._parts) < MAX_PARTS
                    ):
                        self._add_part(root, module)

    def _held_parameter_ids(self, optimizer: torch.optim.Optimizer) -> set[int]:
        """Return the ids of the parameters that optimizers hold."""
        known = (one.ref() for one in self._context.steps.optimizers.values())
        optimizers = [optimizer, *(one for one in known if one is not None)]
        return ids_held_by(*optimizers)

    def _add_part(self, root: RootModule, module: nn.Module) -> None:
        """Begin to follow a frozen part, if it has layers that behave differently in training mode."""
        inside = list(module.modules())
        norms = [one for one in inside if _has_statistics(one)]
        dropouts = [one for one in inside if isinstance(one, AFFECTED) and bool(getattr(one, "p", False))]
        if not norms and not dropouts:
            return
        path = root.path_of(module)
        if path is None:
            root.scan()
            path = root.path_of(module) or ""
        leaf, known = (norms or dropouts)[0], self._context.names.leaves.known
        part = Part(
            weakref.ref(module),
            root,
            path,
            type(module).__name__,
            weakref.ref(leaf),
            [weakref.ref(one) for one in norms],
            type(norms[0]).__name__ if norms else "",
            len(dropouts),
            _samples(module),
            learned=has_learned(leaf) if norms else False,
            trained=any(one.reached for p in module.parameters() if (one := known(p)) is not None),
        )
        self._parts_by_module[module] = part
        self._parts.append(part)

    def _stop_following(self, part: Part, follows: bool = False) -> None:
        """Remove a part from those that are followed.
        :param follows: its parameters are computed from another model's, so the part is not looked at again.
        """
        self._parts.remove(part)
        module = part.ref()
        if module is not None:
            self._parts_by_module.pop(module)
            if follows:
                self._follows_other_model[module] = True

    # Looks at tensors

    def _check_tensors(self, part: Part, step: int, optimizer: torch.optim.Optimizer) -> None:
        """Check the parameters and the running statistics of a part before an optimizer's step.

        A part that is trained, or whose parameters change again and again, is followed no more.
        """
        leaf: Any = part.leaf()
        if leaf is None or part.looked == step:
            return
        if self._is_trained(part, optimizer):
            self._stop_following(part)
            return
        if _sample_changed(part):
            part.changes += 1
            if part.changes > thresholds.FROZEN_MODE_MAX_CHANGES_OF_VALUES:
                self._stop_following(part, follows=True)
                return
            part.samples = [WriteSample(p) for one in part.samples if (p := one.ref()) is not None]
            part.restart()
            part.evaluation = 0
            return
        if not leaf.training:
            return
        batches = getattr(leaf, "num_batches_tracked", None)
        count = batches._version if batches is not None else -1
        if part.looked >= 0 and step == part.looked + 1:
            part.pairs += 1
            part.updates += count > part.count
        part.looked, part.count = step, count
        if not part.norms:
            return
        if not part.before:
            part.before = list(_statistics(part))
        elif ends_observed_row(step) or part.steps % COMPARISON_INTERVAL == 0:
            part.moved = _deviations_moved(part.before)

    def _is_trained(self, part: Part, optimizer: torch.optim.Optimizer) -> bool:
        """Return whether one of the sampled parameters is trained now."""
        parameters = [p for one in part.samples if (p := one.ref()) is not None]
        if not any(p.requires_grad for p in parameters):
            return False
        held = ids_held_by(optimizer)
        return any(p.requires_grad and (id(p) in held or p.grad is not None) for p in parameters)

    def records(self) -> tuple[FrozenInTraining, ...]:
        """Return the records of the frozen parts whose mode looks like a mistake."""
        return judge(self._parts, self._context)


def _has_statistics(module: object) -> bool:
    """Return whether the running statistics of a module change in training mode."""
    return isinstance(module, NORMS) and module.running_mean is not None and module.momentum != 0.0


def _has_mode(module: object) -> bool:
    """Return whether a module behaves differently in training mode: a normalisation layer, or an active dropout."""
    return _has_statistics(module) or (isinstance(module, AFFECTED) and bool(getattr(module, "p", False)))


def _frozen_parts(model: nn.Module, held: set[int]) -> Iterator[nn.Module]:
    """Yield the largest modules of a model none of whose parameters is trained.

    :param held: the ids of the parameters that optimizers hold.
    """
    left, searched = [model], 0
    while left and searched < MAX_MODULES:
        module = left.pop()
        searched += 1
        first = next(module.parameters(), None)
        if first is None:
            continue
        if not any(_may_train(p, held) for p in module.parameters()):
            yield module
        else:
            left += reversed(list(module.children()))


def _may_train(p: torch.Tensor, held: set[int]) -> bool:
    """Return whether a parameter is or may be trained: it requires a gradient, and an optimizer holds it or it has
    one.
    """
    return bool(p.requires_grad) and (id(p) in held or p.grad is not None)


def _samples(module: nn.Module) -> list[WriteSample]:
    """Return samples of the first parameter of a module, of one in the middle, and of the last."""
    parameters = list(module.parameters())
    last = len(parameters) - 1
    return [WriteSample(parameters[i]) for i in sorted({0, last // 2, last})[:MAX_SAMPLED_PARAMETERS]]


def _sample_changed(part: Part) -> bool:
    """Return whether a sampled parameter of a part was written to; note what is known on an accelerator only."""
    for one in part.samples:
        changed = one.is_changed()
        if isinstance(changed, torch.Tensor) and not changed.is_cpu:
            flag = changed.float()
            part.changed = [torch.maximum(part.changed[0].to(flag.device), flag) if part.changed else flag]
        elif changed:
            return True
    return False


def _statistics(part: Part) -> Iterator[_Statistics]:
    """Yield copies of the running statistics of a part's layers that are in training mode."""
    for ref in part.norms[:MAX_NORMS]:
        module: Any = ref()
        if module is None or not module.training or module.running_mean is None or module.running_var is None:
            continue
        if private.is_readable(module.running_mean) and private.is_readable(module.running_var):
            yield _Statistics(ref, module.running_mean.clone(), module.running_var.clone())


def _deviations_moved(before: list[_Statistics]) -> torch.Tensor | float:
    """Return by how many standard deviations running means moved: the root mean square of the layer that moved most."""
    found = []
    for one in before:
        module: Any = one.module()
        mean = module.running_mean if module is not None else None
        if mean is not None and private.is_readable(mean) and mean.shape == one.mean.shape:
            far = (mean - one.mean).square() / one.var.clamp_min(torch.finfo(one.var.dtype).tiny)
            found.append(far.mean().sqrt().float())
    return torch.stack([one.to(found[0].device) for one in found]).amax() if found else 0.0
