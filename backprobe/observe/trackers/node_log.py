"""``--log-nodes``: writes each backward call as lines of text, one for each node that ran, in the engine's order.

A call is written as a whole after it ends, so that lines of several processes do not interleave within a call. A write
error ends the log, not the run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ...basics.files import add_to
from ...basics.terminal import say
from ...basics.text import plain, without_controls
from ...records import BackwardCall, GradStat, NodeRun, Site
from ...records.places import at_line, lasting
from ...torch_internals.measure import shape_of
from ..backward.active_backward import ActiveBackward
from ..backward.pending_call_record import PendingCallRecord
from ..schedule.settings import Settings
from ..tracker import Tracker
from ..tracker_context import TrackerContext
from .collective_wait import rank

if TYPE_CHECKING:
    import torch

#: Function that returns the shape of the gradient of a node's output, if known: (node, output) -> shape.
Shape = Callable[[int, int], "tuple[int, ...] | None"]
#: Target that means standard error.
STDERR = "-"


class NodeLog(Tracker):
    """Tracker that writes the nodes that ran to ``Settings.log``.

    This is a file, to which lines are appended, or standard error.
    """

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        """Return whether a log of nodes was requested."""
        return bool(settings.log)

    def __init__(self, context: TrackerContext) -> None:
        self._target = context.settings.log
        #: The error that ended the log.
        self.failed: OSError | None = None

    def backward_recorded(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Write a recorded call to the log, unless a write has failed before."""
        nodes = running.graph.nodes
        if self.failed is not None:
            return
        of = rank()
        tag = "" if of is None else f"[rank {of}] "
        text = "".join(
            f"{tag}{without_controls(line)}\n" for line in lines(recorded.record(), lambda i, k: _shape(nodes[i], k))
        )
        try:
            if self._target == STDERR:
                say(text, sys.stderr, end="")
            else:
                with os.fdopen(add_to(self._target), "ab", buffering=1 << 24) as file:
                    file.write(text.encode("utf-8", "backslashreplace"))
        except OSError as error:
            self.failed = error
            say(f"backprobe: the log of nodes ends here: {error}", sys.stderr)


def _shape(node: torch.autograd.graph.Node, number: int) -> tuple[int, ...] | None:
    """Return the shape of the gradient of output `number` of a node; ``None`` if the node has no such output."""
    metas = node._input_metadata
    return shape_of(metas[number]) if number < len(metas) else None


def lines(call: BackwardCall, shape: Shape = lambda i, k: None) -> Iterator[str]:
    """Yield a backward call as text: a line for the call, one for each node that ran, and one for an error."""
    where = f"step {call.step} backward {call.index}"
    roots = ", ".join(_tensor(r.shape, r.dtype) + ("" if r.value is None else f" {r.value:.6g}") for r in call.roots)
    runs = sorted((run for run in call.nodes if run.order is not None), key=lambda run: run.order or 0)
    begin = f" inside backward {call.inside}" if call.inside is not None else ""
    yield (
        f"{where}{begin}: {call.kind} from {roots or 'nothing'}{_at(call.site)}: "
        f"{len(runs)} of {len(call.nodes)} nodes in {_time(call.seconds)}"
    )
    for run in runs:
        yield f"{where} node {run.order}: {_node(run, shape)}"
    if call.raised is not None:
        at = call.raised.node
        running = _named(call.nodes[at]) if at is not None else "no node"
        sure = "" if call.raised.certain or at is None else " (most likely)"
        first = call.raised.text.strip().partition("\n")[0]
        yield f"{where} raised {call.raised.type} in {running}{sure}: {plain(first)}"


def _node(run: NodeRun, shape: Shape) -> str:
    """Return the line for a node that ran: name, incoming and outgoing gradients, and time."""
    node = run.node
    incoming = [_gradient(g, shape(node.index, k)) for k, g in enumerate(run.grad_outputs)]
    outgoing = [
        _gradient(g, shape(*edge))
        for g, edge in zip(run.grad_inputs, node.edges, strict=False)
        if g is not None and edge is not None
    ]
    took = f", {_time(run.seconds)}" if run.seconds is not None else ""
    return (
        f"{_named(run)}: in {'; '.join(incoming) or 'none'}"
        + (f"; out {'; '.join(outgoing)}" if outgoing else "")
        + took
    )


def _named(run: NodeRun) -> str:
    """Return the number, name, parameter, module and line of a node that ran, as text."""
    node = run.node
    name = node.name.rpartition("::")[2]
    of = f" of {plain(node.parameter)}" if node.parameter else ""
    module = f" in {plain(node.module)}" + (f":{node.call}" if node.call > 1 else "") if node.module else ""
    return f"#{node.index} {name}{of}{module}{_at(node.site)}"


def _at(site: Site | None) -> str:
    """Return " at file:line", or nothing if the line is not known."""
    return f" at {plain(at_line(os.path.basename(lasting(site.file)), site.line))}" if site is not None else ""


def _gradient(grad: GradStat | None, shape: tuple[int, ...] | None) -> str:
    """Return a gradient as text: shape, dtype, norm and bad values.

    :param shape: the shape to write if the record has none.
    """
    if grad is None:
        return "none"
    what = _tensor(grad.shape if grad.shape is not None else shape, grad.dtype)
    norm = f" norm {grad.norm:.6g}" if grad.norm is not None else " norm not measured"
    return what + norm + (f" ({grad.bad})" if grad.bad is not None and grad.bad.numel else "")


def _tensor(shape: tuple[int, ...] | None, dtype: str | None) -> str:
    """Return a shape and a dtype as text, such as ``3x4 float16``; float32 is left out."""
    sizes = "?" if shape is None else "x".join(map(str, shape)) or "scalar"
    return sizes + ("" if dtype in (None, "float32") else f" {dtype}")


def _time(seconds: float) -> str:
    """Return seconds as text, in a fitting unit."""
    return (
        f"{seconds * 1e6:.1f} us"
        if seconds < 1e-3
        else f"{seconds * 1e3:.2f} ms"
        if seconds < 1
        else f"{seconds:.2f} s"
    )
