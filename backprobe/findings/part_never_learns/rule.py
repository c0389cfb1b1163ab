"""The rule for parts of a parameter that never learn: padding rows, outputs that are left out, units that are dead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.text import few, plural
from ...ops import canonical_names, info, names_of
from ...records import BackwardCall, Finding, NodeRun, PaddingRowUsed, UnlearnedRows
from ..relations.end_of_run import feeders
from ..relations.losses import falls_below_best
from ..relations.single_values import single_value_norms
from ..rules import GRADIENTS_INVALID, MEANT, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace

#: The operations after which each output depends on all outputs of the layer.
_MIXING = names_of(lambda row: row.is_total or (row.adds_terms and row.amplifies)) | canonical_names("nll_loss")
#: Those that take a part of what they get; and by indices.
_PARTS = names_of(lambda row: row.gives_parts) | canonical_names("slice select narrow")
_BY_INDEX = names_of(lambda row: row.chooses_by_index)
#: The most nodes between a layer and the operation that leaves outputs out.
MAX_NODES = 40


@rule(
    Kind(
        "part-never-learns",
        "info",
        "rows of a parameter get no gradient: a padding row that is looked up, outputs that never reach the loss, "
        "units whose ReLU is always zero",
        rank=MEANT + 20,
        questions=(Question.NOT_LEARNING,),
        points_to="the embedding with `padding_idx`, the slice that leaves outputs out, or the ReLU",
    ),
    silenced_by=(GRADIENTS_INVALID, "dead-units", "rank-collapse"),
)
def part_never_learns(trace: Trace) -> list[Finding]:
    """Report rows of a parameter that never get a gradient: used padding rows, outputs that are left out, dead units.

    One finding for all padding rows of a kind, and one for each line that leaves outputs out. Parameters before a
    normalisation over single values are left out: it is why they do not learn.
    """
    padding = [_finding(seen) for seen in trace.facts.of(PaddingRowUsed)]
    groups: dict[tuple[object, str], list[tuple[UnlearnedRows, NodeRun]]] = {}
    rows = [*trace.facts.of(UnlearnedRows)]
    explained = {name for one in single_value_norms(trace) for name in one.parameters} if rows else set()
    for seen in rows:
        if seen.parameter in explained:
            continue
        run = _cause(trace, seen)
        if run is not None:
            groups.setdefault((run.site, info(run.name).name), []).append((seen, run))
    found = [_unlearned(trace, group) for group in groups.values()]
    return [*padding, *(one for one in found if one is not None)]


def _finding(seen: PaddingRowUsed) -> Finding:
    """Return the finding for a padding row of an embedding that is looked up although it gets no gradient."""
    verb = plural(seen.parameters, "gets", "get")
    return Finding(
        kind="part-never-learns",
        severity="info",
        title=f"row {seen.row} of {few(seen.parameters)} {verb} no gradient because of padding_idx={seen.row}, and up "
        f"to {seen.share:.1%} of the lookups use it",
        confidence="likely",
        step=seen.step,
        parameters=seen.parameters,
        sites=sites_of(*(("defined", site) for site in seen.sites)),
        evidence={"row": seen.row, "share": round(seen.share, 4)},
        advice=f"If {seen.row} is the id of something real, leave padding_idx out or let ids begin after it. If it "
        "stands for a missing value, nothing is wrong.",
    )


def _cause(trace: Trace, seen: UnlearnedRows) -> NodeRun | None:
    """Return the node after a layer that may give some of its outputs no gradient; ``None`` if there is none.

    That is an activation that is flat for some inputs; otherwise the first operation that takes a part.
    """
    call = next((one for one in reversed(list(trace.backwards)) if _weight(one, seen.parameter) is not None), None)
    weight = _weight(call, seen.parameter) if call is not None else None
    if call is None or weight is None:
        return None
    into, part = feeders(call), None
    stack, known, in_layer = [weight.node.index], {weight.node.index}, {weight.node.index}
    for index in stack:  # grows as we go
        if len(stack) > MAX_NODES:
            break
        for above, _ in into.get(index, ()):
            run = call.nodes[above]
            operator = info(run.name)
            if index in in_layer:  # the layer itself, and views of the weight
                if above not in known:
                    known.add(above)
                    stack.append(above)
                    if operator.reshapes:
                        in_layer.add(above)
                continue
            if operator.clips:
                return run
            if part is None and (operator.name in _PARTS or operator.name in _BY_INDEX):
                part = run
            if above not in known and operator.name not in _MIXING and operator.forward != "normalises":
                known.add(above)
                stack.append(above)
    return part


def _weight(call: BackwardCall, name: str) -> NodeRun | None:
    """Return the node of a parameter in a backward call; ``None`` if the call does not reach it."""
    return next((run for run in call.nodes if run.parameter == name), None)


def _unlearned(trace: Trace, group: list[tuple[UnlearnedRows, NodeRun]]) -> Finding | None:
    """Return the finding for weights whose rows get no gradient because of one line; ``None`` if too few units are
    dead.

    Dead units are no warning if the loss is lower at the end than it ever was before: the others suffice.

    :param group: the rows without gradient of each weight, with the node that is the cause.
    """
    seen, run = max(group, key=lambda one: one[0].count / one[0].row_count)
    operator, share = info(run.name), seen.count / seen.row_count
    names = tuple(one.parameter for one, _ in group)
    dies, died = operator.clips, 2 * seen.learned > seen.count
    if dies and share < thresholds.DEAD_UNITS_MIN_SHARE:
        return None
    if dies:
        is_warning = share >= (
            thresholds.DEAD_UNITS_WARNING_SHARE if died else thresholds.DEAD_UNITS_NEVER_LEARNED_SHARE
        )
        is_warning = is_warning and not (died and falls_below_best(trace, seen.since))
        why = f"{operator.name} is flat for every input of these units"
    else:
        is_warning = seen.count == 1 and operator.name in _PARTS
        why = f"{operator.name} leaves {plural(seen.rows, 'this output', 'these outputs')} of {seen.owner} out"
    when = f"since about step {seen.since}" if died else f"in all {seen.looks} examined steps"
    names = (seen.parameter, *(name for name in names if name != seen.parameter))
    others = f" (and some of {few(names[1:])})" if len(names) > 1 else ""
    return Finding(
        kind="part-never-learns",
        severity="warning" if is_warning else "info",
        title=f"{_rows(seen)} of {seen.parameter}{others} {plural(seen.rows, 'has', 'have')} a gradient of exactly "
        f"zero {when}, while the others learn: {why}",
        confidence="likely",
        module=seen.parameter.rpartition(".")[0] or None,
        node=run.name,
        step=seen.since,
        parameters=names,
        sites=sites_of(("cut", run.site), ("backward", seen.backward)),
        evidence={
            "rows": list(seen.rows[:20]),
            "count": seen.count,
            "of": seen.row_count,
            "learned_before": seen.learned,
            "looks": seen.looks,
            "op": operator.name,
        },
        advice="Lower the learning rate, or clip gradients: one large update pushes units below zero for good. Look at "
        "the biases, or use leaky_relu, gelu or silu, whose slope is not zero."
        if dies
        else "Look at the indices: they may be off by one, or of the wrong dimension. If these outputs are meant to be "
        "spare, as those of a vocabulary that is padded, nothing is wrong.",
    )


def _rows(seen: UnlearnedRows) -> str:
    """Return the rows as text: the number of a single row, or how many of how many."""
    return f"row {seen.rows[0]}" if seen.count == 1 else f"{seen.count} of {seen.row_count} rows"
