"""How a process ends that Python tells nobody of: by SIGTERM, and with which exit code.

Note [Ended by a signal]: a launcher ends the other ranks with SIGTERM when one has failed. A process of ours writes
what it knows first, and then dies by the signal as it would alone. The interpreter calls a handler in the main thread
only, and that one may be inside C++ for long, as in a collective operation or a store: so a thread hears of the signal
too, through the file that the interpreter writes signals to, and does the work if the main thread does not come. It is
none of ``threading``'s: a script that counts or lists its threads, or traces them, does not meet it. A
script that sets a handler of its own has it; one that asks for the one before, and calls it, calls something that does
nothing.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import functools
import os
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ...source.tracebacks import strip

#: Seconds that the main thread has to begin, and that writing may take.
BEGIN, WRITE = 0.5, 15.0


class Terminated:
    """Calls `write` when SIGTERM ends this process.

    :param write: is given whether it is called in the main thread.
    """

    def __init__(self, write: Callable[[bool], None]) -> None:
        self._write = write
        self._later = self._came = False
        self._begun, self._over, self._lock = threading.Event(), threading.Event(), threading.Lock()
        self._pipe: tuple[int, int] | None = None
        self._pid = os.getpid()

    def start(self) -> None:
        """Handle the signal, if it ends the process and this is the main thread."""
        main = threading.current_thread() is threading.main_thread()
        if os.name != "posix" or not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        signal.signal(signal.SIGTERM, self._handle)
        mine = weakref.ref(self)

        def forked() -> None:
            one = mine()
            if one is not None:
                one.stop()

        os.register_at_fork(after_in_child=forked)

    def listen(self) -> None:
        """Have a thread hear of the signal too, if ``start`` has set the handler and this is the main thread."""
        main = threading.current_thread() is threading.main_thread()
        if not main or self._pipe is not None or signal.getsignal(signal.SIGTERM) != self._handle:
            return
        read, write = os.pipe()
        os.set_blocking(write, False)
        before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        if before != -1:  # somebody else's
            signal.set_wakeup_fd(before)
            os.close(read)
            os.close(write)
        else:
            self._pipe = read, write
            _thread.start_new_thread(self._listen, (read,))

    def stop(self) -> None:
        """As before ``start``."""
        with contextlib.suppress(ValueError):  # not in the main thread
            if signal.getsignal(signal.SIGTERM) == self._handle:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if self._pipe is not None:
                now = signal.set_wakeup_fd(-1)
                if now not in (-1, self._pipe[1]):
                    signal.set_wakeup_fd(now)
                os.close(self._pipe[1])  # ends the thread
                if os.getpid() != self._pid:
                    os.close(self._pipe[0])
                self._pipe = None

    def _handle(self, number: int, frame: Any) -> None:
        if signal.getsignal(signal.SIGTERM) == self._handle:
            self._begun.set()
            self._came = True
            if not self._later:
                self._end(True)

    @contextlib.contextmanager
    def after(self) -> Iterator[None]:
        """What is within is what would be written: a signal that comes meanwhile waits for it."""
        self._later = True
        try:
            yield
        finally:
            self._later = False
            if self._came:
                self._over.set()
                _die()

    def _listen(self, read: int) -> None:
        try:
            while heard := os.read(read, 64):
                if signal.SIGTERM in heard and signal.getsignal(signal.SIGTERM) == self._handle:
                    if not self._begun.wait(BEGIN):
                        threading.Thread(target=self._end, args=(False,), daemon=True).start()
                    self._over.wait(WRITE)
                    _die()
        finally:
            os.close(read)

    def _end(self, main: bool) -> None:
        with self._lock:
            try:
                if not self._over.is_set():
                    self._write(main)
            except Exception:  # nobody is there to be told
                pass
            finally:
                self._over.set()
                _die()


def _die() -> None:
    """By the signal, as if nobody had listened: its exit status says so."""
    put: Any = ctypes.pythonapi.PyOS_setsig  # from any thread
    put.argtypes, put.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    put(signal.SIGTERM, None)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(WRITE)


def raised_in(process: Any) -> Callable[[], BaseException | None]:
    """What ``process.run`` raises, once it has, of a process of ``multiprocessing`` that is about to call it. From
    Python 3.13 on what runs at its end is not told. It is shown as it would be alone."""
    raised: list[BaseException] = []
    own, shown = process.run, traceback.print_exc

    def run() -> None:
        try:
            own()
        except BaseException as error:
            raised.append(error)
            raise

    @functools.wraps(shown)
    def print_exc(*args: Any, **kwargs: Any) -> None:
        if raised and sys.exc_info()[1] is raised[0]:
            strip(raised[0])
            traceback.print_exc = shown
        shown(*args, **kwargs)

    process.run, traceback.print_exc = run, print_exc
    return lambda: raised[0] if raised else None


def left_by(leaves: Callable[[int, Any, bool], None]) -> Callable[[], None]:
    """Call `leaves` before ``os._exit``, which runs nothing else of Python's: with the code, the frame that calls it,
    and whether that is the main thread. What is returned puts back what was."""
    real, pid = os._exit, os.getpid()

    @functools.wraps(real)
    def _exit(status: int) -> Any:
        if os.getpid() == pid and isinstance(status, int):
            with contextlib.suppress(Exception):
                leaves(status, sys._getframe(1), threading.current_thread() is threading.main_thread())
        real(status)

    def undo() -> None:
        if os._exit is _exit:
            os._exit = real

    os._exit = _exit
    return undo


def note_exit_code(file: Path) -> Callable[[], None]:
    """Have the C library write the exit code of this process to `file`, as a byte, when it exits: nothing of Python
    knows it, or runs, when ``SystemExit`` has reached the top. What is returned undoes it in a forked child.

    Nothing is written where the C library cannot, and where a process does not exit but is ended.
    """
    try:
        c = ctypes.CDLL(None)
        c.fopen.restype = ctypes.c_void_p
        stream = ctypes.c_void_p(c.fopen(os.fsencode(file), b"wb"))
        # fputc(code, stream) has the arguments that on_exit gives.
        if stream.value:
            c.on_exit(ctypes.cast(c.fputc, ctypes.c_void_p), stream)
        freopen = c.freopen
    except (AttributeError, OSError):
        return lambda: None

    def undo() -> None:
        if stream.value:
            freopen(b"/dev/null", b"wb", stream)

    return undo
