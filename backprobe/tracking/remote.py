"""The process that writes to one tracker.

Note [A process for each tracker]: a tracker's package is imported and called in a process of its own. It has no part in
the script's interpreter, memory, modules, settings, output or signals; it takes no time of the thread that trains, may
fail or hang, and can be ended. It is no child of the script's process, which may wait for all of its children. What is
to be written comes through a socket, of which no more is asked than to take bytes when it has room.
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
from collections.abc import Iterator
from typing import Any

from ..records import Measured
from .alerts import Alert
from .numbers import Chosen
from .writers import writer

#: Bytes before each message: how long it is.
LENGTH = struct.Struct("<I")
#: Seconds between looks at whether the script's process is still there.
_PATIENCE = 2.0


def main(tracker: str, parent: int, now: bool) -> None:
    """Write what comes through file descriptor 0 until it is over. `now`: the tracker's package is imported first."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the script says when it is over
    with contextlib.suppress(OSError):
        os.nice(5)  # what trains goes first
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
    except BaseException as error:  # whatever a tracker raises is said
        work.say(failed=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
        sys.exit(1)
    work.say(over=True)


class _Work:
    def __init__(self, tracker: str, link: socket.socket) -> None:
        self._tracker, self._link = tracker, link
        self._writer: Any = None
        self._chosen = Chosen()
        self._names: tuple[str, ...] = ()
        self.say(begun=True)

    def say(self, **what: Any) -> None:
        """Answers are few and short: they are read when somebody has the time."""
        with contextlib.suppress(OSError):  # nobody is there any more
            self._link.sendall(json.dumps(what).encode() + b"\n\n")

    def do(self, messages: list[tuple[Any, ...]]) -> None:
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

    def _look(self, step: int, values: Any) -> tuple[int, dict[str, float]]:
        return step, self._chosen.of(Measured(step, self._names, values))

    def _write(self, rows: dict[int, dict[str, float]]) -> dict[int, dict[str, float]]:
        if rows:
            self._writer.rows([*rows.items()])
        return {}

    def _open(self, about: dict[str, Any]) -> None:
        self.close()
        os.chdir(about["folder"])
        self._chosen = Chosen(about["keys"])
        self._writer = writer(self._tracker)
        self.say(at=self._writer.begin(about))

    def close(self) -> None:
        mine, self._writer = self._writer, None
        if mine is not None:
            mine.close()
            self.say(left_out=self._chosen.left_out)


def _batches(link: socket.socket, parent: int) -> Iterator[list[tuple[Any, ...]]]:
    """Messages, as many at once as there are, up to the one that says that it is over, or the end of the script."""
    held = bytearray()
    while True:
        if not select.select([link], [], [], _PATIENCE)[0]:
            if _gone(parent):
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
    """The messages that are whole; they are taken out of `held`."""
    at = 0
    while at + LENGTH.size <= len(held):
        (length,) = LENGTH.unpack_from(held, at)
        if at + LENGTH.size + length > len(held):
            break
        yield pickle.loads(bytes(held[at + LENGTH.size : at + LENGTH.size + length]))
        at += LENGTH.size + length
    del held[:at]


def _gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False
