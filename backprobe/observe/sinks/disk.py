"""A sink that writes records to a run folder as they come."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...records import BriefSteps, Finding, Measured, Step
from ...store.writer import Writer
from ...traces import Trace

if TYPE_CHECKING:
    from ..backward.pending_call_record import PendingCallRecord
    from ..session import Session

#: Maximum share of the run's time for writing new graphs, after the first steps.
MAX_NEW_GRAPH_SHARE = 0.03
#: Maximum number of steps with the same module calls that are written with shapes and norms.
MAX_DETAILED_STEPS = 16
#: Number of module calls from which on steps are compared by this number alone.
MAX_COMPARED_CALLS = 50_000
#: Minimum seconds between two updates of the stored overhead, for programs that follow the run.
MIN_UPDATE_INTERVAL_S = 2.0


class DiskSink:
    """A sink that writes to a run folder.

    ``skipped`` counts backward calls left out to stay within ``MAX_NEW_GRAPH_SHARE``.
    """

    def __init__(self, writer: Writer) -> None:
        """Start with an empty run folder, to which `writer` writes."""
        self.writer = writer
        self.skipped = 0
        self._begin = time.perf_counter()
        self._spent = 0.0
        self._naming: dict[int, int] = {}
        #: Key: hash of a step's module calls. Value: how many such steps were written with shapes and norms, and the
        #: key of the last one.
        self._trails: dict[int, tuple[int, Any]] = {}
        self._written = self._updated = 0.0
        self._known: set[int] = set()

    def backward(self, recorded: PendingCallRecord) -> None:
        """Write a backward call; leave it out if its graph is new and new graphs have taken too much time."""
        live = recorded.live
        begin = time.perf_counter()
        new = live.index not in self._known
        if new:
            # If the graph changes every step, writing each costs more than it is worth.
            if (
                recorded.step > 8
                and not recorded.has_trouble
                and self._spent > MAX_NEW_GRAPH_SHARE * (begin - self._begin)
            ):
                self.skipped += 1
                return
            self._known.add(live.index)
            self._naming[live.index] = recorded.names.modules.naming
        packed = recorded.packed()
        self.writer.backward(recorded.record(), packed, live, recorded.has_trouble)
        if new:
            self._spent += time.perf_counter() - begin

    def measured(self, measured: Measured) -> None:
        """Write the statistics of a step at once."""
        self.writer.measured(measured)
        self.writer.commit()  # the next steps may have no record, and a reader of the live run expects these

    def step(self, step: Step, session: Session) -> None:
        """Write a step with its module calls; those of many equal steps are written only once."""
        modules = session.forward.modules
        trail, details = modules.trail, modules.details
        numbers = tuple([where.number if where is not None else 0 for where in trail[:MAX_COMPARED_CALLS]])
        key = self._trail_of(hash(numbers) if len(trail) < MAX_COMPARED_CALLS else hash(len(trail)), step, details)
        self.writer.step(step, key, lambda: modules.calls_of(trail, details, step.index))
        self._step_written(step.index in (0, 2, 9), session)

    def brief_steps(self, steps: BriefSteps, session: Session) -> None:
        """Write fast-path steps."""
        self.writer.brief_steps(steps)
        self._step_written(False, session)

    def _step_written(self, early: bool, session: Session) -> None:
        """Write the costs, facts and source files so far, at intervals, for readers of the running run or if it is
        killed.
        :param early: at once.
        """
        now = time.monotonic()
        if early or now - self._updated > MIN_UPDATE_INTERVAL_S:
            self._updated = now
            self.writer.put(session.cost.took.info())
        if early or now - self._written > 30:  # in case the run is killed
            self._written = now
            self.writer.check_there()
            facts = session.facts()
            self.writer.facts(facts)
            self.writer.put({"sources": session.run_facts.sources((facts.parameters, facts.seen))})

    def _trail_of(self, same: int, step: Step, details: object) -> object:
        """Return the key of a step's module calls, for the run folder.

        The key is that of the last step that had the same calls and was written with shapes and norms. The first
        ``MAX_DETAILED_STEPS`` steps with details get a key of their own.
        """
        count, last = self._trails.get(same, (0, same))
        if details and count < MAX_DETAILED_STEPS:
            count, last = self._trails[same] = count + 1, (same, step.index)
        return last

    def close(self, session: Session, trace: Trace, findings: list[Finding], info: Mapping[str, object]) -> None:
        """Write what is known at the end of the run.

        :raises OSError, sqlite3.Error: the run folder cannot be written.
        """
        from ..backward.layouts import LiveLayout

        self.writer.check_there()
        naming = session.forward.modules.naming
        late = {
            number: live.layout(session.forward.names)
            for live, number in self.writer.layouts
            if isinstance(live, LiveLayout) and self._naming.get(live.index) != naming
        }
        self.writer.rename(late)
        named = trace.facts.parameters, trace.facts.seen, findings
        self.writer.put({**info, "skipped": self.skipped, "sources": session.run_facts.sources(named)})
        self.writer.close(trace.facts, findings)
