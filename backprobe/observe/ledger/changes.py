"""Measures how much an optimizer's step changes weights, and the parts of the change (Note [Parts of a step]).

The state before the step is copied for a sample of elements, in some of the observed steps; all samples of a parameter
group are rows of one matrix. Nothing but these copies is kept, and they are freed when the step has ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from ... import thresholds
from ...records import WeightChange
from ...torch_internals import private
from ...torch_internals.measure import spread
from .account import MAX_COPIED_ELEMENTS, Account
from .formulas import Formula, UpdateInputs, formula_of, options_of, read_number

#: Most parameters that are measured in one step, and most elements of each.
MAX_MEASURED_PARAMETERS, MAX_MEASURED_ELEMENTS = 32, 512
#: Most changes that are kept of a parameter, and of all parameters of an optimizer.
MAX_CHANGES_EACH, MAX_CHANGES = 12, 4000
#: The dtypes of parameters whose changes are measured.
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class MeasuredChange:
    """A change, and how it compares with the precision of the weight.

    :ivar rounds_away: adding the parts to the weight before, in its dtype, gives the same weight in all elements.
    :ivar largest: the largest change that the parts should make, in half units in the last place of the weight;
        ``largest_of_gradient``: of the gradient's part, if the update is proportional to the gradient, else zero.
    """

    change: WeightChange
    rounds_away: bool = False
    largest: float = 0.0
    largest_of_gradient: float = 0.0


class _RowNumbers(NamedTuple):
    """The numbers of a row: norms of the parts and of the rest of the change, and shares of the parts in it.

    :ivar unexplained: in how many elements rounding does not explain the rest. ``differing``: in how many the parts
        should change the weight.
    :ivar rounded: of the elements that the parts should have changed, the share that stayed as they were.
    :ivar largest, largest_of_gradient: the largest change that all parts, or the gradient, should make in an element,
        in half units in the last place of the weight.
    """

    gradient: float
    momentum: float
    decay: float
    rest: float
    gradient_share: float
    momentum_share: float
    decay_share: float
    unexplained: float
    differing: float
    rounded: float
    largest: float
    largest_of_gradient: float


@dataclass
class _GroupSamples:
    """The samples of a parameter group before a step, a row for each parameter.

    :ivar formula, options: ``None`` if only the change as a whole is measured.
    :ivar sizes: the numbers of sampled elements. ``present``: which elements of the rows are there.
    :ivar grads: the samples of the gradients, ``None`` if there is none; ``versions`` of the gradients.
    """

    dtype: torch.dtype
    accounts: list[Account]
    sizes: list[int]
    present: torch.Tensor
    weight: torch.Tensor
    formula: Formula | None
    options: Mapping[str, Any] | None
    state: dict[str, torch.Tensor]
    step: torch.Tensor
    has_state: torch.Tensor
    grads: list[torch.Tensor | None]
    versions: list[tuple[Any, int]]


class StepChanges:
    """The changes of one step of an optimizer: ``StepChanges`` before the step, ``measure`` after it.

    :param accounts: of the parameters to measure.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, accounts: Sequence[Account]) -> None:
        self._group_samples = list(
            _sample_groups(optimizer, {id(p): a for a in accounts if (p := a.ref()) is not None})
        )

    def measure(self, step: int) -> dict[Account, MeasuredChange]:
        """Measure the changes after the step, free the samples, and return the finite changes by account."""
        found: dict[Account, MeasuredChange] = {}
        for group in self._group_samples:
            found.update(_measure_changes(group, step))
        self._group_samples = []
        return found


