"""Runs a node in float64, without changing its graph.

Note [A node in float64]: A node's formula consists of ATen ops. While it runs, a dispatch mode converts the arguments
of each op to double precision, including requested dtypes. Saved tensors are read as they are: nothing in the graph
changes.

Note [Rounding that stays]: float64 removes the rounding of the backward, but not that of the forward: it is in the
saved tensors.

Note [What float64 refuses]: Ops that draw random numbers (another dtype draws others), writes into tensors that existed
before, and saved tensors behind a saved-tensor hook, whose code would run in float64 too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..basics.errors import BackprobeError
from ..torch_internals import private
from ..torch_internals.structure import mapped, tensors_in

_WIDE = {
    torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64,
    torch.complex32: torch.complex128, torch.complex64: torch.complex128,
}  # fmt: skip


def widened(value: object) -> Any:
    """Convert a tensor or dtype to double precision; return anything else unchanged."""
    if isinstance(value, torch.Tensor):
        dtype = _WIDE.get(value.dtype)
        return value if dtype is None else value.to(dtype)
    return _WIDE.get(value, value) if isinstance(value, torch.dtype) else value


class Wide(TorchDispatchMode):
    """Active while `node` computes in float64; see Note [A node in float64] and Note [What float64 refuses].

    :raises BackprobeError: on entry: its saved tensors cannot be read without running user code; inside: an op of the
        node cannot run in float64.
    """

    def __init__(self, node: object, label: str) -> None:
        """Check that the saved tensors of `node` can be read without running user code.
        :param label: the node's name in error messages.
        """
        super().__init__()
        self._label = label
        self._reason: str | None = None
        for name, slot in private.saved_slots(node):
            content = private.slot_content(slot)
            if content is not None and content[1]:
                raise self._refusal(f"its saved tensor {name!r} lies behind a saved-tensor hook, which would run too")

    def check(self) -> None:
        """Raise the refusal again if the node caught it.

        :raises BackprobeError: the node caught the refusal and continued.
        """
        if self._reason is not None:
            raise self._refusal(self._reason)

    def _refusal(self, reason: str) -> BackprobeError:
        """Return an error that says why the node cannot run in float64."""
        return BackprobeError(f"{self._label} cannot be run in float64: {reason}")

    def _refuse(self, reason: str) -> BackprobeError:
        """Remember the reason for ``check``, and return the error to raise."""
        self._reason = reason
        return self._refusal(reason)

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        """Run an op of the node with its tensors and dtypes converted to double precision; return its result.
        :raises BackprobeError: the op cannot run in float64.
        """
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise self._refuse(f"{func} draws random numbers, and draws others in another dtype")
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.is_write and any(t.dtype in _WIDE for t in tensors_in(value)):
                raise self._refuse(f"{func} writes into a tensor that was there before")
        if any(
            a.is_write and any(t.dtype in _WIDE for t in tensors_in(kwargs.get(a.name))) for a in func._schema.arguments
        ):
            raise self._refuse(f"{func} writes into a tensor that was there before")
        args, kwargs = mapped((args, kwargs), widened)
        try:
            return func(*args, **kwargs)
        except (RuntimeError, NotImplementedError) as error:
            raise self._refuse(f"{func} has no such kernel ({str(error).splitlines()[0]})") from error
