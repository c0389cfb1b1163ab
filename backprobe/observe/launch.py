"""Runs a script as Python itself would, and observes it from its import of torch on. No torch before that."""

from __future__ import annotations

import _thread
import ctypes
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from ..basics.errors import BackprobeError
from ..basics.lazy_import import load
from ..basics.process_clock import Moment
from ..source.tracebacks import strip, without_ours
from .processes.bootstrap.backprobe_torch_import import TorchImport
from .program import Program, Script

if TYPE_CHECKING:
    from .session import Session


class ScriptObserver(Protocol):
    """The interface between ``launch`` and the observer of a script."""

    def begin(self, program: Program) -> None:
        """Prepare before the script starts. Torch is not imported here.

        :raises BackprobeError: the script must not start.
        """
        ...

    def attach(self, own: tuple[str, ...], script_s: float) -> Session:
        """Start a session, and return it. Torch has just been imported.

        :param own: folders whose code counts as the user's even if it is installed.
        :param script_s: seconds that the script has run until now, including its import of torch.
        :raises BackprobeError: this version of torch cannot be observed.
        """
        ...

    def forked(self) -> None:
        """Begin in a process that the script forked earlier and that has just imported torch."""
        ...

    def failed(self, error: Exception) -> None:
        """Note that ``attach`` failed. The script goes on unobserved."""
        ...

    def finish(self, error: BaseException | None, code: int) -> None:
        """Report, after the script has ended with that uncaught error or exit code."""
        ...

    def abandon(self) -> None:
        """Undo everything and print nothing: the script could not begin, or the request cannot be met."""
        ...


class _RequestRefused(BaseException):
    """Raised to end the script if the request cannot be met. No ``except Exception`` of the script catches it."""


def launch(script: Script, watching: ScriptObserver) -> int:
    """Run `script` as ``__main__``, and return its exit code.

    :raises BackprobeError: the request cannot be met.
    :raises CannotStart: Python does not start such a script.
    """
    program = Program(script)
    program.enter()
    with program.shadows.ours():
        watching.begin(program)
    attaching = _SessionAttacher(watching, program)
    process = os.getpid()
    failed: BaseException | None = None
    code = 0
    exits: SystemExit | None = None
    try:
        attaching.start()
        program.run()
    except SystemExit as stop:
        exits, code = stop, _exit_code(stop)
    except BaseException as raised:
        failed, code = raised, 1
    finally:
        with _once(failed):
            attaching.stop(failed)
    if attaching.refused is not None:
        watching.abandon()
        raise attaching.refused
    if exits is not None and not program.has_begun:
        watching.abandon()
        return code
    if os.getpid() == process:  # a forked child that ran to its end reports nothing here
        with program.shadows.ours():
            watching.finish(failed, code)
    if failed is None:
        if exits is None:
            program.leave()
        return code
    sys.last_value = failed  # as Python sets it; the observer of a forked child reads it at exit
    code = _uncaught(failed)
    program.leave()
    return code


class _SessionAttacher:
    """Attaches a session once torch has been imported, and stops it at the end.

    Note [The thread that is watched]: a session watches the thread that it is started in. That is the main thread,
    where scripts train, even if another thread imports torch in advance: the session is then started in the main thread
    as soon as that runs. If the main thread waits for another (``join``, a queue, a future), the importing thread does
    the work, and is watched itself.
    """

    def __init__(self, watching: ScriptObserver, program: Program) -> None:
        """Prepare for the script of `program`; ``start`` begins to wait for its import of torch."""
        self._watching, self._program = watching, program
        self._own = (program.folder,)
        self._process = os.getpid()
        self._session: Session | None = None
        self._imported = TorchImport(self._torch_is_there)
        self._is_over = False
        self._script_began = Moment.now()
        #: Why backprobe ended the script.
        self.refused: BackprobeError | None = None
        #: Keeps the callback alive until the interpreter calls it.
        self._pending: object = None

    def start(self) -> None:
        """Begin to wait for the import of torch; the script begins now."""
        self._imported.start()
        self._script_began = Moment.now()

    def stop(self, error: BaseException | None) -> None:
        """Stop the session, and attach none from now on. `error`: the exception that ended the script."""
        self._imported.stop()
        self._is_over = True
        if self._session is not None:
            if error is not None:
                self._session.context.end_script(error)
            self._session.stop()

    def _torch_is_there(self) -> None:
        """Attach now, or as soon as the main thread runs, because torch has just been imported."""
        main = threading.main_thread()
        if threading.current_thread() is main or _waits(sys._current_frames().get(main.ident or 0)):
            self._attach()
        else:
            self._in_main_thread(self._attach)

    def _in_main_thread(self, call: Callable[[], None]) -> None:
        """Have the interpreter call `call` in the main thread as soon as that runs Python code."""

        def pending(_: object) -> int:
            """Make the call for the interpreter; interrupt the main thread if the request was refused."""
            try:
                call()
            except _RequestRefused:
                _thread.interrupt_main()
            return 0

        self._pending = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(pending)
        ctypes.pythonapi.Py_AddPendingCall(self._pending, None)

    def _attach(self) -> None:
        """Import the session and attach it, once. An internal error does not disturb the script.

        :raises _RequestRefused: the request cannot be met, so that the script ends.
        """
        if self._is_over or self._session is not None:
            return
        script_s = self._script_began.seconds_until(Moment.now())
        try:
            with self._program.shadows.ours():
                if os.getpid() != self._process:
                    self._watching.forked()
                    return
                with warnings.catch_warnings():  # warnings of our imports, which the script may have turned into errors
                    warnings.simplefilter("ignore")
                    load("observe.session")
                self._session = self._watching.attach(self._own, script_s)
        except BackprobeError as error:
            self.refused = error
            raise _RequestRefused from None
        except Exception as error:  # an internal error must not disturb the script
            self._watching.failed(error)


def _waits(frame: FrameType | None) -> bool:
    """Return whether a thread at `frame` waits for another thread."""
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename == threading.__file__


@contextmanager
def _once(error: BaseException | None) -> Iterator[None]:
    """Ignore further interrupts in the block if Ctrl-C has ended the script.

    An impatient user, or a launcher that forwards the signal, would otherwise prevent the report.
    """
    alone = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if alone and isinstance(error, KeyboardInterrupt) else None
    if before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _exit_code(stop: SystemExit) -> int:
    """Return the exit code that Python derives from ``sys.exit``; write a value that is no number to stderr."""
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code
    with suppress(Exception):  # the value may have no text, and stderr may be closed
        if sys.stderr is not None:
            sys.stderr.write(str(stop.code))
        else:
            os.write(2, str(stop.code).encode())
    try:
        sys.stderr.write("\n")
    except Exception:
        with suppress(OSError):
            os.write(2, b"\n")
    return 1


def _uncaught(error: BaseException) -> int:
    """Handle an uncaught error as Python does, without backprobe's frames in the traceback. Returns the exit code.

    :raises KeyboardInterrupt: `error` is one: the interpreter then dies by the signal, as it would alone.
    """
    strip(error)
    sys.last_type, sys.last_traceback = type(error), error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as stop:
        return _exit_code(stop)
    except BaseException as failed:
        print("Error in sys.excepthook:", file=sys.stderr)
        failed.__traceback__ = without_ours(failed.__traceback__)
        traceback.print_exception(failed)
        print("\nOriginal exception was:", file=sys.stderr)
        traceback.print_exception(error)
    if isinstance(error, KeyboardInterrupt):
        sys.excepthook = lambda *_: None  # it has been shown
        raise KeyboardInterrupt
    return 1
