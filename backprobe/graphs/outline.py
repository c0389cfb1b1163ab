"""A diagram as a text tree for the terminal."""

from __future__ import annotations

from ..basics.text import counted, plain, size
from .collapse import Box, Diagram
from .words import count_of


def text(diagram: Diagram) -> str:
    """Return a diagram as a text tree: one line for each box, in forward order, its contents below it."""
    rows: list[tuple[str, str]] = []
    children: dict[int, list[Box]] = {}
    for box in diagram.boxes:
        children.setdefault(box.parent, []).append(box)
    top = children.get(-1, [])
    stack = [(box, "", k == len(top) - 1, True) for k, box in reversed(list(enumerate(top)))]
    while stack:
        box, indent, last, outermost = stack.pop()
        branch = "" if outermost else "└─ " if last else "├─ "
        rows.append((indent + branch + name(box), facts(box)))
        below = children.get(box.number, [])
        deeper = indent + ("" if outermost else "   " if last else "│  ")
        stack += [(b, deeper, k == len(below) - 1, False) for k, b in reversed(list(enumerate(below)))]
    width = min(max((len(left) for left, _ in rows), default=0), 60)
    lines = [f"{left:<{width}}  {right}".rstrip() for left, right in rows]
    return "\n".join([f"{diagram.title}, in the order of the forward", *lines, *(f"note: {n}" for n in diagram.notes)])


def name(box: Box) -> str:
    """Return the box's label with its class and how many blocks it stands for."""
    parts = [plain(box.label)]
    if box.class_name:
        parts.append(plain(box.class_name))
    if box.times > 1:
        parts.append(f"x{box.times}")
    return " ".join(parts) if box.kind != "root" else f"→ {plain(box.label)}"


def facts(box: Box) -> str:
    """Return counts and details of a box as text, per block if it stands for several."""
    parts = []
    if box.kind in ("module", "repeat"):
        parts.append(counted(box.nodes, "node"))
        if box.parameters:
            parts.append(f"{count_of(box.parameters)} parameters")
    parts += [plain(d) for d in box.details]
    if box.saved:
        parts.append(f"saves {size(box.saved)}")
    return ("each " if box.times > 1 and parts else "") + ", ".join(parts)
