"""A trace as the document of a page: plain JSON, gzipped. Its format is in ``page/src/data/document.ts``."""

from __future__ import annotations

import gzip
import os
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ..records import Finding, FreeParameter, ModuleCall, SavedBytes
from ..records.roles import meaning_of
from ..traces import Trace, TracedStep
from ..traces.coverage import ending, runs
from ..view.overhead import overhead_line
from . import calls as backwards
from .columns import clean, text
from .compiled import compiled
from .ledger import ledger
from .levels import levels
from .memory import memory
from .phases import phases
from .ranks import ranks
from .steps import forwards, read_steps
from .tables import Modules, Parameters, Sites, owner
from .tensors import tensors

#: Version of the document; the page reads no other.
FORMAT = 3


def document(trace: Trace, name: str = "", version: str = "") -> dict[str, Any]:
    """Return the document of `trace`, from which the page shows the run.

    :param name: display name of the run.
    :param version: changes if the run has progressed.
    """
    steps, findings = trace.steps, trace.findings
    script = str(trace.info.get("script", ""))
    sites = Sites(str(Path(trace.info.get("folder", os.getcwd()))))
    shown = backwards.chosen(steps, findings)
    selected = backwards.select(steps, shown)
    trails = _trails(steps, shown)
    modules = Modules(
        [c for t in trails for c in t],
        [
            *(r.module for c in selected for r in c.nodes if r.module is not None),
            *(owner(p.name) for p in trace.parameters),
            *(f.module for f in findings if f.module is not None),
            *(row.module for row in trace.facts.of(SavedBytes) if row.module is not None),
        ],
    )
    rows = trace.step_rows()
    first = next(rows, None)
    parameters = Parameters([*trace.parameters, *trace.facts.of(FreeParameter)], first.names if first else (), modules)
    numbers = read_steps(trace, parameters, len(steps), rows if first is None else chain([first], rows))
    layouts = backwards.LayoutTable(modules, parameters, sites)
    calls = [backwards.document(call, layouts, sites) for call in selected]
    first_call: dict[int, int] = {}
    for number, call in enumerate(selected):
        first_call.setdefault(call.step, number)
    made = {
        "format": FORMAT,
        "version": version,
        "run": _run(trace, name or Path(script).name or "trace"),
        "findings": [_finding(f, sites, backwards.node_of(selected, f)) for f in findings],
        "figures": numbers.figures.lines(trace),
        "unseen": [{"what": u.what, "count": u.count, "note": u.note} for u in trace.coverage.unseen],
        "compiled": compiled(trace, sites.of),
        "modules": modules.rows(sites),
        "parameters": parameters.rows(sites),
        "steps": numbers.document(lambda step: first_call.get(step, -1)),
        "layouts": backwards.with_means(layouts.rows, selected, [call["layout"] for call in calls]),
        "calls": calls,
        "forward": forwards(trails, modules.of),
        "phases": phases(trace),
        "memory": memory(trace, modules, sites),
        "tensors": tensors(trace, modules),
        "ranks": ranks(trace, sites.of),
        "levels": levels(trace, modules, parameters),
        "ledger": ledger(trace, parameters, sites),
    }
    return {**made, "sources": sites.sources(trace.sources), "sites": sites.rows()}


def packed(document: Mapping[str, object]) -> bytes:
    """Return the document as bytes: gzip of its JSON."""
    return gzip.compress(text(document).encode("utf-8", "surrogatepass"), 6, mtime=0)


def _trails(steps: Sequence[TracedStep], shown: Sequence[int]) -> list[Sequence[ModuleCall]]:
    """Return the module calls of the shown steps, oldest first, without exact repetitions of an earlier step."""
    found: list[Sequence[ModuleCall]] = []
    for position in sorted(set(shown)):
        calls = steps[position].module_calls
        if calls and not any(calls == other for other in found):
            found.append(calls)
    return found


def _run(trace: Trace, name: str) -> dict[str, object]:
    """Return the facts about a run as a whole: script, steps, state, gaps in coverage, overhead, versions."""
    info = trace.info
    row: dict[str, object] = {
        "name": name,
        "script": str(info.get("script", "")),
        "arguments": [str(a) for a in info.get("arguments", ())],
        "steps": int(info.get("steps", len(trace.steps))),
        "backwards": int(info.get("backwards", 0)) or sum(len(s.backwards) for s in trace.steps),
        "live": not trace.over and runs(info) is True,
        "cut": not trace.over,
        "thinned": int(info.get("thinned", 0) or 0) + int(info.get("skipped", 0) or 0),
    }
    shown = ending(trace.processes[0])  # the page shows this with an icon
    row["gaps"] = [gap for gap in trace.coverage.gaps if gap != shown]
    spent = overhead_line(info)
    row["took"] = " ".join(text for text in (f"{spent}." if spent else "", trace.coverage.summary) if text)
    for key in ("started", "ended", "seconds", "error"):
        row[key] = clean(info.get(key))
    for key in ("level", "torch", "python", "backprobe"):
        row[key] = str(info.get(key, ""))
    return row


def _finding(finding: Finding, sites: Sites, at: tuple[int, int] | None) -> dict[str, object]:
    """Return a finding as plain data; `at` is its backward call and node in the document."""
    row = clean(finding.as_dict())
    row["sites"] = [
        {"role": s.role, "meaning": meaning_of(s.role, finding.kind), "site": sites.of(s.site)} for s in finding.sites
    ]
    row["at"] = list(at) if at is not None else None
    return dict(row)
