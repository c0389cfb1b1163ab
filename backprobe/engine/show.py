"""What is there at a stop, as styled lines: text for Python, colour for the terminal.

A line is a list of (text, style) pairs; the styles are rich's, and plain text leaves them out.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .sight import UNKNOWN
from .values import shape_text, summary

if TYPE_CHECKING:
    from .stop import Stop

Line = list[tuple[str, str]]
_BAD = ("NaN", "Inf")


def plain(lines: Sequence[Line]) -> str:
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def nearby(path: str) -> str:
    """A path as seen from the working folder, where that is shorter."""
    if not os.path.isabs(path):
        return path
    relative = os.path.relpath(path)
    return relative if len(relative) < len(path) else path


def head(stop: Stop) -> list[Line]:
    """Where we are, and why."""
    node, graph = stop.node, stop.control.graph
    done = len(graph.ran)
    line: Line = [("> ", "bold"), (stop.phase, "yellow" if stop.phase != "exception" else "bold red"), (" ", "")]
    line.append((node.label, "bold cyan"))
    if node.module is not None:
        line += [("  in ", ""), (node.place.name, "green")]
    line.append((f"  ({done} of {graph.count} nodes have run", "dim"))
    line.append((f", {stop.depth - 1} backward around it)" if stop.depth > 1 else ")", "dim"))
    lines = [line]
    site = node.place.site
    if site is not None:
        text = f": {site.text}" if site.text else ""
        lines.append([("  ", ""), (f"{nearby(site.file)}:{site.line}", "magenta"), (text, "")])
    if stop.reason not in ("step", ""):
        lines.append([("  ", ""), (stop.reason, "bold red" if stop.phase == "exception" else "yellow")])
    return lines


def gradients(stop: Stop) -> list[Line]:
    """Incoming gradients, and outgoing ones when the node has run."""
    lines = [_gradient("in ", k, g) for k, g in enumerate(stop.grad_outputs)]
    if stop.phase == "exception" and not lines:
        lines.append([("  its incoming gradients were not kept", "dim")])
    if stop.phase == "after":
        names = _receivers(stop)
        for k, g in enumerate(stop.grad_inputs):
            lines.append([*_gradient("out", k, g), (names.get(k, ""), "dim")])
    variable = stop.variable
    if variable is not None:
        grad = variable.grad
        text = "None yet" if grad is None else summary(grad)
        lines.append([("  .grad    ", "bold"), (text, "")])
    return lines


def _gradient(side: str, k: int, grad: object) -> Line:
    text = summary(grad)
    return [(f"  {side} [{k}]  ", "bold"), (text, "bold red" if any(bad in text for bad in _BAD) else "")]


def _receivers(stop: Stop) -> dict[int, str]:
    graph = stop.control.graph
    edges = graph.edges(stop.index)
    return {k: f"  -> {graph.infos[e[0]].label}" for k, e in enumerate(edges) if e is not None}


def saved(stop: Stop) -> list[Line]:
    """The tensors that the node keeps."""
    found = stop.saved
    if not found:
        return [[("  no tensor, or none that can be read without running code of the user's", "dim")]]
    wide = max(map(len, found))
    return [[(f"  {name.ljust(wide)}  ", "bold"), (summary(tensor), "")] for name, tensor in found.items()]


def way(stop: Stop) -> list[Line]:
    """From where the backward began to here, one node a line, with the module where it changes."""
    lines: list[Line] = [[(stop.call, "dim")]]
    last: str | None = ""
    path = stop.path
    for n, info in enumerate(path):
        here = n == len(path) - 1
        line: Line = [("-> " if here else "   ", "bold"), (info.label, "bold cyan" if here else "cyan")]
        if info.module is not None and (info.place.name != last or here):
            line += [("  in ", "dim"), (info.place.name, "green")]
        last = info.place.name
        if info.place.site is not None:
            line += [("  ", ""), (f"{nearby(info.place.site.file)}:{info.place.site.line}", "magenta")]
        lines.append(line)
    if not stop.control.graph.sight.known:
        lines.append([(UNKNOWN, "dim")])
    return lines


def listing(stop: Stop, around: int | None = 12) -> list[Line]:
    """The nodes in the order they run: those that have, this one marked, those that will."""
    graph = stop.control.graph
    order = [*graph.ran]
    if stop.phase == "before" or (stop.phase == "exception" and stop.index not in graph.done):
        order.append(stop.index)
    at = max((k for k, i in enumerate(order) if i == stop.index), default=0)
    known = {*order}
    order += [i for i in graph.waiting() if i not in known]
    ready = {*graph.ready()}
    low, high = (0, len(order)) if around is None else (max(0, at - around), at + around + 1)
    lines: list[Line] = [[(f"... {low} before", "dim")]] if low else []
    for k, i in enumerate(order[low:high], low):
        info = graph.infos[i]
        state = "->" if k == at else "ok" if i in graph.done else "* " if i in ready else "  "
        style = "bold cyan" if k == at else "dim" if i in graph.done else ""
        line: Line = [(f"{state} {k:>4}  ", "bold" if k == at else "dim"), (info.label, style)]
        if info.module is not None:
            line += [("  ", ""), (info.place.name, "green")]
        if info.place.site is not None:
            line += [("  ", ""), (f"{nearby(info.place.site.file)}:{info.place.site.line}", "magenta")]
        to = sorted({graph.infos[e[0]].label for e in graph.edges(i) if e is not None and graph.runs(e[0])})
        if to:
            line.append((f"  -> {', '.join(to)}", "dim"))
        lines.append(line)
    if high < len(order):
        lines.append([(f"... {len(order) - high} after", "dim")])
    others = len(graph) - graph.count
    if others:
        lines.append([(f"{others} nodes are not needed for the inputs of this call", "dim")])
    lines.append([("-> here, ok has run, * all its gradients have come", "dim")])
    return lines


def source(stop: Stop, context: int = 5) -> list[Line]:
    """The lines of the forward that made the node."""
    site = stop.node.place.site
    if site is None:
        if stop.node.parameter is not None:
            return [[("  this node adds to the gradient of a leaf; no line made it", "dim")]]
        return [[(f"  {UNKNOWN if not stop.control.graph.sight.known else 'no line is known for this node'}", "dim")]]
    lines: list[Line] = [[(f"{nearby(site.file)} in {site.function}", "magenta")]]
    for n in range(max(1, site.line - context), site.line + context + 1):
        text = linecache.getline(site.file, n).rstrip()
        if not text and n > site.line:
            continue
        here = n == site.line
        lines.append([(f"{n:>5} {'->' if here else '  '} ", "bold" if here else "dim"), (text, "bold" if here else "")])
    return lines


def module(stop: Stop, path: str) -> list[Line]:
    """A module on the way up from the node: its nodes in this call, and its parameters."""
    from .going import inside

    graph = stop.control.graph
    mine = [i for i in range(len(graph)) if graph.runs(i) and _in(graph.places[i].module, path, inside)]
    ran = sum(i in graph.done for i in mine)
    found = graph.sight.module_at(path)
    kind = type(found).__name__ if found is not None else "module"
    lines: list[Line] = [[(path or "(outermost)", "green"), (f"  {kind}: {ran} of {len(mine)} nodes have run", "")]]
    if found is not None:
        for name, p in list(found.named_parameters())[:20]:
            grad = "no .grad" if p.grad is None else f".grad {summary(p.grad)}"
            lines.append([(f"  {name}", "bold"), (f"  {shape_text(p)}  ", "dim"), (grad, "")])
    return lines


def _in(module: str | None, path: str, inside: object) -> bool:
    return module is not None and bool(inside(module, path))  # type: ignore[operator]
