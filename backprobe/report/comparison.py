"""Compared runs as the document of a page: plain JSON. Its format is in ``page/src/compare/document.ts``."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..basics.errors import BackprobeError
from ..comparing.before import Early
from ..comparing.blame import Blame
from ..comparing.compared import Compared
from ..comparing.groups import Group
from ..comparing.sides import Side
from ..comparing.text import call, result, what
from ..records import Finding, Site, Tape, TapeOp
from ..records.places import NOT_KEPT
from ..store.job import is_run, load_run
from ..traces import Trace
from .columns import clean, column
from .html import save
from .paired import Paired
from .tables import Sites

#: Version of the document; the page reads no other.
FORMAT = 1
#: Maximum number of op rows in a page, and in one comparison.
MAX_PAGE_ROWS, MAX_COMPARISON_ROWS = 200_000, 50_000
#: Number of lines shown before and after the line of an op.
CONTEXT_LINES = 7
#: Maximum number of points of a curve, of findings, and of characters of a text.
MAX_POINTS, MAX_FINDINGS, MAX_TEXT_CHARACTERS = 2_000, 200, 300


def write(sides: Sequence[Side], found: Sequence[Compared], groups: Sequence[Group], path: Path) -> Path:
    """Write compared runs as a page to the file `path`.

    :raises BackprobeError: the file cannot be written.
    """
    traces = {side.folder: _trace(side.folder) for side in sides}
    made = document(sides, found, groups, [traces[side.folder] for side in sides])
    return save(made, path, made["title"])


def document(
    sides: Sequence[Side],
    found: Sequence[Compared],
    groups: Sequence[Group] = (),
    traces: Sequence[Trace | None] = (),
) -> dict[str, Any]:
    """Return the document of a comparison of two or more runs.

    :param sides: the runs; each after the first was compared with the first.
    :param found: the results of these comparisons.
    :param groups: the runs that agree.
    :param traces: for each run, its other recorded data, if any.
    """
    seen = list(traces) or [None] * len(sides)
    most = min(MAX_COMPARISON_ROWS, max(2_000, MAX_PAGE_ROWS // max(1, len(found))))
    others = zip(sides[1:], seen[1:], found, strict=True)
    pages = [_Pair((sides[0], side), one, (seen[0], trace), most) for side, trace, one in others]
    names = [side.name for side in sides]
    return {
        "kind": "comparison",
        "format": FORMAT,
        "title": f"{names[0]} and {names[1]}" if len(names) == 2 else f"{names[0]} and {len(names) - 1} more",
        "sides": [_side(side, trace) for side, trace in zip(sides, seen, strict=True)],
        "comparisons": [page.document() for page in pages],
        "groups": [{"runs": group.runs, "bits": group.bits} for group in groups],
    }


class _Pair:
    """Makes the document of one comparison, of the first run with another."""

    def __init__(
        self, sides: tuple[Side, Side], found: Compared, traces: tuple[Trace | None, Trace | None], most: int
    ) -> None:
        self._tapes = (sides[0].tape, sides[1].tape)
        self._found, self._traces = found, traces
        self._sources = tuple(_sources(trace) for trace in traces)
        self._sites = (Sites(_folder(traces[0])), Sites(_folder(traces[1])))
        self._paired = Paired(*self._tapes, found, self._sites, most)

    def document(self) -> dict[str, object]:
        """Return the comparison as plain data for the page."""
        found = self._found
        ops = self._paired.document()
        alone = [len(ops) for ops in found.alone]
        return {
            "verdict": found.verdict,
            "result": result(found),
            "given": found.given,
            "calculated": found.judged is not None,
            "blame": None if found.suspect is None else self._blame(found.suspect),
            "early": [_early(one) for one in found.early],
            "same": _surroundings(*self._tapes),
            "pairs": found.pairs,
            "alone": alone,
            "ends": found.ends,
            "different": found.different,
            "drift": [[name, clean(error)] for name, error in found.drift[:MAX_FINDINGS]],
            "notes": list(found.notes),
            "findings": _findings(*self._traces),
            "steps": [{**one, "loss": clean(one["loss"])} for one in self._paired.losses()],
            "ops": ops,
            "sites": [sites.rows() for sites in self._sites],
        }

    def _blame(self, blame: Blame) -> dict[str, object]:
        """Return the op that is blamed for the difference, with the source around it in both runs."""
        return {
            "kind": blame.kind,
            "what": what(blame),
            "exact": blame.exact,
            "row": self._paired.suspect,
            "a": self._suspect(blame.a, 0),
            "b": self._suspect(blame.b, 1),
            "lines": self._lines(blame),
        }

    def _suspect(self, op: TapeOp | None, side: int) -> dict[str, object] | None:
        """Return the facts about an op of one run; ``None`` if the run does not have it.

        :param side: 0 for the first run, 1 for the second.
        """
        if op is None:
            return None
        place = op.place
        return {
            "op": op.name,
            "module": op.module,
            "call": op.call,
            "phase": op.phase,
            "step": op.step,
            "node": op.node,
            "arguments": call(op)[: 4 * MAX_TEXT_CHARACTERS] if op.phase != "sink" else "",
            "file": self._sites[side].short(place.file) if place is not None else "",
            "line": place.line if place is not None else 0,
            "text": place.text if place is not None else "",
            "caller": _caller(op, self._sites[side]),
        }

    def _lines(self, blame: Blame) -> list[dict[str, object]]:
        """Return the source around the suspect op in both runs, with equal lines side by side."""
        places = [op.place if op is not None else None for op in (blame.a, blame.b)]
        parts = [_around(place, kept) for place, kept in zip(places, self._sources, strict=True)]
        return side_by_side(*parts)


def side_by_side(a: Sequence[tuple[int, str]], b: Sequence[tuple[int, str]]) -> list[dict[str, object]]:
    """Align numbered lines of two files in rows: ``same``, ``changed``, or on one side only (``a``, ``b``)."""
    rows: list[dict[str, object]] = []
    match = difflib.SequenceMatcher(None, [text.rstrip() for _, text in a], [text.rstrip() for _, text in b], False)
    for tag, i, i2, j, j2 in match.get_opcodes():
        for n in range(max(i2 - i, j2 - j)):
            one = list(a[i + n]) if i + n < i2 else None
            two = list(b[j + n]) if j + n < j2 else None
            state = "same" if tag == "equal" else "a" if two is None else "b" if one is None else "changed"
            rows.append({"a": one, "b": two, "state": state})
    return rows


def _around(place: Site | None, kept: Mapping[str, str]) -> list[tuple[int, str]]:
    """Return numbered lines around `place`; only that line if the run has not stored its surroundings."""
    if place is None:
        return []
    lines = kept.get(place.file, "").splitlines()
    if place.line > len(lines) or lines[place.line - 1].strip() != place.text.strip():
        return [(place.line, place.text)]
    first = max(1, place.line - CONTEXT_LINES)
    last = min(len(lines), place.line + CONTEXT_LINES)
    return [(n, lines[n - 1]) for n in range(first, last + 1) if lines[n - 1] != NOT_KEPT]


def _caller(op: TapeOp, sites: Sites) -> str:
    """Return the user's line that called the library code in which the op is; empty if the op is in the user's code."""
    if op.inner is None or op.site is None:
        return ""
    return f"{sites.short(op.site.file)}:{op.site.line} {op.site.text}"


def _early(one: Early) -> dict[str, str]:
    """Return a difference that exists before any computation, with its values cut to a maximum length."""
    return {"what": one.what, "a": one.a[:MAX_TEXT_CHARACTERS], "b": one.b[:MAX_TEXT_CHARACTERS], "of": one.of}


def _surroundings(a: Tape, b: Tape) -> list[list[str]]:
    """Return the versions, settings and variables that are equal in both runs, as rows of kind, name and value."""
    rows = []
    for kind in ("versions", "machine", "flags", "variables"):
        one, two = a.about.get(kind, {}), b.about.get(kind, {})
        same = [key for key in one if key in two and one[key] == two[key]]
        rows += [[kind, str(key), str(one[key])[:MAX_TEXT_CHARACTERS]] for key in same]
    return rows


def _side(side: Side, trace: Trace | None) -> dict[str, object]:
    """Return the facts about one run: script, versions, recorded steps and the curve of its loss."""
    info = trace.info if trace is not None else {}
    tape = side.tape
    losses = _thinned([(row.index, row.loss) for row in trace.step_rows() if row.loss is not None]) if trace else []
    return {
        "name": side.name,
        "script": " ".join([str(info.get("script", "")), *(str(a) for a in info.get("arguments", ()))]).strip(),
        "started": clean(info.get("started")),
        "error": clean(info.get("error")),
        "steps": [one["step"] for one in tape.steps],
        "ops": len(tape.ops),
        "versions": {str(k): str(v) for k, v in tape.about.get("versions", {}).items()},
        "curve": {"step": column("i", [n for n, _ in losses]), "loss": column("d", [v for _, v in losses])},
    }


def _thinned(points: list[tuple[int, object]]) -> list[tuple[int, object]]:
    """Return every n-th of the points, so that at most ``MAX_POINTS`` are left."""
    every = -(-len(points) // MAX_POINTS) or 1
    return points[::every]


def _findings(a: Trace | None, b: Trace | None) -> list[dict[str, object]]:
    """Return the findings of both runs, each once; those in one run only come first."""
    rows: dict[tuple[str, str | None, str], dict[str, Any]] = {}
    for which, trace in (("a", a), ("b", b)):
        for one in trace.findings if trace is not None else ():
            key = (one.kind, one.module, _line(one))
            row = rows.setdefault(key, {**_finding(one), "a": False, "b": False})
            row[which] = True
    return sorted(rows.values(), key=lambda row: row["a"] and row["b"])[:MAX_FINDINGS]


def _finding(one: Finding) -> dict[str, object]:
    """Return the facts about a finding that the page shows."""
    return {"kind": one.kind, "severity": one.severity, "title": one.title, "module": one.module, "line": _line(one)}


def _line(one: Finding) -> str:
    """Return the source text of a finding's main line."""
    return one.sites[0].site.text if one.sites else ""


def _trace(folder: Path) -> Trace | None:
    """Return the trace recorded beside the ops; ``None`` if there is none.

    ``backprobe.trace(record_ops=...)`` writes folders with ops alone.
    """
    try:
        return load_run(folder) if is_run(folder) else None
    except BackprobeError:
        return None


def _folder(trace: Trace | None) -> str | None:
    """Return the folder of the script of a run; ``None`` if unknown."""
    folder = trace.info.get("folder") if trace is not None else None
    return str(folder) if folder else None


def _sources(trace: Trace | None) -> Mapping[str, str]:
    """Return the source text stored with a run; empty without a trace."""
    return trace.sources if trace is not None else {}
