"""The rule for a custom ``Function`` whose backward returned gradients of the wrong shape or number."""

from __future__ import annotations

from ...basics.torch_texts import WRONG_NAME, WRONG_NUMBER, WRONG_SHAPE
from ...records import BackwardCall, Facts, Finding
from ..relations.inferred_lines import inferred_line
from ..rules import WRONG, Kind, Question, rule, sites_of


@rule(
    Kind(
        "wrong-backward-shape",
        "error",
        "a custom function's backward returned gradients of a wrong shape or number",
        rank=WRONG + 30,
        questions=(Question.RAISED,),
        points_to="the line that applies the function, and its backward",
    ),
    each_call=True,
    invalidates_gradients=True,
)
def wrong_shape(call: BackwardCall, facts: Facts) -> list[Finding]:
    """Return the finding for a custom function whose backward returned gradients of a wrong shape or number in this
    call.
    """
    raised = call.raised
    if raised is None or not any(text in raised.text for text in (WRONG_SHAPE, WRONG_NUMBER)):
        return []
    name = raised.text.split(WRONG_NAME, 1)[-1].split(" ", 1)[0]
    running = call.nodes[raised.node] if raised.node is not None else None
    run = running if running is not None and running.name == name else None
    run = run or next((r for r in call.nodes if r.name == name), None)
    if run is None or run.node.op not in ("Function.apply", ""):
        return []
    pairs = (("applied", run.site), ("backward", raised.backward), ("failed", call.site))
    return [
        Finding(
            kind="wrong-backward-shape",
            severity="error",
            title=f"the backward of {run.name.removesuffix('Backward')} gave gradients that do not fit its inputs: "
            f"{raised.text.splitlines()[0][:200]}",
            confidence="likely" if raised.inferred and run.site is not None else "certain",
            module=run.module,
            node=run.name,
            step=call.step,
            sites=sites_of(*pairs),
            evidence={
                "error": raised.text[:1000],
                **(
                    inferred_line(facts, call.index, run.node.index) if raised.inferred and run.site is not None else {}
                ),
            },
            advice="Return one gradient for each argument of forward, in its order, None for those that are no "
            "tensors; each of the shape of its input (sum over what was broadcast).",
        )
    ]
