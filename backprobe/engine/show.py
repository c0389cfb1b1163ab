"""Text of a stop as styled lines: plain for Python, coloured for the terminal.

A line is a list of (text, style) pairs; the styles are rich's, and plain text omits them.
"""

from __future__ import annotations

import ast
import linecache
import os
from collections.abc import Mapping, Sequence

import torch

from ..basics.text import packaged
from ..records import Site
from ..records.places import at_line, cell
from .backward_graph import BackwardGraph, NodeInfo
from .provenance import UNKNOWN, inside
from .values import shape_text, summary

Line = list[tuple[str, str]]
Grads = Sequence[torch.Tensor | None]
_BAD = ("NaN", "Inf")


def plain(lines: Sequence[Line]) -> str:
    """Return styled lines as plain text."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def nearby(path: str) -> str:
    """Shorten a path: relative to the working folder if shorter, from its name on for an installed package, the number
    of a notebook cell.
    """
    if (number := cell(path)) is not None:
        return number
    if not os.path.isabs(path):
        return path
    if (short := packaged(path)) != path:
        return short
    relative = os.path.relpath(path)
    return relative if len(relative) < len(path) else path


def head(
    graph: BackwardGraph, i: int, phase: str, reason: str, raised_at: Site | None = None, library: bool = False
) -> list[Line]:
    """Return the heading of a stop: the position and the reason.

    :param raised_at: the line that raised, if it is the user's.
    :param library: show the line of the library that called the op, rather than the user's.
    """
    node = graph.info(i)
    done = len(graph.ran)
    line: Line = [("> ", "bold"), (phase, "yellow" if phase != "exception" else "bold red"), (" ", "")]
    line.append((node.label, "bold cyan"))
    if node.module is not None:
        line += [("  in ", ""), (node.place.name, "green")]
    line.append((f"  ({done} of {graph.count} nodes have run", "dim"))
    line.append((f", {graph.depth - 1} backward around it" if graph.depth > 1 else "", "dim"))
    line.append((f", step {graph.step})" if graph.step is not None else ")", "dim"))
    lines = [line]
    site = line_of(node, library)
    if site is not None:
        text = f": {site.text}" if site.text else ""
        lines.append([*_site(node, library), (text, "")])
    if reason not in ("step", ""):
        lines.append([("  ", ""), (reason, "bold red" if phase == "exception" else "yellow")])
    if raised_at is not None:
        at = at_line(nearby(raised_at.file), raised_at.line)
        lines.append([("  raised at ", ""), (at, "magenta"), (f" in {raised_at.function}: {raised_at.text}", "")])
    return lines


def gradients(graph: BackwardGraph, i: int, phase: str, incoming: Grads, outgoing: Grads) -> list[Line]:
    """Return lines for the incoming gradients, and the outgoing ones if the node has run."""
    lines = [_gradient("in ", k, g) for k, g in enumerate(incoming)]
    if phase == "exception" and not lines:
        lines.append([("  its incoming gradients were not kept", "dim")])
    names = {k: f"  -> {graph.info(e[0]).label}" for k, e in enumerate(graph.edges(i)) if e is not None}
    for k, g in enumerate(outgoing):
        lines.append([*_gradient("out", k, g), (names.get(k, ""), "dim")])
    variable = graph.leaf(i)
    if variable is not None:
        grad = variable.grad
        text = "None yet" if grad is None else summary(grad)
        lines.append([("  .grad    ", "bold"), (text, "")])
    return lines


def _gradient(side: str, k: int, grad: object) -> Line:
    """Return the line for incoming or outgoing gradient `k`; red if it has NaN or Inf."""
    text = summary(grad)
    return [(f"  {side} [{k}]  ", "bold"), (text, "bold red" if any(bad in text for bad in _BAD) else "")]


def line_of(node: NodeInfo, library: bool) -> Site | None:
    """Return the user's line that created `node`, or the library's inside it."""
    at = node.place.shown(library)
    return None if at is None else node.place.lines[at]


def _site(node: NodeInfo, library: bool) -> Line:
    """Return the file and line that created a node, to append to a line; empty if it is not known."""
    site = line_of(node, library)
    return [] if site is None else [("  ", ""), (at_line(nearby(site.file), site.line), "magenta")]


def saved(found: Mapping[str, torch.Tensor]) -> list[Line]:
    """Return lines for the saved tensors of a node."""
    if not found:
        return [[("  no tensor, or none that can be read without running code of the user's", "dim")]]
    wide = max(map(len, found))
    return [[(f"  {name.ljust(wide)}  ", "bold"), (summary(tensor), "")] for name, tensor in found.items()]


def way(graph: BackwardGraph, i: int, library: bool = False) -> list[Line]:
    """Return the path from the backward's root to node `i`, one node a line, with the module if it changes."""
    lines: list[Line] = [[(graph.text, "dim")]]
    last: str | None = ""
    path = [graph.info(at) for at in graph.path(i)]
    for n, info in enumerate(path):
        here = n == len(path) - 1
        line: Line = [("-> " if here else "   ", "bold"), (info.label, "bold cyan" if here else "cyan")]
        if info.module is not None and (info.place.name != last or here):
            line += [("  in ", "dim"), (info.place.name, "green")]
        last = info.place.name
        lines.append(line + _site(info, library))
    if not graph.forward.watched:
        lines.append([(UNKNOWN, "dim")])
    return lines


