"""Commands at a stop and between stops, common to ``Debugger`` and ``Replay``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from . import html
from .backward_graph import NodeInfo
from .breakpoints import Breakpoint
from .options import BreakpointOptions, breakpoint_from
from .rerun import Rerun
from .resume import CONTINUE, Resume, step_from
from .stop import Replacement, Stop
from .stop_controller import StopController

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Steering(ABC):
    """Steps, breakpoints, and access to the current stop."""

    def __init__(self, pilot: StopController) -> None:
        """Take the controller that decides where the backward stops."""
        self._pilot = pilot

    @abstractmethod
    def _here(self) -> Stop:
        """Return the current stop. Raises ``BackprobeError`` if there is none."""

    @abstractmethod
    def _go(self, resume: Resume) -> Stop | None:
        """Resume, and return at the next stop or the end."""

    @property
    def breakpoints(self) -> list[Breakpoint]:
        """The breakpoints that are set. Each can ``disable()``, ``enable()`` and ``remove()`` itself."""
        return list(self._pilot.breakpoints)

    def _repr_html_(self) -> str:
        """Return the current stop as HTML for a notebook."""
        stop = self.stop
        return html.text([[(repr(self), "")]]) if stop is None else stop._repr_html_()

    @property
    @abstractmethod
    def stop(self) -> Stop | None:
        """The current stop; ``None`` if the call is over."""

    # Going on

    def step(self, how: str = "node", *, out: bool = False) -> Stop | None:
        """Continue by one step.

        :param how: ``"node"``: before the next node. ``"after"``: when this node has run. ``"into"``: before or after
            the next node, also in a backward that this node runs. ``"module"``: before a node of another module.
            ``"out"``: before the first node outside this node's module.
        :param out: the same as ``"out"``.
        :returns: the stop, ``None`` if the call is over.
        :raises BackprobeError: there is no such step, modules are not known, or the call is over.
        """
        return self._go(step_from(self._here(), "out" if out else how))

    def until(self, place: str | None = None, **where: Unpack[BreakpointOptions]) -> Stop | None:
        """Continue to the next place that matches the arguments of ``break_at``, or its text form."""
        point = self._point(place, {**where, "temporary": True})
        try:
            return self._go(CONTINUE)
        finally:
            point.remove()

    def cont(self) -> Stop | None:
        """Continue to the next breakpoint, or to the end."""
        self._here()
        return self._go(CONTINUE)

    def break_at(self, place: str | None = None, **where: Unpack[BreakpointOptions]) -> Breakpoint:
        """Set a breakpoint. All given options must hold for it to stop.

        :param place: the text form of the command line: ``"module encoder.* enter"``, ``"model.py:41 if norm > 10"``.
        :param node: node types (``"AddmmBackward0"``, ``"*Norm*"``).
        :param module: module paths; nodes of submodules match too.
        :param on: ``"enter"``: before the first node of the module; ``"leave"``: after its last.
        :param parameter: names of parameters: stops before their accumulators.
        :param line: ``"file.py:41"``, the line of the forward that created the node.
        :param seq: a sequence number.
        :param when: an expression (``"norm > 10"``, ``"nonfinite"``, ``"grads[0].max() > 1"``) or a function of the
            ``Stop``. It applies to the incoming gradients before a node and the outgoing ones after it.
        :param phase: ``"before"`` (default), ``"after"`` or ``"both"`` (default if only `when` is given).
        :param count: stop from this hit on.
        :param temporary: remove it after the first stop.
        :raises BackprobeError: no node of this call matches; the message lists similar names.
        """
        return self._point(place, where)

    # Looking and changing

    @property
    def node(self) -> NodeInfo:
        """The node of the current stop."""
        return self._here().node

    @property
    def grad_outputs(self) -> Any:
        """Incoming gradients; see ``Stop``."""
        return self._here().grad_outputs

    @property
    def grad_inputs(self) -> Any:
        """Outgoing gradients; see ``Stop``."""
        return self._here().grad_inputs

    @property
    def saved(self) -> dict[str, torch.Tensor]:
        """Saved tensors by name; see ``Stop``."""
        return self._here().saved

    def replace(self, value: Replacement, index: int = 0) -> torch.Tensor:
        """Replace a gradient; see ``Stop.replace``."""
        return self._here().replace(value, index)

    def rerun(self, grads: Sequence[torch.Tensor | None] | None = None, dtype: torch.dtype | None = None) -> Rerun:
        """Run the node by itself, also in float64; see ``Stop.rerun``."""
        return self._here().rerun(grads, dtype)

    def where(self) -> str:
        """Return the path from the loss to this node as text."""
        return self._here().where()

    def graph(self, around: int | None = 12) -> str:
        """Return the nodes in execution order as text, with the position marked."""
        return self._here().graph(around)

    def _point(self, place: str | None, options: BreakpointOptions) -> Breakpoint:
        """Create a breakpoint from its text form or `options`, check that it matches a node of this call, and add it.
        :raises BackprobeError: it is invalid, or no node matches.
        """
        made = breakpoint_from(place, options)
        made.check(self._here().backward)
        return self._pilot.add(made)
