"""A parameter that data-parallel training saw ready twice in one iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..records import BackwardCall, Finding, FindingSite
from ..text import few
from ..torch_texts import READY_TWICE, READY_TWICE_NAME
from .growth import common_module
from .questions import WRONG, Kind, question

if TYPE_CHECKING:
    from ..traced import Trace


@question(
    Kind(
        "ddp-ready-twice",
        "error",
        "two backward calls of an iteration reach the same data-parallel parameters",
        rank=WRONG + 40,
    ),
    spoils=True,
)
def ready_twice(trace: Trace) -> list[Finding]:
    found = []
    before: list[BackwardCall] = []
    for call in trace.backwards:
        if call.inside is not None:
            continue
        raised = call.raised
        if raised is not None and READY_TWICE in raised.text:
            mine = _leaves(call)
            first = next((c for c in reversed(before) if c.step == call.step and _leaves(c) & mine), None)
            shared = _leaves(first) & mine if first is not None else set()
            match = READY_TWICE_NAME.search(raised.text)
            if match is not None:
                shared = shared | {match[1].removeprefix("module.")}
            names = [p.name for p in trace.parameters if p.name in shared] or sorted(shared)
            pairs = (("failed", call.site), ("first", first.site if first is not None else None))
            found.append(
                Finding(
                    kind="ddp-ready-twice",
                    severity="error",
                    title=f"two backward calls in one iteration reach {few(names)}: data-parallel training counts each "
                    "gradient once",
                    confidence="certain" if first is not None else "likely",
                    module=common_module([n.rpartition(".")[0] for n in names]) if names else None,
                    parameters=tuple(names),
                    step=call.step,
                    sites=tuple(FindingSite(role, site) for role, site in pairs if site is not None),
                    evidence={"error": raised.text[:500]},
                    advice="Add the losses up and call backward once. Where it has to be several calls, run all but "
                    "the last under ddp.no_sync(), forward included.",
                )
            )
        before.append(call)
    return found


def _leaves(call: BackwardCall | None) -> set[str]:
    """Parameters that `call` gave a gradient to, or was about to."""
    return {r.parameter for r in call.nodes if r.parameter is not None} if call is not None else set()
