"""Gradient flow as bars: norms by module or parameter in forward order, on a logarithmic scale. Plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..basics.text import number
from ..records import together

#: Maximum number of readable rows; above it, rows are folded by module.
ROWS = 28


@dataclass(frozen=True)
class Bar:
    """A row of the chart. ``length`` is relative to the longest bar, from 0 to 1; ``None`` for no bar."""

    label: str
    length: float | None
    text: str
    note: str = ""


@dataclass(frozen=True)
class Bars:
    """The rows of the chart; ``scale`` says what they measure."""

    rows: Sequence[Bar]
    scale: str


def flow(names: Sequence[str], gradients: Mapping[str, float], whole: bool = False) -> Bars:
    """Return gradient norms as bars on a logarithmic scale, in the order of `names`.

    If there are many names, they are folded by module, unless `whole`. A name that is not in `gradients` got no
    gradient.
    """
    groups = {name: [name] for name in names} if whole else folded(names)
    known = {label: [gradients[n] for n in members if n in gradients] for label, members in groups.items()}
    values = {label: together(found) if found else None for label, found in known.items()}
    finite = [v for v in values.values() if v is not None and 0 < v < math.inf]
    low, high = (min(finite), max(finite)) if finite else (1.0, 1.0)
    # The smallest value still shows: the zero of the scale is half a decade or more below it.
    base = math.floor(math.log10(low)) - 0.5
    span = max(math.log10(high) - base, 1e-9)
    rows = []
    for label, members in groups.items():
        value = values[label]
        missing = [n for n in members if n not in gradients]
        note = "" if not missing or value is None else f"{len(missing)} of {len(members)} without gradient"
        if value is None:
            rows.append(Bar(label, None, "none"))
        elif value == 0:
            rows.append(Bar(label, None, "0 exactly", note))
        elif not math.isfinite(value):
            rows.append(Bar(label, None, number(value), note or "not finite"))
        else:
            rows.append(Bar(label, (math.log10(value) - base) / span, number(value), note))
    return Bars(rows, f"norms from {number(low)} to {number(high)}, logarithmic" if finite else "")


def folded(names: Sequence[str], most: int = ROWS) -> dict[str, list[str]]:
    """Fold `names` into at most `most` groups, in order: one module each, as deep as that allows.

    If that gives too few groups, as for a hundred blocks in one list, neighbours share a group. Returns label -> names.
    """
    if len(names) <= most:
        return {name: [name] for name in names}
    finer: dict[str, list[str]] = {}
    for depth in range(max(name.count(".") for name in names), 0, -1):
        groups = _by_module(names, depth)
        if len(groups) <= most:
            if 4 * len(groups) >= most or not finer:
                return groups
            break
        finer = groups
    if not finer:
        finer = {name: [name] for name in names}
    labels = list(finer)
    size = -(-len(labels) // most)
    joined: dict[str, list[str]] = {}
    for i in range(0, len(labels), size):
        some = labels[i : i + size]
        label = some[0] if len(some) == 1 else f"{some[0]} to {some[-1]}"
        joined[label] = [name for one in some for name in finer[one]]
    return joined


def _by_module(names: Sequence[str], depth: int) -> dict[str, list[str]]:
    """Group names by their module, cut to `depth` levels of its path."""
    groups: dict[str, list[str]] = {}
    for name in names:
        owner = name.rpartition(".")[0]
        groups.setdefault(".".join(owner.split(".")[:depth]) if owner else name, []).append(name)
    return groups
