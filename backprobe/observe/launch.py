"""Run a script as Python itself would, with a session around it."""

from __future__ import annotations

import builtins
import io
import os
import runpy
import sys
import traceback
import zipfile
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from types import ModuleType, TracebackType

from ..errors import BackprobeError
from ..torchside import places
from .processes.children import Children
from .session import Session, Settings, Sink

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_EXAMPLES = os.path.join(_OURS, "examples") + os.sep


def launch(
    script: str,
    args: Sequence[str],
    is_module: bool,
    sink: Sink,
    settings: Settings,
    begin: Callable[[Session], None],
    finish: Callable[[BaseException | None], None],
) -> int:
    """Run `script` as ``__main__``; return its exit code.

    `begin` is called with the session before the script starts, `finish` when it ended, with what it raised.
    """
    own: tuple[str, ...] = ()
    if is_module:
        import importlib.util

        sys.path.insert(0, os.getcwd())
        try:
            spec = importlib.util.find_spec(script)
        except (ImportError, ValueError):
            spec = None
        if spec is None:
            raise BackprobeError(f"no such module: {script}")
        if spec.origin:
            own = (os.path.dirname(spec.origin),)
        sys.argv[:] = [spec.origin or script, *args]
    else:
        sys.argv[:] = [script, *args]
        own = (os.path.dirname(os.path.abspath(script)),)
        sys.path[0] = os.path.dirname(os.path.abspath(script))
    session = Session(sink, settings, own)
    children = session.ranks.children = Children(session)
    begin(session)
    process = os.getpid()
    children.start()
    error: BaseException | None = None
    code = 0
    session.start()
    try:
        if is_module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            run_file(script)
    except SystemExit as stop:
        code = _exit_code(stop)
    except BaseException as raised:
        error = raised
    finally:
        session.stop()
    if os.getpid() != process:  # a child that was forked and ran to its end: it is not ours to report
        if error is not None:
            raise error
        os._exit(code)
    session.ranks.raised = error
    try:
        finish(error)
    finally:
        children.stop()
    if error is not None:
        _show(error)
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
    return code


def run_file(script: str) -> None:
    """Run `script` as ``python script`` does: ``__file__`` is absolute, ``sys.argv[0]`` as it was given, and the module
    is ``__main__`` for those who pickle. A folder or an archive is left to ``runpy``."""
    path = os.path.abspath(script)
    if os.path.isdir(path) or zipfile.is_zipfile(path):
        runpy.run_path(script, run_name="__main__")
        return
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    module = ModuleType("__main__")
    loader = SourceFileLoader("__main__", path)
    module.__dict__.update(__file__=path, __cached__=None, __loader__=loader, __spec__=None, __annotations__={})
    module.__dict__["__builtins__"] = builtins
    before = sys.modules["__main__"]
    sys.modules["__main__"] = module
    try:
        exec(code, module.__dict__)
    finally:
        sys.modules["__main__"] = before


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code
    print(stop.code, file=sys.stderr)
    return 1


def _show(error: BaseException) -> None:
    """The traceback as Python would print it for the script alone: without frames of ours."""
    seen: set[int] = set()
    stack: list[BaseException | None] = [error]
    while stack:
        one = stack.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = _without_ours(one.__traceback__)
        stack += [one.__cause__, one.__context__]
    traceback.print_exception(type(error), error, error.__traceback__)


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    dropped = set()
    for i, one in enumerate(frames):
        file = one.tb_frame.f_code.co_filename
        if file.startswith(_OURS) and not file.startswith(_EXAMPLES):
            dropped.add(i)
            # A function of torch that is written in Python asks for modes first: the call that went to us, and the
            # function that made it and is called again.
            if i >= 2 and frames[i - 1].tb_frame.f_code is places.HANDLE_TORCH_FUNCTION:
                dropped.update((i - 1, i - 2))
        if file == runpy.__file__ or file.startswith("<frozen runpy"):
            dropped.add(i)
    kept = None
    for i, one in reversed(list(enumerate(frames))):
        if i in dropped:
            continue
        one.tb_next = kept
        kept = one
    return kept
