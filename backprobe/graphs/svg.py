"""A diagram as SVG, and a graph as HTML for notebooks, without other packages. All text from the user is escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ..basics.errors import BackprobeError
from ..basics.text import counted, size
from .collapse import MAX_BOXES, Box, Diagram
from .layout import Drawing, DrawnEdge, Placed, layout
from .outline import text
from .words import count_of

if TYPE_CHECKING:
    from .graph import Graph

#: Fill and border by kind of box.
_COLOURS = {
    "module": ("#e8f0fb", "#5b87c5"),
    "op": ("#f6f7f8", "#a3abb5"),
    "function": ("#fdf0e0", "#d08a2e"),
    "compiled": ("#f1eafc", "#8761c9"),
    "checkpoint": ("#fdf6d8", "#b39a1f"),
    "parameter": ("#e9f6ea", "#5aa162"),
    "leaf": ("#e9f6ea", "#5aa162"),
    "root": ("#fbe9ea", "#c75b62"),
    "repeat": ("#ffffff", "#8b96a5"),
}
_LONGEST = 38
_TIMES = "\u00d7"
_STYLE = (
    "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#1c2733}"
    ".b{font-weight:600}.d{fill:#5a6675;font-size:11px}.x{font-weight:700;fill:#a03b00}"
    ".h{paint-order:stroke;stroke:#f3f7fd;stroke-width:4px;stroke-linejoin:round}"
    ".l{fill:none;stroke:#7a8696;stroke-width:1.2}"
)


def svg(diagram: Diagram) -> str:
    """Return the drawing as one self-contained ``<svg>`` element.

    :raises BackprobeError: there are more than 600 boxes.
    """
    if len(diagram.boxes) > MAX_BOXES:
        raise BackprobeError(
            f"the drawing would have {len(diagram.boxes):,} boxes, and nobody can read more than {MAX_BOXES}: use a "
            "smaller depth= and open= what you want to see, draw graph.module(path) alone, or record the graph with "
            "backprobe.graph.recording(model) so that modules can be closed"
        )
    placed = layout(diagram, _size)
    caption = _caption(diagram)
    width = max(placed.width, 60 + 6.2 * max(map(len, caption)))
    top = 26.0
    height = placed.height + top + 16 * len(caption)
    shift = (width - placed.width) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}"><title>{_escape(diagram.title)}</title><style>{_STYLE}</style>'
        '<defs><marker id="bp-head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0.6 L7.5 4 L0 7.4 z" fill="#7a8696"/></marker></defs>'
        f'<rect width="100%" height="100%" fill="#ffffff"/>'
        f'<text class="b" x="16" y="20">{_escape(diagram.title)}</text>'
        f'<g transform="translate({shift:.1f} {top:.1f})">'
    ]
    parts += [_box(one) for one in placed.placed.values() if one.box.opened]  # boxes around others come first
    parts += _lines(placed)
    parts += [_heading(one) for one in placed.placed.values() if one.box.opened]
    parts += [_box(one) for one in placed.placed.values() if not one.box.opened]
    parts.append("</g>")
    for k, line in enumerate(caption):
        parts.append(f'<text class="d" x="16" y="{height - 16 * (len(caption) - k) + 8:.0f}">{_escape(line)}</text>')
    parts.append("</svg>")
    return "\n".join(parts)


def html(graph: Graph) -> str:
    """Return HTML for a notebook: the drawing, or the tree as text if the drawing is too large; notes below."""
    diagram = graph.collapse()
    try:
        shown = svg(diagram)
    except BackprobeError as error:
        shown = f"<pre>{_escape(text(Diagram(diagram.title, diagram.boxes[:200])))}</pre><p>{_escape(str(error))}</p>"
    head = _escape(repr(graph))
    return f'<div class="backprobe-graph" style="overflow:auto;max-height:60em"><p>{head}</p>{shown}</div>'


def _caption(diagram: Diagram) -> list[str]:
    """Return the lines below a drawing: what arrows mean, and notes on missing information."""
    lines = ["Arrows: values in the forward, from top to bottom. The gradient goes the other way."]
    for note in diagram.notes:
        lines.append(note if len(note) < 110 else note[:107] + "...")
    return lines


def _rows(box: Box) -> list[tuple[str, str]]:
    """Return the lines of text in a closed box, each with its style class."""
    rows = [("b", _short(box.label))]
    if box.class_name:
        rows.append(("d", _short(box.class_name)))
    rows += [("d", _short(detail.removeprefix("gives "))) for detail in box.details]
    if box.kind == "module":
        parameters = f", {count_of(box.parameters)} parameters" if box.parameters else ""
        rows.append(("d", counted(box.nodes, "node") + parameters))
    return rows


def _head(box: Box) -> str:
    """Return the title line of an opened box."""
    label = _short(box.label) + (f"  {_short(box.class_name)}" if box.class_name else "")
    return label


def _size(box: Box) -> tuple[float, float]:
    """Return width and height of a closed box, or of the title of an opened one, estimated from its text."""
    badge = 10 + 7.6 * len(f"{_TIMES}{box.times}") if box.times > 1 else 0
    if box.opened:
        return 7.2 * len(_head(box)) + badge + 40, 0.0
    rows = _rows(box)
    width = max(
        (7.8 if style == "b" else 6.3) * len(line) + (badge if k == 0 else 0) for k, (style, line) in enumerate(rows)
    )
    return max(width + 22, 64.0), 15.0 * len(rows) + 11


def _box(one: Placed) -> str:
    """Return a box as SVG: its frame, with a tooltip, and its text if it is closed."""
    box = one.box
    fill, edge = _COLOURS[box.kind]
    title = [box.label, box.class_name, *box.details, f"{box.nodes:,} nodes", box.site]
    if box.saved:
        title.append(f"saves {size(box.saved)} for backward" + (" each" if box.times > 1 else ""))
    tip = f"<title>{_escape(' | '.join(part for part in title if part))}</title>"
    x, y, w, h = one.x, one.y, one.width, one.height
    badge = f"{_TIMES}{box.times}" if box.times > 1 else ""
    if box.opened:
        dash = ' stroke-dasharray="5 4"' if box.kind == "repeat" else ""
        shown = (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="9" fill="{fill}" fill-opacity="0.45" '
            f'stroke="{edge}"{dash}/>'
        )
        return f"<g>{tip}{shown}</g>"
    shown = ""
    if badge:  # a stack of paper
        for step in (6, 3):
            shown += (
                f'<rect x="{x + step:.1f}" y="{y + step:.1f}" width="{w:.1f}" height="{h:.1f}" rx="6" fill="{fill}" '
                f'stroke="{edge}"/>'
            )
    shown += f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="6" fill="{fill}" stroke="{edge}"/>'
    for k, (style, line) in enumerate(_rows(box)):
        at = y + 17 + 15 * k
        shown += f'<text class="{style}" x="{x + 11:.1f}" y="{at:.1f}">{_escape(line)}</text>'
        if k == 0 and badge:
            shown += f'<text class="x" text-anchor="end" x="{x + w - 9:.1f}" y="{at:.1f}">{badge}</text>'
    return f"<g>{tip}{shown}</g>"


def _heading(one: Placed) -> str:
    """Return the title of an opened box as SVG, which is drawn over lines that pass."""
    box, x, y = one.box, one.x, one.y
    shown = (
        f'<text class="h" x="{x + 12:.1f}" y="{y + 19:.1f}"><tspan class="b">{_escape(_short(box.label))}</tspan> '
        f'<tspan class="d">{_escape(_short(box.class_name))}</tspan></text>'
    )
    if box.times > 1:
        at = x + one.width - 12
        shown += f'<text class="x h" text-anchor="end" x="{at:.1f}" y="{y + 19:.1f}">{_TIMES}{box.times}</text>'
    return shown


def _lines(placed: Drawing) -> list[str]:
    """Return all arrows of a drawing as SVG."""
    return [_path(line) for line in placed.lines]


def _path(line: DrawnEdge) -> str:
    """Return a part of an arrow as SVG: straight within a row, a curve between rows."""
    (x, y), *rest = line.points
    parts = [f"M{x:.1f} {y:.1f}"]
    for to_x, to_y in rest:
        if abs(to_x - x) < 0.5:
            parts.append(f"L{to_x:.1f} {to_y:.1f}")
        else:
            bend = (to_y - y) / 2
            parts.append(f"C{x:.1f} {y + bend:.1f} {to_x:.1f} {to_y - bend:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    head = ' marker-end="url(#bp-head)"' if line.arrow else ""
    tip = f"<title>{_escape(line.title)}</title>" if line.title else ""
    return f'<path class="l"{head} d="{" ".join(parts)}">{tip}</path>'


def _short(words: str) -> str:
    """Return a text without its middle if it is too long."""
    if len(words) <= _LONGEST:
        return words
    half = (_LONGEST - 1) // 2
    return words[:half] + "…" + words[-half:]


def _escape(words: str) -> str:
    """Escape text for SVG and HTML; characters that XML does not allow become a question mark."""
    return escape("".join(c if c.isprintable() else "?" for c in words))
