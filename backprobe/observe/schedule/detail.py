"""How much is recorded: what was asked for, and a closer look at the start and after trouble."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import BackprobeError
from ...torchside import private
from ..forward.eye import Eye
from ..forward.modules import ModuleWatch
from ..forward.values import Values
from .budget import Budget

if TYPE_CHECKING:
    from ..backward.recorded import Recorded

#: What watching may take of the time that a script takes alone.
DEFAULT_BUDGET = 0.05
#: MiB of batches that are kept of a run, where nothing else is said.
BATCH_MB = 512
#: Backward calls in a row with bad values that are looked at closely.
TROUBLE = 3
#: What may be asked for without steps costing more than the budget.
CHEAP = frozenset({"levels"})
#: The first step that is looked at closely though the start is over and nothing is wrong: then those twice as far on.
#: What begins late is seen by the time that the run is twice as long, at a cost that falls with each such look. Where a
#: budget can't pay for one it comes later.
SELDOM = 32
#: Steps that are looked at closely after one in which something is new; and how many later some are recorded again, to
#: know whether it stays so.
CLOSE, AGAIN = 3, (4, 8, 16, 32)


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
    #: What to look for besides: ``functions``, ``divergence``, ``checkpoints``, ``memory``, ``levels``.
    ask: frozenset[str] = frozenset()
    #: Globs on the names of modules and parameters whose tensors are looked at.
    tensors: tuple[str, ...] = ()
    #: Say nothing while the script runs.
    quiet: bool = False
    #: A file for a line of each node that runs, ``"-"`` for standard error; empty: none.
    log: str = ""
    #: Measure statistics by layer in each N-th step; 0: in none.
    statistics: int = 0
    #: ``"compare"``: keep what a comparison with another run needs, and this many MiB of tensors at most.
    record: str = ""
    record_mb: int = 512
    #: Keep the batch of a step with an alarm or an error, in this many MiB at most of all such; 0: keep none.
    batch_mb: int = 0
    #: The source text that is kept with what was recorded: ``lines``, ``full`` or ``none`` (Note [Source excerpts]).
    source: str = "lines"
    #: The share of the script's own time that watching may take (Note [The budget]); ``None``: every step that the
    #: other settings ask for is recorded.
    budget: float | None = None

    @property
    def plain(self) -> bool:
        """Whether nothing is asked for but what costs no more than the budget."""
        asked = self.level, frozenset(self.ask) - CHEAP, self.tensors, self.log, self.record
        return asked == (Settings.level, frozenset(), (), "", "")

    @property
    def chosen(self) -> bool:
        """Whether somebody has said which steps are to be recorded."""
        asked = self.every, self.first, self.last, self.careful
        return asked != (Settings.every, Settings.first, Settings.last, Settings.careful)

    def traced(self, step: int) -> bool:
        """Whether the nodes of a step are asked for."""
        if self.level == "watch" or step < self.first or (self.last is not None and step >= self.last):
            return False
        return (step - self.first) % self.every == 0


def budget_of(given: float | str | None, settings: Settings) -> float | None:
    """The share of the script's own time that watching may take, from what a person says.

    :param given: a share (0.05), a text (``"5%"``, ``"0.05"``, ``"none"``), ``None`` for no bound, or ``"default"``:
        what the variable ``BACKPROBE_BUDGET`` of the environment says, or 5%, where `settings` ask for all steps and no
        more of each than is recorded of itself; no bound where a person has chosen what to record.
    :raises BackprobeError: it is not a share above 0.
    """
    if given == "default":
        if not settings.plain or settings.chosen:
            return None
        given = os.environ.get("BACKPROBE_BUDGET") or DEFAULT_BUDGET
    if given is None or given == "none":
        return None
    try:
        text = str(given).strip()
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 < share < math.inf:
        raise BackprobeError(f"the budget is {given!r}; it is a share of the script's time such as 5% or 0.05, or none")
    return share


class Attention:
    """Tells the eye, the modules and the values how closely to look."""

    def __init__(self, eye: Eye, modules: ModuleWatch, values: Values, careful: int) -> None:
        self._eye, self._modules, self._values = eye, modules, values
        #: Steps before this one are looked at closely.
        self._until = careful
        #: The step from which on the next is looked at closely that is so though nothing is wrong.
        self._seldom = SELDOM
        #: Those from which on another one is recorded, since something was new.
        self._again: list[int] = []
        #: Whether the running step is recorded since it was asked for, and not by the budget.
        self.asked = False
        #: Backward calls in a row with bad values.
        self._troubled = 0

    @property
    def used_to_it(self) -> bool:
        """Whether everything has been bad for a while: looking closely at it is slow."""
        return self._troubled > TROUBLE

    def look_closely(self, until: int) -> None:
        """Look closely at the steps before `until`."""
        self._until = max(self._until, until)

    def something_new(self, step: int) -> None:
        """Something is new, or wrong, in a step that is not recorded: those after it tell more."""
        self.look_closely(step + 1 + CLOSE)
        self._again = sorted({*self._again, *(step + CLOSE + later for later in AGAIN)})[: 2 * len(AGAIN)]

    @property
    def _due(self) -> int:
        """The step from which on one is asked for."""
        return min([self._seldom, *self._again[:1]])

    def wanted(self, step: int, settings: Settings, budget: Budget) -> bool:
        """Whether the nodes of a step are to be recorded."""
        asked = step < self._until or (step >= self._due and budget.affords)
        return settings.traced(step) and (asked or budget.wants())

    def is_usual(self, step: int) -> bool:
        """Whether nothing is to be seen of this step that another would not show."""
        return self._until <= step < self._due

    def room(self, step: int, budget: Budget) -> int:
        """How many steps may pass from `step` on before one is asked for that can be paid."""
        return self._due - step if budget.affords and self._due > step else sys.maxsize

    def begin_step(self, step: int, settings: Settings, traced: bool) -> bool:
        """Set the detail for a step; whether it is looked at closely."""
        careful = traced and (settings.level == "explain" or step < self._until or step >= self._seldom)
        self.asked = traced and (careful or step >= self._due)
        if self.asked and self._again and step >= self._again[0]:
            del self._again[0]
        if careful and step >= self._seldom:
            self._seldom = 1 << step.bit_length()
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
