"""Runs the node of a stop again, by itself, and compares it with the engine's result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..basics.errors import BackprobeError
from ..torch_internals.isolation import Isolation
from . import html
from .backward_graph import NodeInfo
from .difference import bitwise_equal, combined, difference
from .nested import is_python
from .single import How, run_node
from .values import summary


@dataclass(frozen=True)
class Rerun:
    """The result of running a node by itself.

    :ivar grad_inputs: its outgoing gradients.
    :ivar equal: for each, whether it is bitwise equal to the engine's; ``None`` if there is nothing to compare.
    :ivar error: norm of the difference between the engine's gradients and these, relative to the norm of these, over
        all gradients together; ``None`` if there is nothing to compare. After a run in float64 it is the rounding
        error.
    """

    grad_inputs: tuple[torch.Tensor | None, ...]
    equal: tuple[bool, ...] | None
    error: float | None = None

    @property
    def same(self) -> bool | None:
        """Whether all gradients are bitwise equal to the engine's; ``None`` if there is nothing to compare."""
        return None if self.equal is None else all(self.equal)

    def __str__(self) -> str:
        """Return the result as text, one line for each outgoing gradient."""
        return "\n".join(f"out [{k}]  {what}  {equal}".rstrip() for k, what, equal in self._rows())

    def _repr_html_(self) -> str:
        """Return the result as an HTML table for a notebook."""
        off = "" if self.error is None else f": the engine's are off by {self.error:.2g} of their norm"
        return html.table(f"the node by itself{off}", ("out", "gradient", "as the engine's"), self._rows())

    def _rows(self) -> list[tuple[int, str, str]]:
        """Return for each outgoing gradient: its index, a one-line description, and whether it equals the engine's, as
        a word.
        """
        equal = self.equal
        words = ["" if equal is None else "yes" if equal[k] else "no" for k in range(len(self.grad_inputs))]
        return [(k, summary(g), words[k]) for k, g in enumerate(self.grad_inputs)]


def rerun(
    node: torch.autograd.graph.Node,
    info: NodeInfo,
    grads: Sequence[torch.Tensor | None],
    engine: Sequence[torch.Tensor | None] | None,
    dtype: torch.dtype | None = None,
) -> Rerun:
    """Run `node` by itself with `grads`, without hooks.

    :param engine: the engine's outgoing gradients; ``None`` if it has not run the node, or with other gradients.
    :param dtype: ``torch.float64`` computes in double precision, with the saved tensors' values unchanged.
    :raises BackprobeError: the node cannot be run again (in float64), or takes another number of gradients.
    """
    if info.seq is None:
        raise BackprobeError(f"{info.label} cannot be run again: it would add to .grad a second time")
    check_gradients(node, info, grads)
    check_dtype(dtype)
    with Isolation([g for g in grads if g is not None], engine=is_python(node))():
        out = run_node(node, info, grads, How(hooks=False, wide=dtype is not None)).outgoing
    if engine is None:
        return Rerun(out, None)
    # A gradient without an edge need not agree: for a custom function, its argument cannot be determined.
    following = [child for child, _ in node.next_functions]
    equal = tuple(n is None or bitwise_equal(a, b) for a, b, n in zip(out, engine, following, strict=True))
    far = combined(difference(b, a) for a, b, n in zip(out, engine, following, strict=True) if n is not None)
    return Rerun(out, equal, far.error if far is not None else None)


def check_dtype(dtype: object) -> None:
    """Check that `dtype` is supported.

    :raises BackprobeError: it is neither ``None`` nor ``torch.float64``.
    """
    if dtype not in (None, torch.float64):
        raise BackprobeError(
            f"dtype is {dtype!r}; it is torch.float64, or None for the precision of the backward itself"
        )


def check_gradients(node: torch.autograd.graph.Node, info: NodeInfo, grads: Sequence[torch.Tensor | None]) -> None:
    """Check `grads` against the inputs of `node`'s backward.

    :raises BackprobeError: `node` takes another number of gradients, or one is not a tensor.
    """
    metadata = node._input_metadata
    if len(grads) != len(metadata):
        raise BackprobeError(
            f"{info.label} takes {len(metadata)} gradients, one for each output; {len(grads)} were given"
        )
    for k, (grad, like) in enumerate(zip(grads, metadata, strict=True)):
        if grad is None:
            continue
        if not isinstance(grad, torch.Tensor):
            raise BackprobeError(f"gradient {k} for {info.label} is a {type(grad).__name__}; give a tensor or None")
        if not grad.is_nested and tuple(grad.shape) != tuple(like.shape):
            raise BackprobeError(
                f"gradient {k} for {info.label} has the shape {list(grad.shape)}; its output has {list(like.shape)}"
            )
