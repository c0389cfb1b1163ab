"""Where a loss that is not finite began, told by the graph of its backward: also where nothing saw the forward."""

from __future__ import annotations

from ...records import Born
from ...torchside.entry_points import root_record
from ..backward.birth import birth
from ..backward.calls import Running
from ..events import Tracker
from ..scene import Scene

#: Calls that are looked into.
MOST = 20


class Births(Tracker):
    """Looks into the graphs of the first calls in a row that begin from something bad. Roots on an accelerator are left
    alone: reading one would wait for it."""

    def __init__(self, scene: Scene) -> None:
        self._found: list[Born] = []
        self._row = 0

    def graph_known(self, running: Running, frame: object) -> None:
        number = {node: i for i, node in enumerate(running.graph.nodes[: len(running.starts)])}
        starts = [
            number[start]
            for root, start in zip(running.roots, running.starts, strict=True)
            if start is not None and getattr(root, "is_cpu", False) and root_record(root, None).bad is not None
        ]
        if not starts:
            self._row = 0
            return
        self._row += 1
        if self._row > 1 or len(self._found) >= MOST:
            return
        found = birth(running.graph, starts)
        if found is not None:
            self._found.append(Born(running.index, found.node, found.how, found.kept, found.output, found.sure))

    def records(self) -> tuple[Born, ...]:
        return tuple(self._found)
