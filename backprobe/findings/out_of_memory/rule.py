"""The rule for an allocation that failed in a backward call: which forward lines held the memory."""

from __future__ import annotations

from ... import thresholds
from ...basics.text import size
from ...records import BackwardCall, Facts, FailedAllocation, Finding, NodeRun, Retained, SavedBytes, Site
from ..relations.saved_bytes import KEYS, bytes_by, lines_by_bytes, table
from ..rules import GENERAL, Kind, Question, rule, sites_of

#: The most lines named as sites.
MAX_SITES = 5


@rule(
    Kind(
        "out-of-memory",
        "error",
        "memory ran out in the backward; which lines held it",
        rank=GENERAL - 10,
        questions=(Question.RAISED,),
        points_to="the lines whose tensors held it",
    ),
    each_call=True,
    silences=("backward-error",),
)
def out_of_memory(call: BackwardCall, facts: Facts) -> list[Finding]:
    """Return the finding for an allocation that failed in this backward call, with the lines that saved most bytes.

    If the request is far larger than all that the graph and the parameters hold, the line that allocated comes first.
    """
    raised, held = call.raised, call.allocation
    if raised is None or raised.node is None or held is None:
        return []
    run = call.nodes[raised.node]
    rows = [_row(call.nodes[node], count) for node, count in held.saved]
    total = sum(row.bytes for row in rows)
    tables = {what: bytes_by(KEYS[what], rows) for what in ("line", "module", "op")}
    holders: list[tuple[str, Site | None]] = [("saved", site) for site in lines_by_bytes(rows)[:MAX_SITES]]
    asked = [("allocated", run.site), ("backward", raised.backward)]
    too_large = held.wanted is not None and held.wanted > thresholds.OUT_OF_MEMORY_REQUEST_FACTOR * max(
        total, held.parameters
    )
    return [
        Finding(
            kind="out-of-memory",
            severity="error",
            title=_title(run, held, tables["op"], total),
            confidence="certain" if raised.is_located else "likely",
            module=run.module,
            node=run.name,
            step=call.step,
            sites=sites_of(*(asked + holders if too_large else holders + asked), ("failed", call.site)),
            evidence={
                "error": raised.text[:2000],
                "wanted_bytes": held.wanted,
                "graph_bytes": total,
                **{f"by_{what}": table(found) for what, found in tables.items()},
                "parameter_bytes": held.parameters,
                "gradient_bytes": held.gradients,
                "ran_before": sum(r.order is not None for r in call.nodes),
            },
            advice=_advice(held, too_large, retained=bool(facts.of(Retained))),
        )
    ]


def _row(run: NodeRun, count: int) -> SavedBytes:
    """Return the bytes that a node saved as a row, so that the tables of saved bytes can be used."""
    return SavedBytes(run.site, run.node.op or run.name, run.module, count, 1, ())


def _title(run: NodeRun, held: FailedAllocation, by_op: dict[str, int], total: int) -> str:
    """Return the title: the requested bytes, the node, the bytes of the graph, and the operation that saved most."""
    made = f" made by {run.node.op}" if run.node.op else ""
    wanted = f"no room for {size(held.wanted)}" if held.wanted is not None else "memory ran out"
    title = f"{wanted} in {run.name}{made}; the graph still held {size(total)} for the rest of the backward"
    if not total:
        return title
    op, most = next(iter(by_op.items()))
    return f"{title}, {size(most)} of it saved by {op}"


def _advice(held: FailedAllocation, too_large: bool, retained: bool) -> str:
    """Return advice by what holds the memory.

    :param too_large: whether the request alone exceeds what is held.
    :param retained: whether graphs of earlier steps are alive.
    """
    rest = f"Parameters take {size(held.parameters)}, their gradients {size(held.gradients)}"
    if too_large:
        return f"{rest}: the request is larger than all of this. Look at the sizes in the line that allocated."
    if retained:
        return f"Graphs of earlier steps are alive: free them first (see graph-retained). {rest}."
    return (
        f"{rest}. Checkpoint what holds most (torch.utils.checkpoint), take smaller batches and accumulate their "
        "gradients, or move what is saved (backprobe.offload). backprobe.saved_tensors shows the same step whole."
    )
