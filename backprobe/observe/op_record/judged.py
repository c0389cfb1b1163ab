"""``--check divergence``: evaluation of the recorded ops when the script has ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...comparing.align import Names
from ...comparing.blame import Blame
from ...comparing.itself import Departs, departs, nothing
from ...comparing.models import Parts, part, parts, settings
from ...comparing.text import what
from ...float64.functions import Functions
from ...float64.ops import widened
from ...float64.pairwise import Both
from ...float64.tensor_store import Tensors
from ...records import Applied, Divergence, Judged, Tape, TapeOp
from .models import Model

#: Returns the ops of a model from one index up to another, with module paths relative to that model.
OpsOf = Callable[[Model, int, int], list[TapeOp]]


def against_float64(tape: Tape, kept: Tensors, applied: Sequence[Applied]) -> list[Divergence]:
    """Return the first op at which the run diverges from a float64 run: a list of at most one divergence."""

    def recorded(of: Tape, value: int | None) -> Any:
        found = kept.get(of.prints[value].hash) if value is not None else None
        return None if found is None else widened(found)

    with torch.device("cpu"):
        judged = Both(tape, nothing(tape), (), kept, Names()).run()
        functions = Functions(tape, recorded)
        off = [(one, *how) for one in applied if (how := functions.off(one)) is not None]
    found = departs(tape, judged, off)
    return [_of_run(found)] if found is not None else []


def _of_run(found: Departs) -> Divergence:
    op, function = found.op, found.function
    made = op.site or op.inner
    return Divergence(
        op.module,
        "",
        found.error,
        site=function.at if function is not None else made,
        against="float64",
        what=found.what,
        op=f"{function.name}Backward" if function is not None else op.name,
        phase="backward" if function is not None else op.phase,
        step=op.step,
        node=(function and f"{function.name}Backward") or op.node or None,
        other=made if function is not None else None,
    )


def against_each_other(tape: Tape, kept: Tensors, models: Sequence[Model], ops_of: OpsOf) -> list[Divergence]:
    """Return where models of equal structure diverge, each compared with the first model of that structure."""

    def judge(a: Tape, b: Tape, pairs: Sequence[tuple[int, int]], names: Names) -> Judged:
        return Both(a, b, pairs, kept, names).run()

    kinds: dict[Any, Model] = {}
    found = []
    for model in models:
        first = kinds.setdefault(model.structure, model)
        both = [path for path in first.first if path in model.first]
        if first is model or not both:
            continue
        same = [model.weights.get(name) == mine for name, mine in first.weights.items() if mine[1]]
        a, b = (part(tape, [op for path in both for op in ops_of(one, *one.first[path])]) for one in (first, model))
        if not a.ops or not b.ops:
            continue
        with torch.device("cpu"):
            differs = parts(a, b, judge, any(same))
        if differs is not None:
            found.append(_of_models(differs, first, model))
    return found


def _of_models(found: Parts, one: Model, two: Model) -> Divergence:
    blame, path = found.blame, found.module
    mine, its = one.settings.get(path, {}), two.settings.get(path, {})
    changed = settings(mine, its)
    op = blame.a or blame.b
    assert op is not None
    lines = [side.site or side.inner for side in (blame.a, blame.b) if side is not None]
    assigned = one.assigned(path) if changed or blame.kind == "outside" else None
    sites = [assigned, *lines] if assigned is not None and blame.kind != "loses" else [*lines, assigned]
    cause, *others = dict.fromkeys(site for site in sites if site is not None) or [None]
    return Divergence(
        path,
        str(mine.get("class", one.root.class_name)),
        blame.error,
        tuple(changed),
        found.matching,
        cause,
        what=_what(blame),
        op=op.name,
        phase=op.phase,
        step=op.step,
        other=others[0] if others else None,
        rounding=blame.kind == "loses",
    )


def _what(blame: Blame) -> str:
    """Describe the difference in words that speak of models rather than runs."""
    if blame.kind == "outside":
        off = f", off by {blame.error:.2g}" if blame.error is not None else ""
        return f"another weight ({blame.name}){off}"
    return what(blame).replace("the other run", "the other model").replace("one of the runs", "one of the two")
