"""Dispatch of alarms: to a printer, the session's trackers, and a function of the user.

Note [When alarm functions run]: an alarm arises inside a hook of backprobe, where the script's modes are off and the
time counts as overhead. The user's function is therefore called from a separate hook after an optimizer has stepped,
after all other hooks: it may save a checkpoint or change a learning rate as the script itself could there. Exceptions
that it raises are contained, except those that are meant to end a script.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

from torch.optim import optimizer as optim

from ..basics.terminal import say
from ..findings.levels.alarms import Alarm, Monitor
from ..findings.levels.rule import finding_of
from ..records import BriefSteps, Finding, FindingSite, Measured, Step, Unseen
from ..torch_internals import private
from ..torch_internals.uncompiled import dynamo_passthrough
from .backward.pending_call_record import PendingCallRecord
from .session import Session
from .tracker import Tracker

if TYPE_CHECKING:
    import torch


class AlarmDispatcher(Tracker):
    """Looks for alarms in the statistics of a session, and dispatches them.

    It is both a sink of the session and a tracker in it.

    :param say: called with each alarm at once, inside a hook of backprobe.
    :param call: called with the finding of each alarm after an optimizer has stepped.
    """

    def __init__(
        self, say: Callable[[Alarm], None] | None = None, call: Callable[[Finding], object] | None = None
    ) -> None:
        """Prepare; ``begin`` attaches the dispatcher to a session."""
        self._say, self._call = say, call
        self._monitor = Monitor()
        self._session: Session | None = None
        self._waiting: list[Finding] = []
        self._handle: Any = None
        self._pid, self._thread = os.getpid(), get_ident()
        self._failed: str | None = None

    def begin(self, session: Session) -> None:
        """Look for alarms in the statistics of `session` from now on."""
        self._session = session
        session.run_facts.attach(self)

    def observing_begins(self) -> None:
        """Register the hook after optimizer steps in which the user's function is called, if there is one."""
        self._thread = get_ident()
        if self._call is not None and self._handle is None:
            self._handle = optim.register_optimizer_step_post_hook(self._stepped)

    def observing_pauses(self) -> None:
        """Remove the hook after optimizer steps."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def backward(self, recorded: PendingCallRecord) -> None:
        """Ignore single backward calls."""

    def step(self, step: Step, session: Session) -> None:
        """Ignore steps."""

    def brief_steps(self, steps: BriefSteps, session: Session) -> None:
        """Ignore steps."""

    def measured(self, measured: Measured) -> None:
        """Search the statistics of a step for alarms; show each, and keep it for the user's callback."""
        found = self._monitor.add(measured)
        if self._session is None:
            return
        self._session.context.on_alarms(found, self._monitor.waits)
        for alarm in found:
            if self._say is not None:
                self._say(alarm)
            if self._call is not None:
                self._waiting.append(finding_of(alarm, (), self._sites(self._session)))

    def _sites(self, session: Session) -> tuple[FindingSite, ...]:
        """Return the line that made the first optimizer, as a location of findings."""
        context = session.context
        made = (context.frames.site(one.spot) for one in context.steps.optimizers.values() if one.spot is not None)
        return tuple(FindingSite("optimizer", site) for site in made if site is not None)[:1]

    @dynamo_passthrough
    def _stepped(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        """Call the user's function with the alarms that wait. A hook after every optimizer step."""
        if private.compiling():
            return
        if self._waiting and os.getpid() == self._pid and get_ident() == self._thread:
            self._call_function()

    def _call_function(self) -> None:
        """Call the user's function with each waiting finding; after an error in it, it is not called any more."""
        while self._waiting and self._call is not None:
            finding = self._waiting.pop(0)
            try:
                self._call(finding)
            except Exception as error:
                self._call = None
                self._failed = f"{type(error).__name__}: {error}"[:300]
                say(f"backprobe: your function for alarms raised, and is not called again: {self._failed}", sys.stderr)

    def end(self) -> None:
        """Call the user's function with the findings that still wait, at the end of the training."""
        if os.getpid() == self._pid:
            self._call_function()

    def unseen(self) -> list[Unseen]:
        """Return that the user's function failed, if it did."""
        if self._failed is None:
            return []
        return [Unseen("function for alarms", 1, f"it raised, and was not called again: {self._failed}", hides=False)]


def said(alarm: Alarm) -> str:
    """Return an alarm as one line of text."""
    return f"{alarm.quantity} of {alarm.name} is {alarm.value:.3g} in step {alarm.step}"
