"""The rule for a backward call that reached a graph which an earlier backward had freed."""

from __future__ import annotations

from dataclasses import replace

from ...records import BackwardCall, Facts, Finding, Inside
from ..relations.inferred_lines import inferred_line
from ..rules import WRONG, Kind, Question, rule, sites_of


@rule(
    Kind(
        "second-backward",
        "error",
        "a backward call met a graph that an earlier one had freed",
        rank=WRONG + 20,
        questions=(Question.RAISED,),
        points_to="the line where the new graph meets the old one",
    ),
    each_call=True,
    invalidates_gradients=True,
)
def second_backward(call: BackwardCall, facts: Facts) -> list[Finding]:
    """Return the finding for a backward call that failed because it reached a graph that an earlier call had freed.

    Either two losses share the freed part, or the same graph is run twice, or a tensor of an earlier step was used in a
    new graph: then the line where it enters and the one that carries it on are named.
    """
    reuse, raised = call.reuse, call.raised
    if reuse is None or raised is None or raised.node is None:
        return []
    run = call.nodes[raised.node]
    old = call.nodes[reuse.old]
    new = call.nodes[reuse.node] if reuse.node is not None else None
    around = None  # The call of the compiled region that used the freed tensor, if the operation inside it is known.
    for one in facts.of(Inside):
        if new is not None and one.how == "reused" and (one.backward, one.node) == (call.index, reuse.node):
            around = new.site
            new = replace(new, node=replace(new.node, op=one.op, site=one.site, module=one.module))
    shared = new is None and reuse.shared
    entry = (new.site or reuse.carried) if new is not None else old.site if shared and old.site else call.site
    # If the new graph begins inside a function that received the old tensor, the call of that function is a site too.
    handed = reuse.carried if entry is not None and reuse.carried is not None else None
    if handed is not None and entry is not None and (handed.file, handed.function) == (entry.file, entry.function):
        handed = None
    sites = sites_of(
        ("reused", entry),
        ("reused", around),
        ("reused", handed),
        ("carried", reuse.assigned if new is not None else None),
        ("freed", reuse.freed_site),
        ("failed", call.site),
    )
    earlier = "the same step" if reuse.freed_step == call.step else f"step {reuse.freed_step}"
    if shared:
        title = (
            f"two losses share {old.node.op or old.name}, and the backward call of one, in {earlier}, freed what it "
            "had kept before that of the other ran"
        )
        advice = (
            "Add the losses up and call backward once; or give the first call retain_graph=True, where both are meant "
            "to train what they share. Where the second is not meant to, detach what it takes from there."
        )
    elif new is None:
        title = f"this graph was run and freed already, by the backward of {earlier}"
        advice = (
            "Add the losses up and call backward once; or, where both calls are meant, give the first one "
            "retain_graph=True."
        )
    else:
        title = (
            f"{new.node.op or new.name} took a tensor of {earlier} (made by {old.node.op or old.name}), whose graph "
            "the backward there had freed"
        )
        advice = (
            "Detach what is carried from one step to the next (hidden = hidden.detach()), or compute it anew. "
            "retain_graph=True would keep every step's graph and train through all of them."
        )
    return [
        Finding(
            kind="second-backward",
            severity="error",
            title=title,
            confidence="likely" if reuse.inferred or (new is not None and new.site is None) else "certain",
            module=new.module if new is not None else run.module,
            node=run.name,
            tensor=f"output of {old.node.op or old.name}",
            step=call.step,
            sites=sites,
            evidence={
                "freed_in_step": reuse.freed_step,
                "freed_by_call": reuse.freed_by,
                "old_node": old.name,
                "old_line": str(old.site) if old.site else None,
                **(inferred_line(facts, call.index, reuse.node) if reuse.inferred else {}),
            },
            advice=advice,
        )
    ]
