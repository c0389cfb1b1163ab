"""The recording of a run, in memory or read from disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

from ..basics.errors import BackprobeError, UnknownName
from ..basics.select import near, quoted
from ..records import (
    BackwardCall,
    CompiledRegion,
    Facts,
    Finding,
    FreeParameter,
    KeptBatch,
    Measured,
    NodeRun,
    Parameter,
    Process,
    StepPhases,
    TensorSeen,
    Unseen,
)
from . import coverage as coverage_of
from .coverage import Coverage
from .gradients import WORDS, OneKind
from .ledger import Ledger, ledger_of
from .part import Part
from .phases import TypicalStep, typical_step
from .shown import Rows, Shown
from .statistics import Statistics
from .steps import StepRow, Steps, TracedStep, numbers_of

#: What ``as_dict`` has of the data about a run.
_TOLD_OF_RUN = ("script", "arguments", "python", "torch", "backprobe")
#: Computes the findings of a trace, and lists the rules that failed.
Explain = Callable[["Trace"], tuple[Sequence[Finding], Sequence[Unseen]]]


class Trace:
    """The recording of a run, as data. Users get a ``backprobe.Trace``, which adds what uses other packages."""

    def __init__(
        self,
        steps: Sequence[TracedStep] = (),
        facts: Facts | None = None,
        info: Mapping[str, Any] | None = None,
        findings: Sequence[Finding] | Explain = (),
        ranks: Callable[[], Mapping[int, Trace]] = dict,
        sources: Callable[[Any], Mapping[str, str]] | None = None,
    ) -> None:
        """Make a trace of recorded data; see the attributes of the same names.

        :param facts: what trackers recorded. ``info``: the data about the run, such as its script and versions.
        :param findings: the findings, or a function that computes them when they are first read.
        :param ranks: returns the traces of the other ranks when they are first read.
        :param sources: returns the source text of the lines that records name, for a run recorded in this process.
        """
        self.steps: Sequence[TracedStep] = steps if isinstance(steps, Shown) else Steps(steps)
        self.facts = facts or Facts()
        self.info: Mapping[str, Any] = info or {}
        self._findings = findings
        self._open_ranks = ranks
        self._read_sources = sources

    @property
    def over(self) -> bool:
        """Return whether the recording is complete; false for a run that was killed or is still running."""
        return "ended" in self.info or "steps" in self.info

    def close(self) -> None:
        """Close the file of a run on disk; its steps cannot be read any more. Does nothing for a run in memory."""
        close = getattr(self.steps, "close", None)
        if close is not None:
            close()
        for trace in self.__dict__.pop("ranks", {}).values():
            trace.close()

    @cached_property
    def ranks(self) -> Mapping[int, Trace]:
        """Return the traces of the ranks, by number, for a run of several processes that was read from disk."""
        return self._open_ranks()

    @property
    def sources(self) -> Mapping[str, str]:
        """Return the recorded source text, by file (Note [Source excerpts]). Opens no file that a run names."""
        if self._read_sources is not None:
            found = () if callable(self._findings) else self._findings
            return self._read_sources((self.facts.parameters, self.facts.seen, found))
        kept = self.info.get("sources")
        texts = kept.items() if isinstance(kept, Mapping) else ()
        return {str(file): text for file, text in texts if isinstance(text, str)}

    @property
    def parameters(self) -> Sequence[Parameter]:
        """Every parameter's record."""
        return Rows(self.facts.parameters)

    @property
    def tensors(self) -> Sequence[TensorSeen]:
        """The recorded values of the tensors chosen with ``histograms=``, or ``--histograms``."""
        return Rows(self.facts.of(TensorSeen))

    @property
    def compiled(self) -> Sequence[CompiledRegion]:
        """The functions that ``torch.compile`` compiled: their graphs, graph breaks and recompilations."""
        return Rows(self.facts.of(CompiledRegion))

    @property
    def coverage(self) -> Coverage:
        """The extent to which backprobe observed the run, and why "no findings" may not be conclusive."""
        return Coverage(self)

    @property
    def unfinished_steps(self) -> Sequence[int]:
        """The numbers of the recorded steps of a run that has not ended; empty for one that has."""
        return () if self.over else numbers_of(self.steps)

    @property
    def processes(self) -> Sequence[Process]:
        """The processes of the run and how each ended; that of the script is the first."""
        return Rows(coverage_of.processes(self.facts, self.info, self.over))

    def as_dict(self) -> dict[str, Any]:
        """Return the findings and the coverage as the JSON that ``backprobe run --findings`` writes."""
        findings = [finding.as_dict() for finding in self.findings]
        told = coverage_of.contract(self.coverage.observed, self.coverage.unseen, self.processes)
        compiled = {"compiled": [asdict(one) for one in self.compiled]} if self.compiled else {}
        run = {name: self.info[name] for name in _TOLD_OF_RUN if self.info.get(name) is not None}
        return {"format": 1, "run": run, "findings": findings, **told, **compiled}

    @cached_property
    def statistics(self) -> Statistics:
        """Statistics by layer, in the steps in which they were measured."""
        return Statistics(self.measured)

    def batch_step(self, step: int | None = None) -> int:
        """Return the number of a step whose batch was saved: `step`, or the first.

        :raises BackprobeError: there is none.
        """
        kept = sorted(one.step for one in self.facts.of(KeptBatch))
        if not kept:
            raise BackprobeError(
                "no batch was kept: --save-batch and save_batch=True keep that of an alarm or an error"
            )
        if step is not None and step not in kept:
            raise BackprobeError(f"no batch was kept of step {step}, but of {', '.join(map(str, kept))}")
        return kept[0] if step is None else step

    def measured(self, after: int = -1) -> Sequence[Measured]:
        """Return statistics by layer of the steps after step `after`, read anew: new ones of a running run."""
        found: Sequence[Measured] = getattr(self.steps, "statistics", lambda after: ())(after)
        return found

    @property
    def backwards(self) -> Iterator[BackwardCall]:
        """Iterate over the backward calls of ``steps``, in order: not all of the run, if memory does not keep them."""
        for step in self.steps:
            yield from step.backwards

    def step_rows(self, first: int = 0, end: int | None = None) -> Iterator[StepRow]:
        """Iterate over the numbers of the steps at positions `first` up to `end` (not included), in order.

        The records of ``steps`` are not created.
        """
        stored = getattr(self.steps, "rows", None)
        if stored is not None:
            yield from stored(first, end)
            return
        for step in self.steps[first:end]:
            record = step.record
            names = [p.name for p in record.parameters]
            values = [-1.0 if v is None else v for p in record.parameters for v in (p.weight, p.grad, p.update)]
            held = record.resident, record.allocated, record.graphs, record.watching, record.clip_norm
            yield StepRow(step.index, step.seconds, step.loss, names, values, record.calls, record.scale, *held)

    @property
    def findings(self) -> Sequence[Finding]:
        """The findings, the most important first; empty on a healthy run."""
        if callable(self._findings):
            self._findings, failed = self._findings(self)
            self.note_unseen(failed)
        return self._findings

    @property
    def step_phases(self) -> Sequence[StepPhases]:
        """Seconds before the forward, in forward, backward and optimizer, and of the rest, of recorded steps.

        Steps that are inspected closely are left out: they take much longer. At most 200 steps, spread over the run.
        """
        return tuple(self.facts.of(StepPhases))

    @property
    def typical_step(self) -> TypicalStep | None:
        """The medians of ``step_phases``; ``None`` if no step was timed."""
        return typical_step(self.step_phases)

    def note_unseen(self, unseen: Sequence[Unseen]) -> None:
        """Add work that was not observed to the coverage, such as rules that failed."""
        if unseen:
            self.facts = replace(self.facts, unseen=(*self.facts.unseen, *unseen))

    def ledger(self, name: str) -> Ledger:
        """Return what happened to the gradient and the weight of a parameter, period by period.

        :param name: the name of a parameter or buffer, or the path of a module for all of its parameters and buffers.
        :raises UnknownName: no parameter in the trace has that name; also a ``KeyError``. The message lists similar
            names.
        """
        found = ledger_of(self.facts, name)
        names = {*(p.name for p in self.parameters), *(p.name for p in self.facts.of(FreeParameter))}
        if not found.rows and not found.buffers and not any(_within(one, name) for one in names):
            like = f"names are like {quoted(near(name, sorted(names)))}" if names else "it has none"
            raise UnknownName(f"no parameter {name!r} in this trace; {like}")
        return found

    def __getitem__(self, name: str) -> Part:
        """Return the part of the model called `name`: a module path or a parameter's name.

        :raises UnknownName: nothing in the trace has that name; also a ``KeyError``. The message lists similar names.
        """
        runs: list[tuple[int, NodeRun]] = []
        gradients: dict[int, dict[str, float]] = {}
        names = {*(p.name for p in self.parameters), *(p.name for p in self.facts.of(FreeParameter))}
        known = any(_within(one, name) for one in names)
        norms = OneKind()
        for step in self.steps:
            for backward in step.backwards:
                for run in backward.nodes:
                    if run.module is not None and run.module != "" and _within(run.module, name):
                        runs.append((step.index, run))
            used = ((p.name, p.grad) for p in step.record.parameters)
            found = norms.of(step.backwards, used)
            mine = {n: norm for n, norm in found.norms.items() if _within(n, name)}
            if mine and found.whole:
                gradients[step.index] = mine
        if not runs and not gradients and not known:
            ran = (run.module for step in self.steps for call in step.backwards for run in call.nodes if run.module)
            names = {above for path in (*names, *ran) for above in _up(path)}
            like = f"names are like {quoted(near(name, sorted(names)))}" if names else "it has none"
            raise UnknownName(f"no module or parameter {name!r} in this trace; {like}")
        return Part(name, runs, gradients, WORDS[norms.kind] if gradients else "")

    def __repr__(self) -> str:
        count = sum(len(s.backwards) for s in self.steps)
        found = "not asked for" if callable(self._findings) else str(len(self._findings))
        return f"<Trace: {len(self.steps)} steps, {count} backward calls, findings: {found}>"


def _up(path: str) -> Iterator[str]:
    """Yield a path and the paths of the enclosing modules."""
    while path:
        yield path
        path = path.rpartition(".")[0]


def _within(path: str, name: str) -> bool:
    """Return whether a module or parameter `path` is `name`, or inside the module `name`; always for an empty name."""
    return path == name or path.startswith(name + ".") or name == ""
