"""What a cheap look at gradients can rule out, for conditions that are asked at every node.

Note [Conditions are screened]: A condition without a place is asked at every node, twice. Where it begins with ``norm >
NUMBER`` or ``nonfinite``, one reduction of each gradient in its own precision comes first, whose rounding is allowed
for. What that cannot rule out is worked out in full.

Note [Measured once]: What goes out of a node mostly comes into the next as it is: the same object, of the same version.
It is known by a weak reference: nothing is held. Some nodes give out the object that came in, or its memory in another
shape; where others have hooks on them, which may write to it unseen, that is measured again. After a node that only
reshapes nobody looks where what came in is ruled out. What another's hook on such a node writes there is seen before
the next.
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

#: Whether a condition may hold, given the sum of squares of the gradients and how many elements they have.
Look: TypeAlias = Callable[[float, int], bool]

#: Looked up once: they are called at every node.
_norm, _dot, _unseen = torch.linalg.vector_norm, torch.dot, private.unseen
#: Precisions that are measured. In others a sum of squares is too rough.
_FLOAT, _DOUBLE = torch.float32, torch.float64
#: Squares of what is so small may be lost in float32.
_LEAST = 1e-12
#: Elements from which on a dot product is quicker than a norm.
_LARGE = 4096


class ConditionPrefilter:
    """Lets through what one of some conditions may hold for; see Note [Conditions are screened].

    :param points: whose conditions have a look.
    :param still: nodes that give out what came in, or its memory in another shape, and where nobody else has hooks.
    """

    def __init__(self, points: Iterable[Breakpoint], still: Container[int] = ()) -> None:
        looks = [look for point in points if (look := look_of(point)) is not None]
        self._maybe = looks[0] if len(looks) == 1 else lambda total, count: any(look(total, count) for look in looks)
        self._still = still
        #: By id: a gradient that has been measured, its version, the sum of its squares, how many they are, and whether
        #: a condition may hold for it alone.
        self._known: dict[int, Any] = {}

    def before(self, grads: Sequence[Any]) -> bool:
        """Whether a condition may hold for what comes into a node."""
        if len(grads) == 1:  # here, not in a function: this is asked at every node
            grad = grads[0]
            one = self._known.get(id(grad))
            if one is not None and one[0]() is grad and one[1] == grad._version:
                return bool(one[4])
        return self._look(grads)

    def after(self, i: int, grads: Sequence[Any], incoming: Sequence[Any]) -> bool:
        """Whether one may hold for what goes out of node `i`; see Note [Measured once]."""
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

    def _look(self, grads: Sequence[Any], known_too: bool = True) -> bool:
        total, count = 0.0, 0
        for grad in grads:
            if grad is not None:
                one = self._known.get(id(grad)) if known_too else None
                if one is None or one[0]() is not grad or one[1] != grad._version:
                    one = self._measured(grad)
                total += one[2]
                count += one[3]
        return self._maybe(total, count)

    def _measured(self, grad: Any) -> tuple[Any, ...]:
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


def _same_memory(grad: Any, incoming: Any) -> bool:
    """Whether a node that only reshapes gave out the memory that came in, and nobody put another gradient there."""
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


def squares(grad: Any, count: int) -> float:
    """About the sum of the squares of all elements, `count` of them; not a finite number where one of them is not."""
    dtype, kind = grad.dtype, type(grad)
    if (dtype is not _FLOAT and dtype is not _DOUBLE) or (kind is not torch.Tensor and not private.is_plain(grad)):
        return math.inf
    with _unseen():
        if count > _LARGE and grad.is_contiguous():
            grad = grad.view(-1)
        elif grad.dim() != 1:
            size: float = _norm(grad).item()
            return size * size
        return float(_dot(grad, grad).item())


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
