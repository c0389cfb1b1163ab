"""The trace that users hold, and ``load_run``: the data of ``traces/`` with the packages that explain and show it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .basics.errors import BackprobeError
from .findings import explain
from .records import Facts, Finding
from .store.job import load_run as read_run
from .traces import Explain, TracedStep
from .traces import Trace as TraceData

if TYPE_CHECKING:
    from .store.batches import Batch


class Findings(list[Finding]):
    """Findings that display as in the terminal, with their source lines.

    :param sources: returns the recorded source text, by file.
    """

    def __init__(self, findings: Iterable[Finding] = (), sources: Callable[[], Mapping[str, str]] = dict) -> None:
        super().__init__(findings)
        self._sources = sources

    def __reduce__(self) -> tuple[type[Findings], tuple[list[Finding]]]:
        return Findings, ([*self],)

    def __repr__(self) -> str:
        from .view.cells import findings_text

        return findings_text(self, self._sources()) if self else "[]"

    def _repr_html_(self) -> str:
        from .view.cells import findings_html

        return findings_html(self, self._sources())


class Trace(TraceData):
    """The recording of a run. ``trace.findings`` says what went wrong, ``trace.steps`` what happened,
    ``trace["encoder.layer.3"]`` has the gradients of a module or parameter.
    """

    def __init__(
        self,
        steps: Sequence[TracedStep] = (),
        facts: Facts | None = None,
        info: Mapping[str, Any] | None = None,
        findings: Sequence[Finding] | Explain = explain,
        ranks: Callable[[], Mapping[int, TraceData]] = dict,
        sources: Callable[[Any], Mapping[str, str]] | None = None,
    ) -> None:
        """Make a trace of recorded data; see ``TraceData``.

        :param findings: the findings; computed by all rules when they are first read, by default.
        :param sources: returns the source text of the lines that records name, for a run recorded in this process.
        """
        super().__init__(steps, facts, info, findings, ranks, sources)

    @cached_property
    def ranks(self) -> Mapping[int, Trace]:
        """Return the traces of the ranks, by number, for a run of several processes that was read from disk."""
        return {rank: _for_user(trace) for rank, trace in self._open_ranks().items()}

    @cached_property
    def findings(self) -> Findings:
        """The findings, the most important first; empty on a healthy run."""
        return Findings(super().findings, lambda: self.sources)

    def batch(self, step: int | None = None) -> Batch:
        """Return the arguments of the modules in a step with an alarm or an error.

        Call ``model(*batch.args, **batch.kwargs)``. Requires ``--save-batch``, or ``save_batch=True``. The tensors are
        on the CPU; torch is needed.

        :param step: the first step with a saved batch, by default.
        :raises BackprobeError: the step has no saved batch, or its file is gone or damaged.
        """
        from .store.batches import read_batch

        step = self.batch_step(step)
        folder = getattr(self.steps, "folder", None)
        if folder is None:
            raise BackprobeError(f"the batch of step {step} is in the folder of a run that this trace does not know")
        return read_batch(folder, step)

    def save(self, path: str | Path) -> Path:
        """Write the trace to `path`, a new or empty folder; ``backprobe.load_run`` and ``backprobe show`` read it.

        :raises BackprobeError: the folder is not empty, or cannot be written. An earlier run is never overwritten.
        """
        from .store.writer import save

        _ = self.findings  # first: what could not be asked is among the facts then
        return save(self, Path(path))

    def report(self, path: str | Path) -> Path:
        """Write the recording as one HTML page, which opens offline anywhere, to the file `path`.

        :raises BackprobeError: the file cannot be written.
        """
        from .report.html import write

        return write(self, path)

    def _repr_html_(self) -> str:
        from .report.html import frame

        return frame(self)


def load_run(folder: str | Path, rank: int | None = None) -> Trace:
    """Load the run in `folder`, with the findings of all its processes.

    The steps are those of the process that ``backprobe run`` started, if it has some; otherwise of the process that the
    first finding is about, or that failed, or of the first rank.

    :param rank: read the steps of this rank.
    :raises BackprobeError: there is no run, or none of that rank; the run has another format, or is damaged. Accessing
        a step of a damaged run raises it too.
    """
    return _for_user(read_run(folder, rank))


def _for_user(data: TraceData) -> Trace:
    """Return the data of a trace as the ``Trace`` that users get."""
    return Trace(data.steps, data.facts, data.info, data._findings, data._open_ranks, data._read_sources)
