"""Detects models that stay in evaluation mode while they are trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from ...records import LeftInEvaluation, Site
from ...source.calls import calls_of_method
from ...source.roots import RootModule
from ...torch_internals import private
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: The least number of steps in train mode, and after them in evaluation mode to the end.
MIN_TRAIN_STEPS, MIN_EVALUATION_STEPS = 8, 8
#: Modules that compute something else in evaluation mode.
AFFECTED = (
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout),
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
)


@dataclass
class _Modes:
    """In how many steps a model was in train mode, and since when in evaluation mode, in how many steps."""

    root: RootModule
    affected: tuple[str, ...]
    train: int = 0
    since: int = 0
    evaluation: int = 0


class EvaluationModeTracker(Tracker):
    """Tracker of the mode of each outermost module that has gradients when an optimizer steps."""

    def __init__(self, context: TrackerContext) -> None:
        self._context = context
        self._modes: dict[int, _Modes] = {}

    def optimizer_begins(self, optimizer: Any) -> None:
        for root in self._context.modules.roots:
            module = root.ref()
            if module is None:
                continue
            modes = self._modes.get(id(root))
            if modes is None:
                modes = self._modes[id(root)] = _Modes(root, _affected(module))
            if not modes.affected or not (module.training or modes.train):
                continue
            with private.unseen():
                learns = any(p.grad is not None for p in module.parameters())
            if learns:
                self._count(modes, module.training)

    def _count(self, modes: _Modes, training: bool) -> None:
        if training:
            modes.train, modes.evaluation = modes.train + 1, 0
            return
        modes.since = modes.since if modes.evaluation else self._context.steps.index
        modes.evaluation += 1

    def records(self) -> tuple[LeftInEvaluation, ...]:
        return tuple(
            LeftInEvaluation(
                *(modes.root.class_name, modes.since, modes.evaluation, modes.train),
                *(modes.affected, self._calls()),
            )
            for modes in self._modes.values()
            if modes.train >= MIN_TRAIN_STEPS and modes.evaluation >= MIN_EVALUATION_STEPS
        )

    def _calls(self) -> tuple[Site, ...]:
        """Return the lines that call ``eval``.

        Those in functions that call ``train`` after it are left out, if others remain.
        """
        calls = [one.site for one in calls_of_method(self._context.frames, "eval")]
        back = [one.site for one in calls_of_method(self._context.frames, "train")]
        stay = [
            site
            for site in calls
            if not any((one.file, one.function) == (site.file, site.function) and one.line > site.line for one in back)
        ]
        return tuple(dict.fromkeys(stay or calls))


def _affected(module: nn.Module) -> tuple[str, ...]:
    """Return the names of the classes inside `module` that compute something else in evaluation mode."""
    found = (one for one in module.modules() if isinstance(one, AFFECTED) and getattr(one, "p", True))
    return tuple(dict.fromkeys(type(one).__name__ for one in found))
