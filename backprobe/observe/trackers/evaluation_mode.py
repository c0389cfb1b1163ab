"""Detects models that stay in evaluation mode while they are trained."""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from ...records import LeftInEvaluation, Site
from ...source.calls import calls_of_method
from ...source.frames import CodeLocation
from ...source.roots import RootModule
from ...source.sites import is_before
from ...torch_internals.optimizers import ids_held_by
from ...torch_internals.references import IdentityMap
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: The least number of steps in train mode, and after them in evaluation mode to the end.
MIN_TRAIN_STEPS, MIN_EVALUATION_STEPS = 8, 8
#: Modules that behave differently in evaluation mode.
AFFECTED = (
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout),
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
)


@dataclass
class _Modes:
    """In how many steps a model was in train mode, and since when in evaluation mode, in how many steps.

    :ivar holds: by optimizer, whether it holds parameters of the model; ``optimizer``: the last one that does and
        stepped in train mode. Others do not count.
    :ivar stepped: the line where it stepped for the first time in evaluation mode.
    """

    root: RootModule
    affected: tuple[str, ...]
    train: int = 0
    holds: IdentityMap[bool] = field(default_factory=IdentityMap)
    optimizer: weakref.ref[Any] | None = None
    since: int = 0
    stepped: CodeLocation | None = None
    evaluation: int = 0


class EvaluationModeTracker(Tracker):
    """Tracker of the mode of each outermost module when the optimizer of its parameters steps."""

    def __init__(self, context: TrackerContext) -> None:
        self._context = context
        self._modes: dict[int, _Modes] = {}

    def optimizer_begins(self, optimizer: object) -> None:
        for root, module in self._context.modules.models():
            modes = self._modes.get(id(root))
            if modes is None:
                modes = self._modes[id(root)] = _Modes(root, _affected(module))
            if not modes.affected or not (module.training or modes.train):
                continue
            if modes.optimizer is None or modes.optimizer() is not optimizer:
                if not (module.training and _holds(modes, optimizer, module)):
                    continue  # another phase of training, or another model's turn
                modes.optimizer = weakref.ref(optimizer)
            self._count(modes, module.training)

    def _count(self, modes: _Modes, training: bool) -> None:
        if training:
            modes.train, modes.evaluation = modes.train + 1, 0
            return
        if not modes.evaluation:
            modes.since, modes.stepped = self._context.steps.index, self._context.frames.spot(sys._getframe())
        modes.evaluation += 1

    def records(self) -> tuple[LeftInEvaluation, ...]:
        found = []
        for modes in self._modes.values():
            calls = self._calls(self._context.frames.site(modes.stepped))
            if modes.train >= MIN_TRAIN_STEPS and modes.evaluation >= MIN_EVALUATION_STEPS and calls:
                counts = modes.since, modes.evaluation, modes.train
                found.append(LeftInEvaluation(modes.root.class_name, *counts, modes.affected, calls))
        return tuple(found)

    def _calls(self, stepped: Site | None) -> tuple[Site, ...]:
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


def _holds(modes: _Modes, optimizer: Any, module: nn.Module) -> bool:
    """Return whether an optimizer held parameters of a model when both were first seen together."""
    known = modes.holds.get(optimizer)
    if known is None:
        held = ids_held_by(optimizer)
        known = modes.holds[optimizer] = any(id(p) in held for p in module.parameters())
    return known


def _affected(module: nn.Module) -> tuple[str, ...]:
    """Return the names of the classes inside `module` that behave differently in evaluation mode."""
    found = (one for one in module.modules() if isinstance(one, AFFECTED) and getattr(one, "p", True))
    return tuple(dict.fromkeys(type(one).__name__ for one in found))
