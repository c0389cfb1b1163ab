"""Removal of backprobe's frames from tracebacks. Does not import torch before the script has."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import json
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType, TracebackType

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_EXAMPLES = os.path.join(_OURS, "examples") + os.sep
#: The name of a stand-in's code (``caller_frames.py``).
STAND_IN = "<called under backprobe>"
#: The module that knows the functions of torch that call backprobe; imported once torch is observed.
_PLACES = "backprobe.torch_internals.code_objects"


def strip(error: BaseException) -> None:
    """Remove backprobe's frames from the traceback of `error`, and of the exceptions that caused it.

    Also removes them from the file in which ``record`` of ``torch.distributed.elastic`` has stored the error.
    """
    _mend(error, os.environ.get("TORCHELASTIC_ERROR_FILE"), of_elastic=True)
    for one in chain(error):
        one.__traceback__ = without_ours(one.__traceback__)


def of_handler(error: BaseException) -> bool:
    """Return whether a signal handler raised `error` while other code was interrupted."""
    trace, running = error.__traceback__, None
    handlers = set(map(_code_of, map(signal.getsignal, signal.valid_signals())))
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code in handlers or (running is not None and _given_signal(frame, running)):
            return True
        running, trace = frame, trace.tb_next
    return False


def _code_of(handler: object) -> CodeType | None:
    """Return the code of a handler that is a function, a method, or a callable object."""
    handler = getattr(handler, "func", handler)  # for a partial
    called = inspect.getattr_static(type(handler), "__call__", None)
    code = getattr(handler, "__code__", None) or getattr(called, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _given_signal(frame: FrameType, running: FrameType) -> bool:
    """Return whether `frame` was called as a signal handler: with a signal number and the frame `running`."""
    given = inspect.getargvalues(frame)
    values = [given.locals.get(name) for name in given.args]
    values += given.locals.get(given.varargs, ()) if given.varargs else ()
    return any(a in signal.valid_signals() and b is running for a, b in itertools.pairwise(values) if type(a) is int)


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield `error`, its causes and contexts, and the members of exception groups among them."""
    seen: set[int] = set()
    stack: list[BaseException | None] = [error]
    while stack:
        one = stack.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        stack += [one.__cause__, one.__context__]
        stack += getattr(one, "exceptions", ())  # for an exception group


class Uncaught:
    """Prints uncaught errors without backprobe's frames, in a process that Python itself runs, until ``stop``.

    It replaces ``sys.excepthook``, unless a script has set its own.
    """

    def __init__(self) -> None:
        self._real = sys.excepthook
        if self._real is sys.__excepthook__:
            sys.excepthook = self._show

    def _show(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Print an uncaught error after removing backprobe's frames: the replacement of ``sys.excepthook``."""
        strip(error)
        self._real(kind, error, error.__traceback__)

    def stop(self) -> None:
        """Put the previous ``sys.excepthook`` back, unless the script has replaced backprobe's."""
        if sys.excepthook == self._show:
            sys.excepthook = self._real


def mend(error: BaseException, file: str | None) -> None:
    """Remove backprobe's frames from the text of `error` that ``torch.multiprocessing`` stored in `file` for the
    parent.
    """
    _mend(error, file, of_elastic=False)


def _mend(error: BaseException, file: str | None, of_elastic: bool) -> None:
    """Remove backprobe's frames from a stored error; nothing happens if there is no such file or it cannot be read.

    :param of_elastic: the file is the JSON of ``torch.distributed.elastic``, and not a pickled text.
    """
    if file is None or not os.path.isfile(file) or not (lines := _lines_of_ours(error)):
        return
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, pickle.PickleError, EOFError):
        raw = Path(file).read_bytes()
        if of_elastic:
            plain = json.loads(raw)
            more = plain["message"]["extraInfo"]
            more["py_callstack"] = _without(more["py_callstack"], lines)
            raw = json.dumps(plain).encode()
        else:
            raw = pickle.dumps(_without(pickle.loads(raw), lines))
        Path(file).write_bytes(raw)


def _without(text: str, lines: Sequence[str]) -> str:
    """Return a text without the given lines of a traceback."""
    for one in lines:
        text = text.replace(one, "")
    return text


def _lines_of_ours(error: BaseException) -> list[str]:
    """Return the traceback lines of backprobe's frames, in the chain of `error`."""
    found: list[str] = []
    for one in chain(error):
        frames = list(_frames(one.__traceback__))
        ours = _ours(frames)
        found += [text for i, text in enumerate(traceback.format_tb(one.__traceback__)) if i in ours]
    return found


def without_ours(trace: TracebackType | None) -> TracebackType | None:
    """Return `trace` without backprobe's frames. Changes it in place, unless its first frame is removed."""
    frames = list(_frames(trace))
    dropped = _ours(frames)
    kept = None
    for i, one in reversed(list(enumerate(frames))):
        if i in dropped:
            continue
        one.tb_next = kept
        kept = one
    return kept


def _frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    """Yield the entries of a traceback, the outermost first."""
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _ours(frames: Sequence[TracebackType]) -> set[int]:
    """Return the indices of the entries of a traceback that exist because of backprobe.

    These are its own functions, except examples, and the functions of torch between an op and the function mode.
    """
    dropped = set()
    handles = getattr(sys.modules.get(_PLACES), "HANDLE_TORCH_FUNCTION", None)
    for i, one in enumerate(frames):
        file = one.tb_frame.f_code.co_filename
        if one.tb_frame.f_code.co_name == STAND_IN or (file.startswith(_OURS) and not file.startswith(_EXAMPLES)):
            dropped.add(i)
            # A torch function written in Python queries modes first: remove the call that went to us, and the frame
            # that made it, since the function is called again.
            if handles is not None and i >= 2 and frames[i - 1].tb_frame.f_code is handles:
                dropped.update((i - 1, i - 2))
    return dropped
