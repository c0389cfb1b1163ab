"""Differences that exist before any number is computed, such as versions and settings. They may explain the rest, so
they are reported first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..records import Tape
from .align import Names
from .estimate import Estimate, eps_of

#: Maximum number of names that are listed.
MAX_LISTED_NAMES = 5


@dataclass(frozen=True)
class Early:
    """A difference that exists before any number is computed.

    :ivar what: a description, complete if `a` and `b` are empty.
    :ivar a, b: the value in each run.
    :ivar of: the modules that it concerns.
    """

    what: str
    a: str = ""
    b: str = ""
    of: str = ""

    @property
    def text(self) -> str:
        """The difference as a line of text."""
        values = f": {self.a} and {self.b}" if self.a or self.b else ""
        return f"{self.what}{values}{f', of {self.of}' if self.of else ''}"


def before(a: Tape, b: Tape, names: Names) -> list[Early]:
    """Return the differences between two runs that exist before any number is computed.

    These are versions, settings, generators, modules, optimizers and initial weights.
    """
    found: list[Early] = []
    for kind in ("versions", "machine", "flags", "variables"):
        found += _keys(a.about.get(kind, {}), b.about.get(kind, {}), {"variables": "variable "}.get(kind, ""))
    if len(a.steps) != len(b.steps):
        found.append(Early("recorded steps", str(len(a.steps)), str(len(b.steps))))
    found += _generators(a, b)
    first, second = a.steps[0], b.steps[0]
    found += _modules({names.of(k): v for k, v in first.get("modules", {}).items()}, second.get("modules", {}))
    found += _optimizers(first.get("optimizers", []), second.get("optimizers", []))
    found += _weights(a, b, names)
    return found


def _keys(one: dict[str, object], two: dict[str, object], what: str = "") -> list[Early]:
    """Return the entries in which two dicts differ, as differences; `what` is a prefix of their names."""
    return [
        Early(f"{what}{key}", str(one.get(key, "not set")), str(two.get(key, "not set")))
        for key in dict.fromkeys([*one, *two])
        if one.get(key) != two.get(key)
    ]


def _generators(a: Tape, b: Tape) -> list[Early]:
    """Return the first step at which generators that the runs draw from have different states; empty if none has."""
    drawn = _drawn(a) | _drawn(b) | {"torch"}
    for one, two in zip(a.steps, b.steps, strict=False):
        x, y = one.get("generators", {}), two.get("generators", {})
        off = [key for key in x if key in y and x[key] != y[key] and key in drawn]
        if off:
            where = f"step {one['step']}" + (f" and {two['step']}" if two["step"] != one["step"] else "")
            return [Early(f"random numbers: the generator of {' and '.join(off)} is in another state at {where}")]
    return []


def _drawn(tape: Tape) -> set[str]:
    """Return the generators from which a run draws: those whose state changes between steps.

    Others do not matter, and have any state if they were not seeded.
    """
    states: dict[str, set[str]] = {}
    for step in tape.steps:
        for name, state in step.get("generators", {}).items():
            states.setdefault(name, set()).add(state)
    return {name for name, seen in states.items() if len(seen) > 1}


def _modules(one: dict[str, Any], two: dict[str, Any]) -> list[Early]:
    """Return settings of modules that differ, and modules that only one run has."""
    found: dict[Early, list[str]] = {}
    for name in one:
        if name in two:
            for line in _keys(one[name], two[name]):
                found.setdefault(line, []).append(name or "the model")
    lines = [replace(line, of=_few(of)) for line, of in found.items()]
    for text, here, there in (("only in the first", one, two), ("only in the second", two, one)):
        alone = [name for name in here if name not in there]
        if alone and one and two:
            lines.append(Early(f"modules {text}: {_few(alone)}"))
    return lines


def _optimizers(one: list[Any], two: list[Any]) -> list[Early]:
    """Return the settings of optimizers that differ: class, options of groups, number of elements."""
    found: list[Early] = []
    for n, (x, y) in enumerate(zip(one, two, strict=False)):
        which = f"optimizer {n}: " if len(one) > 1 else "optimizer: "
        found += _keys({"class": x["class"]}, {"class": y["class"]}, which)
        for g, (p, q) in enumerate(zip(x["groups"], y["groups"], strict=False)):
            of = f"group {g}, " if len(x["groups"]) > 1 else ""
            found += _keys(p, q, which + of)
        if x["sizes"] != y["sizes"]:
            found.append(Early(f"{which}parameters that it holds", str(sum(x["sizes"])), str(sum(y["sizes"]))))
    return found


def _weights(a: Tape, b: Tape, names: Names) -> list[Early]:
    """Return initial weights that differ in shape or value, and whether the others are merely rounded."""
    estimate = Estimate(a, b)
    one = {names.of(name): value for name, value in a.start.items()}
    off: list[str] = []
    shapes, rounded = [], 0
    for name, mine in one.items():
        if name not in b.start:
            continue
        other = b.start[name]
        x, y = a.prints[mine], b.prints[other]
        if x.hash == y.hash:
            continue
        if x.shape != y.shape:
            shapes.append(f"{name} {list(x.shape)} and {list(y.shape)}")
            continue
        error = estimate.error(mine, other)
        if x.dtype != y.dtype and error is not None and error <= 2 * max(eps_of(x), eps_of(y)):
            rounded += 1
        else:
            off.append(name)
    found = []
    if shapes:
        found.append(Early(f"shapes of weights: {_few(shapes)}"))
    if off:
        found.append(Early(f"weights at the start: {len(off)} of {len(one)} differ: {_few(off)}"))
    if rounded:
        mine, other = (next(iter(t.start.values())) for t in (a, b))
        same = f" ({rounded} are the same but rounded)"
        found.append(Early("dtype of weights", a.prints[mine].dtype, b.prints[other].dtype + same))
    return found


def _few(names: list[str]) -> str:
    """Return the first names as text, and how many more there are."""
    more = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
    return ", ".join(names[:MAX_LISTED_NAMES]) + more
