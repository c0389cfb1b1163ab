"""The process that writes to one tracker.

Note [A process for each tracker]: a tracker's package is imported and called in a process of its own. It has no part in
the script's interpreter, memory, modules, settings, output or signals; it takes no time of the training thread, may
fail or hang, and can be killed. It is not a child of the script's process, which may wait for all of its children. Data
comes through a socket, to which the script only writes without blocking.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pickle
import select
import signal
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from ..records import Measured
from .alerts import Alert
from .numbers import Chosen
from .writers import writer

#: Header of each message: its length in bytes.
LENGTH = struct.Struct("<I")
#: Seconds between checks whether the script's process still exists.
_PROCESS_CHECK_INTERVAL_S = 2.0


def main(tracker: str, parent: int, now: bool) -> None:
    """Write the messages from file descriptor 0 to the tracker until the end. `now`: import the tracker's package
    first.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the script decides when to end
    with contextlib.suppress(OSError):
        os.nice(5)  # training has priority
    link = socket.socket(fileno=os.dup(0))
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    work = _Work(tracker, link)
    try:
        if now:
            importlib.import_module(tracker)
        for messages in _batches(link, parent):
            work.do(messages)
        work.close()
    except BaseException as error:  # any error of a tracker is reported
        work.say(failed=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
        sys.exit(1)
    work.say(over=True)


class _Work:
    """The work of the tracker's process: writes the messages it gets, and answers the script."""

    def __init__(self, tracker: str, link: socket.socket) -> None:
        """Tell the script over `link` that the process runs."""
        self._tracker, self._link = tracker, link
        self._writer: Any = None
        self._chosen = Chosen()
        self._names: tuple[str, ...] = ()
        self.say(begun=True)

    def say(self, **what: object) -> None:
        """Send an answer. Answers are few and short, so the socket's buffer holds them until the script reads them."""
        with contextlib.suppress(OSError):  # the script's process is gone
            self._link.sendall(json.dumps(what).encode() + b"\n\n")

    def do(self, messages: list[tuple[Any, ...]]) -> None:
        """Carry out a batch of messages; numbers of the same step are written as one row."""
        rows: dict[int, dict[str, float]] = {}
        for kind, *given in messages:
            if kind in ("look", "step"):
                step, numbers = self._look(*given) if kind == "look" else given
                rows.setdefault(step, {}).update(numbers)
                continue
            rows = self._write(rows)
            if kind == "names":
                self._names = given[0]
            elif kind == "open":
                self._open(*given)
            elif kind == "alert":
                self._writer.alert(Alert(*given))
        self._write(rows)

    def _look(self, step: int, values: Sequence[float]) -> tuple[int, dict[str, float]]:
        """Return the step and the chosen curves of a measurement."""
        return step, self._chosen.of(Measured(step, self._names, values))

    def _write(self, rows: dict[int, dict[str, float]]) -> dict[int, dict[str, float]]:
        """Write rows of numbers by step, if there are any; return an empty dict for the next ones."""
        if rows:
            self._writer.rows([*rows.items()])
        return {}

    def _open(self, about: dict[str, Any]) -> None:
        """Begin to write to the run that `about` describes, after closing the one before."""
        self.close()
        os.chdir(about["folder"])
        self._chosen = Chosen(about["keys"])
        self._writer = writer(self._tracker)
        self.say(at=self._writer.begin(about))

    def close(self) -> None:
        """Close the run, and report how many curves were left out."""
        mine, self._writer = self._writer, None
        if mine is not None:
            mine.close()
            self.say(left_out=self._chosen.left_out)


def _batches(link: socket.socket, parent: int) -> Iterator[list[tuple[Any, ...]]]:
    """Yield batches of available messages, until the closing message or the end of the script."""
    held = bytearray()
    while True:
        if not select.select([link], [], [], _PROCESS_CHECK_INTERVAL_S)[0]:
            if _has_exited(parent):
                return
            continue
        got = link.recv(1 << 20)
        held += got
        messages = [*_taken(held)]
        if messages and messages[-1][0] == "over":
            yield messages[:-1]
            return
        if messages:
            yield messages
        if not got:
            return


def _taken(held: bytearray) -> Iterator[tuple[Any, ...]]:
    """Yield the messages that have arrived completely, and remove their bytes from `held`."""
    at = 0
    while at + LENGTH.size <= len(held):
        (length,) = LENGTH.unpack_from(held, at)
        if at + LENGTH.size + length > len(held):
            break
        yield pickle.loads(bytes(held[at + LENGTH.size : at + LENGTH.size + length]))
        at += LENGTH.size + length
    del held[:at]


def _has_exited(process: int) -> bool:
    """Return whether the process with this id is gone."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False
