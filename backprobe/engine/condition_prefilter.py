"""A cheap prefilter of gradients for conditions that are evaluated at every node.

Note [Conditions are screened]: A condition without a place is evaluated twice at every node. If it begins with ``norm >
NUMBER`` or ``nonfinite``, one reduction of each gradient in its own precision runs first, with a margin for rounding.
The full condition runs only if the reduction cannot exclude it.

Note [Measured once]: The outgoing gradient of a node is mostly the incoming one of the next: the same object, with the
same version. It is recognised by a weak reference, so nothing is kept alive. Some nodes return the incoming object, or
its memory in another shape; if such a node has hooks of others, which may write to it unnoticed, the gradient is
measured again. After a node that only reshapes, no check runs if the incoming gradient was excluded. If another hook on
such a node writes to the gradient, the check before the next node detects it.
"""

from __future__ import annotations

import ast
import math
import weakref
from collections.abc import Callable, Container, Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import torch

from ..torch_internals import private
from .breakpoints import Breakpoint

#: Whether a condition may hold, given the gradients' sum of squares and number of elements.
Look: TypeAlias = Callable[[float, int], bool]

#: Looked up once, because they are called at every node.
_norm, _dot, _unseen = torch.linalg.vector_norm, torch.dot, private.disable_function_modes
#: Dtypes that are measured. In others a sum of squares is too inexact.
_FLOAT, _DOUBLE = torch.float32, torch.float64
#: Below this norm, squares may underflow in float32.
_MIN_NORM = 1e-12
#: Number of elements from which a dot product is faster than a norm.
_MIN_DOT_ELEMENTS = 4096


class ConditionPrefilter:
    """Excludes gradients for which none of some conditions can hold; see Note [Conditions are screened].

    :param points: breakpoints whose conditions have a cheap check.
    :param still: nodes that return the incoming gradient, or its memory in another shape, and have no hooks of others.
    """

    def __init__(self, points: Iterable[Breakpoint], still: Container[int] = ()) -> None:
        """Combine the cheap checks of `points` into one that holds if any of them does, with an empty cache."""
        looks = [look for point in points if (look := look_of(point)) is not None]
        self._maybe = looks[0] if len(looks) == 1 else lambda total, count: any(look(total, count) for look in looks)
        self._still = still
        #: By id: a weak reference to a measured gradient, its version, its sum of squares, its number of elements, and
        #: whether a condition may hold for it alone.
        self._known: dict[int, Any] = {}

    def before(self, grads: Sequence[torch.Tensor | None]) -> bool:
        """Return whether a condition may hold for the incoming gradients of a node."""
        if len(grads) == 1:  # here, not in a function: this is asked at every node
            grad = grads[0]
            one = self._known.get(id(grad))
            if one is not None and one[0]() is grad and one[1] == grad._version:
                return bool(one[4])
        return self._look(grads)

    def after(self, i: int, grads: Sequence[Any], incoming: Sequence[torch.Tensor | None]) -> bool:
        """Return whether a condition may hold for the outgoing gradients `grads` of node `i`, which received
        `incoming`.
        """
        if i not in self._still:
            if len(grads) == 1 and grads[0] is not None:
                return bool(self._measured(grads[0])[4])
            return self._look(grads, False)
        known = self._known
        if len(grads) == len(incoming) == 1 and _same_memory(grads[0], incoming[0]):
            old, new = known.get(id(incoming[0])), grads[0]
            if old is not None and old[0]() is incoming[0] and old[1] == incoming[0]._version:
                known[id(new)] = weakref.ref(new), new._version, *old[2:]
        return self._look(grads)

    def _look(self, grads: Sequence[torch.Tensor | None], known_too: bool = True) -> bool:
        """Return whether a condition may hold for `grads` together, and measure the gradients whose sizes are not
        known.
        :param known_too: whether to use earlier measurements of unchanged gradients.
        """
        total, count = 0.0, 0
        for grad in grads:
            if grad is not None:
                one = self._known.get(id(grad)) if known_too else None
                if one is None or one[0]() is not grad or one[1] != grad._version:
                    one = self._measured(grad)
                total += one[2]
                count += one[3]
        return self._maybe(total, count)

    def _measured(self, grad: torch.Tensor) -> tuple[Any, ...]:
        """Measure a gradient, and remember the result by its id.
        :returns: weak reference, version, sum of squares, number of elements, whether a condition may hold for it
            alone. A gradient that cannot be measured gives infinity and ``True``, so that the full condition runs.
        """
        known = self._known
        if len(known) > 4096:
            known.clear()
        try:
            count = grad.numel()
            total = squares(grad, count)
            one = known[id(grad)] = weakref.ref(grad), grad._version, total, count, self._maybe(total, count)
        except (RuntimeError, NotImplementedError):  # a batch of many, a layout that has no norm
            return None, 0, math.inf, 0, True
        return one


def _same_memory(grad: torch.Tensor | None, incoming: torch.Tensor | None) -> bool:
    """Return whether a reshaping node returned its incoming gradient's memory, not replaced by another gradient."""
    try:
        return bool(
            grad is not None
            and incoming is not None
            and type(grad) is type(incoming) is torch.Tensor
            and grad.data_ptr() == incoming.data_ptr()
            and grad.numel() == incoming.numel()
        )
    except RuntimeError:
        return False


def squares(grad: torch.Tensor, count: int) -> float:
    """Return about the sum of squares of all `count` elements; not finite if an element is not."""
    dtype, kind = grad.dtype, type(grad)
    if (dtype is not _FLOAT and dtype is not _DOUBLE) or (kind is not torch.Tensor and not private.is_plain(grad)):
        return math.inf
    with _unseen():
        if count > _MIN_DOT_ELEMENTS and grad.is_contiguous():
            grad = grad.view(-1)
        elif grad.dim() != 1:
            size: float = _norm(grad).item()
            return size * size
        return float(_dot(grad, grad).item())


def look_of(point: Breakpoint) -> Look | None:
    """Return a cheap check for the condition of `point`; ``None`` if there is none."""
    return _look(point.when) if isinstance(point.when, str) else None


@lru_cache(256)
def _look(when: str) -> Look | None:
    """Parse the condition `when`, and return its cheap check; ``None`` if it has none or is no valid expression."""
    try:
        return _of(ast.parse(when.strip(), mode="eval").body)
    except (SyntaxError, ValueError):
        return None


def _of(part: ast.expr) -> Look | None:
    """Return the cheap check of a part of a parsed condition; ``None`` if it has none. Of ``and``, only the first part
    counts; of ``or``, every part must have a check.
    """
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
            if part.left.id == "norm" and limit > _MIN_NORM:
                return _above(limit)
    return None


def _nonfinite(total: float, count: int) -> bool:
    """Return whether `total` is NaN or infinite: a check for the condition ``nonfinite``."""
    return total - total != 0.0


def _above(limit: float) -> Look:
    """Return a check for the condition ``norm > limit``, with a margin for rounding."""
    square = limit * limit

    def look(total: float, count: int) -> bool:
        """Return whether the norm may exceed the limit, given the sum of squares `total` of `count` elements."""
        # Each of n additions may have an error of half a unit in the last place of the sum.
        return not total * (1.00001 + count * 2.4e-7) < square

    return look
