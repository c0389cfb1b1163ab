"""Detects layers whose units are copies of one another, and get equal gradients."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

import torch
from torch import nn

from ... import thresholds
from ...records import EqualUnits, Site
from ...source.frames import CodeLocation
from ...source.index import SourceIndex, arguments_of, indexes, last_name
from ...torch_internals import private
from ...torch_internals.measure import is_float
from ...torch_internals.optimizers import parameters_of
from ..forward.leaves import LeafTensor
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Number of first steps of an optimizer that are examined if they are recorded: the most in a row.
MAX_FIRST_STEPS = 3
#: Interval, in steps, between later looks.
STEP_INTERVAL = 8
#: Maximum number of steps of an optimizer that are examined.
MAX_LOOKS = 12
#: The most optimizers, parameters of one, and elements of a parameter.
MAX_OPTIMIZERS, MAX_PARAMETERS, MAX_ELEMENTS = 16, 2000, 1 << 24
#: The numbers of blocks in which rows are compared: the gates of a GRU and of an LSTM have units of their own, and so
#: have the three projections of attention.
BLOCKS = (1, 3, 4)
#: Functions of ``nn.init``, and methods of a tensor, that give all elements one value; functions that make such a
#: tensor, for ``nn.Parameter``.
CONSTANT, MADE_CONSTANT = ("constant_", "zeros_", "ones_", "fill_", "zero_"), ("zeros", "ones", "full")
#: The most addresses of which the last write before the first step is remembered.
MAX_WRITES = 10_000


@dataclass
class _Candidate:
    """A weight whose rows were equal in each look.

    :ivar first, last: the steps of the first and the last look, of ``looks``. ``exact``: they were equal bit for bit.
    :ivar value: that of all elements at first; ``None`` if they differ. ``sample``: of the first row at first.
    :ivar moved: the weight has changed since. ``written``: the line that wrote to its memory last, before the first
        step.
    """

    leaf: LeafTensor
    ref: Callable[[], torch.Tensor | None]
    rows: int
    blocks: int
    first: int
    value: float | None
    sample: torch.Tensor
    written: CodeLocation | None
    last: int = 0
    looks: int = 0
    exact: bool = True
    moved: bool = False


@dataclass
class _Examined:
    """An optimizer.

    :ivar first: the step in which it stepped first; ``looks``: how often its weights were examined.
    :ivar left: the weights whose rows were equal each time.
    """

    first: int
    left: list[_Candidate]
    looks: int = 0


class EqualUnitsTracker(Tracker):
    """Tracker of weights whose rows are equal, and get equal gradients, in each step that is examined."""

    def __init__(self, context: TrackerContext) -> None:
        self._context = context
        self._examined: dict[int, _Examined] = {}
        #: Until an optimizer steps: by address, the last line that wrote to a tensor there.
        self._writes: dict[int, CodeLocation] = {}

    def wrote(self, func: object, written: list[torch.Tensor], seq: int, frame: FrameType) -> None:
        """Note the line that writes to a matrix before the first step of an optimizer: it may initialise a weight."""
        if self._examined or len(self._writes) > MAX_WRITES:
            return
        for tensor in written:
            if private.is_dense(tensor) and (spot := self._context.frames.spot(frame)) is not None:
                with private.disable_function_modes(), private.hide_ops():
                    if tensor.is_cpu and tensor.dim() > 1:
                        self._writes[tensor.data_ptr()] = spot

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Find weights with equal rows before an optimizer's first step, and check in some later steps whether they
        still are.
        """
        by, step = id(optimizer), self._context.steps.index
        known = self._examined.get(by)
        if known is None:
            if len(self._examined) >= MAX_OPTIMIZERS:
                return
            with private.measuring():
                known = self._examined[by] = _Examined(step, self._candidates(optimizer, step))
            self._writes.clear()
        if not known.left or known.looks >= MAX_LOOKS:
            return
        if (
            step - known.first < MAX_FIRST_STEPS
            or step >= known.left[0].last + STEP_INTERVAL * known.looks // MAX_FIRST_STEPS
        ):
            known.looks += 1
            with private.measuring():
                known.left = [one for one in known.left if self._check_rows(one, step)]

    def _candidates(self, optimizer: torch.optim.Optimizer, step: int) -> list[_Candidate]:
        """Return the weights of an optimizer whose rows, or blocks of rows, are all equal before its first step."""
        found = []
        parameters = parameters_of(optimizer)
        for p in parameters[:MAX_PARAMETERS]:
            if not _is_matrix(p) or not p.requires_grad:
                continue
            leaf = self._context.names.leaves.get(p)
            blocks = next((n for n in _blocks_of(leaf, p) if _largest_row_difference(p, n) == 0), 0)
            if blocks:
                flat = p.detach().reshape(-1)
                value = float(flat[0]) if bool((flat == flat[0]).all()) else None
                sample = p.detach()[0].reshape(-1)[:64].clone()
                written = self._writes.get(p.data_ptr())
                found.append(_Candidate(leaf, private.tensor_ref(p), len(p), blocks, step, value, sample, written))
        return found

    def _check_rows(self, one: _Candidate, step: int) -> bool:
        """Return whether rows of a weight, and of its gradient, are still equal; also if there is no gradient to
        tell.
        """
        parameter = one.ref()
        grad = parameter.grad if parameter is not None else None
        if parameter is None or not _is_matrix(parameter) or len(parameter) != one.rows:
            return parameter is None
        if grad is None:
            return True
        if not _is_matrix(grad) or not bool(torch.isfinite(grad).all()):
            return False
        one.last = step
        if not bool(grad.any()):  # equal, but it says nothing
            return True
        blocks = [n for n in _blocks_of(one.leaf, parameter) if n >= one.blocks and (not one.looks or n == one.blocks)]
        one.blocks = next(
            (n for n in blocks if _largest_row_difference(grad, n) <= thresholds.EQUAL_UNITS_TOLERANCE), one.blocks
        )
        apart, gradient_apart = (
            _largest_row_difference(parameter, one.blocks),
            _largest_row_difference(grad, one.blocks),
        )
        if apart > thresholds.EQUAL_UNITS_TOLERANCE or gradient_apart > thresholds.EQUAL_UNITS_TOLERANCE:
            return False
        one.looks += 1
        one.exact = one.exact and apart == gradient_apart == 0
        one.moved = one.moved or not torch.equal(parameter.detach()[0].reshape(-1)[:64], one.sample)
        return True

    def records(self) -> Iterator[EqualUnits]:
        """Yield a record of each weight that has changed and whose rows stayed equal in all looks."""
        for examined in self._examined.values():
            for one in examined.left:
                if one.looks < thresholds.EQUAL_UNITS_MIN_LOOKS or not one.moved:
                    continue
                owner = one.leaf.owner() if one.leaf.owner is not None else None
                name = self._context.names.leaves.name(one.leaf)
                numbers = one.rows // one.blocks, one.blocks, one.first, one.last, one.looks, one.exact, one.value
                yield EqualUnits(name, type(owner).__name__ if owner else "", *numbers, *self._initialising_lines(one))

    def _initialising_lines(self, one: _Candidate) -> tuple[tuple[Site, ...], bool]:
        """Return the lines that may have initialised a weight, and whether it is one that was observed to."""
        lines = tuple(self._lines_giving(one.value)) if one.value is not None else ()
        written = self._context.frames.site(one.written)
        return ((written,), True) if written is not None and written in lines else (lines, False)

    def _lines_giving(self, value: float) -> Iterator[Site]:
        """Yield the calls in the user's code that may give all elements of a weight this value."""
        for index in indexes(self._context.frames.users_files()):
            for call in index.of(ast.Call):
                if _may_initialise_with(index, call, value):
                    yield index.site(call)


