"""What a cheap look at gradients can rule out, for conditions that are asked at every node.

Note [Conditions are screened]: A condition without a place is asked at every node, twice. Where it begins with ``norm >
NUMBER`` or ``nonfinite``, one reduction of each gradient in its own precision comes first, whose rounding is allowed
for. What that cannot rule out is worked out in full.

Note [Measured once]: What goes out of a node mostly comes into the next as it is: the same object, of the same version.
It is known by a weak reference: nothing is held.
"""

from __future__ import annotations

import ast
import math
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import torch

from ..torchside import private
from .breakpoints import Breakpoint

#: Whether a condition may hold, given the sum of squares of the gradients and how many elements they have.
Look: TypeAlias = Callable[[float, int], bool]

#: Precisions that are measured. In others a sum of squares is too rough.
_FLOAT, _DOUBLE = torch.float32, torch.float64
#: Squares of what is so small may be lost in float32.
_LEAST = 1e-12
#: Elements from which on a dot product is quicker than a norm.
_LARGE = 4096


class Sieve:
    """Lets through what one of some conditions may hold for; see Note [Conditions are screened].

    :param points: whose conditions have a look.
    """

    def __init__(self, points: Iterable[Breakpoint]) -> None:
        looks = [look for point in points if (look := look_of(point)) is not None]
        self._maybe = looks[0] if len(looks) == 1 else lambda total, count: any(look(total, count) for look in looks)
        #: By id: a gradient that has been measured, its version, and the sum of its squares.
        self._known: dict[int, Any] = {}

    def before(self, grads: Any) -> bool:
        """Whether a condition may hold for what comes into a node."""
        known = self._known
        total, count = 0.0, 0
        try:
            for grad in grads:
                if grad is not None:
                    one = known.pop(id(grad), None)
                    same = one is not None and one[0]() is grad and one[1] == grad._version
                    total += one[2] if same else squares(grad)
                    count += grad.numel()
        except (RuntimeError, NotImplementedError):  # a batch of many, a layout that has no norm
            return True
        return self._maybe(total, count)

    def after(self, grads: Sequence[Any]) -> bool:
        """Whether one may hold for what goes out of a node; see Note [Measured once]."""
        known = self._known
        if len(known) > 4096:
            known.clear()
        total, count = 0.0, 0
        try:
            for grad in grads:
                if grad is not None:
                    one = squares(grad)
                    known[id(grad)] = weakref.ref(grad), grad._version, one
                    total += one
                    count += grad.numel()
        except (RuntimeError, NotImplementedError):
            return True
        return self._maybe(total, count)


def squares(grad: Any) -> float:
    """About the sum of the squares of all elements; not a finite number where one of them is not."""
    if (grad.dtype is not _FLOAT and grad.dtype is not _DOUBLE) or not private.is_plain(grad):
        return math.inf
    with private.unseen():
        if grad.numel() > _LARGE and grad.is_contiguous():
            flat = grad.view(-1)
            return float(torch.dot(flat, flat).item())
        size: float = torch.linalg.vector_norm(grad).item()
        return size * size


def look_of(point: Breakpoint) -> Look | None:
    """A cheap look for the condition of `point`; ``None`` where there is none."""
    return _look(point.when) if isinstance(point.when, str) else None


@lru_cache(256)
def _look(when: str) -> Look | None:
    try:
        return _of(ast.parse(when.strip(), mode="eval").body)
    except (SyntaxError, ValueError):
        return None


def _of(part: ast.expr) -> Look | None:
    if isinstance(part, ast.BoolOp):
        looks = [_of(value) for value in part.values]
        if isinstance(part.op, ast.And):
            return looks[0]  # what stands before a part that is ruled out has to be asked
        known = [look for look in looks if look is not None]
        return None if len(known) < len(looks) else lambda total, count: any(look(total, count) for look in known)
    if isinstance(part, ast.Name) and part.id == "nonfinite":
        return _nonfinite
    if isinstance(part, ast.Compare) and len(part.ops) == 1 and isinstance(part.left, ast.Name):
        op, right = part.ops[0], part.comparators[0]
        limit = right.value if isinstance(right, ast.Constant) else None
        if isinstance(limit, (int, float)) and isinstance(op, (ast.Gt, ast.GtE)):
            if part.left.id == "nonfinite" and limit >= isinstance(op, ast.GtE):
                return _nonfinite
            if part.left.id == "norm" and limit > _LEAST:
                return _above(limit)
    return None


def _nonfinite(total: float, count: int) -> bool:
    return total - total != 0.0


def _above(limit: float) -> Look:
    square = limit * limit

    def look(total: float, count: int) -> bool:
        # Each of n additions may be off by half a unit in the last place of the sum.
        return not total * (1.00001 + count * 2.4e-7) < square

    return look
