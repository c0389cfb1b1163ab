"""The part of a trace that concerns one module or parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from ..basics.text import counted, number, without_controls
from ..records import NodeRun, together
from .tables import html


@dataclass(frozen=True)
class Part:
    """The recording of one module or parameter.

    :ivar runs: (step, node) of the nodes of the module itself and below, oldest first.
    :ivar grad_kind: when the norms of gradients were measured: ``before any clipping``, or ``after any clipping
        and unscaling``.
    """

    name: str
    runs: Sequence[tuple[int, NodeRun]]
    gradients: Mapping[int, Mapping[str, float]]
    grad_kind: str = ""

    @property
    def grad_norms(self) -> Mapping[int, float]:
        """By step: the 2-norm of all gradients of the part's parameters together."""
        return {step: together([*by.values()]) for step, by in self.gradients.items()}

    @property
    def grad_norm(self) -> float | None:
        """The last of ``grad_norms``; ``None`` if there was no gradient."""
        norms = self.grad_norms
        return norms[max(norms)] if norms else None

    @property
    def nodes(self) -> tuple[NodeRun, ...]:
        """The nodes of the last recorded step."""
        last = max((step for step, _ in self.runs), default=None)
        return tuple(run for step, run in self.runs if step == last)

    def __repr__(self) -> str:
        norms = self.grad_norms
        said = f"gradient norm {number(self.grad_norm)} in step {max(norms)}" if norms else "no gradient"
        return f"<{without_controls(self.name) or 'model'}: {counted(len(self.nodes), 'node')}, {said}>"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>" + html(self.nodes) * bool(self.nodes)
