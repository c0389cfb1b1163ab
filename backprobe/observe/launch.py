"""Run a script as Python itself would, with a session around it."""

from __future__ import annotations

import builtins
import io
import os
import runpy
import signal
import sys
import threading
import traceback
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from ..errors import BackprobeError
from ..process_clock import Startup
from ..source.tracebacks import strip, without_ours
from .session import Session, Settings, Sink


def launch(
    script: str,
    args: Sequence[str],
    is_module: bool,
    sink: Sink,
    settings: Settings,
    begin: Callable[[Session], None],
    finish: Callable[[BaseException | None], None],
    startup: Startup | None = None,
) -> int:
    """Run `script` as ``__main__``; return its exit code.

    `begin` is called with the session before the script starts, `finish` when it ended, with what it raised.
    `startup`: when the command began, for the account of what watching takes.
    """
    try:
        if is_module:
            sys.path.insert(0, os.getcwd())
            program = _of_module(script)
            sys.argv[:] = [program.file, *args]
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(script))
            program = _of_file(script)
            sys.argv[:] = [script, *args]
    except SyntaxError as error:  # of a module
        return _uncaught(error)
    session = Session(sink, settings, (os.path.dirname(os.path.abspath(program.file)),))
    session.scene.whole = True
    begin(session)
    process = os.getpid()
    failed: BaseException | None = None
    code = 0
    session.start(startup)
    try:
        program.run()
    except SystemExit as stop:
        code = _exit_code(stop)
    except BaseException as raised:
        failed = session.scene.raised = raised
    finally:
        with _once(failed):
            session.stop()
    if os.getpid() == process:  # not in a child that was forked and ran to its end: that is not ours to report
        session.scene.raised, session.scene.code = failed, code if failed is None else 1
        finish(failed)
    elif failed is not None:
        sys.last_value = failed  # as Python has it: what watches the child reads it at the end
    return code if failed is None else _uncaught(failed)


@contextmanager
def _once(error: BaseException | None) -> Iterator[None]:
    """A script that was interrupted is not interrupted again inside: a second Ctrl-C comes from a hasty person, or a
    launcher that passes the first one on, and would take the report from the run."""
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


@dataclass
class Program:
    """What is to run as ``__main__``.

    Note [The script's world]: the module stays ``__main__`` when the script has ended, as it does under Python itself.
    What runs later (atexit handlers, threads that go on, ``__del__`` of its globals) finds it and can pickle from it.
    """

    file: str
    code: Callable[[], CodeType]
    #: What the module knows of itself besides its name.
    known: dict[str, Any]

    def run(self) -> None:
        module = ModuleType("__main__")
        module.__dict__.update(__builtins__=builtins, __annotations__={}, __file__=self.file, **self.known)
        sys.modules["__main__"] = module
        exec(self.code(), module.__dict__)


def _of_file(script: str) -> Program:
    """`script` as ``python script`` runs it: ``__file__`` is absolute, ``sys.argv[0]`` as it was given. A folder or an
    archive runs the ``__main__`` in it."""
    path = os.path.abspath(script)
    if os.path.isdir(path) or zipfile.is_zipfile(path):
        sys.path[0] = path
        mine = sys.modules.pop("__main__")
        try:
            return _of_module("__main__", of=script)
        finally:
            sys.modules["__main__"] = mine

    def code() -> CodeType:
        with io.open_code(path) as file:
            return compile(file.read(), path, "exec", dont_inherit=True)

    return Program(path, code, {"__cached__": None, "__loader__": SourceFileLoader("__main__", path), "__spec__": None})


def _of_module(name: str, of: str = "") -> Program:
    """The module `name` as ``python -m name`` runs it."""
    try:
        _, spec, code = runpy._get_module_details(name, BackprobeError)  # type: ignore[attr-defined]
    except BackprobeError as error:
        raise BackprobeError(f"{of}: {error}" if of else f"no such module: {name} ({error})") from None
    known = {"__cached__": spec.cached, "__loader__": spec.loader, "__spec__": spec, "__package__": spec.parent}
    return Program(spec.origin or name, lambda: code, known)


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code
    print(stop.code, file=sys.stderr)
    return 1


def _uncaught(error: BaseException) -> int:
    """What Python does with an error that nobody catches, for the script alone: without frames of ours. The exit code.

    :raises KeyboardInterrupt: where that is the error: the interpreter then dies by the signal, as it would.
    """
    strip(error, runner=True)
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as stop:
        return _exit_code(stop)
    except BaseException as failed:
        print("Error in sys.excepthook:", file=sys.stderr)
        failed.__traceback__ = without_ours(failed.__traceback__, runner=True)
        traceback.print_exception(failed)
        print("\nOriginal exception was:", file=sys.stderr)
        traceback.print_exception(error)
    if isinstance(error, KeyboardInterrupt):
        sys.excepthook = lambda *_: None  # it has been shown
        raise KeyboardInterrupt
    return 1
