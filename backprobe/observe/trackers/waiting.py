"""Whether this process waits in a collective operation for ranks that do not come.

Note [Looking at waits]: collectives are not torch functions, so no mode sees them, and a process that waits runs no
code of ours. A thread looks at the main thread's stack a few times a second, only where torch.distributed is in use. It
reads code objects and instruction numbers, and holds no frame.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed

from ...records import RankWait, Site
from ...source.frames import Frames, Spot
from ...torch_texts import COLLECTIVE
from ...torchside import places

#: Seconds between two looks, and seconds in one collective that count as waiting.
EVERY, LONG = 0.25, 1.0
#: Seconds after which a wait that goes on is said.
SAY = 20.0


def rank() -> int | None:
    """This process's rank, where torch.distributed is in use."""
    return int(torch.distributed.get_rank()) if in_use() else None


def in_use() -> bool:
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


def of_collective(error: BaseException | None) -> bool:
    """Whether `error` says that a collective operation failed."""
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in COLLECTIVE)


class Waiting:
    """Looks at one thread. `changed` is called from the looking thread when a long wait goes on or ends."""

    def __init__(self, frames: Frames, changed: Callable[[], None] | None = None, say: bool = True) -> None:
        self._frames, self._changed, self._say = frames, changed, say
        self._said: Any = None
        self._thread_id = threading.get_ident()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._now: tuple[str, Spot, float] | None = None
        self._waits: deque[tuple[str, Spot, float, float]] = deque(maxlen=50)
        #: (time, place) when the thread was seen at another line.
        self._trail: deque[tuple[float, Spot]] = deque(maxlen=64)
        self.rank: int | None = None
        self._looks = 0

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="backprobe-waiting", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(1.0)

    def _run(self) -> None:
        with contextlib.suppress(
            Exception
        ):  # it looks no more; a traceback of ours has no place in the script's output
            while not self._stop.wait(EVERY):
                self.look()

    def look(self) -> None:
        """Look once."""
        at = time.time()
        frame = sys._current_frames().get(self._thread_id)
        found = rank()
        self.rank = found if found is not None else self.rank
        spot, op = self._where(frame)
        del frame
        if spot is not None and (not self._trail or self._trail[-1][1] != spot):
            self._trail.append((at, spot))
        now = self._now
        same = now is not None and op == now[0] and spot == now[1]
        if now is not None and not same:
            self._end(at)
        if op and spot is not None and not same:
            self._now = (op, spot, at)
        self._looks += 1
        waits = same and now is not None and at - now[2] > LONG
        if waits and now is not None and self._say and at - now[2] > SAY and self._said is not now:
            self._said = now
            site = self._frames.site(now[1])
            print(
                f"backprobe: {'process ' + str(os.getpid()) if self.rank is None else 'rank ' + str(self.rank)} has "
                f"waited {at - now[2]:.0f} s in {now[0]} at {site}",
                file=sys.stderr,
                flush=True,
            )
        # Where a process is killed, what it was doing before must be known.
        if self._changed is not None and (waits or (self.rank is not None and self._looks % 8 == 0)):
            self._changed()

    def _end(self, at: float) -> None:
        now, self._now = self._now, None
        if now is not None and at - now[2] > LONG:
            self._waits.append((*now, at))

    def _where(self, frame: Any) -> tuple[Spot | None, str]:
        """The user's place, and the collective that it is in, if it is in one."""
        op, inside = "", None
        while frame is not None:
            code = frame.f_code
            if self._frames.is_user(code):
                return (code, frame.f_lasti), op if inside else ""
            here = code.co_filename.startswith(places.COLLECTIVES) or code.co_filename == places.DDP_FILE
            if inside is None and code.co_name not in places.COLLECTIVE_WAITS:
                inside = here  # the innermost frame decides
            if here and code.co_name != places.COLLECTIVE_WRAPPER:
                op = code.co_name
            frame = frame.f_back
        return None, ""

    def records(self, failed: bool) -> tuple[RankWait, ...]:
        """The long waits. `failed`: the process ended with an error, right after the last of them. Asked by the thread
        that is looked at, none goes on."""
        at = time.time()
        if self._now is not None and threading.get_ident() == self._thread_id:
            self._end(at)
        found = [
            RankWait(op, self._frames.site(spot), began, ended - began, "returned")
            for op, spot, began, ended in self._waits
        ]
        if failed and found and at - (found[-1].began + found[-1].seconds) < 4 * EVERY + 0.5:
            last = found.pop()
            found.append(RankWait(last.op, last.site, last.began, last.seconds, "raised"))
        now = self._now
        if now is not None and at - now[2] > LONG:
            found.append(
                RankWait(now[0], self._frames.site(now[1]), now[2], at - now[2], "raised" if failed else "never")
            )
        return tuple(found)

    def trail(self) -> tuple[tuple[float, Site], ...]:
        """Where the thread was last, by time."""
        return tuple((at, site) for at, spot in self._trail if (site := self._frames.site(spot)) is not None)
