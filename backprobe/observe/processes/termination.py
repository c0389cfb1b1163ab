"""Process exits that Python reports to no handler: SIGTERM, ``os._exit``, and the final exit code.

Note [Ended by a signal]: a launcher ends the other ranks with SIGTERM when one has failed. An observed process first
writes its data, and then dies by the signal as it would alone. The interpreter calls a handler in the main thread only,
and the main thread may be inside C++ code for long, as in a collective or a store. So a thread also receives the
signal, through the wakeup file descriptor, and does the work if the main thread does not. The thread is not one of
``threading``, so a script that counts, lists or traces its threads does not see it. A script that sets its own handler
keeps it; if it calls the previous handler, that handler does nothing.
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
from types import FrameType
from typing import Any

from ...source.tracebacks import strip

#: Seconds that the main thread has to begin, and that writing may take.
BEGIN_TIMEOUT_S, WRITE_TIMEOUT_S = 0.5, 15.0


class Terminated:
    """Calls `write` when SIGTERM ends this process.

    :param write: called with whether it runs in the main thread.
    """

    def __init__(self, write: Callable[[bool], None]) -> None:
        """Prepare; ``start`` sets the handler of SIGTERM."""
        self._write = write
        self._later = self._received = False
        self._begun, self._over, self._lock = threading.Event(), threading.Event(), threading.Lock()
        self._pipe: tuple[int, int] | None = None
        self._pid = os.getpid()

    def start(self) -> None:
        """Set the SIGTERM handler if the signal has its default action and this is the main thread."""
        main = threading.current_thread() is threading.main_thread()
        if os.name != "posix" or not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        signal.signal(signal.SIGTERM, self._handle)
        mine = weakref.ref(self)

        def forked() -> None:
            """Restore the signal handling in a forked child, if this object is alive."""
            one = mine()
            if one is not None:
                one.stop()

        os.register_at_fork(after_in_child=forked)

    def listen(self) -> None:
        """Start the thread that also receives the signal.

        Does nothing unless ``start`` has set the handler and this is the main thread.
        """
        main = threading.current_thread() is threading.main_thread()
        if not main or self._pipe is not None or signal.getsignal(signal.SIGTERM) != self._handle:
            return
        read, write = os.pipe()
        os.set_blocking(write, False)
        before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        if before != -1:  # another library's descriptor
            signal.set_wakeup_fd(before)
            os.close(read)
            os.close(write)
        else:
            self._pipe = read, write
            _thread.start_new_thread(self._listen, (read,))

    def stop(self) -> None:
        """Restore the signal handling as it was before ``start``, and end the listening thread."""
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

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Write the data and die, or only note the signal if ``after`` delays it.

        The handler of SIGTERM, in the main thread.
        """
        if signal.getsignal(signal.SIGTERM) == self._handle:
            self._begun.set()
            self._received = True
            if not self._later:
                self._end(True)

    @contextlib.contextmanager
    def after(self) -> Iterator[None]:
        """Delay termination until the block is over: the block itself writes the data, so the handler does not."""
        self._later = True
        try:
            yield
        finally:
            self._later = False
            if self._received:
                self._over.set()
                _die()

    def _listen(self, read: int) -> None:
        """Wait for signal numbers at the file descriptor `read`; write the data if the main thread does not. Runs in a
        thread.

        Returns when the other end of the pipe is closed.
        """
        try:
            while received := os.read(read, 64):
                if signal.SIGTERM in received and signal.getsignal(signal.SIGTERM) == self._handle:
                    if not self._begun.wait(BEGIN_TIMEOUT_S):
                        threading.Thread(target=self._end, args=(False,), daemon=True).start()
                    self._over.wait(WRITE_TIMEOUT_S)
                    _die()
        finally:
            os.close(read)

    def _end(self, main: bool) -> None:
        """Write the data once, and die by SIGTERM. `main`: called in the main thread."""
        with self._lock:
            try:
                if not self._over.is_set():
                    self._write(main)
            except Exception:  # the process is about to die; there is no way to report this
                pass
            finally:
                self._over.set()
                _die()


def _die() -> None:
    """Die by SIGTERM as if no handler had been set, so that the exit status shows the signal."""
    put: Any = ctypes.pythonapi.PyOS_setsig  # from any thread
    put.argtypes, put.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    put(signal.SIGTERM, None)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(WRITE_TIMEOUT_S)


def raised_in(process: Any) -> Callable[[], BaseException | None]:
    """Return a function that returns the exception of a ``multiprocessing`` process, or ``None``.

    Wraps ``process.run``, which is about to be called, and ``traceback.print_exc``: since Python 3.13, finalizers
    cannot see the exception. The traceback is printed without backprobe's frames.
    """
    raised: list[BaseException] = []
    own, shown = process.run, traceback.print_exc

    def run() -> None:
        """Run the process, and keep the exception that ends it."""
        try:
            own()
        except BaseException as error:
            raised.append(error)
            raise

    @functools.wraps(shown)
    def print_exc(*args: Any, **kwargs: Any) -> None:
        """Print the exception without backprobe's frames, and restore ``traceback.print_exc``."""
        if raised and sys.exc_info()[1] is raised[0]:
            strip(raised[0])
            traceback.print_exc = shown
        shown(*args, **kwargs)

    process.run, traceback.print_exc = run, print_exc
    return lambda: raised[0] if raised else None


def left_by(leaves: Callable[[int, FrameType, bool], None]) -> Callable[[], None]:
    """Call `leaves` before ``os._exit``, which runs no other Python code at exit.

    `leaves` gets the exit code, the frame that calls ``os._exit``, and whether that is the main thread. Returns a
    function that restores ``os._exit``.
    """
    real, pid = os._exit, os.getpid()

    @functools.wraps(real)
    def _exit(status: int) -> Any:
        """Call `leaves` in the process that set it, then exit at once with `status`."""
        if os.getpid() == pid and isinstance(status, int):
            with contextlib.suppress(Exception):
                leaves(status, sys._getframe(1), threading.current_thread() is threading.main_thread())
        real(status)

    def undo() -> None:
        """Restore ``os._exit``, unless something else replaced it."""
        if os._exit is _exit:
            os._exit = real

    os._exit = _exit
    return undo


def note_exit_code(file: Path) -> Callable[[], None]:
    """Make the C library write the exit code of this process to `file`, as one byte, at exit.

    No Python code knows the code or runs once ``SystemExit`` has reached the top. Returns a function that undoes this
    in a forked child. Writes nothing if the C library lacks ``on_exit``, or if a signal kills the process.
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
        """Redirect the output of the C library's exit function to nowhere: it cannot be removed."""
        if stream.value:
            freopen(b"/dev/null", b"wb", stream)

    return undo
