"""``--check divergence``: compares the recorded ops with float64 and with other models, when the script has ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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


def compare_with_float64(tape: Tape, stored_tensors: Tensors, applied: Sequence[Applied]) -> list[Divergence]:
    """Compute the recorded ops again in float64; return the first op at which the run diverges, or an empty list.

    :param stored_tensors: the tensors that were kept; `applied`: the calls of custom functions.
    """

    def recorded(of: Tape, value: int | None) -> torch.Tensor | None:
        """Return the kept tensor of a recorded value in float64; ``None`` if it was not kept."""
        stored = stored_tensors.get(of.prints[value].hash) if value is not None else None
        return None if stored is None else widened(stored)

    with torch.device("cpu"):
        comparison = Both(tape, nothing(tape), (), stored_tensors, Names()).run()
        functions = Functions(tape, recorded)
        function_errors = [(one, *how) for one in applied if (how := functions.off(one)) is not None]
    departure = departs(tape, comparison, function_errors)
    return [_run_divergence(departure)] if departure is not None else []


def _run_divergence(found: Departs) -> Divergence:
    """Return the record of the op, or the custom function, at which the run departs from float64."""
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


def compare_models(tape: Tape, stored_tensors: Tensors, models: Sequence[Model], ops_of: OpsOf) -> list[Divergence]:
    """Return the first divergence of each model from the first model with the same module classes at the same paths.

    Only the ops of the first recorded call of each module that both scripts call from outside are compared.
    """

    def compare_ops(a: Tape, b: Tape, pairs: Sequence[tuple[int, int]], names: Names) -> Judged:
        """Compute the ops of two models again and judge their differences; see ``Both``."""
        return Both(a, b, pairs, stored_tensors, names).run()

    first_models: dict[object, Model] = {}
    divergences = []
    for model in models:
        first = first_models.setdefault(model.structure, model)
        shared_paths = [path for path in first.first_calls if path in model.first_calls]
        if first is model or not shared_paths:
            continue
        equal_weights = [model.weights.get(name) == mine for name, mine in first.weights.items() if mine[1]]
        a, b = (
            part(tape, [op for path in shared_paths for op in ops_of(one, *one.first_calls[path])])
            for one in (first, model)
        )
        if not a.ops or not b.ops:
            continue
        with torch.device("cpu"):
            divergence = parts(a, b, compare_ops, any(equal_weights))
        if divergence is not None:
            divergences.append(_model_divergence(divergence, first, model))
    return divergences


def _model_divergence(found: Parts, first: Model, other: Model) -> Divergence:
    """Return the record of the first divergence of the model `other` from the model `first`."""
    blame, path = found.blame, found.module
    first_settings, other_settings = first.settings.get(path, {}), other.settings.get(path, {})
    changed_settings = settings(first_settings, other_settings)
    op = blame.a or blame.b
    assert op is not None
    lines = [side.site or side.inner for side in (blame.a, blame.b) if side is not None]
    assigned = first.assignment_site(path) if changed_settings or blame.kind == "outside" else None
    sites = [assigned, *lines] if assigned is not None and blame.kind != "loses" else [*lines, assigned]
    cause, *others = dict.fromkeys(site for site in sites if site is not None) or [None]
    return Divergence(
        path,
        str(first_settings.get("class", first.root.class_name)),
        blame.error,
        tuple(changed_settings),
        found.matching,
        cause,
        what=_describe_difference(blame),
        op=op.name,
        phase=op.phase,
        step=op.step,
        other=others[0] if others else None,
        rounding=blame.kind == "loses",
    )


def _describe_difference(blame: Blame) -> str:
    """Describe a difference between two models as text for the user."""
    if blame.kind == "outside":
        off = f", off by {blame.error:.2g}" if blame.error is not None else ""
        return f"another weight ({blame.name}){off}"
    return what(blame).replace("the other run", "the other model").replace("one of the runs", "one of the two")
