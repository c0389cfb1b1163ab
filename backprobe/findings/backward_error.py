"""A node raised while it ran: which one, and the forward line that made it."""

from __future__ import annotations

from ..records import BackwardCall, Finding, FindingSite
from ..torch_texts import READY_TWICE


def backward_errors(call: BackwardCall) -> list[Finding]:
    raised = call.raised
    if raised is None or raised.node is None or READY_TWICE in raised.text:
        return []
    run = call.nodes[raised.node]
    place = f" of {run.parameter}" if run.parameter else f" made by {run.node.op}" if run.node.op else ""
    sites = [FindingSite("cause", run.site)] if run.site else []
    if raised.backward:
        sites.append(FindingSite("backward", raised.backward))
    if call.site:
        sites.append(FindingSite("failed", call.site))
    return [
        Finding(
            kind="backward-error",
            severity="error",
            title=f"{run.name}{place} raised {raised.type} in the backward: {raised.text.splitlines()[0][:200]}",
            confidence="certain" if raised.certain else "likely",
            module=run.module,
            node=run.name,
            step=call.step,
            sites=tuple(sites),
            evidence={"error": raised.text[:2000], "ran_before": sum(r.order is not None for r in call.nodes)},
            advice="Look at the forward line named here: the shapes, dtypes and devices that went into it decide what "
            "its backward gets.",
        )
    ]
