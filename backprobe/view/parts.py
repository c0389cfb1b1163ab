"""The parts of a report as plain data, and the report of a run. No torch, no terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ..basics.text import counted, few, number, plural, seconds
from ..records import Finding, FreeParameter, KeptBatch, Parameter, Process, RankSeen, Site
from ..records.places import NOT_KEPT, at_line, lasting, short_path
from ..traces import Trace, TracedStep
from ..traces.coverage import endings
from ..traces.gradients import WORDS, Gradients
from . import compiled, ranks
from .figures import figures, with_gradients
from .flow import Bars, flow
from .overhead import overhead_line, seconds_added

#: A space at which lines do not break.
TIED = "\N{NO-BREAK SPACE}"
#: Number of steps over which times are averaged.
AVERAGED_STEPS = 10
#: Number of last steps that are searched for gradients.
MAX_SEARCHED_STEPS = 1000


@dataclass(frozen=True)
class Line:
    """A line of text; ``tone`` is ``plain``, ``quiet``, ``good``, ``bad`` or ``head``."""

    text: str
    tone: str = "plain"


@dataclass(frozen=True)
class FindingPlace:
    """A source line and its role in a finding.

    :ivar where: the file as displayed, the line, and the function.
    :ivar context: numbered lines around it, may be empty. ``file``: the path of the file, as recorded.
    """

    role: str
    where: str
    text: str
    line: int = 0
    context: Sequence[tuple[int, str]] = ()
    file: str = ""


@dataclass(frozen=True)
class Problem:
    """A finding, ready for display."""

    number: int
    kind: str
    severity: str
    confidence: str
    title: str
    facts: Sequence[tuple[str, str]]
    places: Sequence[FindingPlace]
    advice: str


@dataclass(frozen=True)
class Table:
    """A table with column titles; cells are text. `words`: all columns hold words and are left-aligned."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: bool = False


Part = Line | Problem | Table | Bars


def report(
    trace: Trace,
    folder: Path | None = None,
    details: bool = False,
    whole: bool = False,
    numbers: Trace | None = None,
    took: Callable[[], Mapping[str, object]] | None = None,
) -> list[Part]:
    """Return the report of a run as parts: headline, findings or a verdict, figures, gaps in coverage, overhead.

    :param folder: where the run was saved, which the report mentions.
    :param details: include the gradients by module and step, as ``backprobe show`` does.
    :param whole: include the gradients of every parameter.
    :param numbers: the same run with more of its steps, for figures over all steps.
    :param took: returns the overhead of a run that is not over yet; called last.
    """
    parts: list[Part] = []
    findings = trace.findings
    several = ranks.several(trace)
    if several and (details or (len(several) > 1 and endings(trace.processes))):
        parts.append(Table(*ranks.table(several, findings)))
        if trace.info.get("part"):
            parts.append(Line(f"What follows is of {ranks.chosen(trace, several)}.", "quiet"))
    sources = trace.sources if findings else {}
    for i, finding in enumerate(findings, 1):
        parts.append(problem(i, finding, sources))
    if not findings:
        parts.append(verdict(trace))
    parts += [Line(text) for text in figures(numbers if numbers is not None else trace)]
    if details:
        parts += _details(trace, whole)
    parts += [Line(text, "quiet") for text in compiled.lines(trace.compiled)]
    for unseen in trace.coverage.unseen:
        parts.append(Line(f"Not seen: {unseen.count} {unseen.what} ({unseen.note})", "quiet"))
    parts += [Line(text) for text in _batches(trace, folder)]
    info = {**trace.info, **(took() if took is not None else {})}
    if spent := overhead_line(ranks.took(several) or info):
        parts.append(Line(spent, "quiet"))
    if folder is not None:
        name = short_path(str(folder))
        parts.append(Line(f"Saved in {name}: read it with backprobe show, or as a page with backprobe view", "quiet"))
    return [Line(headline(trace, info), "head"), *parts]


def _batches(trace: Trace, folder: Path | None) -> list[str]:
    """Return lines that say where saved batches are and how to load them."""
    said = []
    inside = getattr(trace.steps, "folder", folder)
    for kept in trace.facts.of(KeptBatch):
        read = f"trace.batch({kept.step})"
        if inside is not None:
            file, run = short_path(str(inside / kept.file)), short_path(str(inside))
            read = f"{file}, backprobe.load_run({run!r}).batch({kept.step})"
        notes = "".join(f"; {note}" for note in kept.notes)
        said.append(f"Batch of step {kept.step} ({kept.why}): {read}{notes}")
    return said


