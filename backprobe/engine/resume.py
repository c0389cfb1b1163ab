"""Commands that resume a backward from a stop."""

from __future__ import annotations

from dataclasses import dataclass

from ..basics.errors import BackprobeError
from .backward_graph import BackwardGraph
from .provenance import UNKNOWN, inside
from .stop import Stop


@dataclass(frozen=True)
class Resume:
    """A command that resumes a backward from a stop.

    :ivar kind: ``step`` (before the next node), ``into`` (before or after the next node, nested backwards too),
        ``after`` (when `node` of `graph` has run), ``module`` (before a node of another module), ``out`` (before a node
        outside `module`), ``cont`` (breakpoints only), ``finish`` (no more stops), ``back`` or ``abort``.
    """

    kind: str
    depth: int = 0
    module: str | None = None
    graph: BackwardGraph | None = None
    node: int = -1

    def stops(self, graph: BackwardGraph, i: int, before: bool) -> bool:
        """Return whether this command stops the backward before (or after) node `i` of `graph`."""
        kind = self.kind
        if kind == "cont":
            return False
        if kind == "into":
            return True
        if kind == "after":
            return not before and graph is self.graph and i == self.node
        if not before or graph.depth > self.depth:
            return False
        if kind == "step":
            return True
        module = graph.places[i].module
        if kind == "module":
            return module is not None and module != self.module
        return kind == "out" and module is not None and not inside(module, self.module or "")


CONTINUE, FINISH, ABORT = Resume("cont"), Resume("finish"), Resume("abort")


def step_from(stop: Stop | None, how: str, out: str | None = None) -> Resume:
    """Translate a step command at `stop`.

    :param how: ``node``, ``into``, ``after``, ``module`` or ``out``.
    :param out: the module to leave, if not the node's own.
    :raises BackprobeError: there is no such step, or it needs modules that are not known.
    """
    if how not in ("node", "into", "after", "module", "out"):
        raise BackprobeError(f"step({how!r}): it is 'node', 'into', 'after', 'module' or 'out'")
    if stop is None:
        return Resume("into" if how == "into" else "step")
    if how in ("module", "out") and not stop.backward.forward.watched:
        raise BackprobeError(f"cannot step by module: {UNKNOWN}")
    if how == "after":
        if stop.phase != "before":
            return Resume("into")
        return Resume("after", stop.depth, None, stop.backward, stop.index)
    module = stop.node.module or ""
    if how == "out":
        return Resume("out", stop.depth, out if out is not None else module)
    return Resume({"node": "step"}.get(how, how), stop.depth, module)
