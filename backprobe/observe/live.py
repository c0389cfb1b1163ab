"""``backprobe.trace``: a session over a block of code, in a script or a notebook."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import torch
from torch import nn

from ..basics.errors import BackprobeError, add_note
from ..basics.process_clock import Moment, Startup
from ..findings import all_rules
from ..records import Finding
from ..source.tracebacks import strip
from ..store.batches import Batch
from ..trace_api import Trace
from . import wall_clock
from .alarm_dispatcher import AlarmDispatcher
from .schedule.settings import DEFAULT_MAX_BATCH_MB, RECORDING_LEVELS, budget_of
from .session import Session, Settings, Sink
from .sinks.fanout import FanoutSink
from .sinks.memory import Collector
from .sinks.plugin import PluginSink, about
from .trackers.batches import write_batch


class LiveTrace(Trace):
    """A ``Trace`` of the block it is entered on. Read it after the block; before that it is empty.

    See ``backprobe.trace`` for the arguments.
    """

    def __init__(
        self,
        model: nn.Module | None,
        name: str,
        settings: Settings,
        plugins: bool = True,
        record: Path | None = None,
        sinks: Sequence[Sink] = (),
        alarmed: AlarmDispatcher | None = None,
    ) -> None:
        """Check the arguments and prepare; observing begins when the block is entered.

        :param plugins: load the installed plugins; `record`: a folder for records of ops.
        :param sinks: more destinations of the records; `alarmed`: handles alarms.
        :raises BackprobeError: an argument has the wrong type or is out of range.
        """
        super().__init__()
        if model is not None and not isinstance(model, nn.Module):
            raise BackprobeError(f"model is a {type(model).__name__}; give trace() a torch.nn.Module, or nothing")
        level, every, steps = settings.level, settings.every, (settings.first, settings.last)
        if level not in RECORDING_LEVELS:
            raise BackprobeError(f"level is {level!r}; it is one of 'minimal', 'nodes' and 'full'")
        if every < 1 or steps[0] < 0 or (steps[1] is not None and steps[1] <= steps[0]):
            raise BackprobeError(f"every={every}, steps={steps}: every is 1 or more, steps is (A, B) with 0 <= A < B")
        self._model, self._name = model, name
        self._settings, self._record = settings, record
        self._collector = Collector()
        self._sink: Sink = FanoutSink([self._collector, *sinks]) if sinks else self._collector
        self._plugins, self._alarmed = plugins, alarmed
        self._plugged: PluginSink | None = None
        self._session: Session | None = None
        self._begin = 0.0

    def __enter__(self) -> LiveTrace:
        """Begin to observe the block.

        :raises BackprobeError: this trace has been entered before.
        """
        if self._session is not None:
            raise BackprobeError("this trace has been entered already; make a new one for each block")
        startup = Startup(Moment.now())
        self._begin = wall_clock.now()
        own = (os.getcwd(),)
        if self._plugins:
            self._plugged = PluginSink(lambda: about(self._settings.level, wall_clock.now()), self._sink)
        self._session = Session(self._plugged or self._sink, self._settings, own, record_to=self._record)
        if self._alarmed is not None:
            self._alarmed.begin(self._session)
        if self._model is not None:
            self._session.forward.modules.add_root(self._model, self._name)
        self._session.start(startup)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop observing, fill this trace with what was recorded, and add the first finding to an error of the
        block.
        """
        session = self._session
        assert session is not None
        session.context.end_script(error)
        session.stop()
        if self._alarmed is not None and error is None:
            self._alarmed.end()
        seconds = wall_clock.now() - self._begin
        info: dict[str, object] = {
            "started": self._begin,
            "ended": wall_clock.now(),
            "seconds": seconds,
            "steps": self._collector.counted(session),
            "backwards": session.calls,
            **session.cost.freeze().info(),
            "torch": torch.__version__,
        }
        made = self._collector.trace(session, info)
        self.steps, self.facts, self.info = made.steps, made.facts, made.info
        session.context.end_script(None)  # the error ended this block, not the script
        self._read_sources = session.run_facts.sources
        if isinstance(self._sink, FanoutSink):
            self.note_unseen(self._sink.lost)
        if self._plugged is not None:
            self._plugged.close(self)
        if error is not None:
            strip(error)
            if self.findings:
                add_note(error, f"backprobe: {self.findings[0]}")

    @property
    def session(self) -> Session | None:
        """The session of the block; ``None`` before the block is entered."""
        return self._session

    def save(self, path: str | Path) -> Path:
        """Write the run to the folder `path`, with its saved batches, and return the folder; see ``Trace.save``.

        :raises BackprobeError: the block was not entered.
        """
        if self._session is None:
            raise BackprobeError("nothing to save: the trace has not been entered (with backprobe.trace() as t: ...)")
        folder = super().save(path)
        for batch in self._session.context.batches.values():
            write_batch(folder, batch)
        return folder

    def batch(self, step: int | None = None) -> Batch:
        """Return the saved batch of `step`, from memory if it is there; see ``Trace.batch``."""
        held = self._session.context.batches if self._session is not None else {}
        step = self.batch_step(step)
        return held[step] if step in held else super().batch(step)


