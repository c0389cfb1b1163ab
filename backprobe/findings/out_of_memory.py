"""The rule for an allocation that failed in a backward call: which forward lines held the memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from ..records import BackwardCall, Facts, FailedAllocation, Finding, NodeRun, Retained, Site
from ..text import size
from .rules import GENERAL, Kind, rule, sites_of

#: The most lines named as sites, and the most rows of a table in the evidence.
MAX_SITES, MAX_ROWS = 5, 20


@rule(
    Kind("out-of-memory", "error", "memory ran out in the backward; which lines held it", rank=GENERAL - 10),
    each_call=True,
    silences=("backward-error",),
)
def out_of_memory(call: BackwardCall, facts: Facts) -> list[Finding]:
    raised, held = call.raised, call.allocation
    if raised is None or raised.node is None or held is None:
        return []
    run = call.nodes[raised.node]
    saved = [(call.nodes[node], count) for node, count in held.saved]
    lines = _by(lambda node: node.site, saved)
    total = sum(count for _, count in saved)
    holders = [("saved", site) for site in lines if site is not None][:MAX_SITES]
    asked = [("allocated", run.site), ("backward", raised.backward)]
    return [
        Finding(
            kind="out-of-memory",
            severity="error",
            title=_title(run, held, saved, total),
            confidence="certain" if raised.is_located else "likely",
            module=run.module,
            node=run.name,
            step=call.step,
            sites=sites_of(*(asked + holders if _too_large(held, total) else holders + asked), ("failed", call.site)),
            evidence={
                "error": raised.text[:2000],
                "wanted_bytes": held.wanted,
                "graph_bytes": total,
                "by_line": _table(lines),
                "by_module": _table(_by(lambda node: node.module, saved)),
                "by_op": _table(_by(lambda node: node.node.op or node.name, saved)),
                "parameter_bytes": held.parameters,
                "gradient_bytes": held.gradients,
                "ran_before": sum(r.order is not None for r in call.nodes),
            },
            advice=_advice(held, total, retained=bool(facts.of(Retained))),
        )
    ]


def _title(run: NodeRun, held: FailedAllocation, saved: list[tuple[NodeRun, int]], total: int) -> str:
    made = f" made by {run.node.op}" if run.node.op else ""
    wanted = f"no room for {size(held.wanted)}" if held.wanted is not None else "memory ran out"
    title = f"{wanted} in {run.name}{made}; the graph still held {size(total)} for the rest of the backward"
    if not total:
        return title
    op, most = next(iter(_by(lambda node: node.node.op or node.name, saved).items()))
    return f"{title}, {size(most)} of it saved by {op}"


def _too_large(held: FailedAllocation, total: int) -> bool:
    """Return whether the request is of another order than what the step holds, so that the request is the mistake."""
    return held.wanted is not None and held.wanted > 4 * max(total, held.parameters)


def _advice(held: FailedAllocation, total: int, retained: bool) -> str:
    rest = f"Parameters take {size(held.parameters)}, their gradients {size(held.gradients)}"
    if _too_large(held, total):
        return f"{rest}: the request is larger than all of this. Look at the sizes in the line that allocated."
    if retained:
        return f"Graphs of earlier steps are alive: free them first (see graph-retained). {rest}."
    return (
        f"{rest}. Checkpoint what holds most (torch.utils.checkpoint), take smaller batches and accumulate their "
        "gradients, or move what is saved (backprobe.offload). backprobe.saved_tensors shows the same step whole."
    )


def _by(key: Callable[[NodeRun], Any], saved: list[tuple[NodeRun, int]]) -> dict[Any, int]:
    """Return the bytes by key, most first."""
    found: Counter[Any] = Counter()
    for node, count in saved:
        found[key(node)] += count
    return dict(found.most_common())


def _table(found: dict[Any, int]) -> dict[str, int]:
    """Return the first rows, and the sum of the others."""
    rows = [(_name(key), count) for key, count in found.items()]
    rest = sum(count for _, count in rows[MAX_ROWS:])
    return {**dict(rows[:MAX_ROWS]), **({"(rest)": rest} if rest else {})}


def _name(key: Site | str | None) -> str:
    return "(unknown)" if key is None else str(key) or "(no module)"
