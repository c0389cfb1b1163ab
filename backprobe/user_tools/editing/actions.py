"""``backprobe.gradient_ops``: what an edit does to a gradient.

An action is a function from a gradient to a gradient of the same shape, dtype, device and layout. It may return
``None``, which leaves the gradient as it is, and it never writes into the one it is given: other nodes may hold the
same memory. Any function of that kind will do in place of these.

A sparse gradient (``torch.sparse_coo``) is edited in its values, where the action leaves zero as it is; the others
refuse it, since they would make it dense.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import torch

from ...basics.errors import BackprobeError

__all__ = [
    "Action",
    "clamp",
    "clip_norm",
    "clip_value",
    "drop_nonfinite",
    "noise",
    "replace",
    "reverse",
    "scale",
    "zero",
]

_Function = Callable[[torch.Tensor], torch.Tensor]
#: A number, or a function of no arguments that gives it at each application: for a schedule.
Factor = float | Callable[[], float]


class Action:
    """A named change of a gradient.

    :param text: what it is called in logs and errors.
    :param function: what it does to a dense gradient.
    :param keeps_zero: whether an element that is zero stays zero, so that it can work on the values of a sparse one.
    """

    def __init__(self, text: str, function: _Function, keeps_zero: bool) -> None:
        """Take name and function of the action."""
        self._text, self._function, self._keeps_zero = text, function, keeps_zero

    def __repr__(self) -> str:
        """Return the action's name for logs and errors."""
        return self._text

    def __call__(self, grad: torch.Tensor) -> torch.Tensor:
        """Return the changed gradient."""
        return self._on_layout(grad, self._function)

    def at(self, place: str) -> _Function:
        """Return the function to use at one place; a stateful action has a separate state for each place."""
        return self

    def _on_layout(self, grad: torch.Tensor, function: _Function) -> torch.Tensor:
        """Apply `function` to a gradient; of a sparse one, to its stored values.
        :raises BackprobeError: the gradient is sparse, and the action does not leave zero as it is.
        """
        if grad.layout is not torch.sparse_coo:
            return function(grad)
        if not self._keeps_zero:
            raise BackprobeError(
                f"{self} cannot edit a sparse gradient: elements that are not stored would become other than zero. Use "
                "an action that leaves zero as it is (zero, scale, reverse, clip_norm, clip_value, drop_nonfinite), or "
                "an Embedding with sparse=False"
            )
        # Duplicate indices are added up first: an action on the parts would not be one on the sum.
        grad = grad.coalesce()
        return torch.sparse_coo_tensor(
            grad.indices(), function(grad.values()), grad.shape, is_coalesced=True, check_invariants=False
        )


#: Replaces the gradient by zeros, including NaN.
zero = Action("zero", torch.zeros_like, True)


def clamp(min: float | None = None, max: float | None = None) -> Action:
    """Limit each element to ``min`` and ``max``, either of which may be omitted. NaN stays NaN.

    :raises BackprobeError: if there is no limit, or ``min`` is above ``max``.
    """
    if min is None and max is None:
        raise BackprobeError("clamp() has no limit; give min, max or both: clamp(min=0)")
    if min is not None and max is not None and min > max:
        raise BackprobeError(f"clamp(min={min}, max={max}): min is above max")
    given = ", ".join(f"{name}={value}" for name, value in (("min", min), ("max", max)) if value is not None)
    keeps_zero = (min is None or min <= 0) and (max is None or max >= 0)
    return Action(f"clamp({given})", lambda grad: grad.clamp(min=min, max=max), keeps_zero)


def clip_value(limit: float) -> Action:
    """Limit each element to ``-limit`` and ``limit``, as ``torch.nn.utils.clip_grad_value_`` does.

    :raises BackprobeError: if ``limit`` is not positive.
    """
    _positive("clip_value", "limit", limit)
    return Action(f"clip_value({limit})", lambda grad: grad.clamp(-limit, limit), True)


def clip_norm(limit: float, p: float = 2.0) -> Action:
    """Scale each gradient tensor down to a p-norm of at most ``limit``; smaller ones stay bitwise unchanged.

    The norm is of one tensor, not of all together: for the global norm use ``torch.nn.utils.clip_grad_norm_`` after the
    backward. It is taken in double precision. No synchronisation. An infinite or NaN norm makes NaN: put
    ``drop_nonfinite()`` before it.

    :raises BackprobeError: if ``limit`` is not positive.
    """
    _positive("clip_norm", "limit", limit)

    def clipped(grad: torch.Tensor) -> torch.Tensor:
        """Return `grad` scaled down to the limit."""
        wide = None if grad.device.type == "mps" else torch.complex128 if grad.is_complex() else torch.float64
        norm = torch.linalg.vector_norm(grad, p, dtype=wide)
        return grad * (limit / norm.clamp(min=limit)).to(grad.dtype)

    return Action(f"clip_norm({limit})" if p == 2 else f"clip_norm({limit}, p={p})", clipped, True)


