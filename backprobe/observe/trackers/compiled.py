"""Which line of a compiled region can have made NaN or Inf: read from the FX graph of its backward, which torch keeps.

What the region computed is not seen. So it is the line whose derivative is not finite everywhere, where there is one.
"""

from __future__ import annotations

from typing import Any

from ...records import Inside, Site
from ...source.frames import Frames
from ...torchside import private
from ..backward.calls import Running
from ..backward.recorded import Recorded
from ..events import Tracker
from ..scene import Scene

#: Calls that are looked into.
MOST = 20
#: Functions of the forward whose derivative is not finite for some finite argument.
_SINGULAR = frozenset(
    (
        *("sqrt", "rsqrt", "log", "log2", "log10", "log1p", "norm", "vector_norm", "std", "std_mean", "cdist", "hypot"),
        *("acos", "asin", "arccos", "arcsin", "acosh", "atanh", "atan2", "logit", "erfinv", "lgamma", "xlogy"),
        *("svd", "eigh", "eig", "qr", "inv", "cholesky", "slogdet", "det", "cumprod"),
    )
)
#: Operations of the backward that divide, or take a power of what they are given.
_DIVIDE = ("aten.div.Tensor", "aten.reciprocal", "aten.rsqrt", "aten.pow.Tensor_Tensor")


class InsideRegions(Tracker):
    """Looks at the compiled regions of the first backward of those in a row that went bad."""

    def __init__(self, scene: Scene) -> None:
        self._frames = scene.names.frames
        self._found: list[Inside] = []
        self._row = 0

    def backward_over(self, running: Running, recorded: Recorded) -> None:
        self._row = self._row + 1 if recorded.bad else 0
        if self._row != 1 or len(self._found) >= MOST:
            return
        for i, node in enumerate(running.graph.nodes):
            module = private.backward_module(node) if private.is_compiled(node) else None
            told = singular(module.graph.nodes, self._frames) if module is not None else None
            if told is not None:
                self._found.append(Inside(running.index, i, *told))

    def records(self) -> tuple[Inside, ...]:
        return tuple(self._found)


def singular(nodes: Any, frames: Frames) -> tuple[str, Site] | None:
    """Of the nodes of a backward's FX graph, the function and the line of the forward whose derivative is not finite
    everywhere; ``None`` where there are several lines, or none."""
    singular: dict[tuple[str, int], tuple[str, Site]] = {}
    divides: dict[tuple[str, int], tuple[str, Site]] = {}
    for node in nodes:
        stack = node.meta.get("fwd_source_fn_stack") or ()
        called = stack[-1][1] if stack and node.op == "call_function" else None
        name = called if isinstance(called, str) else getattr(called, "__name__", "")
        site = frames.site_in(node.meta.get("stack_trace") or "") if name else None
        if site is None:
            continue
        if name.removeprefix("linalg_").removesuffix("_") in _SINGULAR:
            singular.setdefault((site.file, site.line), (name, site))
        elif str(node.target).startswith(_DIVIDE) and all(hasattr(a, "meta") for a in node.args[:2]):
            divides.setdefault((site.file, site.line), (name, site))
    found = singular or divides
    return next(iter(found.values())) if len(found) == 1 else None
