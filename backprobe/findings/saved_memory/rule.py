"""The ``memory`` check: the bytes that autograd saves for backward, by module, line, op and dtype.

It also reports saved tensors that other references keep alive, tensors that could not be measured, and the bytes that
checkpointing would save.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import size
from ...records import Finding, FindingSite, SavedBytes, SavedMemory, SavedModule
from ..relations.saved_bytes import KEYS, MAX_ROWS, bytes_by, lines_by_bytes, table
from ..rules import MEMORY, Kind, Question, Topic, rule

if TYPE_CHECKING:
    from ...traces import Trace

_HOLDER_PHRASES = {
    "parameter": "by parameters",
    "buffer": "by buffers",
    "variable": "by your variables",
    "graph": "by another graph",
    "other": "by something else",
}


@rule(
    Kind(
        "saved-memory",
        "info",
        "which lines keep the bytes for backward",
        rank=MEMORY + 20,
        questions=(Question.MEMORY,),
        points_to="the lines, the largest first",
    ),
    topic=Topic("memory", "who keeps the bytes for backward"),
)
def saved_memory(trace: Trace) -> list[Finding]:
    """Return the finding that lists the bytes saved for backward; empty if none were measured."""
    rows = [r for r in trace.facts.of(SavedBytes) if r.bytes]
    if not rows:
        return []
    own = [r for r in rows if not r.holder]
    total, held = sum(r.bytes for r in own), bytes_by(lambda r: r.holder, (r for r in rows if r.holder))
    shown = own or rows
    memory = trace.facts.one(SavedMemory)
    return [
        Finding(
            kind="saved-memory",
            severity="info",
            title=_title(total, own, held),
            confidence="certain",
            module=shown[0].module,
            step=memory.step if memory is not None else None,
            sites=tuple(FindingSite("cause", site) for site in lines_by_bytes(shown))[:8],
            evidence={
                "total_bytes": total,
                "rows": [
                    {
                        "bytes": r.bytes,
                        "op": r.op,
                        "module": r.module,
                        "line": str(r.site) if r.site else None,
                        "dtype": r.dtype,
                        "tensors": r.tensors,
                    }
                    for r in own[:MAX_ROWS]
                ],
                **{f"by_{what}": table(bytes_by(key, own)) for what, key in KEYS.items()},
                "held_anyway": held,
                **(_graph(memory) if memory is not None else {}),
            },
            advice=_advice(memory, total),
        )
    ]


def _title(total: int, own: list[SavedBytes], held: dict[str, int]) -> str:
    """Return the title: the total bytes, the operation that saves most, and the bytes that would be held anyway.

    :param own: rows of tensors that only the graph holds; `held`: bytes of the others, by who else holds them.
    """
    anyway = ", ".join(f"{size(count)} {_HOLDER_PHRASES.get(holder, holder)}" for holder, count in held.items())
    if not own:
        return f"what is kept for backward is held anyway: {anyway}"
    op, most = next(iter(bytes_by(KEYS["op"], own).items()))
    text = f"{size(total)} are kept for backward, {size(most)} of them by {op}"
    return f"{text}; what else is saved is held anyway ({anyway})" if anyway else text


def _graph(memory: SavedMemory) -> dict[str, object]:
    """Return the evidence about the whole graph: its size, unmeasured tensors, and what checkpoints would save."""
    unknown = [{"what": u.what, "count": u.count, "why": u.why} for u in memory.unknown]
    return {
        "backward": memory.backward,
        "graphs_looked_at": memory.looked,
        "nodes": memory.nodes,
        "storages": memory.storages,
        "unknown": unknown,
        "placed": [{"policy": p.policy, "tensors": p.tensors, "bytes": p.nbytes} for p in memory.placed],
        "checkpoint": [
            {
                "modules": [m.path for m in group][:MAX_ROWS],
                "class": group[0].class_name,
                "count": len(group),
                "inside_bytes": sum(m.inside for m in group),
                "input_bytes": sum(m.inputs for m in group),
                "saves_bytes": _saves(group),
                "how": "computed from the graph, not run",
            }
            for group in checkpoints(memory)[:5]
        ],
    }


def checkpoints(memory: SavedMemory) -> list[list[SavedModule]]:
    """Return groups of modules worth checkpointing, by class and depth (the ten blocks of a stack), the largest saving
    first.

    Modules whose checkpoint would recompute nearly everything at once are left out: a module that holds nearly all
    saved bytes, and one whose parts, in a larger group, save nearly as much.
    """
    groups: dict[tuple[str, int], list[SavedModule]] = {}
    start = memory.curve[0].nbytes if memory.curve else 0
    for module in memory.modules:
        if module.saves > 0 and module.inside < 0.9 * start:
            groups.setdefault((module.class_name, module.path.count(".")), []).append(module)
    found = sorted(groups.values(), key=lambda group: -_saves(group))[:50]
    return [g for g in found if not any(_finer(other, g) for other in found)]


def _saves(group: list[SavedModule]) -> int:
    """Return the bytes that checkpointing all modules of a group would save."""
    return sum(m.saves for m in group)


def _finer(parts: list[SavedModule], group: list[SavedModule]) -> bool:
    """Return whether `parts` lie in the modules of `group`, are more, and save nearly as much."""
    inside = tuple(f"{m.path}." for m in group)
    return (
        len(parts) > len(group)
        and _saves(parts) > 0.8 * _saves(group)
        and all(p.path.startswith(inside) for p in parts)
    )


def _advice(memory: SavedMemory | None, total: int) -> str:
    """Return advice: which modules to checkpoint and what this would save of `total` bytes, or other ways to save
    memory.
    """
    groups = checkpoints(memory) if memory is not None else []
    narrower = "Or compute what is kept in a smaller type, or move it (backprobe.offload)."
    unknown = sum(u.count for u in memory.unknown) if memory is not None else 0
    lost = f" {unknown} saved tensors could not be measured: see the evidence." if unknown else ""
    if not groups:
        return f"Checkpoint what keeps most (torch.utils.checkpoint). {narrower}{lost}"
    best = groups[0]
    saves = _saves(best)
    names = best[0].path if len(best) == 1 else f"each of the {len(best)} {best[0].class_name} ({best[0].path}, ...)"
    share = f" of {size(total)}" if saves <= total else ""
    return (
        f"Checkpointing {names} would save about {size(saves)}{share}: computed from the graph, as what is kept inside "
        "minus the inputs; backprobe.saved_tensors(model).try_checkpoint(...) runs it, and measures time and peak. "
        f"{narrower}{lost}"
    )