def scale(factor: Factor) -> Action:
    """Multiply the gradient by ``factor``: a number, or a function without arguments, called at each application."""
    return Action(f"scale({_factor_text(factor)})", lambda grad: grad * _factor(factor), True)


def reverse(factor: Factor = 1.0) -> Action:
    """Multiply the gradient by ``-factor``, as in domain-adversarial training (Ganin and Lempitsky, 2015).

    ``factor`` may be a function without arguments, for a schedule.
    """
    return Action(f"reverse({_factor_text(factor)})", lambda grad: grad * -_factor(factor), True)


def replace(value: torch.Tensor | float) -> Action:
    """Replace the gradient by ``value``: a number for each element, or a tensor of its shape, dtype and device."""
    if isinstance(value, torch.Tensor):
        tensor = value
        # A copy: what the engine is given it may write into, or take as ``.grad``.
        return Action(f"replace(tensor of {list(value.shape)})", lambda grad: tensor.clone(), False)
    number = value
    return Action(f"replace({number})", lambda grad: torch.full_like(grad, number), number == 0)


def drop_nonfinite(whole: bool = False) -> Action:
    """Replace NaN and Inf by zero.

    :param whole: where one element is not finite, zeros in place of the whole tensor: that gradient is skipped. No
        synchronisation either way.
    """

    def dropped(grad: torch.Tensor) -> torch.Tensor:
        """Return `grad` with zeros for its non-finite elements, or for all."""
        finite = torch.isfinite(grad)
        return torch.where(finite.all() if whole else finite, grad, torch.zeros_like(grad))

    return Action("drop_nonfinite(whole=True)" if whole else "drop_nonfinite()", dropped, True)


def noise(std: float, seed: int = 0) -> Action:
    """Add normal noise of standard deviation ``std`` to the gradient.

    Each place has its own generator, seeded from ``seed`` and the place's name: torch's random state is not touched,
    and what one place gets does not depend on the others. Each ``backprobe.edit_gradients`` begins anew.

    :raises BackprobeError: if ``std`` is negative or not finite.
    """
    if not (std >= 0 and math.isfinite(std)):
        raise BackprobeError(f"noise({std}): std is a finite number, 0 or more")
    return _Noise(std, seed)


class _Noise(Action):
    """The action of ``noise``, with a generator for each place and device."""

    def __init__(self, std: float, seed: int) -> None:
        """Take standard deviation and seed."""
        super().__init__(f"noise({std}, seed={seed})", self._place(std, seed, ""), False)
        self._std, self._seed = std, seed

    def at(self, place: str) -> _Function:
        """Return the function for one place, which has generators of its own."""
        function = self._place(self._std, self._seed, place)
        return lambda grad: self._on_layout(grad, function)

    @staticmethod
    def _place(std: float, seed: int, place: str) -> _Function:
        """Return the function that adds noise to a dense gradient at `place`."""
        generators: dict[torch.device, torch.Generator] = {}
        digest = hashlib.blake2b(f"{seed}:{place}".encode(), digest_size=8).digest()
        first = int.from_bytes(digest, "little") >> 1

        def noisy(grad: torch.Tensor) -> torch.Tensor:
            """Return `grad` with noise added."""
            generator = generators.get(grad.device)
            if generator is None:
                generator = generators[grad.device] = torch.Generator(grad.device)
                generator.manual_seed(first)
            drawn = torch.randn(grad.shape, generator=generator, dtype=grad.dtype, device=grad.device)
            return grad + std * drawn

        return noisy


def _positive(action: str, name: str, value: float) -> None:
    """Check that a parameter of an action is above 0.
    :raises BackprobeError: it is not.
    """
    if not value > 0:
        raise BackprobeError(f"{action}({value}): {name} is a number above 0")


def _factor(factor: object) -> Any:
    """Return the factor for this application."""
    return factor() if callable(factor) else factor


def _factor_text(factor: object) -> str:
    """Return a factor as text: the number, or the function's name."""
    return getattr(factor, "__name__", repr(factor)) if callable(factor) else str(factor)
