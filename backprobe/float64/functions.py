"""Custom functions: the gradients that their backward gave, against the derivative of their forward in float64.

The ops of the forward are recorded, though no node is made for them. They are called again with gradient mode on, from
just what the function was given; what its node was given is handed to that. A function whose forward only shows or
copies what it is given is there to change the gradient, and one whose forward is flat has a gradient of its own making:
both are meant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

import torch

from ..records import Applied, Tape, TapeOp
from .ops import Opaque, call, moves
from .single_op import Alone, step_of, terms

Source = tuple[int, int]


class Functions:
    """Checks the gradients of custom functions. `recorded` returns recorded values in float64."""

    def __init__(self, tape: Tape, recorded: Callable[[Tape, int | None], torch.Tensor | None]) -> None:
        """Index the ops of a run and the ops that take each value."""
        self._tape, self._recorded = tape, recorded
        self._alone = Alone(recorded, torch.Generator().manual_seed(0))
        self._ops = {op.index: op for op in tape.ops}
        self._taken: dict[Source, set[int]] = {}
        for op in tape.ops:
            for one in op.inputs:
                self._taken.setdefault(one.source, set()).add(op.index)

    def off(self, one: Applied) -> tuple[float, float] | None:
        """Return the error of the worst gradient: relative to the error that its dtype explains, and to its norm.

        See Note [What a dtype explains]. ``None`` if the error cannot be determined, or is intended.
        """
        ops = [self._ops[index] for index in one.ops if index in self._ops]
        if len(ops) < len(one.ops) or not any(moves(op.name) for op in ops):
            return None
        came = [self._recorded(self._tape, value) for value in one.came]
        results = self._results(one, ops)
        if results is None or any(g is None and v is not None for g, v in zip(came, one.came, strict=True)):
            return None
        step = max((step_of(self._tape, v) for v in (*one.came, *one.went)), default=0.0)
        try:
            exact = self._gradients(one, ops, results, came, 0.0)
            moved = self._gradients(one, ops, results, came, step)
        except (Opaque, RuntimeError, NotImplementedError):
            return None
        worst: tuple[float, float] | None = None
        count = max((terms(self._tape, op, self._given(op)) for op in ops), default=1.0)
        for value, x, y in zip(one.went, exact, moved, strict=False):
            seen = self._recorded(self._tape, value)
            if seen is None or x is None or y is None or x.shape != seen.shape or not bool(x.any()):
                continue
            if not bool(torch.isfinite(x).all()) or not bool(torch.isfinite(seen).all()):
                continue
            size, wrong = float(torch.linalg.vector_norm(x)), float(torch.linalg.vector_norm(seen - x))
            many = max([count, *(g.numel() / max(x.numel(), 1) for g in came if g is not None)])
            explained = many**0.5 * (float(torch.linalg.vector_norm(x - y)) + step * size)
            units = wrong / explained if explained else inf if wrong else 0.0
            worst = max(worst or (0.0, 0.0), (units, wrong / size))
        return worst

    def _given(self, op: TapeOp) -> list[torch.Tensor]:
        """Return the inputs of an op in float64.

        :raises Opaque: one was not recorded.
        """
        found = [self._recorded(self._tape, one.value) for one in op.inputs]
        if any(one is None for one in found):
            raise Opaque(op.name)
        return [one for one in found if one is not None]

    def _results(self, one: Applied, ops: Sequence[TapeOp]) -> list[Source] | None:
        """Locate the results of the custom function among the values of its forward.

        They are those of the right shape that are used outside of the function, or else the last.
        """
        inside, found = set(one.ops), []
        shapes = [self._tape.prints[v].shape if v is not None else None for v in one.came]
        made = [
            (op.index, k, self._tape.prints[v].shape) for op in ops for k, v in enumerate(op.outputs) if v is not None
        ]
        for shape in shapes:
            if shape is None:
                found.append((-1, -1))
                continue
            alike = [(index, k) for index, k, its in made if its == shape]
            out = [source for source in alike if self._taken.get(source, inside) - inside]
            chosen = out if len(out) == 1 else alike[-1:] if shapes.count(shape) == 1 else []
            if not chosen:
                return None
            found.append(chosen[0])
        return found

    def _gradients(
        self,
        one: Applied,
        ops: Sequence[TapeOp],
        results: Sequence[Source],
        came: Sequence[torch.Tensor | None],
        step: float,
    ) -> list[torch.Tensor | None]:
        """Compute the gradients from the recorded forward, with all inputs perturbed by `step`."""
        env: dict[Source, torch.Tensor] = {}
        leaves: list[torch.Tensor | None] = []
        with torch.enable_grad():
            for taken in one.given:
                value = self._recorded(self._tape, taken.value) if taken is not None else None
                if taken is None or value is None or not value.dtype.is_floating_point or taken.source in env:
                    leaves.append(None)
                    continue
                leaf = self._alone.moved(value, step).requires_grad_()
                leaves.append(leaf)
                env[taken.source] = leaf.view_as(leaf)  # it may write to what it is given
            for op in ops:
                tensors = []
                for taken in op.inputs:
                    if taken.source not in env:
                        value = self._recorded(self._tape, taken.value)
                        if value is None:
                            raise Opaque(op.name)
                        env[taken.source] = self._alone.moved(value, step)
                    tensors.append(env[taken.source])
                gave = next((self._tape.prints[v].dtype for v in op.outputs if v is not None), None)
                if op.random:
                    raise Opaque(op.name)
                for k, value in enumerate(call(op, op.arguments, tensors, gave)):
                    env[op.index, k] = value
            pairs = [
                (env[source], self._alone.moved(gradient, step))
                for source, gradient in zip(results, came, strict=True)
                if gradient is not None and source in env and env[source].requires_grad
            ]
            wanted = [leaf for leaf in leaves if leaf is not None]
            if not pairs or not wanted:
                return [None] * len(leaves)
            outs, gradients = zip(*pairs, strict=True)
            found = iter(torch.autograd.grad(outs, wanted, gradients, allow_unused=True))
        return [next(found) if leaf is not None else None for leaf in leaves]