def listing(graph: BackwardGraph, here: int, phase: str, around: int | None = 12, library: bool = False) -> list[Line]:
    """Return the nodes in execution order: those that have run, the marked one `here`, those that will run."""
    order = [*graph.ran]
    if phase == "before" or (phase == "exception" and here not in graph.done):
        order.append(here)
    at = max((k for k, i in enumerate(order) if i == here), default=0)
    known = {*order}
    order += [i for i in graph.waiting() if i not in known]
    ready = {*graph.ready()}
    low, high = (0, len(order)) if around is None else (max(0, at - around), at + around + 1)
    lines: list[Line] = [[(f"... {low} before", "dim")]] if low else []
    for k, i in enumerate(order[low:high], low):
        info = graph.info(i)
        state = "->" if k == at else "ok" if i in graph.done else "* " if i in ready else "  "
        style = "bold cyan" if k == at else "dim" if i in graph.done else ""
        line: Line = [(f"{state} {k:>4}  ", "bold" if k == at else "dim"), (info.label, style)]
        if info.module is not None:
            line += [("  ", ""), (info.place.name, "green")]
        line += _site(info, library)
        to = sorted({graph.info(e[0]).label for e in graph.edges(i) if e is not None and graph.runs(e[0])})
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


def frames(graph: BackwardGraph, i: int, chosen: int | None) -> list[Line]:
    """Return the numbered lines through which the op of node `i` was called, the user's first; `chosen` is marked."""
    place = graph.info(i).place
    if not place.lines:
        return _no_line(graph, i)
    lines: list[Line] = []
    for n, site in enumerate(place.lines):
        here = n == chosen
        at, text = at_line(nearby(site.file), site.line), f" in {site.function}: {site.text}"
        lines.append([(f"{'->' if here else '  '} {n:>2}  ", "bold" if here else "dim"), (at, "magenta"), (text, "")])
    return lines


def _no_line(graph: BackwardGraph, i: int) -> list[Line]:
    """Explain why no line is known for node `i`."""
    if graph.info(i).place.parameter is not None:
        return [[("  this node adds to the gradient of a leaf; no line made it", "dim")]]
    return [[(f"  {UNKNOWN if not graph.forward.watched else 'no line is known for this node'}", "dim")]]


def source(graph: BackwardGraph, i: int, site: Site | None, context: int = 5) -> list[Line]:
    """Return the lines around `site`, one of those that created the node."""
    if site is None:
        return _no_line(graph, i)
    last = site.line + context
    return _lines(site, max(1, site.line - context), min(last, max(site.line, len(linecache.getlines(site.file)))))


def whole_source(graph: BackwardGraph, i: int, site: Site | None) -> list[Line]:
    """Return the source of the whole function that contains line `site`, as styled lines with that line marked."""
    if site is None:
        return _no_line(graph, i)
    text = linecache.getlines(site.file)
    first, last = 1, len(text)
    try:
        functions = [
            n for n in ast.walk(ast.parse("".join(text))) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
        ]
    except SyntaxError:  # of a file that has changed
        functions = []
    around = [n for n in functions if n.lineno <= site.line <= (n.end_lineno or n.lineno)]
    if around:
        inner = max(around, key=lambda n: n.lineno)
        first = min([inner.lineno, *(d.lineno for d in inner.decorator_list)])
        last = inner.end_lineno or last
    return _lines(site, first, last)


def _lines(site: Site, first: int, last: int) -> list[Line]:
    """Return the lines `first` to `last` of the file of `site`, with that line marked."""
    lines: list[Line] = [[(f"{nearby(site.file)} in {site.function}", "magenta")]]
    for n in range(first, last + 1):
        here = n == site.line
        text = linecache.getline(site.file, n).rstrip()
        lines.append([(f"{n:>5} {'->' if here else '  '} ", "bold" if here else "dim"), (text, "bold" if here else "")])
    return lines


def module(graph: BackwardGraph, path: str) -> list[Line]:
    """Describe module `path` around the stop, as styled lines: its nodes in this call, and its parameters."""
    places = graph.places
    mine = [i for i in range(len(graph)) if graph.runs(i) and inside(places[i].module, path)]
    ran = sum(i in graph.done for i in mine)
    found = graph.forward.module_at(path)
    kind = type(found).__name__ if found is not None else "module"
    lines: list[Line] = [[(path or "(outermost)", "green"), (f"  {kind}: {ran} of {len(mine)} nodes have run", "")]]
    if found is not None:
        for name, p in list(found.named_parameters())[:20]:
            grad = "no .grad" if p.grad is None else f".grad {summary(p.grad)}"
            lines.append([(f"  {name}", "bold"), (f"  {shape_text(p)}  ", "dim"), (grad, "")])
    return lines
