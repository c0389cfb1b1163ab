"""The rule for a parameter that data-parallel training saw ready twice in one iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import few
from ...basics.torch_texts import READY_TWICE, READY_TWICE_NAME, REENTRANT_NODE
from ...records import BackwardCall, Finding, Site
from ..relations.module_paths import common_module
from ..rules import WRONG, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace

#: The most checkpoint lines that a finding names.
MAX_CHECKPOINT_LINES = 3


@rule(
    Kind(
        "ddp-ready-twice",
        "error",
        "two backward calls of an iteration reach the same data-parallel parameters",
        rank=WRONG + 40,
        questions=(Question.RAISED,),
        points_to="the second backward call, and the first",
    ),
    invalidates_gradients=True,
)
def ready_twice(trace: Trace) -> list[Finding]:
    """Report errors of DistributedDataParallel that say that a parameter was marked ready twice in one iteration.

    Names the earlier backward call of the step that reached the same parameters, or several reentrant checkpoints in
    one call, which cause the same error.
    """
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
            pairs = [("failed", call.site), ("first", first.site if first is not None else None)]
            regions = [run.site for run in call.nodes if run.name == REENTRANT_NODE] if first is None else []
            if len(regions) > 1:
                pairs += [("checkpointed", site) for site in dict.fromkeys(regions)][:MAX_CHECKPOINT_LINES]
            found.append(
                Finding(
                    kind="ddp-ready-twice",
                    severity="error",
                    title=f"{_what(regions)} reach {few(names)}: data-parallel training counts each gradient once",
                    confidence="certain" if first is not None else "likely",
                    module=common_module([n.rpartition(".")[0] for n in names]) if names else None,
                    parameters=tuple(names),
                    step=call.step,
                    sites=sites_of(*pairs),
                    evidence={"error": raised.text[:500]},
                    advice="Checkpoint with use_reentrant=False, which has one backward call for all, or tell "
                    "DistributedDataParallel static_graph=True where every iteration runs the same."
                    if len(regions) > 1
                    else "Add the losses up and call backward once. Where it has to be several calls, run all but "
                    "the last under ddp.no_sync(), forward included.",
                )
            )
        before.append(call)
    return found


def _what(regions: list[Site | None]) -> str:
    """Return the subject of the title: two backward calls, or the number of reentrant checkpoints if there
    are several.
    """
    if len(regions) < 2:
        return "two backward calls in one iteration"
    return f"{len(regions)} reentrant checkpoints of one forward, each with a backward call of its own,"


def _leaves(call: BackwardCall | None) -> set[str]:
    """Return the names of the parameters in the graph of `call`, whether or not they got a gradient; empty for
    ``None``.
    """
    return {r.parameter for r in call.nodes if r.parameter is not None} if call is not None else set()
