"""Where a loss that is not finite began, told by the graph of its backward: also where nothing saw the forward."""

from __future__ import annotations

from typing import Any

from ...records import Born, Site
from ...source.frames import variables
from ...source.upstream import singular_before
from ...torchside.entry_points import root_record
from ..backward.birth import Birth, bad_storages, birth
from ..backward.calls import Running
from ..events import Tracker
from ..forward.writes import names_of_storage, variable_of
from ..scene import Scene

#: Calls that are looked into.
MOST = 20


class Births(Tracker):
    """Looks into the graphs of the first calls in a row that begin from something bad. Roots on an accelerator are left
    alone: reading one would wait for it."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._found: list[Born] = []
        self._row = 0

    def graph_known(self, running: Running, frame: Any) -> None:
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
            here = found.node, found.how, found.kept, found.output, found.sure
            before = self._before(running, found, frame) if found.how == "outside" else ("", None, False)
            self._found.append(Born(running.index, *here, *before))

    def _before(self, running: Running, found: Birth, frame: Any) -> tuple[str, Site | None, bool]:
        """What the user's code calls the tensor that came in, the line that may have made it what it is, and whether
        that did so without torch."""
        names = self._scene.names
        storages = bad_storages(running.graph, found.node)
        brought = bool(storages) and all(one for _, one in storages)
        for storage, _ in storages:
            variable, around = variable_of(storage, frame, names.frames), frame
            while variable and variable not in variables(around):
                around = around.f_back
            if variable:
                at = names.frames.site((around.f_code, around.f_lasti))
                return variable, singular_before(at, names.frames, variable) if at is not None else None, brought
        root = next((r for storage, _ in storages if (r := names_of_storage(storage, names.modules)) is not None), None)
        name = names.modules.full_name(*root) if root is not None else ""
        site = running.live.layout(names).nodes[found.node].site
        return name, singular_before(site, names.frames) if site is not None else None, brought

    def records(self) -> tuple[Born, ...]:
        return tuple(self._found)
