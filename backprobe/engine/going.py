"""How to go on from a stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import BackprobeError
from .sight import UNKNOWN

if TYPE_CHECKING:
    from .control import Control
    from .stop import Stop


@dataclass(frozen=True)
class Going:
    """How to go on from a stop.

    :ivar kind: ``step`` (before the next node), ``into`` (the next of before and after, nested backwards too),
        ``after`` (when the node has run), ``module`` (before a node of another module), ``out`` (before a node outside
        `module`), ``cont`` (breakpoints only), ``finish`` (nothing any more), ``back`` or ``abort``.
    """

    kind: str
    depth: int = 0
    module: str | None = None
    control: Control | None = None
    node: int = -1

    def stops(self, control: Control, i: int, before: bool) -> bool:
        kind = self.kind
        if kind == "cont":
            return False
        if kind == "into":
            return True
        if kind == "after":
            return not before and control is self.control and i == self.node
        if not before or control.depth > self.depth:
            return False
        if kind == "step":
            return True
        module = control.graph.places[i].module
        if kind == "module":
            return module is not None and module != self.module
        return kind == "out" and module is not None and not inside(module, self.module or "")


CONTINUE, FINISH, ABORT = Going("cont"), Going("finish"), Going("abort")


def inside(module: str, outer: str) -> bool:
    """Whether the path `module` is `outer` or below it."""
    return not outer or module == outer or module.startswith(outer + ".")


def going_on(stop: Stop | None, how: str, out: str | None = None) -> Going:
    """What a step command means at `stop`.

    :param how: ``node``, ``into``, ``after``, ``module`` or ``out``.
    :param out: the module to leave, where it is not the node's own.
    :raises BackprobeError: there is no such step, or it needs modules that are not known.
    """
    if how not in ("node", "into", "after", "module", "out"):
        raise BackprobeError(f"step({how!r}): it is 'node', 'into', 'after', 'module' or 'out'")
    if stop is None:
        return Going("into" if how == "into" else "step")
    if how in ("module", "out") and not stop.control.graph.sight.known:
        raise BackprobeError(f"cannot step by module: {UNKNOWN}")
    if how == "after":
        if stop.phase != "before":
            return Going("into")
        return Going("after", stop.depth, None, stop.control, stop.index)
    module = stop.node.module or ""
    if how == "out":
        return Going("out", stop.depth, out if out is not None else module)
    return Going({"node": "step"}.get(how, how), stop.depth, module)
