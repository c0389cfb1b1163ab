"""What a tracker is given to look with."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..records import Measured
from ..source.frames import Frames
from ..store.batches import Batch
from ..torch_internals import private
from .backward.calls import BackwardCalls
from .events import Events
from .forward.modules import ModuleWatch
from .forward.naming import Naming
from .forward.origins import Origins
from .forward.torch_call_recorder import TorchCallRecorder
from .forward.values import ForwardValues
from .forward.writes import WriteLog
from .schedule.settings import Settings
from .schedule.steps import StepWatch

if TYPE_CHECKING:
    from .trackers.collective_wait import Waiting


#: The step that goes on, and how many after it, are recorded for an alarm.
ALARMED = 3


@dataclass
class TrackerContext:
    """The parts of a session.

    :ivar origins: where the nodes of graphs were made, as far as it was recorded until now.
    :ivar whole: the session watches a script from its start to its end, and not a block of code.
    :ivar raised: what ended the script, if anything did.
    :ivar code: the exit code of a script that ended; ``signal``: what ended it.
    :ivar waiting: looks after waits for other processes, where somebody has begun that.
    :ivar record_to: the folder of the run, for those who keep files of their own beside it.
    :ivar look_closely: asks for a closer look at the steps before a number.
    :ivar hand_on: takes statistics of a step, for who wants to know.
    :ivar look_again: asks for the next statistics soon, where the last ones may be an alarm if that lasts.
    :ivar next_look: no step from this one on passes unseen until it is set again: its loss is wanted.
    :ivar may_pass: each is given a step, and whether those that pass are told of (Note [Brief steps]), and says how
        many may pass from it on.
    :ivar batches: by step, those that were kept and have no folder to be written to.
    :ivar put_back: what takes ours off the process when watching pauses, also where the listener that should have
        done so has failed. Each may be called twice.
    """

    settings: Settings
    events: Events
    names: Naming
    eye: TorchCallRecorder
    writes: WriteLog
    values: ForwardValues
    steps: StepWatch
    calls: BackwardCalls
    origins: Callable[[], Origins]
    whole: bool = False
    raised: BaseException | None = None
    code: int = 0
    signal: int | None = None
    waiting: Waiting | None = None
    record_to: Path | None = None
    look_closely: Callable[[int], None] = lambda step: None
    hand_on: Callable[[Measured], None] = lambda measured: None
    look_again: Callable[[], None] = lambda: None
    next_look: int = sys.maxsize
    may_pass: list[Callable[[int, bool], int]] = field(default_factory=list)
    batches: dict[int, Batch] = field(default_factory=dict)
    put_back: list[Callable[[], None]] = field(default_factory=lambda: [private.drop_our_dispatch_modes])

    @property
    def modules(self) -> ModuleWatch:
        return self.names.modules

    @property
    def frames(self) -> Frames:
        return self.names.frames

    def heed(self, alarms: Sequence[Any], waits: bool) -> None:
        """What the last statistics showed: new alarms, after which steps are recorded, or something that is an alarm if
        it lasts, after which the next look comes soon."""
        if alarms:
            self.look_closely(self.steps.index + ALARMED)
        for alarm in alarms:
            self.events.tell("alarm", alarm)
        if waits:
            self.look_again()
