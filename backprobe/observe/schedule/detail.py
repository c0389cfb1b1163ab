"""How much is recorded: what was asked for, and a closer look at the start and after trouble."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...torchside import private
from ..forward.eye import Eye
from ..forward.modules import ModuleWatch
from ..forward.values import Values

if TYPE_CHECKING:
    from ..backward.recorded import Recorded

#: Backward calls in a row with bad values that are looked at closely.
TROUBLE = 3


@dataclass(frozen=True)
class Settings:
    """What to record.

    :ivar level: ``watch`` (parameters and steps), ``trace`` (every node) or ``explain`` (all looked at at once).
    :ivar every: record nodes in each N-th step; the others are watched.
    :ivar first, last: record nodes in these steps only, counted from 0; ``last`` is not included, ``None`` is no end.
    :ivar careful: steps at the start that are looked at closely, and after trouble.
    """

    level: str = "trace"
    every: int = 1
    first: int = 0
    last: int | None = None
    careful: int = 3
    #: What to look for besides: ``functions``, ``divergence``.
    ask: frozenset[str] = frozenset()
    #: Globs on the names of modules and parameters whose tensors are looked at.
    tensors: tuple[str, ...] = ()
    #: Say nothing while the script runs.
    quiet: bool = False
    #: A file for a line of each node that runs, ``"-"`` for standard error; empty: none.
    log: str = ""

    def traced(self, step: int) -> bool:
        if self.level == "watch" or step < self.first or (self.last is not None and step >= self.last):
            return False
        return (step - self.first) % self.every == 0


class Attention:
    """Tells the eye, the modules and the values how closely to look."""

    def __init__(self, eye: Eye, modules: ModuleWatch, values: Values, careful: int) -> None:
        self._eye, self._modules, self._values = eye, modules, values
        #: Steps before this one are looked at closely.
        self._until = careful
        #: Backward calls in a row with bad values.
        self._troubled = 0

    @property
    def used_to_it(self) -> bool:
        """Whether everything has been bad for a while: looking closely at it is slow."""
        return self._troubled > TROUBLE

    def look_closely(self, until: int) -> None:
        """Look closely at the steps before `until`."""
        self._until = max(self._until, until)

    def begin_step(self, step: int, settings: Settings) -> bool:
        """Set the detail for a step; whether it is looked at closely."""
        traced = settings.traced(step)
        careful = traced and (settings.level == "explain" or step < self._until)
        self._eye.noting, self._eye.careful = traced, careful
        self._values.checking = not self.used_to_it
        if traced:
            self._eye.last = private.next_sequence_nr()
        self._modules.careful, self._modules.keep_trail = careful, traced
        return careful

    def backward_over(self, running: object, recorded: Recorded) -> None:
        """What a backward call means for how closely to look at the next."""
        self._troubled = self._troubled + 1 if recorded.trouble else 0
        if recorded.trouble:
            self._until = 0 if self.used_to_it else max(self._until, recorded.step + 2)
