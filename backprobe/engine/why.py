"""Explains a stop at which something went wrong: an exception, or a non-finite gradient."""

from __future__ import annotations

from .show import Line
from .stop import Stop
from .values import nonfinite, norm, summary

_BAD = "bold red"


def lines(stop: Stop) -> list[Line]:
    """Explain what is wrong at a stop (an error, or non-finite gradients), as styled lines for the prompt."""
    if stop.phase == "exception":
        return _exception(stop)
    incoming = stop.grad_outputs
    outgoing = stop.grad_inputs if stop.phase == "after" else ()
    forward = _made_in_forward(stop)
    if nonfinite(incoming):
        return _came_in(stop, forward)
    if nonfinite(outgoing):
        return _made_here(stop, forward)
    size = norm(stop.gradients)
    side = "outgoing" if outgoing else "incoming"
    if forward:
        return [[(f"  the {side} gradients are finite, with a norm of {size:.4g}", "")], *forward]
    return [[(f"  nothing was raised, and every value is finite; norm of the {side} gradients: {size:.4g}", "")]]


def _exception(stop: Stop) -> list[Line]:
    """Explain a stop at an exception: the findings about the error, and the non-finite incoming gradients."""
    found: list[Line] = [[(text, "")] for one in stop.explain() for text in one.splitlines()]
    if not found:
        found = [[("  no finding is about this error", "dim")]]
    bad = nonfinite(stop.grad_outputs)
    if bad:
        found.append([(f"  {bad} values of the incoming gradients are not finite", _BAD)])
    return found


def _made_in_forward(stop: Stop) -> list[Line]:
    """Return lines on the forward op that first produced a non-finite value that the node saved, if there is one."""
    bad = [(name, tensor) for name, tensor in stop.saved.items() if nonfinite([tensor])]
    if not bad:
        return []
    found: list[Line] = [[(f"  saved {name}  ", "bold"), (summary(tensor), _BAD)] for name, tensor in bad]
    born = stop.backward.nonfinite_origin(stop.index)
    if born is None:
        found.append([("  the forward made it: which op did is not known, because no node keeps what went in", "dim")])
        return found
    info = stop.backward.info(born.node)
    how = {
        "made": f"the forward op of {info.label} made the first value that is not finite",
        "leaf": f"{info.label} belongs to a leaf that is not finite itself",
        "outside": f"the forward op of {info.label} was given the first value that is not finite, by a tensor without "
        "a graph",
    }[born.how]
    found.append([("  forward  ", "bold"), (how if born.sure else f"{how}, as it seems", _BAD)])
    if info.module:
        found.append([("  module   ", "bold"), (info.place.name, "")])
    if (site := info.place.site) is not None:
        found.append([("  line     ", "bold"), (f"{site}: {site.text}" if site.text else str(site), "")])
    return found


def _came_in(stop: Stop, forward: list[Line]) -> list[Line]:
    """Explain non-finite incoming gradients: the nodes that they came from.

    :param forward: lines on non-finite values that the forward produced.
    """
    graph = stop.backward
    count = nonfinite(stop.grad_outputs)
    found: list[Line] = [[(f"  {count} values of the incoming gradients are not finite: not made here", _BAD)]]
    producers = [i for i in graph.producers[stop.index] if i in graph.done]
    if not producers:
        found.append([("  the backward began with them: look at the loss and at gradient=", "")])
    for i in producers[:8]:
        found.append([("  came from  ", "bold"), (str(graph.info(i)), "")])
    found += forward
    found.append([("  'b nonfinite' stops where the first one is made, in the next backward", "dim")])
    return found


def _made_here(stop: Stop, forward: list[Line]) -> list[Line]:
    """Explain non-finite outgoing gradients of finite incoming ones: this node produced them from its saved tensors.

    :param forward: lines on non-finite values that the forward produced; if there are any, they are the cause.
    """
    count = nonfinite(stop.grad_inputs)
    found: list[Line] = [
        [(f"  {stop.node.label} made {count} values that are not finite, of gradients that are", _BAD)]
    ]
    site = stop.node.place.site
    if site is not None:
        found.append([("  forward  ", "bold"), (f"{site}: {site.text}" if site.text else str(site), "")])
    if forward:
        return [*found, *forward]
    for name, tensor in stop.saved.items():
        zeros = int((tensor == 0).sum())
        text = summary(tensor) + (f"  {zeros} zeros" if zeros else "")
        found.append([(f"  saved {name}  ", "bold"), (text, _BAD if zeros else "")])
    zeros = sum(int((g == 0).sum()) for g in stop.grad_outputs if g is not None)
    if zeros:
        found.append([(f"  {zeros} values of the incoming gradients are zero: 0 * Inf is NaN", "")])
    return found
