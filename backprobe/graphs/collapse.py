"""Collapses a graph into a drawable number of boxes: closed modules, folded repetitions, hidden reshapes and casts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..basics.errors import BackprobeError
from ..basics.select import Choice, Selection
from ..ops import info
from .repeat import Repeated, runs
from .tree import Item, Level, Tree
from .words import names_of_run, number_of, plain_type, sizes

if TYPE_CHECKING:
    from .graph import Graph

#: Maximum number of boxes for the automatic choice of depth, and maximum of any drawing.
READABLE_BOXES, MAX_BOXES = 60, 600
_NUMBER = re.compile(r"\d+")


def _is_quiet(name: str) -> bool:
    """Return whether a node of this name only reshapes or casts."""
    row = info(name)
    return row.reshapes or row.casts or row.name in ("expand", "split")


@dataclass
class Box:
    """A box in a drawing.

    :ivar kind: ``module``, ``op``, ``function``, ``compiled``, ``checkpoint``, ``parameter``, ``leaf``, ``root``, or
        ``repeat`` (a group that stands for several).
    :ivar opened: it is drawn around other boxes; ``parent`` is the number of the box around it, -1 for none.
    :ivar times: how many equal blocks it stands for. Counts are those of one block.
    """

    number: int
    label: str
    kind: str
    parent: int = -1
    opened: bool = False
    times: int = 1
    class_name: str = ""
    details: list[str] = field(default_factory=list)
    nodes: int = 0
    parameters: int = 0
    saved: int = 0
    site: str = ""


@dataclass
class Arrow:
    """Values that pass from one box to another in the forward; the gradient goes the other way. ``count`` tensors."""

    source: int
    target: int
    count: int = 1
    label: str = ""


@dataclass
class Diagram:
    """The boxes of a drawing, in forward order, and the arrows between closed boxes."""

    title: str
    boxes: list[Box] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    notes: tuple[str, ...] = ()

    def inside(self, number: int) -> list[Box]:
        """Return the boxes directly in box `number`; -1 for the outermost."""
        return [box for box in self.boxes if box.parent == number]


def collapse(
    graph: Graph,
    depth: int | None = None,
    *,
    open: Selection = None,
    fold: bool = True,
    parameters: bool = False,
    views: bool = False,
) -> Diagram:
    """Collapse `graph` into boxes: closed modules, one of several equal blocks, and the remaining nodes.

    :param depth: levels of modules that are opened: 0 shows the outermost calls as boxes. Without it, as many as leave
        no more than 60 boxes.
    :param open: additional modules to open, with the modules around them: a path, a glob, a compiled pattern, a
        predicate of path and call, or several of these. They are not folded into repetitions.
    :param fold: draw one of several consecutive equal blocks.
    :param parameters: draw a box for each parameter.
    :param views: draw nodes that only reshape.
    :raises BackprobeError: `depth` is negative, or nothing matches `open`.
    """
    if depth is not None and depth < 0:
        raise BackprobeError(f"depth={depth}: it is 0 or more")
    tree = Tree(graph)
    opened = _opened(graph, open)
    if depth is not None:
        return _Folder(tree, depth, opened, fold, parameters, views).diagram()
    deepest = max((call.depth for call in graph.calls), default=-1) + 1
    best = _Folder(tree, 0, opened, fold, parameters, views).diagram()
    for level in range(1, deepest + 1):
        made = _Folder(tree, level, opened, fold, parameters, views).diagram()
        if len(made.boxes) > READABLE_BOXES:
            break
        best = made
    return best


def _opened(graph: Graph, select: Selection) -> set[int]:
    """Return the indices of the calls to open: those that `select` chooses, and those around them."""
    if select is None:
        return set()
    wanted = Choice(select)
    found: set[int] = set()
    for call in graph.calls:
        if wanted(call.path, call) | (call.call > 1 and wanted(call.name, call)):
            at = call.index
            while at >= 0:
                found.add(at)
                at = graph.calls[at].parent
    wanted.check(sorted({call.path for call in graph.calls}), "module that made nodes")
    return found


class _Folder:
    """Builds one diagram of a graph, for one depth and one set of options."""

    def __init__(self, tree: Tree, depth: int, opened: set[int], fold: bool, parameters: bool, views: bool) -> None:
        self._tree, self._graph = tree, tree.graph
        self._depth, self._opened, self._fold = depth, opened, fold
        self._parameters, self._views = parameters, views
        self._made = Diagram(tree.graph.facts.model or "graph", notes=tree.graph.notes)
        #: (Level, item) of each item that is drawn closed -> number of its box.
        self._box: dict[tuple[int, int], int] = {}
        #: Runs of repeated items in each level that is drawn; run and group of each item.
        self._groups: dict[int, list[tuple[int, int]]] = {}
        self._runs: dict[int, list[Repeated]] = {}

    def diagram(self) -> Diagram:
        """Return the diagram: add the boxes of all levels that are drawn, number them, and join them by arrows."""
        stack: list[tuple[int, int]] = [(-1, -1)]
        while stack:
            call, parent = stack.pop()
            stack.extend(reversed(self._level(call, parent)))
        self._in_order()
        self._arrows()
        return self._made

    def _is_open(self, call: int) -> bool:
        """Return whether a call is drawn around its contents: it was chosen, or is above the depth and shows more than
        one op.
        """
        if call in self._opened:
            return True
        if self._graph.calls[call].depth >= self._depth:
            return False
        shown = [item for item in self._tree.levels[call].items if self._shown(item)]
        return len(shown) > 1 or any(item.call >= 0 for item in shown)  # a box around one op adds nothing

    def _level(self, call: int, parent: int) -> list[tuple[int, int]]:
        """Add the boxes of one level to the diagram.

        :param call: the call whose direct contents are the level; -1 for the outermost.
        :param parent: the number of the box around it.
        :returns: the calls inside it that are drawn open, with the numbers of their boxes.
        """
        level = self._tree.levels[call]
        found = runs(level, self._labels(level)) if self._fold else [Repeated(i) for i in range(len(level.items))]
        self._runs[call] = found
        groups: list[tuple[int, int]] = []
        more: list[tuple[int, int]] = []
        for n, run in enumerate(found):
            groups += [(n, g) for g in range(run.times) for _ in range(run.period)]
            around = parent
            shown = [k for k in range(run.start, run.start + run.period) if self._shown(level.items[k])]
            if run.times > 1 and len(shown) > 1:
                items = level.items[run.start : run.start + run.period]
                around = self._add(
                    Box(-1, self._repeat_label(level, run), "repeat", parent, True, run.times), self._tree.nodes(items)
                )
            for k in shown:
                item = level.items[k]
                times = run.times if around == parent else 1
                if item.call >= 0:
                    number = self._module(level, item, run if times > 1 else Repeated(k), around, times, k)
                    if self._made.boxes[number].opened:
                        more.append((item.call, number))
                        continue
                else:
                    number = self._node(item.node, around, times)
                self._box[call, k] = number
        self._groups[call] = groups
        return more

    def _labels(self, level: Level) -> list[object]:
        """Return a label for each item of a level, equal for items that may be folded.

        It has the item's structure, and its path except for numbers. Calls that were chosen to be open get labels of
        their own.
        """
        calls = self._graph.calls
        return [
            i
            if item.call in self._opened
            else (item.digest, _NUMBER.sub("#", calls[item.call].path) if item.call >= 0 else "")
            for i, item in enumerate(level.items)
        ]

    def _shown(self, item: Item) -> bool:
        """Return whether an item gets a box: not for parameters, and nodes that only reshape or cast,
        unless asked for.
        """
        if item.call >= 0:
            return True
        leaf = self._graph.facts.leaves.get(item.node)
        if leaf is not None:
            return self._parameters or not leaf.parameter
        c = self._graph.columns
        inputs = [to for to in c.targets[c.starts[item.node] : c.starts[item.node + 1]] if to >= 0]
        return self._views or not _is_quiet(self._graph.type(item.node)) or len(inputs) != 1

    def _repeat_label(self, level: Level, run: Repeated) -> str:
        """Return the label of a box around a repeated group: the range of names of its first calls, or its number of
        nodes.
        """
        names = []
        for k in (run.start, run.end - run.period):
            calls = [i.call for i in level.items[k : k + run.period] if i.call >= 0]
            names.append(self._graph.calls[calls[0]].name if calls else "")
        return names_of_run(names[0], names[-1]) if names[0] else f"{run.period} nodes"

    def _module(self, level: Level, item: Item, run: Repeated, parent: int, times: int, at: int) -> int:
        """Add the box of a module call, and return its number.

        :param run: the repetition that the box stands for; `at`: the item's position in its level.
        :param times: the number of repetitions, 1 for none.
        """
        call = self._graph.calls[item.call]
        last = self._graph.calls[level.items[at + run.end - run.start - run.period].call]
        stray = call.path == f"({call.class_name})"  # a module that is not part of the model
        if not call.path or stray:
            label = call.class_name + (f":{call.call}" if call.call > 1 else "")
        elif times > 1:
            label = names_of_run(call.name, last.name)
        else:
            label = call.name
        around = self._graph.calls[call.parent].path if call.parent >= 0 else ""
        if around and label.startswith(around + "."):
            label = label[len(around) + 1 :]
        box = Box(-1, label, "module", parent, self._is_open(item.call), times)
        box.class_name = call.class_name if call.path and not stray else ""
        if call.outputs:
            box.details.append("gives " + ", ".join(map(sizes, call.outputs[:2])))
        box.site = str(call.site) if call.site else ""
        return self._add(box, self._tree.nodes([item]))

    def _node(self, i: int, parent: int, times: int) -> int:
        """Add the box of a node that is not in a closed module, and return its number."""
        node = self._graph[i]
        leaf = self._graph.facts.leaves.get(i)
        if leaf is not None:
            given = next((name for name, (at, _) in self._graph.facts.tensors.items() if at == i), None)
            label = leaf.name or given or ("parameter" if leaf.parameter else "leaf")
            box = Box(-1, label, "parameter" if leaf.parameter else "leaf", parent, False, times)
            box.details.append(str(leaf.meta))
        else:
            box = Box(-1, plain_type(node.name), node.kind, parent, False, times)
            if node.inputs:
                box.details.append(sizes(node.inputs[0].shape))
            if node.kind == "compiled":
                box.label = "compiled region"
                if inside := self._graph.inside(i):
                    box.details.append(f"{len(inside)} ops in its backward")
            leaves = [self._graph.facts.leaves.get(edge[0]) for edge in node.edges if edge is not None]
            names = [one.name.rpartition(".")[2] for one in leaves if one is not None and one.name]
            if names and not self._parameters:
                box.details.append("with " + ", ".join(names[:3]) + (" ..." if len(names) > 3 else ""))
        box.site = str(node.site) if node.site else ""
        return self._add(box, [i])

    def _add(self, box: Box, nodes: Iterable[int]) -> int:
        """Add a box to the diagram, with counts of `nodes`, their parameters and saved bytes; return its number."""
        graph = self._graph
        nodes = list(nodes)
        box.number = len(self._made.boxes)
        box.nodes = sum(1 for i in nodes if i not in graph.facts.leaves)
        box.parameters = sum(
            number_of(leaf.meta.shape) for i in nodes if (leaf := graph.facts.leaves.get(i)) and leaf.parameter
        )
        box.saved = graph.saved_bytes(nodes)
        self._made.boxes.append(box)
        return box.number

    def _in_order(self) -> None:
        """Number the boxes in depth-first order: the contents of a box follow it."""
        boxes = self._made.boxes
        children: dict[int, list[int]] = {}
        for box in boxes:
            children.setdefault(box.parent, []).append(box.number)
        order: list[int] = []
        stack = list(reversed(children.get(-1, [])))
        while stack:
            at = stack.pop()
            order.append(at)
            stack.extend(reversed(children.get(at, [])))
        new = {old: k for k, old in enumerate(order)}
        self._made.boxes = [boxes[old] for old in order]
        for box in self._made.boxes:
            box.number, box.parent = new[box.number], new.get(box.parent, -1)
        self._box = {key: new[old] for key, old in self._box.items()}

    def _find(self, i: int) -> int | None:
        """Return the box that shows node `i`, or the closed box that hides it; ``None`` if the node is not drawn."""
        tree = self._tree
        at = tree.position[i]
        call = -1
        while True:
            level = tree.levels[call]
            # A position is in the item whose range holds it; ranges ascend.
            low, high = 0, len(level.items)
            while high - low > 1:
                middle = (low + high) // 2
                if level.items[middle].start <= at:
                    low = middle
                else:
                    high = middle
            n, group = self._groups[call][low]
            if group:  # use the equal item in the first group
                first = level.items[low - group * self._runs[call][n].period]
                at += first.start - level.items[low].start
                low -= group * self._runs[call][n].period
            found = self._box.get((call, low))
            if found is not None:
                return found
            if level.items[low].call < 0:
                return None
            call = level.items[low].call

    def _through(self, i: int) -> list[int]:
        """Return the boxes from which the value of node `i` comes.

        That is its own box; if the node is not drawn, the boxes of its inputs' sources.
        """
        c = self._graph.columns
        seen, stack, found = {i}, [i], []
        while stack:
            at = stack.pop()
            box = self._find(at)
            if box is not None:
                found.append(box)
            elif at not in self._graph.facts.leaves:
                for to in c.targets[c.starts[at] : c.starts[at + 1]]:
                    if to >= 0 and to not in seen:
                        seen.add(to)
                        stack.append(to)
        return found

    def _arrows(self) -> None:
        """Add the arrows between boxes, merged if they join the same two, and a box for each root."""
        graph = self._graph
        arrows: dict[tuple[int, int], Arrow] = {}
        for call, groups in self._groups.items():
            for link in self._tree.levels[call].links:
                (n, g), (m, h) = groups[link.user], groups[link.maker]
                if n == m and (g or h):
                    continue  # between or inside the blocks that the first one represents
                target = self._find(link.node)
                if target is None:
                    continue
                inputs = graph.columns.kinds[graph.columns.kind[link.made_by]].inputs
                label = sizes(inputs[link.number].shape) if link.number < len(inputs) else ""
                for source in self._through(link.made_by):
                    if source == target or source > target:
                        continue
                    arrow = arrows.get((source, target))
                    if arrow is None:
                        arrows[source, target] = Arrow(source, target, 1, label)
                    else:
                        arrow.count += 1
        for root in graph.roots:
            for source in self._through(root.node):
                number = len(self._made.boxes)
                detail = [sizes(root.meta.shape)] if root.meta is not None else []
                self._made.boxes.append(Box(number, root.name, "root", details=detail))
                arrows[source, number] = Arrow(source, number)
                break
        self._made.arrows = [arrows[key] for key in sorted(arrows)]
