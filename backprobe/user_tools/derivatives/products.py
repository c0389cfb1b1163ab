"""Products with the Jacobian of a graph that exists: from the left (VJP) and from the right (JVP), singly or many.

Note [A JVP from VJPs]: A JVP comes from differentiating the VJP: ``g(v) = J^T v`` is linear in v, so the gradient of
    ``<g(v), u>`` by v is ``J u``. The graph of g is built once, on the first JVP, and serves all later ones.
Note [Batched products are checked]: Many products at once go through ``is_grads_batched``. The first batch is held
    against one product alone; an error or a difference (a hook, a custom Function) means a loop from then on, and
    ``looped`` says why.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence

import torch

from ...basics.errors import BackprobeError
from ...torch_internals.modes import aside
from ...torch_internals.private import run_engine
from .named import Named
from .reasons import check, no_second_derivative, not_connected, translated, unreached

Tensors = list[torch.Tensor]


def _precision(tensors: Sequence[torch.Tensor]) -> float:
    """Relative difference that rounding explains, for a check of one product against another."""
    return float(4 * max(torch.finfo(tensor.dtype).eps for tensor in tensors) ** 0.5)


class _Batches:
    """Computes products in one direction, in batches while batching works and one by one otherwise."""

    def __init__(self, one: Callable[[Tensors], Tensors], many: Callable[[Tensors], Tensors]) -> None:
        """Take the functions that compute one product and a batch of them."""
        self._one, self._many = one, many
        self._checked = False
        #: Why products run one by one; None while batches work.
        self.looped: str | None = None
        self.count = 0

    def single(self, cotangents: Tensors) -> Tensors:
        """Return one product, and count it."""
        self.count += 1
        return self._one(cotangents)

    def batch(self, cotangents: Tensors) -> Tensors:
        """Return the products for cotangents with a batch dimension in front."""
        size = len(cotangents[0])
        if size > 1 and self.looped is None:
            try:
                found = self._many(cotangents)
            except BackprobeError:
                raise
            except Exception as error:
                # No batching rule, a hook that reads values, memory: a loop tells whether it was the batching.
                self.looped = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            else:
                self.count += size
                if not self._checked:
                    self._checked = True
                    self._compare(found, cotangents)
                if self.looped is None:
                    return found
        rows = [self.single([c[i] for c in cotangents]) for i in range(size)]
        return [torch.stack(parts) for parts in zip(*rows, strict=True)]

    def _compare(self, found: Tensors, cotangents: Tensors) -> None:
        """Compare the first of a batch of products with the same product alone; batching ends if they differ."""
        alone = self.single([c[0] for c in cotangents])
        for batch, one in zip(found, alone, strict=True):
            scale = one.abs().max() if one.numel() else torch.zeros(())
            worst = (batch[0] - one).abs().max() if one.numel() else scale
            if bool(torch.isfinite(scale)) and not bool(worst <= _precision([one]) * scale):
                self.looped = "a batch gave another result than one product alone"


class Products:
    """VJPs and JVPs between the tensors of `y` and of `x`. Everything is done on the graph that is there.

    Raises:
        BackprobeError: if a tensor is not attached or has no derivative, or (unless `unconnected`) if y does not
            depend on one of x.
    """

    def __init__(self, y: Named, x: Named, unconnected: bool = False) -> None:
        """Check that the tensors have derivatives; nothing is computed yet."""
        self.y, self.x = y, x
        check(y)
        check(x)
        #: Positions in x that y does not depend on, once it is known.
        self.missing: list[int] | None = None
        self._allowed = unconnected
        self._transposed: tuple[Tensors, Tensors, list[int]] | None = None
        me = weakref.proxy(self)  # a cycle would hold the graph until the collector comes
        self.vjp = _Batches(lambda v: me._vjp(v, False), lambda v: me._vjp(v, True))
        self.jvp = _Batches(lambda u: me._jvp(u, False), lambda u: me._jvp(u, True))

    # From the left.

    def _vjp(self, v: Tensors, batched: bool) -> Tensors:
        """Return one VJP, or a batch; zeros for tensors of x that y does not depend on."""
        found = self._grad(self.y.tensors, self.x.tensors, v, batched, "VJP")
        self._note_missing(found)
        front = (len(v[0]),) if batched else ()
        return [
            torch.zeros((*front, *x.shape), dtype=x.dtype, device=x.device) if g is None else g
            for g, x in zip(found, self.x.tensors, strict=True)
        ]

    def _note_missing(self, found: Sequence[torch.Tensor | None]) -> None:
        """Determine once which tensors of x got no gradient because y does not depend on them.
        :raises BackprobeError: there are some, and they are not allowed.
        """
        if self.missing is None:
            self.missing = unreached(self.y, self.x, [i for i, g in enumerate(found) if g is None])
        if self.missing and not self._allowed:
            raise not_connected(self.y, self.x, self.missing)

    def _grad(
        self, outputs: Tensors, inputs: Tensors, v: Tensors, batched: bool, what: str
    ) -> tuple[torch.Tensor | None, ...]:
        """Run the engine from `outputs` with gradients `v`, and return the gradients of `inputs`.
        :param what: ``VJP`` or ``JVP``, for the error message.
        """
        try:
            with aside():
                if not batched:  # v fits: torch need not look
                    return tuple(run_engine(tuple(outputs), tuple(v), True, False, tuple(inputs), True, False))
                found: tuple[torch.Tensor | None, ...] = torch.autograd.grad(
                    outputs, inputs, v, retain_graph=True, allow_unused=True, is_grads_batched=True
                )
            return found
        except RuntimeError as error:
            ours = translated(error, what, self.y, self.x)
            if ours is None:
                raise
            raise ours from error

    # From the right (Note [A JVP from VJPs]).

    def _jvp(self, u: Tensors, batched: bool) -> Tensors:
        """Return one JVP, or a batch; zeros for tensors of y that do not depend on x."""
        outputs, cotangents, live = self.transposed()
        front = (len(u[0]),) if batched else ()
        found: Sequence[torch.Tensor | None]
        if live:
            try:
                found = self._grad(outputs, cotangents, [u[i] for i in live], batched, "JVP")
            except BackprobeError:
                raise
            except RuntimeError as error:
                if batched:
                    raise
                raise no_second_derivative(error, self.y, self.x) from error
        else:
            found = [None] * len(cotangents)
        return [
            torch.zeros((*front, *y.shape), dtype=y.dtype, device=y.device) if g is None else g
            for g, y in zip(found, self.y.tensors, strict=True)
        ]

    def transposed(self) -> tuple[Tensors, Tensors, list[int]]:
        """Return the graph of ``J^T v``: its outputs that depend on v, the cotangents v, and the outputs' indices in x.

        Raises:
            BackprobeError: if the backward pass cannot be differentiated, or its derivative is not J: a hook changes
                gradients, or a custom Function's backward leaves the graph.
        """
        if self._transposed is None:
            generator = torch.Generator().manual_seed(0)
            v = [
                torch.randn(y.shape, generator=generator, dtype=_real(y.dtype)).to(y).requires_grad_()
                for y in self.y.tensors
            ]
            try:
                with torch.enable_grad(), aside():
                    gs = torch.autograd.grad(self.y.tensors, self.x.tensors, v, create_graph=True, allow_unused=True)
            except RuntimeError as error:
                ours = translated(error, "JVP", self.y, self.x)
                raise ours or no_second_derivative(error, self.y, self.x) from error
            self._note_missing(gs)
            self.vjp.count += 1
            live = [i for i, g in enumerate(gs) if g is not None and g.requires_grad]
            self._transposed = ([gs[i] for i in live], v, live)  # type: ignore[misc]
            try:
                self._hold_to_adjoint(gs, v)
            except BaseException:
                self._transposed = None
                raise
        return self._transposed

    def _hold_to_adjoint(self, gs: Sequence[torch.Tensor | None], v: Tensors) -> None:
        """Check that ``<v, J J^T v>`` equals ``|J^T v|^2``: otherwise the derivative of the VJP is not J."""
        u = [torch.zeros_like(x) if g is None else g.detach() for g, x in zip(gs, self.x.tensors, strict=True)]
        if not sum(c.numel() for c in v):
            return
        largest = max((float(g.abs().max()) for g in u if g.numel()), default=0.0)
        eps = max(torch.finfo(t.dtype).eps for t in [*u, *v])
        if not 100 * eps * max(float(c.detach().abs().max()) for c in v if c.numel()) < largest < float("inf"):
            return  # nothing but rounding to hold it against
        length = math.hypot(*(float(torch.linalg.vector_norm(g / largest)) for g in u)) * largest
        u = [g / length for g in u]
        there = self.jvp.single(u)
        left = sum(float((a.detach().conj() * b).real.double().sum()) for a, b in zip(v, there, strict=True)) / length
        right = sum(float(torch.linalg.vector_norm(g)) ** 2 for g in map(_wide, u))
        if not math.isfinite(left):
            raise BackprobeError(
                f"no JVP of {self.y.names[0]} with respect to {self.x.names[0]}: it is not finite where the VJP is, "
                f"most likely an overflow of {there[0].dtype}. Run the forward in torch.bfloat16 or torch.float32. "
                "VJPs still work"
            )
        if not abs(left - right) <= _precision([*u, *v]) * max(abs(left), right):
            raise BackprobeError(
                f"no JVP of {self.y.names[0]} with respect to {self.x.names[0]}: the derivative of the backward pass "
                f"is not the Jacobian (<v, J J^T v> is {left:.4g}, |J^T v|^2 is {right:.4g}). A hook on the way "
                "changes gradients, or a custom Function's backward computes outside of autograd. VJPs still work"
            )


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in double precision."""
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _real(dtype: torch.dtype) -> torch.dtype:
    """Return `dtype` if it is double or complex, else float32."""
    return dtype if dtype in (torch.float64, torch.complex64, torch.complex128) else torch.float32
