"""Regions that ``torch.compile`` has made one node of."""

from __future__ import annotations

from typing import Any

from ..torch_texts import OPTIMIZED


def is_compiled(node: Any) -> bool:
    """Whether `node` is a whole compiled region."""
    return hasattr(getattr(node, "_forward_cls", None), "compiled_bw")


def backward_module(node: Any) -> Any:
    """The FX graph of what a compiled region runs in its backward, where torch still has it, else ``None``."""
    info = getattr(getattr(node, "_forward_cls", None), "_lazy_backward_info", None)
    return getattr(info, "bw_module", None)


def is_compiled_module(module: Any) -> bool:
    """Whether calls of `module` run compiled code: ``torch.compile(module)``, or ``module.compile()``."""
    return type(module).__name__ == OPTIMIZED or getattr(module, "_compiled_call_impl", None) is not None
