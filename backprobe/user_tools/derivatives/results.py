"""Results of norm computations: numbers with their error, and the method that produced them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from .named import Tree

#: The most rows and columns of a table that is printed.
MAX_TABLE_ROWS, MAX_TABLE_COLUMNS = 16, 8


def _number(value: float) -> str:
    """Return a number with five digits."""
    return f"{value:.5g}"


def _work(vjps: int, jvps: int) -> str:
    """Return the number of products as text."""
    counts = [f"{n} {kind}{'s' * (n > 1)}" for n, kind in ((vjps, "VJP"), (jvps, "JVP")) if n]
    return " and ".join(counts) or "no products"


@dataclass(frozen=True)
class JacobianNorm:
    """The Frobenius norm of a Jacobian. ``float(result)`` gives the value."""

    value: float
    #: The interval that holds the true value with probability `confidence`; both ends are the value if it is exact.
    low: float
    high: float
    confidence: float
    #: ``exact``, ``hutchinson``, ``krylov`` or ``xnystrace``.
    method: str
    #: Elements of y and of x.
    shape: tuple[int, int]
    vjps: int
    jvps: int
    seconds: float
    note: str = ""

    @property
    def exact(self) -> bool:
        """Whether nothing was estimated."""
        return self.method == "exact"

    @property
    def error(self) -> float:
        """Half of the interval, relative to the value."""
        return (self.high - self.low) / 2 / self.value if self.value else 0.0

    def __float__(self) -> float:
        """Return the norm."""
        return self.value

    def __repr__(self) -> str:
        """Return norm, interval, method and cost as text."""
        what = f"{_work(self.vjps, self.jvps)} of {self.shape[0]:,} x {self.shape[1]:,} in {self.seconds:.2g} s"
        note = f"; {self.note}" if self.note else ""
        if self.exact:
            return f"JacobianNorm({_number(self.value)}, exact: {what}{note})"
        within = f"{100 * self.confidence:g}% in [{_number(self.low)}, {_number(self.high)}]"
        return f"JacobianNorm({_number(self.value)}, {within}, {self.method}: {what}{note})"


def table(values: torch.Tensor, rows: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return lines of a table of the matrix `values` with a name for each row and column.

    NaN is shown as a dash. Of a matrix with more than ``MAX_TABLE_ROWS`` rows or ``MAX_TABLE_COLUMNS`` columns, the
    first ones are shown, and a last line says how many there are.
    """
    shown = [[*columns[:MAX_TABLE_COLUMNS]]]
    for line in values[:MAX_TABLE_ROWS, :MAX_TABLE_COLUMNS].tolist():
        shown.append(["-" if math.isnan(value) else f"{value:.4g}" for value in line])
    names = ["", *rows[:MAX_TABLE_ROWS]]
    first = max(map(len, names))
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = [
        "  " + "  ".join([name.ljust(first), *(cell.rjust(wide) for cell, wide in zip(cells, widths, strict=True))])
        for name, cells in zip(names, shown, strict=True)
    ]
    if values.shape[0] > MAX_TABLE_ROWS or values.shape[1] > MAX_TABLE_COLUMNS:
        size = " x ".join(map(str, values.shape))
        lines.append(f"  ... the first {len(shown) - 1} rows and {len(shown[0])} columns of {size}; all are in .value")
    return lines


@dataclass(frozen=True)
class BlockNorms:
    """Frobenius norms of blocks of a Jacobian: float64 tensors on the CPU, all of the same shape."""

    value: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor
    confidence: float
    exact: bool
    #: What an index of the shape means.
    axes: str
    vjps: int
    seconds: float
    note: str = ""

    def __repr__(self) -> str:
        """Return a description of the norms, and a table of them if they have at most two dimensions."""
        size = " x ".join(map(str, self.value.shape))
        how = "exact" if self.exact else f"estimated, {100 * self.confidence:g}% intervals"
        note = f"; {self.note}" if self.note else ""
        ends = [_number(float(end)) for end in self.value.aminmax()] if self.value.numel() else []
        reach = f", from {ends[0]} to {ends[1]}" if ends else ""
        work = f"{_work(self.vjps, 0)} in {self.seconds:.2g} s"
        head = f"BlockNorms({size} norms of {self.axes}{reach}, {how}: {work}{note})"
        if not self.value.numel() or self.value.dim() > 2:
            return head
        matrix = self.value if self.value.dim() == 2 else self.value[None]
        rows = [f"y {i}" for i in range(len(matrix))] if self.value.dim() == 2 else [""]
        columns = [f"x {j}" if self.value.dim() == 2 else str(j) for j in range(matrix.shape[1])]
        return "\n".join([head, *table(matrix, rows, columns)])


@dataclass(frozen=True)
class SpectralNorm:
    """The largest singular values of a Jacobian and their vectors. ``float(result)`` gives the largest value."""

    value: float
    #: The k largest singular values, largest first; float64 on the CPU.
    singular_values: torch.Tensor
    #: For each of them, unit vectors in the structure of y and of x: ``J right = value left``.
    left: list[Tree] = field(repr=False)
    right: list[Tree] = field(repr=False)
    #: ``|J^T left - value right|`` for each: a singular value of J is this near.
    residuals: torch.Tensor
    converged: bool
    #: Steps of bidiagonalization; 0 if the Jacobian was built and decomposed.
    steps: int
    shape: tuple[int, int]
    vjps: int
    jvps: int
    seconds: float
    #: The Frobenius norm, from the same products and some probes; ``None`` if it was not requested.
    frobenius: JacobianNorm | None = None
    note: str = ""

    @property
    def stable_rank(self) -> float:
        """The effective rank ``|J|_F^2 / |J|_2^2``: 1 if one direction holds all. NaN without a Frobenius norm."""
        if self.frobenius is None or not self.value:
            return math.nan
        return (self.frobenius.value / self.value) ** 2

    def __float__(self) -> float:
        """Return the largest singular value."""
        return self.value

    def __repr__(self) -> str:
        """Return the singular values, the convergence and the cost as text."""
        rest = ", ".join(_number(float(s)) for s in self.singular_values[1:6])
        more = f", then {rest}" if rest else ""
        rank = f", stable rank {self.stable_rank:.3g}" if self.frobenius is not None else ""
        how = f"after {self.steps} step{'s' * (self.steps != 1)}" if self.steps else "dense"
        how = f"{'' if self.converged else 'NOT '}converged {how}" if self.steps or not self.converged else how
        note = f"; {self.note}" if self.note else ""
        return (
            f"SpectralNorm({_number(self.value)}{more}{rank}, {how}: {_work(self.vjps, self.jvps)} "
            f"of {self.shape[0]:,} x {self.shape[1]:,} in {self.seconds:.2g} s{note})"
        )
