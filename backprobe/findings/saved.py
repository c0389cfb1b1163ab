"""What is kept for backward: where the bytes come from, what was changed behind autograd's back, and cycles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..records import Finding, FindingSite
from .words import number

if TYPE_CHECKING:
    from ..traced import Trace


def saved_memory(trace: Trace) -> list[Finding]:
    """``--ask memory``."""
    rows = [r for r in trace.facts.saved if r.bytes]
    if not rows:
        return []
    total, top = sum(r.bytes for r in rows), rows[0]
    return [
        Finding(
            kind="saved-memory",
            severity="info",
            title=f"{size(total)} are kept for backward, {size(top.bytes)} of them by {top.op}",
            confidence="certain",
            module=top.module,
            sites=tuple(FindingSite("cause", s) for s in dict.fromkeys(r.site for r in rows) if s is not None)[:8],
            evidence={
                "total_bytes": total,
                "rows": [
                    {
                        "bytes": r.bytes,
                        "op": r.op,
                        "module": r.module,
                        "line": str(r.site) if r.site else None,
                        "tensors": r.tensors,
                    }
                    for r in rows[:30]
                ],
            },
            advice="Checkpoint the module that keeps most (torch.utils.checkpoint), or compute what it keeps in a "
            "smaller type. What saved-tensor hooks have packed and custom functions keep on ctx is not counted.",
        )
    ]


def size(count: int) -> str:
    """Bytes as a person reads them."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{number(value)} {unit}"
        value /= 1024
    return f"{number(value)} GiB"


def silent_mutations(trace: Trace) -> list[Finding]:
    found = []
    for seen in trace.facts.silent:
        pairs = (("mutated", seen.site), ("saved", seen.saved), ("failed", seen.backward))
        found.append(
            Finding(
                kind="silent-mutation",
                severity="error",
                title=f"{seen.op} wrote through .data into {seen.tensor}, which {seen.saver} had saved for backward: "
                "the gradients are wrong, and autograd cannot know"
                if seen.op
                else f"the memory of {seen.tensor}, which {seen.saver} had saved for backward, was written from "
                "outside torch (a NumPy array shares it): the gradients are wrong, and autograd cannot know",
                confidence="certain" if seen.op else "likely",
                module=seen.module,
                node=seen.node,
                tensor=seen.tensor,
                step=seen.step,
                sites=tuple(FindingSite(role, site) for role, site in pairs if site is not None),
                evidence={"op": seen.op},
                advice="Copy where memory changes hands: tensor.detach().numpy().copy() before writing, or "
                "torch.tensor(array) in place of torch.from_numpy(array) where the array is filled again."
                if not seen.op
                else "Do not write through .data between the forward and its backward: under torch.no_grad() the "
                "same write is seen, and raises where it does harm. Or write to a clone.",
            )
        )
    return found


def cycles(trace: Trace) -> list[Finding]:
    return [
        Finding(
            kind="reference-cycle",
            severity="warning",
            title="backward(create_graph=True) left gradients that have a graph of their own: parameter and gradient "
            "keep each other alive",
            confidence="certain",
            sites=(FindingSite("held", site),),
            evidence={"parameters": list(names)[:20]},
            parameters=names,
            advice="Use torch.autograd.grad(loss, parameters, create_graph=True), which fills no .grad; or set .grad "
            "to None when the step is over (zero_grad(set_to_none=True)).",
        )
        for site, names in trace.facts.cycles
        if site is not None
    ]
