"""Layered layout of a diagram: ranks by longest path, barycentres against crossings, columns by isotonic regression.

The layers of Sugiyama, Tagawa and Toda (1981), one opened box at a time from the inside out: an opened box is a single
item in the box around it, and arrows that cross its border go through a port at its top or bottom. Nothing recurses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from .collapse import Box, Diagram

GAP_X, GAP_Y, PAD, HEAD = 26.0, 34.0, 16.0, 30.0
#: Item numbers of the ports of an opened box.
IN, OUT = -1, -2
Point = tuple[float, float]


@dataclass
class Placed:
    """A box with its position: x and y of its upper left corner, and the x of its ports."""

    box: Box
    width: float
    height: float
    x: float = 0.0
    y: float = 0.0
    port_in: float = 0.0
    port_out: float = 0.0


@dataclass
class DrawnEdge:
    """A part of an arrow, as points from top to bottom; ``arrow``: whether it ends in an arrowhead."""

    points: list[Point]
    arrow: bool
    title: str = ""


@dataclass
class Drawing:
    """The positions of all boxes and arrows."""

    placed: dict[int, Placed] = field(default_factory=dict)
    lines: list[DrawnEdge] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0


@dataclass
class _Slot:
    """An item of a rank: a box, a port, or a position where a long arrow passes."""

    item: int | None
    rank: int
    width: float
    x: float = 0.0
    #: Offsets from the middle at which arrows come in and go out.
    off_in: float = 0.0
    off_out: float = 0.0
    up: list[int] = field(default_factory=list)
    down: list[int] = field(default_factory=list)


def layout(diagram: Diagram, size: Callable[[Box], tuple[float, float]]) -> Drawing:
    """Return positions for all boxes and arrows of a diagram.

    :param size: returns width and height of a closed box, or of the title of an opened one.
    """
    made = Drawing()
    for box in diagram.boxes:
        width, height = size(box)
        made.placed[box.number] = Placed(box, width, height)
    links = _lifted(diagram)
    children: dict[int, list[int]] = defaultdict(list)
    for box in diagram.boxes:
        children[box.parent].append(box.number)
    inner: dict[int, list[DrawnEdge]] = {}
    for number in [*(b.number for b in reversed(diagram.boxes) if b.opened), -1]:
        width, height, ports, lines = _arrange(children[number], links[number], made.placed, number >= 0)
        inner[number] = lines
        if number < 0:
            made.width, made.height = width, height
            continue
        around = made.placed[number]
        spare = max(0.0, around.width - width) / 2
        for child in children[number]:
            made.placed[child].x += spare
        inner[number] = [_moved(line, spare, 0.0) for line in lines]
        around.port_in, around.port_out = ports[0] + spare, ports[1] + spare
        around.width, around.height = max(around.width, width), height
    for box in diagram.boxes:  # from positions in the enclosing box to positions in the drawing: parents come first
        if box.parent >= 0:
            around = made.placed[box.parent]
            made.placed[box.number].x += around.x
            made.placed[box.number].y += around.y
    for number, lines in inner.items():
        x, y = (made.placed[number].x, made.placed[number].y) if number >= 0 else (0.0, 0.0)
        made.lines += [_moved(line, x, y) for line in lines]
    return made


def _moved(line: DrawnEdge, x: float, y: float) -> DrawnEdge:
    """Return an edge shifted by `x` and `y`."""
    return DrawnEdge([(px + x, py + y) for px, py in line.points], line.arrow, line.title)


def _lifted(diagram: Diagram) -> dict[int, dict[tuple[int, int], str]]:
    """Return the arrows as links within each opened box, between the items directly in it and its ports.

    The keys are the box and the two items; the values are the titles.
    """
    links: dict[int, dict[tuple[int, int], str]] = defaultdict(dict)

    def chain(number: int) -> list[int]:
        """Return a box and the boxes around it, innermost first; -1, the drawing, comes last."""
        found = [number]
        while (number := diagram.boxes[number].parent) >= 0:
            found.append(number)
        return [*found, -1]

    for arrow in diagram.arrows:
        a, b = chain(arrow.source), chain(arrow.target)
        common = next(n for n in a[1:] if n in b[1:])
        title = arrow.label + (f", {arrow.count} tensors" if arrow.count > 1 else "")
        for k in range(a.index(common) - 1):
            links[a[k + 1]].setdefault((a[k], OUT), title)
        for k in range(b.index(common) - 1):
            links[b[k + 1]].setdefault((IN, b[k]), title)
        links[common].setdefault((a[a.index(common) - 1], b[b.index(common) - 1]), title)
    return links


def _arrange(
    items: Sequence[int], links: dict[tuple[int, int], str], placed: dict[int, Placed], framed: bool
) -> tuple[float, float, Point, list[DrawnEdge]]:
    """Give positions to `items`, the boxes directly in one box.

    :param links: the arrows between the items and the ports, with titles.
    :param framed: the box is drawn and has a title.
    :returns: width and height of the box, the x of its two ports, and the lines inside it.
    """
    order = {item: k for k, item in enumerate(items)}
    rank = _ranks(items, links, order)
    slots, of, chains = _slots(items, links, placed, rank, order)
    rows: list[list[int]] = [[] for _ in range(max((s.rank for s in slots), default=0) + 1)]
    for k, slot in enumerate(slots):
        rows[slot.rank].append(k)
    _uncross(slots, rows)
    _columns(slots, rows)
    left = min((s.x - s.width / 2 for s in slots), default=0.0)
    right = max((s.x + s.width / 2 for s in slots), default=0.0)
    shift = PAD - left
    tops, heights = [], []
    y = HEAD + 6 if framed else PAD
    for row in rows:
        height = max((placed[i].height for k in row if (i := slots[k].item) is not None and i >= 0), default=0.0)
        bare = any((i := slots[k].item) is not None and i < 0 for k in row)
        tops.append(y)
        heights.append(height)
        y += height + (GAP_Y if not (bare and not height) else GAP_Y * 0.6)
    bottom = y - (GAP_Y if rows else 0) + PAD
    for slot in slots:
        slot.x += shift
        if slot.item is not None and slot.item >= 0:
            box = placed[slot.item]
            box.x = slot.x - box.width / 2
            box.y = tops[slot.rank] + (heights[slot.rank] - box.height) / 2
    lines = [_line(a, b, title, chains[a, b], slots, placed, tops, heights, bottom) for (a, b), title in links.items()]
    ports = (
        slots[of[IN]].x if IN in of else (left + right) / 2 + shift,
        slots[of[OUT]].x if OUT in of else (left + right) / 2 + shift,
    )
    return right - left + 2 * PAD, bottom, ports, lines


def _ranks(items: Sequence[int], links: dict[tuple[int, int], str], order: dict[int, int]) -> dict[int, int]:
    """Return the rank (row, from the top) of each item: the longest path from an item without inputs.

    Items without inputs then move down to just above their first user.
    """
    rank = dict.fromkeys(items, 0)
    into: dict[int, list[int]] = defaultdict(list)
    out: dict[int, list[int]] = defaultdict(list)
    for a, b in links:
        if a >= 0 and b >= 0:
            a, b = (a, b) if order[a] < order[b] else (b, a)
            into[b].append(a)
            out[a].append(b)
    for item in items:
        rank[item] = max((rank[a] + 1 for a in into[item]), default=0)
    fed = {b for a, b in links if a == IN}
    for item in reversed(items):
        if out[item] and not into[item] and item not in fed:
            rank[item] = max(rank[item], min(rank[b] for b in out[item]) - 1)
    return rank


def _slots(
    items: Sequence[int],
    links: dict[tuple[int, int], str],
    placed: dict[int, Placed],
    rank: dict[int, int],
    order: dict[int, int],
) -> tuple[list[_Slot], dict[int, int], dict[tuple[int, int], list[int]]]:
    """Return the slots of all items, ports and arrows that pass a row; the slot of each item; and the slots of each
    link.

    The slots of a link are those that it goes through, from top to bottom.
    """
    has_in, has_out = any(a == IN for a, _ in links), any(b == OUT for _, b in links)
    base = 1 if has_in else 0
    last = base + max(rank.values(), default=0) + 1
    slots = [_Slot(item, rank[item] + base, placed[item].width) for item in items]
    for slot, item in zip(slots, items, strict=True):
        if placed[item].box.opened:
            slot.off_in = placed[item].port_in - placed[item].width / 2
            slot.off_out = placed[item].port_out - placed[item].width / 2
    of = {item: k for k, item in enumerate(items)}
    for port, row, there in ((IN, 0, has_in), (OUT, last, has_out)):
        if there:
            of[port] = len(slots)
            slots.append(_Slot(port, row, 8.0))
    chains: dict[tuple[int, int], list[int]] = {}
    passing: dict[tuple[int, int], int] = {}
    for a, b in links:
        top, end = (a, b) if slots[of[a]].rank <= slots[of[b]].rank else (b, a)
        way = [of[top]]
        for row in range(slots[of[top]].rank + 1, slots[of[end]].rank):
            # Arrows of one source share passing slots as far as they go together.
            k = passing.get((top, row))
            if k is None:
                k = passing[top, row] = len(slots)
                slots.append(_Slot(None, row, 6.0))
            way.append(k)
        way.append(of[end])
        for upper, lower in pairwise(way):
            if lower not in slots[upper].down:
                slots[upper].down.append(lower)
                slots[lower].up.append(upper)
        chains[a, b] = way
    return slots, of, chains


def _uncross(slots: list[_Slot], rows: list[list[int]], sweeps: int = 8) -> None:
    """Order each row, in place, by the mean position of its neighbours above or below, to reduce crossings.

    Sweeps down and up in turn, and keeps the order with the fewest crossings.
    """
    best = [list(row) for row in rows]
    fewest = _crossings(slots, rows)
    for sweep in range(sweeps):
        if not fewest:
            break
        down = sweep % 2 == 0
        for at in range(1, len(rows)) if down else range(len(rows) - 2, -1, -1):
            near = {k: n for n, k in enumerate(rows[at - 1 if down else at + 1])}
            centre = {}
            for n, k in enumerate(rows[at]):
                seen = [near[m] for m in (slots[k].up if down else slots[k].down)]
                centre[k] = sum(seen) / len(seen) if seen else float(n)
            rows[at].sort(key=centre.__getitem__)
        crossings = _crossings(slots, rows)
        if crossings < fewest:
            fewest, best = crossings, [list(row) for row in rows]
    rows[:] = best


def _crossings(slots: list[_Slot], rows: list[list[int]]) -> int:
    """Return the number of crossing pairs of links between neighbouring rows.

    They are inversions, counted with a Fenwick tree.
    """
    total = 0
    for upper, lower in pairwise(rows):
        place = {k: n for n, k in enumerate(lower)}
        ends = [sorted(place[m] for m in slots[k].down) for k in upper]
        tree = [0] * (len(lower) + 1)
        count = 0
        for row in ends:
            for end in row:
                below, k = 0, end + 1
                while k:
                    below += tree[k]
                    k &= k - 1
                total += count - below
            for end in row:
                k = end + 1
                count += 1
                while k <= len(lower):
                    tree[k] += 1
                    k += k & -k
    return total


def _columns(slots: list[_Slot], rows: list[list[int]], sweeps: int = 40) -> None:
    """Give each slot, in place, an x near those above and below it, in the order of its row, with space between."""
    for row in rows:
        x = 0.0
        for k in row:
            slots[k].x = x + slots[k].width / 2
            x += slots[k].width + GAP_X
        for k in row:
            slots[k].x -= (x - GAP_X) / 2
    for sweep in range(sweeps):
        for at in range(len(rows)) if sweep % 2 == 0 else range(len(rows) - 1, -1, -1):
            row = rows[at]
            wanted, weights, offsets = [], [], []
            offset = 0.0
            for n, k in enumerate(row):
                slot = slots[k]
                if n:
                    offset += (slots[row[n - 1]].width + slot.width) / 2 + GAP_X
                both = sweep > 3
                pulls = [_pull(slots, m, k) for m in slot.up] if both or sweep % 2 == 0 else []
                if both or sweep % 2:
                    pulls += [_pull(slots, k, m, upwards=True) for m in slot.down]
                total = sum(w for w, _ in pulls)
                wanted.append((sum(w * x for w, x in pulls) / total if pulls else slot.x) - offset)
                weights.append(max(total, 0.2))
                offsets.append(offset)
            for k, x, offset in zip(row, _isotonic(wanted, weights), offsets, strict=True):
                slots[k].x = x + offset


def _pull(slots: list[_Slot], upper: int, lower: int, upwards: bool = False) -> tuple[float, float]:
    """Return how strongly a link pulls its ends into one column, and the x that it wants for one of them.

    That is the lower end, or with `upwards` the upper one. Passing arrows pull most, then chains.
    """
    a, b = slots[upper], slots[lower]
    weight = 8.0 if a.item is None and b.item is None else 4.0 if len(a.down) == 1 and len(b.up) == 1 else 1.0
    if upwards:
        return weight, b.x + b.off_in - a.off_out
    return weight, a.x + a.off_out - b.off_in


def _isotonic(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the ascending numbers nearest to `values` in weighted squares (pool adjacent violators)."""
    blocks: list[list[float]] = []
    for value, weight in zip(values, weights, strict=True):
        blocks.append([value, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            v, w, n = blocks.pop()
            u, x, m = blocks.pop()
            blocks.append([(u * x + v * w) / (x + w), x + w, m + n])
    return [value for value, _, count in blocks for _ in range(int(count))]


def _line(
    a: int,
    b: int,
    title: str,
    way: list[int],
    slots: list[_Slot],
    placed: dict[int, Placed],
    tops: list[float],
    heights: list[float],
    bottom: float,
) -> DrawnEdge:
    """Return the points of a link between two items.

    It leaves the bottom of one, goes down through the rows that it passes, and enters the top of the other.

    :param way: the slots that it goes through; `tops`, `heights`: of the rows; `bottom`: of the box around.
    """

    def port(item: int | None, slot: _Slot, leaving: bool) -> Point:
        """Return the point at which a link leaves or enters an item, or the port of the box around."""
        if item == IN:
            return slot.x, 0.0
        if item == OUT:
            return slot.x, bottom
        assert item is not None
        box = placed[item]
        x = slot.x
        if box.box.opened:
            x = box.x + (box.port_out if leaving else box.port_in)
        return x, box.y + (box.height if leaving else 0.0)

    first, last = slots[way[0]], slots[way[-1]]
    points = [port(first.item, first, True)]
    for k in way[1:-1]:
        slot = slots[k]
        points += [(slot.x, tops[slot.rank]), (slot.x, tops[slot.rank] + heights[slot.rank])]
    points.append(port(last.item, last, False))
    forward = (slots[way[0]].item == a) or a == IN
    return DrawnEdge(points if forward else points[::-1], b != OUT, title)
