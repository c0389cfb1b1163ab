"""A stop inside a backward: its state, and what can be changed. Valid only until the backward continues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeAlias

import torch

from ..basics.errors import BackprobeError
from ..records import Site
from ..torch_internals import code_objects, private
from . import html, show
from .backward_graph import BackwardGraph, NodeInfo
from .breakpoints import Breakpoint
from .rerun import Rerun, rerun
from .values import shape_text

#: The replacement for a gradient: a tensor, a number for every element, or a function of the old gradient.
Replacement: TypeAlias = torch.Tensor | float | Callable[[torch.Tensor], torch.Tensor]


class Stop:
    """The place at which the backward is stopped.

    :ivar node: the node, with its module, line and parameter as far as they are known.
    :ivar phase: ``"before"`` or ``"after"`` it runs, or ``"exception"``: it raised ``error``.
    :ivar reason: why it stopped here, in words.
    :ivar breakpoint: the breakpoint that stopped it, or ``None``.
    :ivar depth: 1, or more in a backward that a node of another backward runs.
    """

    def __init__(
        self, graph: BackwardGraph, i: int, phase: str, incoming: Any, outgoing: Any, reason: str = ""
    ) -> None:
        """Make a stop at node `i` of a call. `outgoing`: ``None`` if the node has not run."""
        self._graph, self._i = graph, i
        self.node: NodeInfo = graph.info(i)
        self.phase = phase
        self.reason = reason
        self.breakpoint: Breakpoint | None = None
        self.error: BaseException | None = None
        #: Returns an explanation of the error.
        self.explain: Callable[[], Sequence[str]] = lambda: ()
        self.depth = graph.depth
        self._incoming, self._outgoing = incoming, outgoing
        self._new: dict[int, torch.Tensor] = {}
        self._open = True

    # What is there

    @property
    def open(self) -> bool:
        """Whether the backward is still stopped here."""
        return self._open

    @property
    def grad_outputs(self) -> tuple[torch.Tensor | None, ...]:
        """The incoming gradients, one for each output of the node's forward; ``None`` for an output that got none.

        :raises BackprobeError: the backward has continued.
        """
        self._must_be_open()
        if self._incoming is None:
            return ()
        return self._with_new(self._incoming) if self.phase == "before" else tuple(self._incoming)

    @property
    def grad_inputs(self) -> tuple[torch.Tensor | None, ...]:
        """The outgoing gradients, one for each input of the node's forward.

        :raises BackprobeError: the node has not run yet, or the backward has continued.
        """
        self._must_be_open()
        if self._outgoing is None:
            raise BackprobeError(
                f"{self.node.label} has not run: there are no outgoing gradients; step('after') runs it, rerun() shows "
                "what it would give"
            )
        return self._with_new(self._outgoing)

    @property
    def gradients(self) -> tuple[torch.Tensor | None, ...]:
        """The gradients that belong to this stop: incoming before the node, outgoing after it."""
        return self.grad_inputs if self._outgoing is not None else self.grad_outputs

    @property
    def saved(self) -> dict[str, torch.Tensor]:
        """The node's saved tensors, by name. Those behind a saved-tensor hook are omitted.

        Unpacking those would run user code, or a checkpoint's recomputation.
        """
        self._must_be_open()
        return dict(private.saved_tensors(self._graph.nodes[self._i]))

    @property
    def variable(self) -> torch.Tensor | None:
        """The leaf of an ``AccumulateGrad``."""
        self._must_be_open()
        return self._graph.leaf(self._i)

    @property
    def ran(self) -> list[NodeInfo]:
        """The nodes of this call that have run, in order."""
        return [self._graph.info(i) for i in self._graph.ran]

    @property
    def ready(self) -> list[NodeInfo]:
        """Nodes that have all their gradients and have not run; this node comes first if it is among them."""
        found = self._graph.ready()
        return [self._graph.info(i) for i in sorted(found, key=lambda i: i != self._i)]

    @property
    def waiting(self) -> list[NodeInfo]:
        """All nodes that will still run, in the order that the engine is expected to take."""
        return [self._graph.info(i) for i in self._graph.waiting()]

    @property
    def path(self) -> list[NodeInfo]:
        """A shortest path from a root of the backward to this node, both included."""
        return [self._graph.info(i) for i in self._graph.path(self._i)]

    @property
    def call(self) -> str:
        """The backward call and its arguments."""
        return self._graph.text

    @property
    def step(self) -> int | None:
        """The training step, counted from 0, if it is known."""
        return self._graph.step

    @property
    def raised_at(self) -> Site | None:
        """The user's line that raised; ``None`` if torch itself raised, or there is no error."""
        if self.error is None:
            return None
        return self._graph.forward.frames.site_of_traceback(inside(self.error))

    # What can be changed

    def replace(self, value: Replacement, index: int = 0) -> torch.Tensor:
        """Replace an incoming gradient (before the node) or an outgoing one (after it).

        :param value: a tensor of the same shape, dtype and device; a number for every element; or a function of the
            current gradient. A tensor is copied.
        :param index: which of the node's gradients.
        :returns: the gradient with which the backward continues.
        :raises BackprobeError: shape, dtype or device differ, there is no such gradient, or the backward has continued.
        """
        self._must_be_open()
        side = "into" if self.phase == "before" else "out of"
        if self.phase == "exception":
            raise BackprobeError(f"{self.node.label} has raised: its gradients cannot be replaced any more")
        grads = self.gradients
        if not 0 <= index < len(grads):
            raise BackprobeError(f"{self.node.label} has {len(grads)} gradients {side} it; there is no number {index}")
        what = f"gradient {index} {side} {self.node.label}"
        old = grads[index]
        if old is None:
            raise BackprobeError(f"{what} is None, and torch lets nothing be put in its place")
        if private.is_batched(old):
            raise BackprobeError(f"{what} is a batch of many (is_grads_batched=True) and cannot be replaced")
        with torch.set_grad_enabled(self._graph.create_graph):
            if callable(value) and not isinstance(value, torch.Tensor):
                value = value(old)
            if isinstance(value, (int, float)):
                value = torch.full(old.shape, value, dtype=old.dtype, device=old.device)
            if not isinstance(value, torch.Tensor):
                raise BackprobeError(f"the replacement for {what} is a {type(value).__name__}, not a tensor")
            if (value.shape, value.dtype, value.device) != (old.shape, old.dtype, old.device):
                raise BackprobeError(
                    f"{what} is {_kind(old)}; the replacement is {_kind(value)}: shape, dtype and device must agree"
                )
            # A copy: an accumulator may keep what it gets as .grad, which must not share memory with the caller's.
            new = value.clone()
            self._new[index] = new if self._graph.create_graph else new.detach()
        return self._new[index]

    def rerun(self, grads: Sequence[torch.Tensor | None] | None = None, dtype: torch.dtype | None = None) -> Rerun:
        """Run the node by itself, from its incoming gradients or from `grads`. No hooks run; the backward is
        unaffected.

        If the node has run, the result is compared with the engine's.

        :param dtype: ``torch.float64`` computes in double precision. The saved tensors keep their values, so the
            difference is the rounding error of this node's backward.
        :raises BackprobeError: for an ``AccumulateGrad``, which would add to ``.grad`` again; if `grads` do not fit;
            or, with the reason, if the node cannot run in float64.
        """
        self._must_be_open()
        incoming = self.grad_outputs
        outgoing = self._outgoing if grads is None else None
        return rerun(
            self._graph.nodes[self._i],
            self.node,
            incoming if grads is None else tuple(grads),
            outgoing,
            dtype,
        )

    def where(self) -> str:
        """Return the path from the loss to this node as text."""
        return show.plain(show.way(self._graph, self._i))

    def graph(self, around: int | None = 12) -> str:
        """Return the nodes in execution order as text, with this one marked.

        :param around: how many before and after it; ``None`` for all.
        """
        return show.plain(show.listing(self._graph, self._i, self.phase, around))

    def __str__(self) -> str:
        head = show.head(self._graph, self._i, self.phase, self.reason, self.raised_at)
        return show.plain(head) + "\n" + show.plain(self.gradient_lines())

    def __repr__(self) -> str:
        return f"<stop {self.phase} {self.node}: {self.reason}>"

    def _repr_html_(self) -> str:
        """Return the stop as HTML, for notebooks."""
        if not self._open:
            return html.text([[(repr(self), "dim")]])
        head = show.head(self._graph, self._i, self.phase, self.reason, self.raised_at)
        return html.text([*head, *self.gradient_lines()])

    # For the controller and the prompt

    def close(self) -> tuple[torch.Tensor | None, ...] | None:
        """Close the stop as the backward continues; return the gradients to continue with, or ``None`` if unchanged."""
        new = None
        if self._new:
            new = self._with_new(self._incoming if self.phase == "before" else self._outgoing)
        self._open, self._incoming, self._outgoing, self._new = False, None, None, {}
        return new

    def gradient_lines(self) -> list[show.Line]:
        """Return lines for the incoming gradients, and the outgoing ones if the node has run, in ``show``'s format."""
        outgoing = self.grad_inputs if self.phase == "after" else ()
        return show.gradients(self._graph, self._i, self.phase, self.grad_outputs, outgoing)

    @property
    def backward(self) -> BackwardGraph:
        """The graph of the call."""
        return self._graph

    @property
    def index(self) -> int:
        """The number of the node in its call."""
        return self._i

    def _with_new(self, grads: Any) -> tuple[torch.Tensor | None, ...]:
        """Return `grads` with the replacements that were made here."""
        return tuple(self._new.get(k, g) for k, g in enumerate(grads))

    def _must_be_open(self) -> None:
        """Check that the backward is still stopped here.

        :raises BackprobeError: it has continued.
        """
        if not self._open:
            raise BackprobeError(
                f"the backward has gone on from {self.node.label}: its gradients are gone; clone them at a stop"
            )


def inside(error: BaseException) -> TracebackType | None:
    """Return the part of an error's traceback below the call of the autograd engine; ``None`` if there is none."""
    found, frame = None, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code is code_objects.ENGINE_CALL:
            found = frame.tb_next
        frame = frame.tb_next
    return found


def _kind(tensor: torch.Tensor) -> str:
    """Return dtype, shape and, off the CPU, device of a tensor as text."""
    text = shape_text(tensor)
    return text if str(tensor.device) == "cpu" else f"{text} on {tensor.device}"
