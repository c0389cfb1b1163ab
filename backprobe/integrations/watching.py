"""Records a training from beginning to end, for the callbacks of all frameworks."""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from ..basics.errors import BackprobeError
from ..basics.select import selector
from ..basics.terminal import say
from ..basics.text import raised
from ..commands.files import new_run, write_findings
from ..findings.levels.alarms import ALARMS, Alarm
from ..records import Finding, Measured, Step
from ..tracking.numbers import numbers_of
from ..view.parts import report
from ..view.terminal import write

if TYPE_CHECKING:
    from ..observe.alarm_dispatcher import AlarmDispatcher
    from ..observe.backward.pending_call_record import PendingCallRecord
    from ..observe.live import LiveTrace
    from ..observe.session import Session, Sink
    from ..observe.sinks.disk import DiskSink
    from ..trace_api import Trace


class Options(TypedDict, total=False):
    """The keyword arguments of the callbacks; all are optional.

    :ivar level: ``minimal``, ``nodes`` or ``full``, as of ``backprobe run``.
    :ivar budget: the largest overhead, as a share of the training's own time: ``"5%"``.
    :ivar checks: opt-in checks: ``"functions"``, ``"memory"``, ...
    :ivar layer_stats: measure statistics by layer in every N-th step (10); 0 for never.
    :ivar layers: globs on the names of parameters and modules: their statistics are logged one by one. Of all others
        only the smallest and the largest are.
    :ivar stop_on: kinds of alarms that end the training: ``"divergence-ahead"``, ``"update-too-large"``.
    :ivar on_alarm: a function that is called with the finding of each alarm after the optimizer's step.
    :ivar save_batch: store the arguments of the model in a step with an alarm or an error.
    :ivar out: the folder of the run; by default a new one in ``backprobe-runs``. ``None``: the run is not stored.
    :ivar quiet: print nothing to standard error.
    """

    level: str
    budget: float | str | None
    checks: str | Sequence[str]
    layer_stats: int
    layers: str | Sequence[str]
    stop_on: str | Sequence[str]
    on_alarm: Callable[[Finding], object] | None
    save_batch: bool
    out: str | os.PathLike[str] | None
    quiet: bool


_DEFAULT = Options(
    level="nodes",
    budget="default",
    checks=(),
    layer_stats=10,
    layers=(),
    stop_on=(),
    on_alarm=None,
    save_batch=False,
    out="backprobe-runs",
    quiet=False,
)


