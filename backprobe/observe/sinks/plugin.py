"""A sink that forwards to plugins: entry points of the group ``backprobe.sinks``."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...plugins import CONTAINED, failure, load
from ...records import BriefSteps, Measured, Step, Unseen
from ...traces import Trace
from ..schedule.brief_steps import pass_brief

if TYPE_CHECKING:
    from ..backward.pending_call_record import PendingCallRecord
    from ..session import Session, Sink

#: The entry-point group of plugins. Each entry point is a function that gets the data of the run and returns a sink
#: (``Sink``), which may have a method ``close(trace, findings)`` too.
ENTRY_POINT_GROUP = "backprobe.sinks"


class PluginSink:
    """A sink that forwards records to `first` and to the sinks of plugins.

    A plugin that fails gets no more records, and the trace's coverage names it.

    :param about: returns the data of the run for plugins; called only if there are any.
    """

    def __init__(self, about: Callable[[], Mapping[str, object]], first: Sink | None = None) -> None:
        """Load the plugins and make a sink of each; those that fail are noted."""
        self._first, self._pid = first, os.getpid()
        self._sinks: dict[str, Any] = {}
        factories, failed = load(ENTRY_POINT_GROUP)
        self._failed: list[Unseen] = list(failed)
        data = about() if factories else {}
        for name, factory in factories:
            try:
                self._sinks[name] = factory(dict(data))
            except CONTAINED as error:
                self._drop(name, error)

    def backward(self, recorded: PendingCallRecord) -> None:
        """Forward the record of a backward call."""
        if self._first is not None:
            self._first.backward(recorded)
        if self._sinks:
            self._each(lambda sink: sink.backward(recorded))

    def step(self, step: Step, session: Session) -> None:
        """Forward the record of a step."""
        if self._first is not None:
            self._first.step(step, session)
        if self._sinks:
            self._each(lambda sink: sink.step(step, session))

    def brief_steps(self, steps: BriefSteps, session: Session) -> None:
        """Pass the records of fast-path steps to the first sink together, and to each plugin one by one."""
        if self._first is not None:
            pass_brief(self._first, steps, session)
        if self._sinks:
            for step in steps:
                self._each(lambda sink, step=step: sink.step(step, session))  # type: ignore[misc]

    def measured(self, measured: Measured) -> None:
        """Forward statistics to the sinks that take them."""
        if self._first is not None and hasattr(self._first, "measured"):
            self._first.measured(measured)
        if self._sinks:
            self._each(lambda sink: sink.measured(measured) if hasattr(sink, "measured") else None)

    def close(self, trace: Trace) -> None:
        """Close the sinks of plugins, and add failed plugins to the coverage of `trace`. A forked child closes none."""
        if os.getpid() == self._pid:
            self._each(lambda sink: sink.close(trace, trace.findings) if hasattr(sink, "close") else None)
        trace.note_unseen(self._failed)

    def _each(self, call: Callable[[Any], object]) -> None:
        """Call `call` with the sink of each plugin; drop a plugin that fails."""
        for name, sink in list(self._sinks.items()):
            try:
                call(sink)
            except CONTAINED as error:
                self._drop(name, error)

    def _drop(self, name: str, error: BaseException) -> None:
        """Forward nothing to a plugin any more, and note its error."""
        self._sinks.pop(name, None)
        self._failed.append(failure(name, ENTRY_POINT_GROUP, error))


def about(level: str, started: float) -> dict[str, object]:
    """Return the data about a run that is stored and given to plugins."""
    return {
        "folder": os.getcwd(),
        "pid": os.getpid(),
        "machine": platform.node(),
        "level": level,
        "started": started,
        "torch": _version("torch"),
        "python": platform.python_version(),
        "backprobe": _version("backprobe"),
    }


def _version(package: str) -> str:
    """Return the version of an installed package, or ``unknown``."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # on the path, and not installed
        return "unknown"
