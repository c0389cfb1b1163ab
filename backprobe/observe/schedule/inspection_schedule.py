"""How closely a step is looked at: a closer look at the start and after trouble."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ...torch_internals import private
from ..forward.modules import ModuleWatch
from ..forward.torch_call_recorder import TorchCallRecorder
from ..forward.values import ForwardValues
from .budget import Budget
from .settings import Settings

if TYPE_CHECKING:
    from ..backward.pending_call_record import PendingCallRecord

#: Backward calls in a row with bad values that are looked at closely.
TROUBLE = 3
#: The first step that is looked at closely though the start is over and nothing is wrong: then those twice as far on.
#: What begins late is seen by the time that the run is twice as long, at a cost that falls with each such look. Where a
#: budget can't pay for one it comes later.
SELDOM = 32
#: Steps that are looked at closely after one in which something is new; and how many later some are recorded again, to
#: know whether it stays so.
CLOSE, AGAIN = 3, (4, 8, 16, 32)


class InspectionSchedule:
    """Tells the eye, the modules and the values how closely to look."""

    def __init__(self, eye: TorchCallRecorder, modules: ModuleWatch, values: ForwardValues, careful: int) -> None:
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
        asked = not budget.only_counts and (step < self._until or (step >= self._due and budget.affords))
        return settings.traced(step) and (asked or budget.wants())

    def is_usual(self, step: int) -> bool:
        """Whether nothing is to be seen of this step that another would not show."""
        return self._until <= step < self._due

    def room(self, step: int, budget: Budget) -> int:
        """How many steps may pass from `step` on before one is asked for that can be paid."""
        return self._due - step if budget.affords and self._due > step else sys.maxsize

    def begin_step(self, step: int, settings: Settings, traced: bool) -> bool:
        """Set the detail for a step; whether it is looked at closely."""
        careful = traced and (settings.level == "full" or step < self._until or step >= self._seldom)
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

    def backward_over(self, running: object, recorded: PendingCallRecord) -> None:
        """What a backward call means for how closely to look at the next."""
        self._troubled = self._troubled + 1 if recorded.trouble else 0
        if recorded.trouble:
            self._until = 0 if self.used_to_it else max(self._until, recorded.step + 2)