def verdict(trace: Trace) -> Line:
    """Return the line for a run without findings: how conclusive that is, given the coverage."""
    gaps = trace.coverage.gaps[1:] if trace.coverage.observed.stopped is not None else trace.coverage.gaps
    if gaps:
        return Line(f"Nothing found, but backprobe did not see everything: {'; '.join(gaps)}.", "bad")
    if trace.coverage.gaps:
        return Line("Nothing found before recording stopped.", "bad")
    seen = trace.info.get("backwards", 1) or trace.facts.of(RankSeen)
    some = trace.coverage.summary
    if seen and some:
        every_step = "Exceptions in backward calls and non-finite losses are caught in every step, also in the others."
        return Line(f"No problems found. {some} {every_step}", "good")
    if seen:
        return Line("No problems found.", "good")
    if trace.info.get("torch_imported") is False:
        return Line("The script did not import torch: there was nothing to watch.")
    return Line("No backward call was seen.")


def headline(trace: Trace, took: Mapping[str, object] | None = None) -> str:
    """Return the first line of a report: how much was found, in how many steps, and how long it took.

    :param took: the overhead of a run that is not over yet, and its seconds.
    """
    info = {**trace.info, **(took or {})}
    stopped = trace.coverage.observed.stopped
    early = "" if stopped is None else f"recording stopped at step {stopped.step}: {stopped.reason}; "
    found = len(trace.findings)
    several = ranks.several(trace)
    how_many = count(found, "finding") if found else f"no{TIED}findings"
    text = f"backprobe: {early}{how_many} in {_work(trace, info, several)}"
    spent = [seconds(info["seconds"]).replace(" ", TIED)] if "seconds" in info else []
    if not trace.over and "started" in info and not several:
        spent.append("the run was cut off")
    elif added := seconds_added(ranks.took(several) or info):
        added = added.replace(" ", TIED)
        spent.append(f"of which backprobe {added}" if spent else f"backprobe {added}")
    text += f" ({', '.join(spent)})" if spent else ""
    if several or info.get("signal"):
        text += "".join(f"; {how}" for how in endings(trace.processes))
    return text


def _work(trace: Trace, info: Mapping[str, Any], several: Sequence[Process]) -> str:
    """Return how many steps a run made, in words, and how many backward calls if their number differs.

    :param several: the processes, if the run has several.
    """
    if several and (several[0].part or not several[0].backwards):
        return ranks.summary(several)
    steps, calls = int(info.get("steps", len(trace.steps))), int(info.get("backwards", 0))
    calls = calls or sum(len(s.backwards) for s in trace.steps)
    text = count(steps, "step")
    if calls != steps:
        text += f", {count(calls, 'backward call')}"
    if others := [one for one in several[1:] if one.backwards or one.steps]:
        most = count(max(one.backwards for one in others), "backward call")
        text += f", and {len(others)} other {plural(others, 'process', 'processes')} of up to {most}"
    return text


def count(n: int, what: str) -> str:
    """Return a number and what it counts, joined by a space at which the line does not break."""
    return counted(n, what).replace(" ", TIED)


def problem(i: int, finding: Finding, sources: Mapping[str, str] | None = None) -> Problem:
    """Return a finding as a part of a report, with its lines.

    :param i: its number. ``sources``: texts of files as they were when the run was made.
    """
    facts = [
        ("module", finding.module or ""),
        ("node", finding.node or ""),
        ("tensor", finding.tensor or ""),
        ("parameters", few(finding.parameters, 6)),
        ("step", "" if finding.step is None else str(finding.step)),
        ("rank", ranks.of(finding)),
    ]
    return Problem(
        i,
        finding.kind,
        finding.severity,
        finding.confidence,
        finding.title,
        [(k, v) for k, v in facts if v],
        [place(s.role, s.site, sources or {}, around=2 if not n else 0) for n, s in enumerate(finding.sites)],
        finding.advice,
    )


