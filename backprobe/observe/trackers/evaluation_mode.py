"""Detects models that stay in evaluation mode while they are trained.

Note [Phases in evaluation mode]: a script may train a model in evaluation mode on purpose, mostly in a new phase, with
a new optimizer. Such a phase is recorded only if every line that calls ``eval`` is in a function that turns gradient
mode off and does not train: these lines belong to evaluations. In a new phase the model may be a part of another one,
which a library trains: a wrapper in train mode does not switch its parts.
"""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import nn

from ... import thresholds
from ...records import LeftInEvaluation, Site
from ...source.calls import calls_of_method
from ...source.frames import CodeLocation
from ...source.grad_switches import is_in_evaluation
from ...source.roots import RootModule
from ...source.sites import is_before
from ...torch_internals.optimizers import ids_held_by
from ...torch_internals.references import IdentityMap
from ..tracker import Tracker
from ..tracker_context import TrackerContext

if TYPE_CHECKING:
    import torch

#: Maximum number of models that are remembered: beyond it, those that are gone are forgotten, unless they were left in
#: evaluation mode.
MAX_MODELS = 100
#: Modules that behave differently in evaluation mode.
AFFECTED = (
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout),
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
)


@dataclass
class _Modes:
    """In how many steps a model was in train mode, and since when in evaluation mode, in how many steps.

    :ivar holds: by optimizer, whether it holds parameters of the model that require a gradient.
    :ivar optimizer: the last of these optimizers that stepped in train mode. If another one steps in evaluation mode, a
        new phase has begun.
    :ivar stepped: the line where it stepped for the first time in evaluation mode; ``is_new_phase``: another optimizer
        did.
    """

    root: RootModule
    affected: tuple[str, ...]
    train: int = 0
    holds: IdentityMap[bool] = field(default_factory=IdentityMap)
    optimizer: weakref.ref[torch.optim.Optimizer] | None = None
    since: int = 0
    is_new_phase: bool = False
    stepped: CodeLocation | None = None
    evaluation: int = 0

    @property
    def was_left(self) -> bool:
        """Whether it was trained in evaluation mode to the end, after enough steps in train mode."""
        return (
            self.train >= thresholds.EVALUATION_MODE_MIN_TRAIN_STEPS
            and self.evaluation >= thresholds.EVALUATION_MODE_MIN_STEPS
        )


class EvaluationModeTracker(Tracker):
    """Tracker of the mode of each outermost module when the optimizer of its parameters steps."""

    def __init__(self, context: TrackerContext) -> None:
        self._context = context
        #: By id of the ``RootModule`` of a module that is, or was, an outermost one.
        self._modes: dict[int, _Modes] = {}

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Count the step for each model whose parameters the optimizer holds, by the mode that the model is in."""
        for root, module in self._context.modules.models():
            if id(root) not in self._modes:
                if len(self._modes) >= MAX_MODELS:
                    self._modes = {key: one for key, one in self._modes.items() if one.root.ref() or one.was_left}
                self._modes[id(root)] = _Modes(root, _affected_classes(module))
        for modes in self._modes.values():
            model = modes.root.ref()
            if model is None or not modes.affected or not (model.training or modes.train):
                continue
            is_other = modes.optimizer is None or modes.optimizer() is not optimizer
            if is_other and not _holds_parameters(modes, optimizer, model):
                continue  # another model's turn
            if model.training:
                modes.optimizer = weakref.ref(optimizer)
            self._count_step(modes, model.training, is_other)

    def _count_step(self, modes: _Modes, training: bool, is_other: bool) -> None:
        """Count a step of a model in train mode or in evaluation mode.

        `is_other`: another optimizer steps than in train mode.
        """
        if training:
            modes.train, modes.evaluation = modes.train + 1, 0
            return
        if not modes.evaluation:
            modes.since, modes.stepped = self._context.steps.index, self._context.frames.spot(sys._getframe())
            modes.is_new_phase = is_other
        modes.evaluation += 1

    def records(self) -> tuple[LeftInEvaluation, ...]:
        """Return a record of each model that was left in evaluation mode, without parts of other such models."""
        found: list[tuple[nn.Module | None, LeftInEvaluation]] = []
        for modes in self._modes.values():
            calls = self._eval_calls(self._context.frames.site(modes.stepped)) if modes.was_left else ()
            files = self._context.frames.users_files()
            if calls and (not modes.is_new_phase or all(is_in_evaluation(site, files) for site in calls)):
                counts = modes.since, modes.evaluation, modes.train
                record = LeftInEvaluation(modes.root.class_name, *counts, modes.affected, calls)
                found.append((modes.root.ref(), record))
        models = [model for model, _ in found if model is not None]
        parts = {id(part) for model in models for part in model.modules() if part is not model}
        return tuple(record for model, record in found if id(model) not in parts)

    def _eval_calls(self, stepped: Site | None) -> tuple[Site, ...]:
        """Return the lines that call ``eval``; none if one of them is meant for the training that follows.

        That is so if it stands before the line where the optimizer steps, in its function, and no ``train`` between
        them. Those in functions that call ``train`` after it are left out, if others remain.
        """
        calls = [one.site for one in calls_of_method(self._context.frames, "eval")]
        back = [one.site for one in calls_of_method(self._context.frames, "train")]
        if stepped is not None and any(
            is_before(site, stepped) and not any(is_before(site, one) and is_before(one, stepped) for one in back)
            for site in calls
        ):
            return ()
        stay = [site for site in calls if not any(is_before(site, one) for one in back)]
        return tuple(dict.fromkeys(stay or calls))


def _holds_parameters(modes: _Modes, optimizer: torch.optim.Optimizer, module: nn.Module) -> bool:
    """Return whether an optimizer held parameters of a model, and trained them, when both were first seen together."""
    known = modes.holds.get(optimizer)
    if known is None:
        held = ids_held_by(optimizer)
        known = modes.holds[optimizer] = any(p.requires_grad and id(p) in held for p in module.parameters())
    return known


def _affected_classes(module: nn.Module) -> tuple[str, ...]:
    """Return the names of the classes inside `module` that behave differently in evaluation mode."""
    found = (one for one in module.modules() if isinstance(one, AFFECTED) and getattr(one, "p", True))
    return tuple(dict.fromkeys(type(one).__name__ for one in found))
