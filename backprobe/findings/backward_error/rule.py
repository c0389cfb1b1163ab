"""The rule for a node that raised an exception: names the node and the forward line that created it."""

from __future__ import annotations

import re

from ...basics.torch_texts import DONATED, NO_SECOND, NOT_SCALAR, READY_TWICE
from ...records import BackwardCall, Facts, Finding, FindingSite, NodeRun, RegionDiffers, Site, StaleRead
from ..relations.inferred_lines import inferred_line
from ..rules import GENERAL, Kind, Question, rule

#: Matches torch's error for an operation that has a first derivative and no second.
_NO_DERIVATIVE = re.compile(r"derivative for aten::(\w+)_backward\w* is not implemented")


@rule(
    Kind(
        "backward-error",
        "error",
        "a node raised an exception while the backward ran",
        rank=GENERAL,
        questions=(Question.RAISED,),
        points_to="the line of the forward whose backward raised",
    ),
    each_call=True,
    invalidates_gradients=True,
    silenced_by=("inplace", "second-backward", "wrong-backward-shape"),
)
def backward_errors(call: BackwardCall, facts: Facts) -> list[Finding]:
    """Return the finding for the node at which this backward call raised an error; empty if none did or another rule
    has it.

    It names the forward line that made the node; if the failed derivative is one of a derivative, the line of the
    original operation. Errors about a checkpoint, a stale `.grad` in a hook and DDP's "ready twice" belong to other
    rules.
    """
    raised = call.raised
    if raised is None or raised.node is None or READY_TWICE in raised.text:
        return []
    # Errors of a checkpoint's recomputation, or of a hook that read a gradient too early, have findings of their own.
    if any(call.index in seen.backwards for seen in facts.of(RegionDiffers)):
        return []
    if any(raised.backward == seen.stale for seen in facts.of(StaleRead)):
        return []
    run = call.nodes[raised.node]
    text = f": {raised.text.splitlines()[0][:200]}" if raised.text.strip() else ""
    second, site, module = raised.of, run.site, run.module
    place = f" of {run.parameter}" if run.parameter else f" made by {run.node.op}" if run.node.op else ""
    if second is not None and second.site is not None:
        place, site, module = f", which is the derivative of {second.op},", second.site, second.module
    elif site is None and (named := _named(call, raised.text)) is not None:
        site, module, place = named.site, named.module, f", which is the derivative of {named.node.op or named.name},"
    title, advice = _refused(call, raised.text) or (
        f"{run.name}{place} raised {raised.type} in the backward{text}",
        _advice(site, run.site),
    )
    if NOT_SCALAR in raised.text:
        shape = list(call.roots[0].shape) if call.roots else []
        title = f"the backward was started from {run.node.op or run.name}, which gives more than one number: {shape}"
        advice = (
            "Reduce the loss to a scalar (mean or sum; reduction='none' leaves one value an element), or pass "
            "backward(gradient=...)."
        )
    sites = [FindingSite("cause", site)] if site else []
    if run.site is not None and run.site != site:
        sites.append(FindingSite("derived", run.site))
    if raised.backward:
        sites.append(FindingSite("backward", raised.backward))
    if call.site:
        sites.append(FindingSite("failed", call.site))
    return [
        Finding(
            kind="backward-error",
            severity="error",
            title=title,
            confidence="certain" if raised.is_located else "likely",
            module=module,
            node=run.name,
            step=call.step,
            sites=tuple(sites),
            evidence={
                "error": raised.text[:2000],
                "ran_before": sum(r.order is not None for r in call.nodes),
                **(inferred_line(facts, call.index, raised.node) if raised.inferred else {}),
            },
            advice=advice,
        )
    ]


def _advice(site: Site | None, forward: Site | None) -> str:
    """Return advice for an error in a node's backward.

    :param site: the line that the finding names as cause; ``None`` if no line of the forward is known.
    :param forward: the line that made the node itself. If it differs from `site`, a second derivative failed.
    """
    if site is None:
        return (
            "No line of the forward made this node. What the error says is about the operations of the first "
            "backward, where gradients of gradients are asked for: look at custom functions and fused operations in "
            "the forward."
        )
    if site == forward:
        return (
            "Look at the forward line named here: the shapes, dtypes and devices that went into it decide what "
            "its backward gets."
        )
    return (
        "A gradient of a gradient is asked for, and the backward of this operation has none: use operations "
        "that have (a custom function without once_differentiable, a formula of simple operations in place of a "
        "fused one), or leave this part out of the penalty."
    )


def _refused(call: BackwardCall, text: str) -> tuple[str, str] | None:
    """Return title and advice if torch's error says that a compiled region cannot run this backward; otherwise
    ``None``.

    The reasons are a second derivative, which compiled regions lack, and a graph that is kept although the compiled
    code reuses its buffers ("donated").
    """
    if NO_SECOND in text:
        return (
            "a second derivative was asked for, and the compiled region that is called here has none",
            "torch.compile makes first derivatives only. Call what create_graph=True goes through uncompiled (the "
            "model itself and not what torch.compile gave, or within torch.compiler.set_stance('force_eager')), or "
            "compile it with backend='eager'; compile the rest. torch._functorch.config.donated_buffer does not help.",
        )
    if DONATED not in text:
        return None
    if call.arguments.get("create_graph") == "True":
        return (
            "create_graph=True goes through a compiled region, which has no second derivative",
            "Setting torch._functorch.config.donated_buffer, as torch's error asks for, would only put it off: call "
            "what create_graph=True goes through uncompiled (the model itself and not what torch.compile gave, or "
            "within torch.compiler.set_stance('force_eager')), or compile it with backend='eager'.",
        )
    return (
        "the backward of the compiled region that is called here was to keep its graph (retain_graph=True), and it was "
        "compiled to use up what it had kept, as the calls before it allowed",
        "Add the losses up and call backward once; or, where the graph has to be kept, set "
        "torch._functorch.config.donated_buffer = False at the start of the script, which costs some memory. Or let "
        "the first backward through the region keep its graph: then it is compiled for that.",
    )


def _named(call: BackwardCall, text: str) -> NodeRun | None:
    """Return the forward node whose derivative the error text names; ``None`` unless all such nodes come from one known
    line.
    """
    match = _NO_DERIVATIVE.search(text)
    if match is None:
        return None
    name = "".join(part.capitalize() for part in match[1].split("_"))
    found = {run.site: run for run in call.nodes if run.name.rstrip("0123456789") == f"{name}Backward"}
    return next(iter(found.values())) if len(found) == 1 and None not in found else None
