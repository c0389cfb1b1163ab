"""The ranks of a run side by side: how each ended, time, gradients and losses of each step, and waits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ..records import RankSeen, RankWait, Site
from ..traces import StepRow, Trace, numbers_of
from ..view import ranks as text
from .columns import clean, column
from .steps import worse
from .tables import total

#: Maximum number of cells in an image; above it, neighbouring steps share a cell.
MAX_CELLS = 200_000
#: Maximum number of waits that are listed, longest first.
MAX_WAITS = 500


def ranks(trace: Trace, site_of: Callable[[Site | None], int]) -> dict[str, object] | None:
    """Return the ranks as a document; ``None`` for a single process."""
    ran = text.several(trace)
    if not ran:
        return None
    rows: list[dict[str, object]] = [
        {
            **{"rank": one.rank, "pid": one.pid, "steps": one.steps, "recorded": one.recorded, "restart": one.restart},
            **{"loss": clean(one.loss), "ended": text.ended(one), "finding": _number(text.first(one, trace.findings))},
            **{
                "failed": one.ended in ("failed", "killed"),
                "shown": bool(one.part and one.part == trace.info.get("part")),
            },
        }
        for one in ran
    ]
    seen = trace.facts.of(RankSeen)
    began = min((one.info.get("started", math.inf) for one in trace.ranks.values()), default=math.inf)
    return {"rows": rows, "pictures": _pictures(trace.ranks), "waits": _waits(seen, began, site_of)}


def _number(first: str) -> int:
    """Return the index of a finding, parsed from the text that the terminal shows; -1 for none."""
    return int(first.partition(".")[0]) - 1 if first else -1


def _pictures(traces: Mapping[int, Trace]) -> dict[str, object] | None:
    """Return images of seconds, gradient norm and loss by step and rank; ``None`` if no rank has steps.

    A cell for several steps has the worst value: NaN, then infinity, then the largest. -infinity: unknown.
    """
    last = max((numbers[-1] for trace in traces.values() if (numbers := numbers_of(trace.steps))), default=-1)
    if last < 0:
        return None
    width = 1 << max(0, math.ceil(math.log2((last + 1) * len(traces) / MAX_CELLS)))
    count = last // width + 1
    kinds = {kind: [-math.inf] * (count * len(traces)) for kind in ("seconds", "gradient", "loss")}
    for at, trace in enumerate(traces.values()):
        for row in trace.step_rows():
            place = row.index // width * len(traces) + at
            for kind, value in (("seconds", row.seconds), ("gradient", _norm(row)), ("loss", row.loss)):
                if value is not None:
                    kinds[kind][place] = worse(kinds[kind][place], value)
    return {"ranks": list(traces), "width": width, "count": count, **{k: column("d", v) for k, v in kinds.items()}}


def _norm(row: StepRow) -> float | None:
    """Return the norm of all gradients of a step together; ``None`` if it is not known."""
    norm = total(row.values[1::3]) if row.values else -1.0
    return norm if norm >= 0 or norm != norm else None


def _waits(seen: Sequence[RankSeen], began: float, site_of: Callable[[Site | None], int]) -> list[dict[str, object]]:
    """Return the longest waits in collective operations, in the order in which they began."""
    found = [(one, wait) for one in seen for wait in one.waits]
    found = sorted(sorted(found, key=lambda item: -item[1].seconds)[:MAX_WAITS], key=lambda item: item[1].began)
    return [_wait(one, wait, began, site_of) for one, wait in found]


def _wait(seen: RankSeen, wait: RankWait, began: float, site_of: Callable[[Site | None], int]) -> dict[str, object]:
    """Return a wait as plain data, with its begin in seconds after the start of the run."""
    return {
        **{"rank": seen.rank, "op": wait.op, "inside": wait.inside, "group": wait.group, "number": wait.number},
        **{"site": site_of(wait.site), "began": wait.began - began if math.isfinite(began) else None},
        **{"seconds": wait.seconds, "ended": wait.ended},
    }