def _may_initialise_with(index: SourceIndex, call: ast.Call, value: float) -> bool:
    """Return whether a call in the source may give all elements of a weight the value `value`."""
    name = last_name(call.func)
    parent = index.parents.get(call)
    is_made = name in MADE_CONSTANT and isinstance(parent, ast.Call) and last_name(parent.func) == "Parameter"
    given = arguments_of(call)
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    is_of_bias = any("bias" in last_name(node) for one in (receiver, *given[:1]) if one for node in index.walk(one))
    if not (is_made or name in CONSTANT) or is_of_bias:
        return False
    if name.startswith(("zero", "ones")):
        return value == name.startswith("ones")
    numbers = [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, (int, float))]
    return not numbers or any(abs(number - value) <= 1e-3 * abs(value) for number in numbers)


def _is_matrix(p: object) -> bool:
    """Return whether `p` is a float tensor on the CPU with several rows, whose values can be read."""
    if not isinstance(p, torch.Tensor) or not private.is_dense(p) or not p.is_cpu or private.is_unsafe_to_read(p):
        return False
    return bool(p.dim() > 1 and len(p) > 1 and 0 < p.numel() <= MAX_ELEMENTS and is_float(p) and not p.is_complex())


def _blocks_of(leaf: LeafTensor, p: torch.Tensor) -> list[int]:
    """Return the numbers of blocks in which rows may be compared, each of two rows or more."""
    owner = leaf.owner() if leaf.owner is not None else None
    numbers = BLOCKS if isinstance(owner, (nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)) else BLOCKS[:1]
    return [n for n in numbers if len(p) % n == 0 and len(p) // n > 1]


def _largest_row_difference(p: torch.Tensor, blocks: int) -> float:
    """Return the largest difference between a row and the first one of its block, relative to the largest element."""
    rows = p.detach().reshape(blocks, len(p) // blocks, -1)
    if float((rows[:, 1] - rows[:, 0]).abs().max()) > thresholds.EQUAL_UNITS_TOLERANCE * float(rows.abs().max()):
        return 1.0
    apart, largest = float((rows - rows[:, :1]).abs().max()), float(rows.abs().max())
    return apart / largest if apart else 0.0