def place(role: str, site: Site, sources: Mapping[str, str] | None = None, around: int = 0) -> FindingPlace:
    """Return `site` as a place of a finding, with `around` lines before and after it.

    The lines are those that the run has stored in `sources`; none if the stored text differs from that of `site`.
    """
    where = f"{at_line(short_path(site.file), site.line)} in {site.function}"
    if not around:
        return FindingPlace(role, where, site.text, site.line, file=site.file)
    lines = (sources or {}).get(lasting(site.file), "").splitlines()
    if not 0 < site.line <= len(lines) or lines[site.line - 1].strip() != site.text.strip():
        return FindingPlace(role, where, site.text, site.line, file=site.file)
    first, last = max(site.line - around, 1), min(site.line + around, len(lines))
    context = [(n, lines[n - 1].expandtabs(4).rstrip()) for n in range(first, last + 1) if lines[n - 1] != NOT_KEPT]
    while context[0][0] < site.line and not context[0][1]:
        del context[0]
    while context[-1][0] > site.line and not context[-1][1]:
        del context[-1]
    spare = min((len(t) - len(t.lstrip()) for _, t in context if t), default=0)
    return FindingPlace(role, where, site.text, site.line, [(n, t[spare:]) for n, t in context], site.file)


def _details(trace: Trace, whole: bool) -> list[Part]:
    """Return the parts with details of the last steps that have them: gradients, weights and updates, time
    by module.
    """
    parts: list[Part] = []
    step, found = _last_gradients(trace)
    gradients: Mapping[str, float] = found.norms
    measured = next((s for s in reversed(trace.steps) if s.record.parameters), None)
    sizes = measured.parameters if measured is not None else {}
    listed: list[Parameter | FreeParameter] = [*trace.parameters, *trace.facts.of(FreeParameter)]
    names = [p.name for p in listed if p.requires_grad or p.name in gradients]
    if names and gradients:
        parts.append(Line(f"Step {step}: gradient flow {WORDS[found.source]}, in forward order", "head"))
        parts.append(flow(names, gradients, whole))
    rows = []
    for name in names if whole else ():
        size = sizes.get(name)
        row = (size.weight if size else None, gradients.get(name), size.update if size else None)
        rows.append([name, *("" if v is None else number(v) for v in row)])
    if rows:
        when = f" (weight and update: step {measured.index})" if measured and measured.index != step else ""
        said = f", gradients {WORDS[found.source]}" if gradients else ""
        parts += [Line(f"Step {step}: norms by parameter{said}{when}", "head")]
        parts.append(Table(("parameter", "weight", "gradient", "update"), rows))
    return parts + _times(trace.steps)


def _last_gradients(trace: Trace) -> tuple[int, Gradients]:
    """Return the index of the last step whose gradients are all known, and these; 0 and none if no recent step has
    them.
    """
    for at in range(len(trace.steps) - 1, max(len(trace.steps) - MAX_SEARCHED_STEPS, 0) - 1, -1):
        for row, gradients in with_gradients(trace, trace.step_rows(at, at + 1), at):
            if gradients.norms and gradients.whole:
                return row.index, gradients
    return 0, Gradients({})


def _times(steps: Sequence[TracedStep]) -> list[Part]:
    """Return the table of backward times by module, as the mean of the last steps with recorded nodes;
    empty if none.
    """
    taken = list(islice((s for s in reversed(steps) if any(len(b.nodes) for b in s.backwards)), AVERAGED_STEPS))
    times: dict[str, list[float]] = {}
    for run in (r for s in taken for b in s.backwards for r in b.nodes):
        if run.seconds is not None:
            entry = times.setdefault(run.module if run.module is not None else "", [0.0, 0])
            entry[0] += run.seconds / len(taken)
            entry[1] += 1 / len(taken)
    ordered = sorted(times.items(), key=lambda item: -item[1][0])[:15]
    if not ordered:
        return []
    first, last = taken[-1].index, taken[0].index
    when = f"Step {last}" if first == last else f"Mean of {len(taken)} steps, {first} to {last}"
    rows = [[name or "(outside modules)", f"{1e3 * t:.2f} ms", f"{n:.3g}"] for name, (t, n) in ordered]
    return [Line(f"{when}: time in backward by module", "head"), Table(("module", "time", "nodes"), rows)]
