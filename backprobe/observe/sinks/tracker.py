"""A sink that sends statistics, losses and findings to experiment trackers."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...records import BackwardCall, Finding, Measured, Step, Unseen
from ...traces.gradients import BACKWARD, OneKind
from ...tracking.alerts import LEVELS, Alert
from ...tracking.link import Link
from ...tracking.numbers import Chosen
from ...tracking.open_runs import OPEN, wandb
from ...tracking.outbox import Outbox
from ...tracking.writers import WRITERS, is_installed

if TYPE_CHECKING:
    from ..backward.pending_call_record import PendingCallRecord
    from ..session import Session

#: Seconds that all trackers together have at the end, for a script that has ended and for one that is being killed; and
#: the environment variable that overrides the first.
WAIT_S, KILLED_WAIT_S, WAIT_VARIABLE = 30.0, 2.0, "BACKPROBE_WAIT"
#: Maximum number of findings that are sent.
MAX_SENT_FINDINGS = 20


class ExperimentTrackerSink:
    """A sink that writes to experiment trackers.

    It blocks only at the end and never raises; after an internal error it stops.

    :param own: trackers that get a run of their own.
    :param found: trackers for which the script's open run is used, by a thread in this process or by another process.
    :param keys: globs on the names of curves to send in addition to the curves over all layers.
    :param about: data about the run: ``script``, ``run`` (its folder), ``name``.
    """

    def __init__(
        self, own: Sequence[str], found: Sequence[str], keys: Sequence[str], about: Mapping[str, object]
    ) -> None:
        """Prepare the connections; runs are opened when there is something to send."""
        self._about = {**about, "folder": os.getcwd(), "open": None}
        self._keys = [*keys]
        self._own = [Link(name, keys) for name in own]
        self._found = {name: Link(name, keys, surely=False) for name in found if name in OPEN}
        self._wandb = "wandb" in found
        #: Tracker -> the script's run that is written to; ``None``: no run is open now.
        self._open: dict[str, Any] = {}
        self._boxes: list[Outbox] = []
        self._box: Outbox | None = None
        self._calls: list[BackwardCall] = []
        self._norms = OneKind()
        self._lost: list[Unseen] = []
        try:
            self._patience = max(float(os.environ.get(WAIT_VARIABLE, WAIT_S)), 0.0)
        except ValueError:
            self._patience = WAIT_S
        #: Whether there has been anything to send: backprobe opens runs of its own only then.
        self._begun = False

    @classmethod
    def of(cls, to: Sequence[str], keys: Sequence[str], script: str, run: str, name: str) -> ExperimentTrackerSink:
        """Return a sink for the trackers `to`.

        :param to: names of trackers; ``auto`` stands for those in which the script has a run open.
        """
        own = [one for one in dict.fromkeys(to) if one != "auto"]
        found = [one for one in WRITERS if "auto" in to and one not in own and is_installed(one)]
        return cls(own, found, keys, {"script": script, "run": run, "name": name})

    def backward(self, recorded: PendingCallRecord) -> None:
        """Keep the record of a backward call until its step is over, if there may be a tracker to write to."""
        with self._contained():
            if self._there or self._found or self._wandb:
                self._calls.append(recorded.record())

    def measured(self, measured: Measured) -> None:
        """Send the statistics of a step."""
        with self._contained():
            self._measured(measured)

    def step(self, step: Step, session: Session) -> None:
        """Send the loss and the gradient norm of a step."""
        with self._contained():
            self._step(step)

    def alarm(self, kind: str, text: str, step: int) -> None:
        """Send an alarm at once."""
        with self._contained():
            alert = Alert(kind, text, self._read, "WARN", step)
            for one in self._there:
                one.alert(alert)

    def close(self, findings: Sequence[Finding], killed: bool = False) -> None:
        """Send the findings, and close the trackers. `killed`: the process is being killed, so wait only briefly."""
        with self._contained():
            self._close(findings, killed)

    @contextlib.contextmanager
    def _contained(self) -> Iterator[None]:
        """Catch an internal error in the block: it is reported once, and no tracker is written to any more."""
        try:
            yield
        except Exception as error:
            self._failed("all", error)
            self._own, self._found, self._wandb, self._box = [], {}, False, None

    def _measured(self, measured: Measured) -> None:
        """Open our own runs, look for the script's, and send statistics to all."""
        self._begin()
        self._look_for_runs()
        for one in self._there:
            one.look(measured)

    def _step(self, step: Step) -> None:
        """Send the loss of a step and the gradient norm of its calls to all trackers, if they are finite."""
        calls, self._calls = self._calls, []
        self._begin()
        if not self._there:
            self._look_for_runs()
        if not self._there:
            return
        numbers = {} if step.loss is None else {"backprobe/loss": step.loss}
        norm = self._norms.of(calls, ((one.name, one.grad) for one in step.parameters), step.clip_norm).total
        if norm is not None:
            when = "before" if self._norms.kind == BACKWARD else "after"
            numbers[f"backprobe/grad_norm_{when}_clip"] = norm
        numbers = {name: value for name, value in numbers.items() if math.isfinite(value)}
        if numbers:
            for one in self._there:
                one.step(step.index, numbers)

    def _close(self, findings: Sequence[Finding], killed: bool) -> None:
        """Send the findings as alerts, and close all connections within the time that is left."""
        if findings:
            self._begin()
        for finding in findings[:MAX_SENT_FINDINGS]:
            text = "\n\n".join([*([str(finding.sites[0].site)] if finding.sites else []), finding.advice, self._read])
            alert = Alert(finding.kind, finding.title, text, LEVELS[finding.severity], finding.step)
            targets: list[Link | Outbox] = [*self._links, *self._boxes[-1:]]
            for one in targets:
                one.alert(alert)
        every: list[Link | Outbox] = [*self._own, *self._found.values(), *self._boxes]
        for one in every:
            one.last()
        seconds = KILLED_WAIT_S if killed else self._patience
        end = time.monotonic() + seconds
        for one in every:
            one.close(max(end - time.monotonic(), 0.5))

    def _begin(self) -> None:
        """Open the runs of our own, when there is something to send for the first time."""
        if not self._begun:
            self._begun = True
            for link in self._own:
                link.open(self._about)

    @property
    def unseen(self) -> list[Unseen]:
        """Return what is missing in the trackers, each cause once."""
        every: list[Link | Outbox] = [*self._links, *self._boxes]
        return [*self._lost, *(one for each in every for one in each.unseen)]

    @property
    def written(self) -> list[tuple[str, str, int]]:
        """Return (tracker, place, number of curves left out) for each tracker that was written to."""
        found = [(link.tracker, link.at, link.left_out) for link in self._links if link.at]
        return found + [("wandb", "the script's run", box.left_out) for box in self._boxes if not box.failed]

    @property
    def _links(self) -> list[Link]:
        """The connections to trackers that have been opened or are going to be."""
        return [*self._own, *(link for name, link in self._found.items() if name in self._open)]

    @property
    def _there(self) -> list[Link | Outbox]:
        """The connections that can be written to now."""
        links = [link for name, link in self._found.items() if self._open.get(name) is not None]
        return [*self._own, *links, *([self._box] if self._box is not None else [])]

    @property
    def _read(self) -> str:
        """The sentence that tells where to read the whole report."""
        folder = self._about["run"]
        return f"Report: backprobe show {folder}" if folder else "The run is not kept."

    def _look_for_runs(self) -> None:
        """Connect to the runs that the script has opened in experiment trackers since the last look."""
        for name, link in self._found.items():
            try:
                run = OPEN[name]()
            except Exception as error:  # a tracker of another version
                self._failed(name, error)
                continue
            if run is not None and run != self._open.get(name):
                link.open({**self._about, "folder": os.getcwd(), "open": run})
            if run is not None or name in self._open:
                self._open[name] = run
        run = wandb() if self._wandb else None
        if run is None:
            self._box = None
        elif self._box is None or self._box.run is not run:
            self._box = Outbox(run, Chosen(self._keys))
            self._boxes.append(self._box)

    def _failed(self, name: str, error: Exception) -> None:
        """Note that the tracker `name` was left out because of an error; once for each tracker."""
        what = f"tracker {name}"
        if not any(one.what == what for one in self._lost):
            note = f"it was left out: {type(error).__name__}: {error}"[:300]
            self._lost.append(Unseen(what, 1, note, hides=False))