class Watching:
    """The recording that a callback owns: from ``begin`` to ``end``, once for each training. It is a sink of the
    session.

    :param log: a function that logs numbers of a step; without it the callback fetches them with ``take``.
    :raises BackprobeError: an option is unknown or invalid.
    """

    def __init__(
        self, options: Mapping[str, object], log: Callable[[dict[str, float], int], None] | None = None
    ) -> None:
        unknown = sorted(options.keys() - _DEFAULT.keys())
        if unknown:
            raise BackprobeError(f"unknown option {unknown[0]!r}; there are {', '.join(_DEFAULT)}")
        self._options: Options = {**_DEFAULT, **options}  # type: ignore[typeddict-item]
        self._stop_on = _names(self._options["stop_on"])
        for kind in self._stop_on:
            if kind not in ALARMS:
                raise BackprobeError(f"stop_on is {kind!r}; it is one of {', '.join(ALARMS)}")
        self._layers = selector(list(_names(self._options["layers"]))) if self._options["layers"] else None
        self._log = log
        self._live: LiveTrace | None = None
        self._alarmed: AlarmDispatcher | None = None
        self._keep: DiskSink | None = None
        self._folder: Path | None = None
        self._rank: int | None = None
        #: The numbers of the last look, and its step.
        self._numbers: dict[str, float] = {}
        self._at = 0
        #: The alarms of the training, in order.
        self.alarms: list[Alarm] = []
        #: Whether an alarm that ends the training was raised.
        self.stop = False
        #: The trace of the last completed training.
        self.trace: Trace | None = None

    def begin(self, model: Any, name: str) -> None:
        """Start recording a training. An earlier training that never ended is ended first.

        :param model: the outermost module, if it is known. ``name``: of the run.
        :raises BackprobeError: the run cannot be stored in the requested folder, or there is no such level or check.
        """
        from ..observe.alarm_dispatcher import AlarmDispatcher
        from ..observe.live import LiveTrace
        from ..observe.processes.identity import identity
        from ..observe.sinks.disk import DiskSink
        from ..observe.sinks.plugin import about
        from ..store.writer import Writer

        self.end()
        settings = self._settings()
        me = identity(os.environ)
        self._rank = me.rank if (me.world or 1) > 1 else None
        self._alarmed = AlarmDispatcher(self._alarm, self._options["on_alarm"])
        self.alarms, self.stop, self._numbers = [], False, {}
        self._folder, self._keep = self._place(name), None
        if self._folder is not None:
            info = {"script": name, "arguments": [], **about(settings.level, time.time())}
            self._keep = DiskSink(Writer(self._folder, info))
        sinks: list[Sink] = [self, *([self._keep] if self._keep is not None else [])]
        batches = self._folder if self._options["save_batch"] else None
        self._live = LiveTrace(model, "model", settings, record=batches, sinks=sinks, alarmed=self._alarmed)
        self._live.__enter__()
        atexit.register(self.end)  # a framework does not tell of every training that fails

    def _settings(self) -> Any:
        """Return the settings of the session that the options ask for."""
        from ..observe.schedule.settings import DEFAULT_MAX_BATCH_MB, Settings, budget_of

        options = self._options
        checks = {*_names(options["checks"]), *(["levels"] if options["layer_stats"] else [])}
        kept = DEFAULT_MAX_BATCH_MB if options["save_batch"] else 0
        settings = Settings(
            options["level"], checks=frozenset(checks), layer_stats=options["layer_stats"], max_batch_mb=kept
        )
        return replace(settings, budget=budget_of(options["budget"], settings))

    def _place(self, name: str) -> Path | None:
        """Return the folder in which the run is stored; ``None`` if it is not. Each rank has a folder of its own.

        :raises BackprobeError: a new folder cannot be created.
        """
        out = self._options["out"]
        if out is None:
            return None
        try:
            if out == _DEFAULT["out"]:
                return new_run(name if self._rank is None else f"{name}-rank{self._rank}").absolute()
            return Path(out) if self._rank is None else Path(out) / f"rank{self._rank}"
        except OSError as error:
            raise BackprobeError(f"cannot write a run to {out}: {error}") from None

    def end(self, error: BaseException | None = None) -> Trace | None:
        """End the recording: save and print the findings. Returns the trace; ``None`` if no training was being
        recorded.

        :param error: the error that ended the training.
        """
        from ..observe.sinks.fanout import SAVE_FAILED, WRITE_ERRORS, lost

        live, self._live = self._live, None
        if live is None:
            return None
        atexit.unregister(self.end)
        live.__exit__(type(error) if error is not None else None, error, None)
        if self._log is not None and self._numbers:
            self._log(self.take(), self._at)
        self.trace = live
        whole = self._keep is not None and not any(one.what == SAVE_FAILED for one in live.facts.unseen)
        if whole and self._keep is not None and self._folder is not None:
            assert live.session is not None
            said = None if error is None else raised(error)[:2000]
            try:
                self._keep.close(live.session, live, list(live.findings), {**live.info, "error": said})
                write_findings(self._folder / "findings.json", live, "lines")
            except WRITE_ERRORS as failed:  # the training goes on
                whole = False
                live.note_unseen([lost("whole", failed)])
        if not self._options["quiet"] and (not self._rank or live.findings):
            write(report(live, self._folder if whole else None), sys.stderr)
        return live

    def take(self) -> dict[str, float]:
        """Return the numbers since the last call, for a tracker: by name, each finite."""
        numbers, self._numbers = self._numbers, {}
        return numbers

    # As a sink.

    def backward(self, recorded: PendingCallRecord) -> None:
        """Ignore a recorded backward call; called by the session."""

    def step(self, step: Step, session: Session) -> None:
        """Log the numbers that were measured since the last step; called by the session."""
        if self._log is not None and self._numbers:
            self._log(self.take(), self._at)

    def measured(self, measured: Measured) -> None:
        """Keep the statistics of a step until they are logged, and pass them to the alarms; called by the session."""
        self._numbers, self._at = numbers_of(measured, self._layers), measured.step
        if self._alarmed is not None:
            self._alarmed.measured(measured)
        for alarm in self.alarms:
            self._numbers[f"backprobe/alarm/{alarm.kind}"] = 1.0

    def _alarm(self, alarm: Alarm) -> None:
        """Keep and print an alarm; note that the training is to stop if ``stop_on`` names its kind."""
        self.alarms.append(alarm)
        if not self._options["quiet"]:
            text = f"{alarm.quantity} of {alarm.name} is {alarm.value:.3g} in step {alarm.step}"
            say(f"backprobe: {alarm.kind}: {text}", sys.stderr)
        self.stop = self.stop or alarm.kind in self._stop_on


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return a text, or several, as a tuple of texts."""
    return (given,) if isinstance(given, str) else tuple(given)
