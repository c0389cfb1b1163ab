"""The part of the run folder that one of several processes writes (Note [Parts])."""

from __future__ import annotations

import contextlib
import faulthandler
import math
import multiprocessing
import os
import platform
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...basics.files import NO_LINK
from ...basics.text import raised
from ...records import BriefSteps, Finding, RankSeen, Site, Step
from ...store import CRASH
from ...store.parts import claim, read_parts, write_seen
from .. import wall_clock
from ..backward.pending_call_record import PendingCallRecord
from ..session import Session
from ..sinks.memory import Collector
from ..trackers.collective_wait import CollectiveWaitWatcher
from ..trackers.ranks import ended_waits
from ..trackers.replicas import is_measured_step
from .identity import Identity
from .signals import start_ticks


class Part:
    """The folder of one process of the run.

    :param job: the folder of the run.
    :param folder: the folder of this process, if it has one already.
    :raises OSError: the folder cannot be created.
    """

    def __init__(self, job: Path, me: Identity, folder: Path | None = None) -> None:
        """Create the folder in which the process `me` writes its records, or take over the one that exists."""
        self.me, self.folder = me, folder or _own(job, me)
        self._session: Session | None = None
        self._collector: Collector | None = None
        self.waiting: CollectiveWaitWatcher | None = None
        self._loss: float | None = None
        self._norms: dict[int, float] = {}
        #: The line that called ``os._exit``, if the process ended that way.
        self.left: Site | None = None
        self._over = False
        self._lock = threading.Lock()

    def begin(self, session: Session, collector: Collector) -> None:
        """Begin to report the state of `session` as this process's: start the watcher of waits, and have crashes
        written.
        """
        self._session, self._collector = session, collector
        self.waiting = CollectiveWaitWatcher(
            session.forward.frames,
            self.save,
            not session.settings.quiet,
            lambda: read_parts(self.folder.parent.parent).values(),
            self.me.rank is not None or multiprocessing.parent_process() is not None,
        )
        session.context.watch_waits(self.waiting)
        self.waiting.start()
        self.save()  # for one that is killed
        _note_crash(self.folder / CRASH)

    @property
    def rank(self) -> int | None:
        """The rank of this process, if it is known."""
        known = self.waiting.rank if self.waiting is not None else None
        return known if known is not None else self.me.rank

    def backward(self, recorded: PendingCallRecord) -> None:
        """Add the gradient norms of a recorded call to the total norm of its step, in steps that all ranks measure."""
        if is_measured_step(recorded.step) and recorded.raised is None and self.me.world != 1:
            leaves = [run for run in recorded.record().nodes if run.parameter is not None]
            norms = [g.norm for run in leaves for g in run.grad_outputs[:1] if g is not None and g.norm is not None]
            self._norms[recorded.step] = math.hypot(self._norms.get(recorded.step, 0.0), *norms)

    def step(self, step: Step) -> None:
        """Remember the loss of a step, for the report of the progress."""
        self._loss = step.loss if step.loss is not None else self._loss

    def brief_steps(self, steps: BriefSteps) -> None:
        """Remember the last known loss of fast-path steps."""
        known = [loss for loss, calls in zip(steps.losses, steps.calls, strict=True) if calls]
        self._loss = known[-1] if known else self._loss

    def save(self) -> None:
        """Write the progress of this process to its folder."""
        with self._lock, contextlib.suppress(OSError):
            if not self._over:
                write_seen(self.folder, self._seen(False, False), self._texts)

    def over(self, failed: bool, findings: Sequence[Finding], gaps: Sequence[str], **how: object) -> None:
        """Write the final state of this process. `how`: ``error``, ``code`` and ``signal`` of ``RankSeen``."""
        if self.waiting is not None:
            self.waiting.stop()
        with self._lock, contextlib.suppress(OSError):
            self._over = True
            found = tuple(findings)
            how["arrivals"] = self.waiting.arrivals() if self.waiting is not None else ()
            norms = tuple((step, norm) for step, norm in self._norms.items() if norm)
            write_seen(
                self.folder, self._seen(True, failed, findings=found, gaps=tuple(gaps), norms=norms, **how), self._texts
            )

    @property
    def _texts(self) -> bool:
        """Whether the text of source lines may be stored."""
        return self._session is None or self._session.settings.source != "none"

    def _seen(self, over: bool, failed: bool, **more: Any) -> RankSeen:
        """Return the state of this process: steps, waits, collectives and how it ended.

        :param over: it has ended; `failed`: with an error; `more`: further fields of ``RankSeen``.
        """
        session, waiting, me = self._session, self.waiting, self.me
        assert session is not None and waiting is not None and self._collector is not None
        error, (step, between) = session.context.raised, session.schedule.steps.position
        waits, collectives = ended_waits(waiting, session.context, failed), waiting.collectives()
        ways = waiting.ways([*(one.site for one in collectives), *(one.site for one in waits)])
        return RankSeen(
            self.rank,
            os.getpid(),
            waits,
            waiting.trail(),
            over,
            steps=self._collector.counted(session),
            backwards=session.calls,
            recorded=session.budget.recorded_steps,
            loss=self._loss,
            local=me.local,
            world=me.world,
            restart=me.restart,
            machine=platform.node(),
            part=self.folder.name,
            raised=self.left if error is None else session.forward.frames.site_of_traceback(error.__traceback__),
            collectives=collectives,
            busy=waiting.busy,
            said=wall_clock.now(),
            took=session.cost.took.info(),
            branches=waiting.branches(),
            ways=ways,
            conditions=waiting.conditions(ways),
            start_ticks=start_ticks(os.getpid()),
            between=between,
            step=step,
            **more,
        )


#: File descriptors that the interpreter writes crashes of this process to. They stay open.
_crashes: list[int] = []


def _note_crash(path: Path) -> None:
    """Enable ``faulthandler``, so that a crash in C++ code writes the stacks to `path`.

    Does nothing if the script has enabled it itself; a later call by the script takes over.
    """
    if faulthandler.is_enabled() and not _crashes:
        return
    with contextlib.suppress(OSError):
        _crashes.append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | NO_LINK, 0o600))
        faulthandler.enable(_crashes[-1])


def _own(job: Path, me: Identity) -> Path:
    """Create a new folder for a process in the folder of the run, named after its slot, and return it."""
    names = [me.slot, *(f"{me.slot}-{os.getpid()}" + (f"-{n}" if n else "") for n in range(100))]
    for name in names[:-1]:
        with contextlib.suppress(FileExistsError):
            return claim(job, name)
    return claim(job, names[-1])


def ending(session: Session, collector: Collector, began: float, error: BaseException | None) -> dict[str, Any]:
    """Return the data that is stored about a process at its end."""
    return {
        "steps": collector.counted(session),
        "backwards": session.calls,
        "seconds": wall_clock.now() - began,
        "code": session.context.code if session.context.signal is None else None,
        **session.cost.took.info(),
        "error": None if error is None else raised(error)[:2000],
        **({} if session.context.signal is None else {"signal": session.context.signal}),
    }
