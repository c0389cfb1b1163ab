"""Detects whether this process waits in a collective operation for other ranks.

Note [Inspecting waits]: collectives are not torch functions, so no mode intercepts them, and a waiting process runs no
code of backprobe. So a thread inspects the main thread's stack a few times per second, only if torch.distributed is in
use. It reads code objects and instruction offsets, and holds no frame. A collective that C++ calls, such as those of
DDP inside ``backward``, is on no Python stack: if the main thread stays in one place, the thread reads the running
collective from torch's flight recorder. For a long wait, the first of the waiting ranks prints a message, with the
latest reports of the other ranks (``backprobe.traces.collective_desync``).
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from types import FrameType

import torch
import torch.distributed

from ... import thresholds
from ...basics.terminal import say
from ...basics.torch_texts import COLLECTIVE
from ...records import Collective, RankSeen, RankWait, Site
from ...source.control_flow import branch_conditions, branches_around, condition_of
from ...source.frames import CodeLocation, Frames
from ...source.sites import site_at
from ...torch_internals import code_objects
from ...torch_internals.flight import Flight, store_timeout
from ...traces.collective_desync import held, said, stuck
from .. import wall_clock

#: Interval, in seconds, between two inspections of the stack.
INSPECTION_INTERVAL_S = 0.25
#: Maximum number of code locations, and of step ends, that are kept.
MAX_LOCATIONS, MAX_STEP_ENDS = 200, 300
#: Maximum number of collectives' lines whose branch conditions are looked up, and of callers per wait.
MAX_CONDITION_LINES, MAX_CALLERS = 8, 3
#: Maximum number of initial inspections that each report the state of the process, because it may end early and
#: silently.
MAX_REPORTED_INSPECTIONS = 20
#: Seconds in one place after which the flight recorder is read, and minimum interval between two readings.
FLIGHT_READ_INTERVAL_S = 2.0


def rank() -> int | None:
    """Return this process's rank if torch.distributed is in use; otherwise ``None``."""
    return int(torch.distributed.get_rank()) if in_use() else None


def in_use() -> bool:
    """Return whether a default process group of torch.distributed is initialized."""
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


def is_collective_error(error: BaseException | None) -> bool:
    """Return whether `error` reports that a collective operation failed."""
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in COLLECTIVE)


@dataclass(frozen=True)
class _Wait:
    """A period that the main thread spent in one collective operation.

    :ivar inside: the torch function in which C++ called the collective; empty if Python called it.
    :ivar called: the flight recorder's entry of the collective, if known.
    """

    op: str
    spot: CodeLocation
    began: float
    inside: str = ""
    called: Collective | None = None
    callers: tuple[CodeLocation, ...] = ()


