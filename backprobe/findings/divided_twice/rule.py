"""Rule for losses that the script and a library divide by the number of accumulated batches."""

from __future__ import annotations

import re
from collections.abc import Set
from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.accumulation import divisors_in, is_count_of_batches
from ...ops import canonical
from ...records import AccumulationNames, BackwardCall, Finding, NodeRun, Site
from ..relations.expanded_regions import Opened
from ..relations.sources import input_of, name_of, passes_values
from ..rules import LEARNING, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace

ADD, SUB, SUM, MEAN, DIV, MUL = map(canonical, ("add", "sub", "sum", "mean", "div", "mul"))
#: Packages that divide the loss by the number of accumulated batches.
LIBRARIES = ("transformers", "lightning", "pytorch_lightning", "accelerate")
#: The most backward calls that are examined, and nodes behind the root of one: a loss is divided near its end.
MAX_CALLS, MAX_NODES = 200, 24
#: Nodes of losses that are a mean by default.
_LOSS = re.compile(r"loss|entropy", re.IGNORECASE)


@rule(
    Kind(
        "loss-divided-twice",
        "warning",
        "the script divides the loss by the number of accumulated batches, and a library does so again",
        rank=LEARNING + 34,
        questions=(Question.LEARNS_BADLY,),
        points_to="the division by hand",
    )
)
def loss_divided_twice(trace: Trace) -> list[Finding]:
    """Report lines of the script that divide a loss by the number of backward calls in a step, if a library does so
    again.
    """
    counts = {row.index: row.calls for row in trace.step_rows() if row.calls > 1}
    if not counts:
        return []
    names = frozenset(name for given in trace.facts.of(AccumulationNames) for name in given.names)
    found: dict[Site | None, Finding] = {}
    calls = (call for call in Opened(trace) if call.inside is None and call.raised is None and call.step in counts)
    for call in islice(calls, MAX_CALLS):
        divisions = _divisions(call, counts[call.step], names)
        if divisions is not None and divisions[1].site not in found:
            found[divisions[1].site] = _finding(call, *divisions, counts[call.step])
    return list(found.values())


def _divisions(call: BackwardCall, count: int, names: Set[str]) -> tuple[NodeRun, NodeRun] | None:
    """Return the nodes of a library's division of the loss by `count`, and of the script's own division before it.

    Follows the graph from the loss down. ``None`` if one of the two is missing, if the script multiplies the loss by
    `count` again, or if its division may turn a sum of `count` losses into their mean.
    """
    root = call.roots[0] if len(call.roots) == 1 else None
    run = call.nodes[root.node] if root is not None and root.node is not None and not root.shape else None
    by_library: NodeRun | None = None
    by_script: NodeRun | None = None
    others = 1.0
    for _ in range(MAX_NODES):
        factor = _factor(run) if run is not None else None
        if run is None or factor is None:
            break
        divides = name_of(run) == DIV and abs(factor * count - 1) <= thresholds.DIVIDED_TWICE_FACTOR_TOLERANCE
        if divides and by_library is None and _library_of(run):
            by_library = run
        elif divides and by_library is not None and by_script is None and not run.node.library:
            by_script = run
        elif not run.node.library:
            others *= factor
        run = input_of(call, run)
    if (
        by_library is None
        or by_script is None
        or run is None
        or abs(others / count - 1) <= thresholds.DIVIDED_TWICE_FACTOR_TOLERANCE
    ):
        return None
    return (by_library, by_script) if _is_count(call, by_script, run, count, others, names) else None


def _factor(run: NodeRun) -> float | None:
    """Return the factor by which a node multiplies a number, read from the norms of its gradients.

    ``None`` for other operations, for tensors, and if the gradients were not measured.
    """
    came, gave = (one[0] if one else None for one in (run.grad_outputs, run.grad_inputs))
    edges = run.node.edges
    if not edges or edges[0] is None or any(edge is not None for edge in edges[1:]) or came is None or came.shape:
        return None
    if passes_values(run):
        return 1.0
    if name_of(run) not in (DIV, MUL) or gave is None or gave.shape or not came.norm or not gave.norm:
        return None
    return gave.norm / came.norm


def _library_of(run: NodeRun) -> str:
    """Return the name of the training library whose own code made a node; empty if it is none of ``LIBRARIES``."""
    parts = PurePath(run.node.library[-1].file).parts if run.node.library else ()
    return next((name for name in LIBRARIES if name in parts), "")


def _is_count(call: BackwardCall, run: NodeRun, loss: NodeRun, count: int, others: float, names: Set[str]) -> bool:
    """Return whether a division is one by the number of accumulated batches, and not part of the loss.

    It is if the name of the divisor says so, unless the loss is a plain sum or a sum of `count` losses. A literal
    number of that value counts only if it is above 2 and the loss is a mean: a half is often part of a loss.

    :param run: the node of the script's division.
    :param loss: the node of the undivided loss.
    :param others: the product of the script's other factors between `loss` and the root.
    :param names: names that the script gives to a library as the number of accumulated batches.
    """
    text = run.site.text if run.site is not None else ""
    divisors = divisors_in(text)
    if any(is_count_of_batches(one, names) for one in divisors):
        is_sum = name_of(loss) == SUM and others == 1  # not one that is divided by the number of its elements, too
        return not is_sum and _terms(call, loss) != count
    is_literal = count > 2 and any(one in (f"{count}", f"{count}.0", f"{count}.") for one in divisors)
    is_mean = name_of(loss) == MEAN or _LOSS.search(loss.name) is not None
    summed_at = loss.site.text if loss.site is not None else ""
    return is_literal and is_mean and others == 1 and "sum" not in text + summed_at


def _terms(call: BackwardCall, run: NodeRun) -> int:
    """Return how many losses are added up in a node, counted through additions and subtractions.

    Stops counting when there are more than ``MAX_NODES``.
    """
    left, terms = [run], 0
    while left and terms <= MAX_NODES:
        one = left.pop()
        if name_of(one) in (ADD, SUB):
            sources = (input_of(call, one, i) for i in range(len(one.node.edges)))
            left += [source for source in sources if source is not None]
        else:
            terms += 1
    return terms


def _finding(call: BackwardCall, by_library: NodeRun, by_script: NodeRun, count: int) -> Finding:
    """Return the finding for a loss that both `by_library` and `by_script`, two nodes of `call`, divide by `count`."""
    library = _library_of(by_library)
    return Finding(
        kind="loss-divided-twice",
        severity="warning",
        title=f"{library} divides the loss by {count}, the number of accumulated batches, and so does the script: "
        f"the gradients of each step are too small by a factor of {count}",
        confidence="likely",
        node=by_script.name,
        step=call.step,
        sites=sites_of(("cause", by_script.site), ("backward", call.site if call.site != by_script.site else None)),
        evidence={
            "library": library,
            "count": count,
            "library_line": f"{by_library.node.library[-1].file}:{by_library.node.library[-1].line}",
        },
        advice=f"Remove the division by hand: {library} already does it. "
        "If a log needs the divided loss, divide a detached copy for it.",
    )