def add_change(account: Account, change: WeightChange, parameters: int) -> None:
    """Add a change to those of an account, of `parameters` in its optimizer; if they are too many, drop every other."""
    kept = account.changes
    kept.append(change)
    if len(kept) > max(2, min(MAX_CHANGES_EACH, MAX_CHANGES // max(1, parameters))):
        del kept[1:-1:2]


def is_measurable(parameter: Any) -> bool:
    """Return whether the values of a parameter can be sampled without waiting."""
    if not private.is_readable(parameter) or not parameter.is_cpu or parameter.dtype not in _DTYPES:
        return False
    return bool(parameter.numel() > 0 and (parameter.is_contiguous() or parameter.numel() <= MAX_COPIED_ELEMENTS))


def _sample_groups(optimizer: torch.optim.Optimizer, accounts: Mapping[int, Account]) -> Iterator[_GroupSamples]:
    """Yield samples of the parameters to measure before a step, one object for each parameter group and dtype.

    :param accounts: of the parameters to measure, by id.
    """
    formula = formula_of(optimizer)
    for group in optimizer.param_groups:
        by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
        for p in group["params"]:
            if id(p) in accounts and is_measurable(p):
                by_dtype.setdefault(p.dtype, []).append(p)
        options = options_of(optimizer, group) if by_dtype and formula is not None else None
        for dtype, parameters in by_dtype.items():
            mine = [accounts[id(p)] for p in parameters]
            yield _sample_group(
                dtype, parameters, mine, optimizer.state, formula if options is not None else None, options
            )


def _sample_group(
    dtype: torch.dtype,
    parameters: list[torch.Tensor],
    accounts: list[Account],
    states: Mapping[torch.Tensor, Any],
    formula: Formula | None,
    options: Mapping[str, Any] | None,
) -> _GroupSamples:
    """Return samples of parameters of one group and dtype, of their state and gradients, before a step.

    If the state cannot be read, only the change as a whole is measured: the formula is left out.
    """
    samples = [_sample(p) for p in parameters]
    sizes = [len(one) for one in samples]
    weight = _as_rows(samples, sizes)
    present = torch.arange(weight.shape[1]) < torch.tensor(sizes).unsqueeze(1)
    mine = [dict(states[p]) if p in states else {} for p in parameters]
    state: dict[str, torch.Tensor] = {}
    steps: list[float | None] = [0.0] * len(parameters)
    has_state = [0.0] * len(parameters)
    if formula is not None:
        for name in formula.state:
            tensors = [_state_sample(one.get(name), p) for one, p in zip(mine, parameters, strict=True)]
            if None in tensors:  # a state of another shape
                formula = None
                break
            state[name] = _as_rows([t if t is not None and len(t) else None for t in tensors], sizes)
        has_state = [float(any(one.get(name) is not None for name in formula.state)) for one in mine] if formula else []
    if formula is not None:
        steps = [read_number(one.get("step", 0.0)) for one in mine]
        for name, first in formula.scalars.items():
            values = [read_number(one.get(name, first)) for one in mine]
            steps = [None] if None in values else steps
            state[name] = _as_column([value or 0.0 for value in values])
        if None in steps:
            formula = None
    column = _as_column([1.0 + step for step in steps if step is not None])
    known = _as_column(has_state)
    grads = [_gradient_sample(p, copied=True) if formula is not None else None for p in parameters]
    versions = [_gradient_version(p) for p in parameters]
    return _GroupSamples(
        dtype, accounts, sizes, present, weight, formula, options, state, column, known, grads, versions
    )


def _as_column(values: Sequence[float]) -> torch.Tensor:
    """Return numbers as a column in float64."""
    return torch.tensor(values, dtype=torch.float64).unsqueeze(1)


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Return elements of a tensor at even distances, as a vector."""
    found: torch.Tensor = spread(tensor.detach().reshape(-1), MAX_MEASURED_ELEMENTS)
    return found


def _state_sample(state: Any, parameter: torch.Tensor) -> torch.Tensor | None:
    """Return a sample of the state of a parameter: empty if it has none, ``None`` if it cannot be sampled."""
    if state is None:
        return torch.empty(0)
    if not isinstance(state, torch.Tensor) or state.shape != parameter.shape or not is_measurable(state):
        return None
    return _sample(state)


def _gradient_sample(parameter: torch.Tensor, copied: bool = False) -> torch.Tensor | None:
    """Return a sample of the gradient; ``None`` if there is none, or it cannot be sampled."""
    found = _state_sample(parameter.grad, parameter)
    if found is None or not len(found):
        return None
    return found.clone() if copied else found


def _gradient_version(parameter: torch.Tensor) -> tuple[Any, int]:
    """Return a reference to the gradient of a parameter, and its version counter; (``None``, 0) without one."""
    grad = parameter.grad
    return (private.tensor_ref(grad), grad._version) if grad is not None else (None, 0)


def _as_rows(samples: Sequence[torch.Tensor | None], sizes: Sequence[int]) -> torch.Tensor:
    """Return samples, one for each parameter, as rows of equal length in float64, filled up with zeros."""
    rows = torch.zeros(len(samples), max(sizes), dtype=torch.float64)
    for i, one in enumerate(samples):
        if one is not None:
            rows[i, : len(one)] = one
    return rows


def _measure_changes(group: _GroupSamples, step: int) -> Iterator[tuple[Account, MeasuredChange]]:
    """Yield how the step changed each parameter of a group, scaled from its samples to the whole parameter."""
    parameters = [account.ref() for account in group.accounts]
    samples = [_sample(p) if p is not None and is_measurable(p) else None for p in parameters]
    samples = [s if s is not None and len(s) == n else None for s, n in zip(samples, group.sizes, strict=True)]
    after = _as_rows(samples, group.sizes)
    changed = after - group.weight
    sizes = torch.stack([_row_norms(group.weight), _row_norms(changed)], 1).tolist()
    parts = _explained_parts(group, parameters, changed, after) if group.formula is not None else {}
    for i, (account, (weight, change)) in enumerate(zip(group.accounts, sizes, strict=True)):
        p = parameters[i]
        if p is None or samples[i] is None or not math.isfinite(weight + change):
            continue
        scale = math.sqrt(p.numel() / group.sizes[i])
        row = parts.get(i)
        if row is None:
            yield account, MeasuredChange(WeightChange(step, scale * weight, scale * change))
            continue
        whole = WeightChange(
            step,
            weight=scale * weight,
            change=scale * change,
            gradient=scale * row.gradient,
            momentum=scale * row.momentum,
            decay=scale * row.decay,
            gradient_share=row.gradient_share,
            momentum_share=row.momentum_share,
            decay_share=row.decay_share,
            rest=scale * row.rest,
            explained=not row.unexplained,
            rounded=row.rounded,
        )
        linear = row.largest_of_gradient if group.formula is not None and group.formula.is_linear else 0.0
        rounds_away = not (row.unexplained or row.differing)
        yield account, MeasuredChange(whole, rounds_away, row.largest, linear)


def _explained_parts(
    group: _GroupSamples, parameters: list[torch.Tensor], changed: torch.Tensor, after: torch.Tensor
) -> dict[int, _RowNumbers]:
    """Return the numbers of the rows with a gradient, if they are finite.

    The gradient that counts is the one before the step, or the one after it: a closure computes it in the step, and
    some implementations of ``SGD`` write to it.
    """
    found: dict[int, _RowNumbers] = {}
    gradients_after = list(group.grads)
    for i, p in enumerate(parameters):
        ref, version = group.versions[i]
        grad = p.grad if p is not None else None
        is_same = grad is not None and ref is not None and grad is ref() and grad._version == version
        if p is not None and not is_same and (sample := _gradient_sample(p)) is not None:
            gradients_after[i] = sample
    for grads in (group.grads, gradients_after):
        if grads is gradients_after and all(a is b for a, b in zip(gradients_after, group.grads, strict=True)):
            break
        used = [g if g is not None and len(g) == n else None for g, n in zip(grads, group.sizes, strict=True)]
        numbers = torch.stack(_measure_parts(group, changed, after, _as_rows(used, group.sizes)), 1).tolist()
        for i, row in enumerate(map(_RowNumbers._make, numbers)):
            is_better = i not in found or (found[i].unexplained and not row.unexplained)
            if used[i] is not None and is_better and all(map(math.isfinite, row)):
                found[i] = row
    return found


def _measure_parts(
    group: _GroupSamples, changed: torch.Tensor, after: torch.Tensor, gradient: torch.Tensor
) -> list[torch.Tensor]:
    """Split the changes of all rows into the parts of gradient, momentum and decay by the optimizer's formula.

    :param changed: the change of the weights; `after`: the weights after the step.
    :returns: the fields of ``_RowNumbers``, each for all rows.
    """
    formula, options = group.formula, group.options
    assert formula is not None and options is not None
    weight, decay = group.weight, options.get("weight_decay", 0.0)
    decoupled = bool(options.get("decoupled_weight_decay"))
    used = -gradient if options.get("maximize") else gradient
    penalty = torch.zeros_like(weight) if decoupled else decay * weight
    terms = UpdateInputs(options, used + penalty, group.step, group.state, group.has_state)
    factor, momentum = formula.update(terms)
    parts = torch.stack([factor * used, momentum, -options["lr"] * decay * weight if decoupled else factor * penalty])
    parts = torch.where(group.present, parts, 0.0)
    planned = parts.sum(0)
    rest = torch.where(group.present, changed - planned, 0.0)
    info = torch.finfo(group.dtype)
    sizes = parts.abs().sum(0)
    if not decoupled:  # the sum of gradient and penalty is rounded, too, before it is scaled
        sizes = sizes + (factor * terms.grad).abs()
    roundings = thresholds.CHANGE_PARTS_ROUNDINGS * max(info.eps, terms.eps) * terms.amplified + torch.zeros_like(sizes)
    roundings = torch.where(roundings > thresholds.CHANGE_MAX_ROUNDING, torch.inf, roundings)
    bound = roundings * sizes
    bound = (
        bound
        + thresholds.WEIGHT_CHANGE_ROUNDINGS * info.eps * torch.maximum(weight.abs(), after.abs())
        + 4 * info.smallest_normal
    )
    excess = torch.where(group.present, rest.abs() > bound, False)
    differs = (weight + planned).to(group.dtype).double() != weight
    exponent = torch.frexp(weight.abs().clamp_min(info.smallest_normal)).exponent
    half = torch.ldexp(torch.full_like(weight, info.eps / 4), exponent)
    square = changed.square().sum(1)
    shares = torch.where(square > 0, (parts * changed).sum(2) / square.clamp_min(1e-300), 0.0)
    counts = [excess.sum(1).double(), torch.where(group.present, differs, False).sum(1).double()]
    meant = torch.where(group.present, planned != 0, False)
    rounded = (meant & (changed == 0)).sum(1).double() / meant.sum(1).clamp_min(1)
    return [
        *(_row_norms(part) for part in parts),
        _row_norms(rest),
        *shares,
        *counts,
        rounded,
        *((one.abs() / half).amax(1) for one in (planned, parts[0])),
    ]


def _row_norms(rows: torch.Tensor) -> torch.Tensor:
    """Return the Euclidean norm of each row."""
    return torch.linalg.vector_norm(rows, dim=1)
