"""The rule for operations that broadcast the batch against itself on the way to a loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records import Finding, SilentBroadcast
from ..rules import LEARNING, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "silent-broadcast",
        "warning",
        "an operation on the way to the loss pairs each element of the batch with all others",
        rank=LEARNING + 1,
        questions=(Question.LEARNS_BADLY,),
        points_to="the line whose shapes do not match",
    )
)
def silent_broadcasts(trace: Trace) -> list[Finding]:
    """Report operations that pair each element of the batch with all others, on the way to a loss.

    All lines are in one finding, the first to run as its main site: one wrong shape reaches several lines.
    """
    seen = trace.facts.of(SilentBroadcast)
    if not seen:
        return []
    first = seen[0]
    a, b = map(_text, first.shapes)
    lines = list(dict.fromkeys(one.site for one in seen))
    return [
        Finding(
            kind="silent-broadcast",
            severity="warning",
            title=f"{first.op} broadcasts shapes {a} and {b} to {_text(first.result)}, and the loss adds up the "
            "result: each element is paired with all others of the batch",
            confidence="likely",
            step=first.step,
            module=first.module,
            sites=sites_of(*(("cause", site) for site in lines), ("called", first.called), ("failed", first.failed)),
            evidence={"op": first.op, "shapes": [list(shape) for shape in first.shapes], "result": list(first.result)},
            advice="Give both the same shape before this line: squeeze(-1) the one with the dimension of size 1, or "
            "unsqueeze(-1) the other. If all pairs are meant, write it out, as in a[:, None] - b[None, :].",
        )
    ]


def _text(shape: tuple[int, ...]) -> str:
    """Return a shape in Python's notation, such as ``(8, 1)``."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
