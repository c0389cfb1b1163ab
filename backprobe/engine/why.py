"""What is to be said of a stop where something went wrong: an exception, or a gradient that is not finite."""

from __future__ import annotations

from .show import Line
from .stop import Stop
from .values import nonfinite, norm, summary

_BAD = "bold red"


def lines(stop: Stop) -> list[Line]:
    """What is known of it, as ``show`` gives text."""
    if stop.phase == "exception":
        return _exception(stop)
    incoming = stop.grad_outputs
    outgoing = stop.grad_inputs if stop.phase == "after" else ()
    if not nonfinite(incoming) and not nonfinite(outgoing):
        size = norm(stop.gradients)
        side = "outgoing" if outgoing else "incoming"
        return [[(f"  nothing was raised, and every value is finite; norm of the {side} gradients: {size:.4g}", "")]]
    if nonfinite(incoming):
        return _came_in(stop)
    return _made_here(stop)


def _exception(stop: Stop) -> list[Line]:
    found: list[Line] = [[(text, "")] for one in stop.explain() for text in one.splitlines()]
    if not found:
        found = [[("  no finding is about this error", "dim")]]
    bad = nonfinite(stop.grad_outputs)
    if bad:
        found.append([(f"  {bad} values of the incoming gradients are not finite", _BAD)])
    return found


def _came_in(stop: Stop) -> list[Line]:
    """It was bad before this node: where it came from."""
    graph = stop.backward
    count = nonfinite(stop.grad_outputs)
    found: list[Line] = [[(f"  {count} values of the incoming gradients are not finite: not made here", _BAD)]]
    producers = [i for i in graph.producers[stop.index] if i in graph.done]
    if not producers:
        found.append([("  the backward began with them: look at the loss and at gradient=", "")])
    for i in producers[:8]:
        found.append([("  came from  ", "bold"), (str(graph.info(i)), "")])
    found.append([("  'b nonfinite' stops where the first one is made, in the next backward", "dim")])
    return found


def _made_here(stop: Stop) -> list[Line]:
    """Finite gradients came, others went: this node made them, of what it has saved."""
    count = nonfinite(stop.grad_inputs)
    found: list[Line] = [
        [(f"  {stop.node.label} made {count} values that are not finite, of gradients that are", _BAD)]
    ]
    site = stop.node.place.site
    if site is not None:
        found.append([("  forward  ", "bold"), (f"{site}: {site.text}" if site.text else str(site), "")])
    for name, tensor in stop.saved.items():
        bad, zeros = nonfinite([tensor]), int((tensor == 0).sum())
        text = [summary(tensor)]
        if zeros and not bad:
            text.append(f"{zeros} zeros")
        found.append([(f"  saved {name}  ", "bold"), ("  ".join(text), _BAD if bad or zeros else "")])
    zeros = sum(int((g == 0).sum()) for g in stop.grad_outputs if g is not None)
    if zeros:
        found.append([(f"  {zeros} values of the incoming gradients are zero: 0 * Inf is NaN", "")])
    return found