def trace(
    model: nn.Module | None = None,
    *,
    level: str = "nodes",
    every: int = 1,
    steps: tuple[int, int | None] = (0, None),
    name: str = "model",
    histograms: str | Sequence[str] = (),
    budget: float | str | None = "default",
    record_ops: str | Path | None = None,
    max_record_mb: int = 512,
    layer_stats: int = 0,
    on_alarm: Callable[[Finding], object] | None = None,
    save_batch: bool = False,
    max_batch_mb: int = DEFAULT_MAX_BATCH_MB,
) -> LiveTrace:
    """Watch what the block does with torch, and say what went wrong in its backward passes.

    :param model: the outermost module, so that paths begin there; without it backprobe takes the outermost module that
        is called.
    :param level: ``"minimal"`` records losses, parameters and updates; ``"nodes"`` records every node too; ``"full"``
        also inspects every gradient and every result.
    :param every: record the nodes of every N-th step.
    :param steps: record the nodes of steps A to B - 1; ``None`` for no end.
    :param name: the model's name in module paths, if there are several models.
    :param histograms: globs on the names of modules and parameters, such as ``"encoder.*"``: record histograms of
        their outputs, weights and gradients in steps 0, 1, 2, 5, 10, 20, 50, and so on.
    :param budget: the largest overhead, as a share of the time that the block takes without backprobe: ``0.05`` or
        ``"5%"``. Backprobe records the nodes of as many steps as fit. In the remaining steps it still diagnoses errors
        and non-finite losses. ``None`` records every step. The default is 5%, plus one second at startup; there is no
        limit if `level`, `every`, `steps`, `histograms` or `record_ops` select what to record.
    :param record_ops: a folder. Records every op of the first three steps (or of `steps`) there, with fingerprints of
        inputs and results, for ``backprobe compare``. ``save`` may write to the same folder.
    :param max_record_mb: the most MiB of tensors that `record_ops` saves.
    :param layer_stats: measure statistics by layer in every N-th step (``trace.statistics``), or less often if the
        budget does not allow it; 0 for never.
    :param on_alarm: called with the finding of each alarm after the optimizer's step. With it, or with `save_batch`,
        statistics are measured in every tenth step unless `layer_stats` is given.
    :param save_batch: save the model's inputs of a step with an alarm or an error: ``trace.batch()``.
    :param max_batch_mb: the most MiB of tensors that `save_batch` saves.
    :raises BackprobeError: an argument is out of range.

    >>> import torch, backprobe
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    >>> with backprobe.trace(model) as trace:
    ...     model(torch.ones(4, 3)).mean().backward()
    >>> trace.findings
    []
    >>> [run.name for run in trace.steps[0].backwards[0].nodes][:3]
    ['MeanBackward0', 'ReluBackward0', 'AddmmBackward0']
    """
    globs = (histograms,) if isinstance(histograms, str) else tuple(histograms)
    if layer_stats < 0:
        raise BackprobeError(f"layer_stats={layer_stats}: give a number of steps, or 0 for none")
    alarms = on_alarm is not None or save_batch
    if save_batch and max_batch_mb < 1:
        raise BackprobeError(f"max_batch_mb={max_batch_mb}: give 1 or more")
    settings = Settings(
        *(level, every, steps[0], steps[1]),
        checks=frozenset({"levels"} if alarms else ()),
        histograms=globs,
        layer_stats=layer_stats or (10 if alarms else 0),
        max_batch_mb=max_batch_mb if save_batch else 0,
    )
    if record_ops is not None:
        settings = replace(settings, record_ops=True, max_record_mb=max_record_mb)
    settings = replace(settings, budget=budget_of(budget, settings))
    alarmed = AlarmDispatcher(call=on_alarm) if alarms else None
    folder = Path(record_ops) if record_ops is not None else None
    return LiveTrace(model, name, settings, record=folder, sinks=[alarmed] if alarmed else (), alarmed=alarmed)


def diagnose(
    model: nn.Module | None, loss: object, *, checks: tuple[str, ...] = (), retain_graph: bool = True
) -> list[Finding]:
    """Return findings about the backward pass of one loss, with their source lines. Leaves ``.grad`` as it was.

    :param model: the outermost module, so that paths begin there; ``None`` if there is none.
    :param loss: a function without arguments that computes the loss. This gives the most precise findings: its forward
        is observed, so findings name source lines. Or an existing loss, a tensor of one element with a graph: then only
        source lines of an earlier recording are known, and the graph is kept.
    :param checks: opt-in checks to run: ``"functions"``, ``"checkpoints"``, ``"memory"``.
    :param retain_graph: keep the graph of a loss that was given as a tensor.
    :return: findings, the most important first; empty if nothing is wrong. An error that the forward or backward raises
        is explained by a finding if possible, and raised otherwise.
    :raises BackprobeError: ``loss`` is neither a function nor a tensor, or a check is unknown.

    The backward is a real one: hooks on parameters are called, including those of gradient accumulation.

    >>> import torch, backprobe
    >>> model = torch.nn.Linear(3, 1)
    >>> found = backprobe.diagnose(model, lambda: (model(torch.zeros(4, 3)).sum() - 9).sqrt())
    >>> [f.kind for f in found]
    ['nonfinite-forward']
    """
    if not callable(loss) and not isinstance(loss, torch.Tensor):
        raise BackprobeError(f"loss is a {type(loss).__name__}; give a tensor, or a function that computes one")
    topics = [topic.name for topic in all_rules().topics if not topic.whole_script]
    unknown = set(checks).difference(topics)
    if unknown:
        *most, last = topics
        raise BackprobeError(f"unknown check {', '.join(sorted(unknown))}: there are {', '.join(most)} and {last}")
    live = LiveTrace(model, "model", Settings("full", checks=frozenset(checks)), plugins=False)
    kept = {p: p.grad for p in model.parameters()} if model is not None else {}
    for p in kept:
        p.grad = None
    try:
        with live:
            made = loss() if callable(loss) else loss
            if not isinstance(made, torch.Tensor):
                raise BackprobeError(
                    f"the function returned a {type(made).__name__}; it has to return the loss, a tensor"
                )
            made.backward(retain_graph=retain_graph and not callable(loss))
    except RuntimeError:
        if not live.findings:
            raise
    finally:
        for p, grad in kept.items():
            p.grad = grad
    return live.findings