class CollectiveWaitWatcher:
    """Watcher of one thread for waits in collective operations.

    :param changed: called from the watching thread when a long wait begins or goes on, when the rank becomes known, and
        at intervals.
    :param others: returns the latest reports of all processes of the job, including this one.
    :param kept: make torch's flight recorder keep the collectives of this process.
    """

    def __init__(
        self,
        frames: Frames,
        changed: Callable[[], None] | None = None,
        say: bool = True,
        others: Callable[[], Iterable[RankSeen]] | None = None,
        kept: bool = False,
    ) -> None:
        """Prepare to watch the current thread; ``start`` begins.

        :param say: print a message about a long wait.
        """
        self._frames, self._on_change, self._prints_reports, self._read_reports = frames, changed, say, others
        self._reported: _Wait | None = None
        self._thread_id = threading.get_ident()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._current_wait: _Wait | None = None
        self._waits: deque[tuple[_Wait, float]] = deque(maxlen=50)
        #: (time, code location), added when the thread is seen in another place.
        self._recent_places: deque[tuple[float, CodeLocation]] = deque(maxlen=64)
        #: The user's code locations that were seen on the thread's stack.
        self._stack_locations: dict[CodeLocation, None] = {}
        #: The thread's current place and since when it is there, and the time at which the flight recorder was last
        #: read.
        self._current_place: tuple[CodeLocation | None, float] = (None, 0.0)
        self._last_flight_read = 0.0
        #: Wall-clock time, and processor time of this process, some inspections ago.
        self._earlier_clocks = (time.monotonic(), time.process_time())
        self.busy: float | None = None
        self.rank: int | None = None
        #: The end times and numbers of steps; and a function that returns the number of the running step, if known.
        self._step_ends: tuple[tuple[float, int], ...] = ()
        self.step: Callable[[], int | None] = lambda: None
        self._conditions_by_line: dict[Site, tuple[Site, ...]] = {}
        self._inspection_count = 0
        self._flight = Flight(self._site_of)
        if kept:
            self._flight.request()

    def step_ended(self, step: int) -> None:
        """Record the end of a step. Called by the watched thread."""
        self._step_ends = (*self._step_ends[-MAX_STEP_ENDS:], (wall_clock.now(), step))

    def _step_at(self, at: float) -> int | None:
        """Return the step that was running at time `at`; ``None`` if it is not known."""
        ends = self._step_ends
        place = bisect_right(ends, at, key=lambda end: end[0])
        step = ends[place][1] if place < len(ends) else self.step()
        before = ends[place - 1][1] if place else -1
        return step if step == before + 1 else None

    def start(self) -> None:
        """Start the watching thread, if it does not run yet."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="backprobe-waiting", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the watching thread and wait up to a second for it; restore the flight recorder's environment
        variables.
        """
        if self.rank is None:  # a process that ends at once may never have been inspected
            self.rank = rank()
        self._flight.restore_environment()
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(1.0)

    def _run(self) -> None:
        """Inspect the watched thread's stack at intervals until ``stop``. The body of the watching thread."""
        with contextlib.suppress(
            Exception
        ):  # stop watching silently: the script's output must not contain a traceback of ours
            while not self._stop.wait(INSPECTION_INTERVAL_S):
                self.inspect()

    def inspect(self) -> None:
        """Inspect the watched thread's stack once: note its place, begin or end a wait, and report a long wait."""
        at = wall_clock.now()
        frame = sys._current_frames().get(self._thread_id)
        found = rank()
        new = found is not None and self.rank is None
        if new:
            self._flight.restore_environment()
        self.rank = found if found is not None else self.rank
        spot, op = self._place_and_collective(frame)
        backward = self._is_in_backward(frame)
        callers = self._callers(frame) if op else ()
        self.note_callers(frame)
        del frame
        if spot is not None and (not self._recent_places or self._recent_places[-1][1] != spot):
            self._recent_places.append((at, spot))
        if self._current_place[0] != spot:
            self._current_place = spot, at
        now = self._current_wait
        if now is not None and now.inside and now.spot == spot and self._is_still_running(now):
            op = now.op
        same = now is not None and op == now.op and spot == now.spot
        if now is not None and not same:
            self._end_wait(at)
        if op and spot is not None and not same:
            self._current_wait = _Wait(op, spot, at, callers=callers)
        elif not op and backward and spot is not None:
            self._current_wait = self._wait_inside_backward(spot, at)
        self._inspection_count += 1
        if self._inspection_count % 8 == 0:
            before, self._earlier_clocks = self._earlier_clocks, (time.monotonic(), time.process_time())
            self.busy = (self._earlier_clocks[1] - before[1]) / max(
                self._earlier_clocks[0] - before[0], INSPECTION_INTERVAL_S
            )
        now = self._current_wait
        waits = now is not None and at - now.began > thresholds.COLLECTIVE_MIN_WAIT_S
        if waits and now is not None:
            if now.called is None and at - self._last_flight_read > FLIGHT_READ_INTERVAL_S:
                now = self._current_wait = replace(now, called=self._first_running_collective(now.began))
            limit = now.called.timeout if now.called is not None else store_timeout()
            if (
                self._prints_reports
                and self._reported is None
                and at - now.began
                > min(
                    thresholds.COLLECTIVE_REPORT_AFTER_S,
                    thresholds.COLLECTIVE_REPORT_TIMEOUT_SHARE * limit or thresholds.COLLECTIVE_REPORT_AFTER_S,
                )
            ):
                self._print_report(now, at)
        # A process that is killed must have reported what it was doing; and processes that end first must know its
        # rank.
        if self._on_change is not None and (
            waits
            or new
            or (
                self.rank is not None
                and (self._inspection_count < MAX_REPORTED_INSPECTIONS or self._inspection_count % 4 == 0)
            )
        ):
            self._on_change()

    def _site_of(self, frames: list[tuple[str, int, str]]) -> Site | None:
        """Return the line of the first frame of the user's files among (file, line, function); ``None`` if there is
        none.
        """
        mine = next((one for one in frames if self._frames.is_users_file(one[0])), None)
        return None if mine is None else site_at(*mine)

    def note_callers(self, frame: FrameType | None) -> None:
        """Record the user's code locations on the stack of `frame`, to find later the loops in which the thread was
        seen.
        """
        while frame is not None and len(self._stack_locations) < MAX_LOCATIONS:
            if self._frames.is_user(frame.f_code):
                self._stack_locations[frame.f_code, frame.f_lasti] = None
                if frame.f_code.co_name == "<module>":  # code that runs or imports the script has loops of its own
                    return
            frame = frame.f_back

    def _callers(self, frame: FrameType | None) -> tuple[CodeLocation, ...]:
        """Return the user's code locations on a stack, without the innermost one and without module-level code."""
        found: list[CodeLocation] = []
        while frame is not None and len(found) <= MAX_CALLERS:
            if self._frames.is_user(frame.f_code) and frame.f_code.co_name != "<module>":
                found.append((frame.f_code, frame.f_lasti))
            frame = frame.f_back
        return tuple(found[1:])

    def ways(self, lines: Iterable[Site | None]) -> tuple[tuple[Site, tuple[Site, ...]], ...]:
        """Return the conditions that decide whether the last few of `lines` execute, by line.

        :param lines: lines of collectives and of waits.
        """
        last = [site for site in dict.fromkeys(lines) if site is not None][-MAX_CONDITION_LINES:]
        for site in last:
            if site not in self._conditions_by_line:  # reading the code is slow, and this is called often
                self._conditions_by_line[site] = branch_conditions(self._frames, site)
        return tuple((site, found) for site in last if (found := self._conditions_by_line[site]))

    def branches(self) -> tuple[Site, ...]:
        """Return the lines that leave a loop in which the thread was seen."""
        sites = [site for spot in list(self._stack_locations) if (site := self._frames.site(spot)) is not None]
        return branches_around((site.file, site.line) for site in sites)

    def conditions(self, ways: Iterable[tuple[Site, tuple[Site, ...]]]) -> tuple[tuple[Site, Site], ...]:
        """Return, for each line of ``branches`` and `ways`, the line of its condition."""
        lines = dict.fromkeys((*self.branches(), *(line for _, found in ways for line in found)))
        return tuple((line, head) for line in lines if (head := condition_of(line)) is not None)

    def _is_in_backward(self, frame: FrameType | None) -> bool:
        """Return whether the user's innermost function on the stack of `frame` is in a call of the autograd engine."""
        while frame is not None and not self._frames.is_user(frame.f_code):
            if frame.f_code is code_objects.ENGINE_CALL:
                return True
            frame = frame.f_back
        return False

    def _wait_inside_backward(self, spot: CodeLocation, at: float) -> _Wait | None:
        """Return the collective that is running while the thread stays inside the engine; ``None`` if there is none."""
        if at - self._current_place[1] < FLIGHT_READ_INTERVAL_S or at - self._last_flight_read < FLIGHT_READ_INTERVAL_S:
            return None
        called = self._first_running_collective()
        return (
            None
            if called is None
            else _Wait(called.op, spot, max(called.began, self._current_place[1]), "backward", called)
        )

    def _first_running_collective(self, since: float = 0.0) -> Collective | None:
        """Return the first running collective, preferably among those called after `since`."""
        self._last_flight_read = wall_clock.now()
        ones = [
            one
            for one in self.collectives()
            if not one.over and one.began < self._last_flight_read - thresholds.COLLECTIVE_MIN_WAIT_S
        ]
        ones = [one for one in ones if one.began >= since - INSPECTION_INTERVAL_S] or ones
        return min(ones, key=lambda one: one.began, default=None)

    def _is_still_running(self, wait: _Wait) -> bool:
        """Return whether a collective that is on no Python stack is still running."""
        if wall_clock.now() - self._last_flight_read < FLIGHT_READ_INTERVAL_S:
            return True
        called, self._last_flight_read = wait.called, wall_clock.now()
        return called is not None and any(
            (one.group, one.number, one.over) == (called.group, called.number, False) for one in self.collectives()
        )

    def collectives(self) -> tuple[Collective, ...]:
        """Return the last collectives of each process group; empty if torch does not keep them."""
        found = self._flight.latest() if self.rank is not None or in_use() else ()
        return tuple(replace(one, step=self._step_at(one.began)) for one in found)

    def arrivals(self) -> tuple[tuple[str, int, tuple[float, ...]], ...]:
        """Return the times at which collectives were called, see ``RankSeen.arrivals``."""
        return () if self.rank is None else self._flight.arrivals()

    def _print_report(self, now: _Wait, at: float) -> None:
        """Print, once per wait, that it lasts and for which ranks. Only the first waiting rank prints."""
        self._reported = now
        own = RankSeen(self.rank, os.getpid(), (self._wait_record(now, at - now.began, "never"),))
        ranks = [own]
        if self._read_reports is not None and self._on_change is not None:
            self._on_change()
            ranks = [seen for seen in self._read_reports() if seen.rank is not None] or ranks
        found, waits = held(ranks, live=True), [seen for seen, _ in stuck(ranks)]
        first = min(waits, key=lambda seen: (seen.rank is None, seen.rank), default=own)
        if found is not None and (first.rank, first.pid) == (own.rank, own.pid):  # pids repeat across machines
            say(f"backprobe: {said(found, wall_clock.now())}", sys.stderr)

    def _end_wait(self, at: float) -> None:
        """End the running wait at time `at`, and keep it if it was long."""
        now, self._current_wait = self._current_wait, None
        self._reported = None
        if now is not None and at - now.began > thresholds.COLLECTIVE_MIN_WAIT_S:
            self._waits.append((now, at))

    def _wait_record(self, wait: _Wait, seconds: float, ended: str) -> RankWait:
        """Return the record of a wait that took `seconds`; `ended` says how it ended."""
        site = self._frames.site
        callers = tuple(line for spot in wait.callers if (line := site(spot)) is not None)
        made = RankWait(wait.op, site(wait.spot), wait.began, seconds, ended, wait.inside, callers=callers)
        called = wait.called
        if called is None:
            return made
        return replace(made, group=called.group, number=called.number, inputs=called.inputs)

    def _place_and_collective(self, frame: FrameType | None) -> tuple[CodeLocation | None, str]:
        """Return the user's code location on a stack, and the collective that it is in; empty if it is in none."""
        op, inside = "", None
        while frame is not None:
            code = frame.f_code
            if self._frames.is_user(code):
                return (code, frame.f_lasti), op if inside else ""
            if code.co_name == "<module>":  # an import calls no collective, not even that of torch.distributed
                op, inside = "", False
            here = code.co_filename.startswith(code_objects.COLLECTIVES) or code.co_filename == code_objects.DDP_FILE
            if inside is None and code.co_name not in code_objects.COLLECTIVE_WAITS:
                inside = here  # the innermost frame decides
            if here and code.co_name != code_objects.COLLECTIVE_WRAPPER:
                op = code.co_name
            frame = frame.f_back
        return None, ""

    def records(self, failed: bool) -> tuple[RankWait, ...]:
        """Return the long waits.

        If the watched thread calls this, its last wait is over.

        :param failed: the process ended with an error, right after the last wait.
        """
        at = wall_clock.now()
        if self._current_wait is not None and threading.get_ident() == self._thread_id:
            self._end_wait(at)
        found = [self._wait_record(wait, ended - wait.began, "returned") for wait, ended in self._waits]
        if failed and found and at - (found[-1].began + found[-1].seconds) < 4 * INSPECTION_INTERVAL_S + 0.5:
            found[-1] = replace(found[-1], ended="raised")
        now = self._current_wait
        if now is not None and at - now.began > thresholds.COLLECTIVE_MIN_WAIT_S:
            found.append(self._wait_record(now, at - now.began, "raised" if failed else "never"))
        return tuple(found)

    def trail(self) -> tuple[tuple[float, Site], ...]:
        """Return (time, line) for the last places of the thread, oldest first."""
        return tuple((at, site) for at, spot in self._recent_places if (site := self._frames.site(spot)) is not None)
