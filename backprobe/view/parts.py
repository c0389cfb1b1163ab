"""The parts that a report is made of, and the report of a run. No torch, no terminal: plain data."""

from __future__ import annotations

import linecache
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..records import Finding, RankSeen, Site
from ..text import counted, few, number
from ..traced import StepRow, Trace
from .flow import Bars, flow

#: A space at which a line is not broken.
TIED = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class Line:
    """One line of text; ``tone`` is ``plain``, ``quiet``, ``good``, ``bad`` or ``head``."""

    text: str
    tone: str = "plain"


@dataclass(frozen=True)
class FindingPlace:
    """A source line and the part that it plays. ``context`` are lines around it with their numbers, or nothing."""

    role: str
    where: str
    text: str
    line: int = 0
    context: Sequence[tuple[int, str]] = ()


@dataclass(frozen=True)
class Problem:
    """A finding as it is shown."""

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
    """Columns with a title each; cells are text."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


Part = Line | Problem | Table | Bars


def report(trace: Trace, folder: Path | None = None, details: bool = False, whole: bool = False) -> list[Part]:
    """The report of a run. `details`: the gradients by module and step too, as ``backprobe show`` gives them; `whole`:
    those of every parameter."""
    parts: list[Part] = [Line(headline(trace), "head")]
    findings = trace.findings
    kept = trace.info.get("sources")
    sources: Mapping[str, str] = kept if isinstance(kept, Mapping) else {}
    for i, finding in enumerate(findings, 1):
        parts.append(problem(i, finding, sources))
    if not findings:
        seen = trace.info.get("backwards", 1) or trace.facts.of(RankSeen)
        parts.append(Line("Nothing wrong found.", "good") if seen else Line("No backward call was seen."))
    parts += [Line(text) for text in figures(trace)]
    if details:
        parts += _details(trace, whole)
    for unseen in trace.unseen:
        parts.append(Line(f"Not seen: {unseen.count} {unseen.what} ({unseen.note})", "quiet"))
    if folder is not None:
        name = short(str(folder))
        text = f"Kept in {name}; to read it again: backprobe show {name}, or as a page: backprobe view {name}"
        parts.append(Line(text, "quiet"))
    return parts


def headline(trace: Trace) -> str:
    info = trace.info
    steps, calls = int(info.get("steps", len(trace.steps))), int(info.get("backwards", 0))
    calls = calls or sum(len(s.backwards) for s in trace.steps)
    text = f"backprobe: {count(steps, 'step')}, {count(calls, 'backward call')}"
    others = [r for r in trace.facts.of(RankSeen) if r.backwards or r.steps]
    if others:
        most = max(r.backwards for r in others)
        each = count(most, "backward call")
        text += f"; {len(others)} other {'process' if len(others) == 1 else 'processes'} with up to {each}"
    if "seconds" in info:
        text += f" in {info['seconds']:.1f} s"
    if not trace.over and "started" in info:
        text += " (the run was cut off)"
    elif text_of_cost := took(info):
        text += f", {text_of_cost}"
    found = len(trace.findings)
    return f"{text}: {count(found, 'finding') if found else f'no{TIED}findings'}"


def took(info: Mapping[str, Any]) -> str:
    """What watching took: as a share of what the later steps would have taken alone, and in the first steps, which are
    looked at closely, in seconds. In seconds alone where the later steps are too few."""
    first, share = info.get("first_cost"), info.get("cost")
    if first is None:  # a run of before, whose share was wrong
        return ""
    if share is None:
        return f"watching took about {_seconds(first + info.get('own', 0.0))}"
    text = f"watching took about {100 * share:.0f}%"
    n = info.get("first_steps", 0)
    return f"{text}, and {_seconds(first)} in the first {count(n, 'step')}" if n else text


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1e3 * seconds:.0f} ms"


def count(n: int, what: str) -> str:
    """A number and what it counts, which stay on one line."""
    return counted(n, what).replace(" ", TIED)


def problem(i: int, finding: Finding, sources: Mapping[str, str] | None = None) -> Problem:
    """A finding as it is shown. `sources`: texts of files as they were when the run was made."""
    facts = [
        ("module", finding.module or ""),
        ("node", finding.node or ""),
        ("tensor", finding.tensor or ""),
        ("parameters", few(finding.parameters, 6)),
        ("step", "" if finding.step is None else str(finding.step)),
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
    """`site` with as many lines `around` it, where its file still says there what it said in the run."""
    where = f"{short(site.file)}:{site.line} in {site.function}"
    if not around:
        return FindingPlace(role, where, site.text, site.line)
    kept = (sources or {}).get(site.file)
    lines = kept.splitlines() if kept is not None else [t.rstrip("\n") for t in linecache.getlines(site.file)]
    if not 0 < site.line <= len(lines) or lines[site.line - 1].strip() != site.text.strip():
        return FindingPlace(role, where, site.text, site.line)
    first, last = max(site.line - around, 1), min(site.line + around, len(lines))
    context = [(n, lines[n - 1].expandtabs(4).rstrip()) for n in range(first, last + 1)]
    while context[0][0] < site.line and not context[0][1]:
        del context[0]
    while context[-1][0] > site.line and not context[-1][1]:
        del context[-1]
    spare = min((len(t) - len(t.lstrip()) for _, t in context if t), default=0)
    return FindingPlace(role, where, site.text, site.line, [(n, t[spare:]) for n, t in context])


def short(path: str) -> str:
    """`path` from the working folder, where it lies inside it."""
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive
        return path
    return path if relative.startswith("..") else relative


def figures(trace: Trace) -> list[str]:
    """The main figures in a line each: loss, size of gradients and updates."""
    lines = []
    losses: list[float] = []
    meant = ""
    norms: list[float] = []
    ratios: list[float] = []
    for row in trace.step_rows():
        if row.loss is not None:
            losses.append(row.loss)
            meant = _meant(row)
        weights, grads, updates = (row.values[k::3] for k in range(3))
        known = [g for g in grads if not g < 0]
        if known:
            norms.append(math.hypot(*known))
        ratios += [u / w for u, w in zip(updates, weights, strict=True) if not u < 0 and w > 0]
    if losses:
        lines.append(f"loss {number(losses[0])} in the first step, {number(losses[-1])} in the last{meant}")
    if norms and all(map(math.isfinite, norms)):
        text = f"gradient norm {number(min(norms))} to {number(max(norms))}"
        if ratios and all(map(math.isfinite, ratios)):
            ratios.sort()
            text += f"; an update changes a parameter by {number(ratios[len(ratios) // 2])} of its norm in the median"
        lines.append(text)
    return lines


def _meant(row: StepRow) -> str:
    """How the loss of a step came about, where it is not the root of one backward call."""
    said = []
    if row.calls > 1:
        said.append(f"the sum over its {row.calls} backward calls")
    if row.scale != 1.0:
        said.append(f"without the GradScaler's factor, {number(row.scale)}")
    return f" ({'; '.join(said)})" if said else ""


def _details(trace: Trace, whole: bool) -> list[Part]:
    """The last step whose nodes are there: gradients by parameter, time by module."""
    last = next((s for s in reversed(trace.steps) if any(len(b.nodes) for b in s.backwards)), None)
    if last is None:
        return []
    parts: list[Part] = []
    gradients: dict[str, float] = {}
    for run in (r for b in last.backwards for r in b.nodes):
        stat = run.grad_outputs[0] if run.parameter and run.grad_outputs else None
        if stat is not None and run.parameter and stat.norm is not None:
            gradients[run.parameter] = stat.norm
    measured = next((s for s in reversed(trace.steps) if s.record.parameters), None)
    sizes = measured.parameters if measured is not None else {}
    names = [p.name for p in trace.parameters if p.requires_grad or p.name in gradients]
    if names and gradients:
        parts.append(Line(f"Step {last.index}: gradient flow, in forward order", "head"))
        parts.append(flow(names, gradients, whole))
    rows = []
    for name in names if whole else ():
        size = sizes.get(name)
        row = (size.weight if size else None, gradients.get(name), size.update if size else None)
        rows.append([name, *("" if v is None else number(v) for v in row)])
    if rows:
        when = f" (weight and update: step {measured.index})" if measured and measured.index != last.index else ""
        parts += [Line(f"Step {last.index}: norms by parameter{when}", "head")]
        parts.append(Table(("parameter", "weight", "gradient", "update"), rows))
    times: dict[str, list[float]] = {}
    for backward in last.backwards:
        for run in backward.nodes:
            if run.seconds is not None:
                entry = times.setdefault(run.module if run.module is not None else "", [0.0, 0])
                entry[0] += run.seconds
                entry[1] += 1
    ordered = sorted(times.items(), key=lambda item: -item[1][0])[:15]
    if ordered:
        parts += [Line(f"Step {last.index}: time in backward by module", "head")]
        rows = [[name or "(outside modules)", f"{1e3 * t:.2f} ms", f"{n:.0f}"] for name, (t, n) in ordered]
        parts.append(Table(("module", "time", "nodes"), rows))
    return parts
