"""The script's connection to the process of a tracker: it sends bytes, and blocks only at the end."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import time
from array import array
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from ..records import Measured, Unseen
from .alerts import Alert
from .remote import LENGTH

#: Maximum number of bytes that wait for a tracker: above it, messages are dropped and counted.
WAITING = 16 << 20
_ROOT = str(Path(__file__).resolve().parents[2])
_MAIN = (
    "import sys\nargs = sys.argv[1:]\nimport json\nsys.path[:] = json.loads(args[0])\n"
    "from backprobe.tracking.remote import main\nmain(args[1], int(args[2]), len(args) > 3)"
)
#: A shell starts the process and exits, so that the process is not a child that the script may wait for. A background
#: command of a shell has no standard input, so the socket is duplicated first.
_ASIDE = 'exec 3<&0; "$@" <&3 3<&- &'
#: A broken pipe raises an error here, even if SIGPIPE would end the script.
_QUIETLY = getattr(socket, "MSG_NOSIGNAL", 0) | getattr(socket, "MSG_DONTWAIT", 0)


class Link:
    """The connection to the process of one tracker.

    :param keys: globs on the names of curves to send in addition to the curves over all layers.
    :param surely: something will be written, so the tracker's package can be imported at once.
    """

    def __init__(self, tracker: str, keys: Sequence[str] = (), surely: bool = True) -> None:
        """Start the process of the tracker, connected by a socket. A failure is noted in ``failed`` and not raised."""
        self.tracker = tracker
        self._keys = [*keys]
        self._pid, self._group = os.getpid(), 0
        self._waiting: deque[bytes] = deque()
        self._bytes = self._sent = 0
        self._names: tuple[str, ...] | None = None
        self._answers = bytearray()
        self._over = self._opened = False
        #: Measurements and steps that were dropped for lack of space; why writing stopped.
        self.dropped = 0
        self.failed = ""
        #: The place that the tracker writes to; number of curves that it was not sent.
        self.at = ""
        self.left_out = 0
        self._link, theirs = socket.socketpair()
        try:
            self._link.setblocking(False)
            with contextlib.suppress(OSError):
                self._link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            path = json.dumps([_ROOT, *(os.path.abspath(one) for one in sys.path[1:])])
            python = [sys.executable, "-I", "-c", _MAIN, path, tracker, str(os.getpid()), *(["now"] if surely else [])]
            started = subprocess.Popen(
                ["/bin/sh", "-c", _ASIDE, "sh", *python],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._group = started.pid
            started.wait()
        except OSError as error:
            self._fails(f"{type(error).__name__}: {error}")
        finally:
            theirs.close()

    def open(self, about: dict[str, object]) -> None:
        """Write to the run that `about` describes from now on."""
        self._opened, self._names = True, None
        self._put("open", {**about, "keys": self._keys})

    def look(self, measured: Measured) -> None:
        """Send the values of a measurement, with their names if these have changed."""
        names = tuple(measured.names)
        if not self._room(8 * len(names)):
            return
        if names != self._names:
            self._names = names
            self._put("names", names)
        self._put("look", measured.step, array("d", measured.values))

    def step(self, index: int, numbers: dict[str, float]) -> None:
        """Send the numbers of a step."""
        if self._room(64):
            self._put("step", index, numbers)

    def alert(self, alert: Alert) -> None:
        """Send an alert."""
        self._put("alert", alert.kind, alert.title, alert.text, alert.level, alert.step)

    def last(self) -> None:
        """Tell the process that no more messages follow."""
        self._put("over")

    def close(self, seconds: float) -> None:
        """Wait up to `seconds` for all messages to be written, then end the process. Call it after ``last``."""
        if not self._mine or self.failed:
            return
        end = time.monotonic() + seconds
        while not (self._over or self.failed):
            left = end - time.monotonic()
            if left <= 0:
                self._fails(f"it had not written all of it when {seconds:.0f} s had passed after the end")
                break
            wanted = [self._link] if self._waiting else []
            select.select([self._link], wanted, [], left)
            self._pump()
            self._listen()
        self._link.close()

    @property
    def unseen(self) -> list[Unseen]:
        """Counts of what is missing in the tracker."""
        said = []
        what = f"tracker {self.tracker}"
        if self.failed:
            said.append(Unseen(what, 1, f"it failed, and was left out: {self.failed}", hides=False))
        if self.dropped:
            note = f"{self.dropped:,} looks and steps came faster than it writes, and were left out of it"
            said.append(Unseen(what, 1, note, hides=False))
        return said

    @property
    def _mine(self) -> bool:
        """Whether this process made the connection: a forked child sends nothing."""
        return os.getpid() == self._pid

    def _room(self, size: int) -> bool:
        """Return whether a message of `size` bytes can be sent; count it as dropped if there is no room."""
        if not self._mine or self.failed or not self._opened:
            return False
        if self._bytes + size <= WAITING:
            return True
        self._pump()
        self.dropped += 1
        return False

    def _put(self, *message: object) -> None:
        """Append a message to those that wait, and send as much as the socket takes."""
        if not self._mine or self.failed:
            return
        made = pickle.dumps(message, 5)
        self._waiting.append(LENGTH.pack(len(made)) + made)
        self._bytes += LENGTH.size + len(made)
        self._pump()

    def _pump(self) -> None:
        """Send waiting messages to the tracker's process, as many bytes as the socket takes without waiting."""
        try:
            while self._waiting:
                whole = self._waiting[0]
                self._sent += self._link.send(memoryview(whole)[self._sent :], _QUIETLY)
                if self._sent == len(whole):
                    self._waiting.popleft()
                    self._bytes -= len(whole)
                    self._sent = 0
        except BlockingIOError:
            pass
        except OSError:
            self._listen()
            self._fails("its process is gone")

    def _listen(self) -> None:
        """Read the answers that have arrived from the tracker's process: progress, left-out messages, failures."""
        try:
            while got := self._link.recv(1 << 16, getattr(socket, "MSG_DONTWAIT", 0)):
                self._answers += got
        except BlockingIOError:
            got = b"."
        except OSError:
            got = b""
        *whole, rest = bytes(self._answers).split(b"\n\n")
        self._answers = bytearray(rest)
        for one in whole:
            answer = json.loads(one)
            self.at = answer.get("at", self.at)
            self.left_out += answer.get("left_out", 0)
            self._over = self._over or "over" in answer
            if "failed" in answer:
                self._fails(answer["failed"])
        if not got and not self._over:
            self._fails("its process is gone")

    def _fails(self, why: str) -> None:
        """Record why the tracker failed, if this is the first failure, and end its process."""
        if self.failed:
            return
        self.failed = why
        self._waiting.clear()
        self._bytes = 0
        if self._group:
            with contextlib.suppress(OSError):
                os.killpg(self._group, signal.SIGKILL)
