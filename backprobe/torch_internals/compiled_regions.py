"""Regions that ``torch.compile`` turned into a single autograd node."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from ..basics.torch_texts import COMPILED, OPTIMIZED
from .walk import Plans, walk

if TYPE_CHECKING:
    import torch

#: The module that compiles whole backward calls.
_WHOLE = "torch._dynamo.compiled_autograd"


def count() -> int:
    """Return how many frames Dynamo has compiled in this process."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    return utils.counters["frames"].get("ok", 0) if utils is not None else 0


def in_use() -> bool:
    """Return whether Dynamo has compiled anything in this process."""
    return count() > 0


def reached(nodes: Sequence[object]) -> bool:
    """Return whether a backward from `nodes` runs a compiled region."""
    return in_use() and any(name.startswith(COMPILED) for name in walk(nodes, Plans()).plan.names)


def compiles_backward() -> bool:
    """Return whether the next backward is compiled as a whole, with the hooks on its nodes."""
    return bool(getattr(sys.modules.get(_WHOLE), "compiled_autograd_enabled", False))


@contextmanager
def backward_as_it_is() -> Iterator[None]:
    """Run our backward calls inside without compiled autograd, even if the script enabled it."""
    disabled: Any = getattr(sys.modules.get(_WHOLE), "_disable", None)
    with disabled() if disabled is not None and compiles_backward() else nullcontext():
        yield


def is_compiled(node: object) -> bool:
    """Return whether `node` is a whole compiled region."""
    return hasattr(getattr(node, "_forward_cls", None), "compiled_bw")


def backward_module(node: object) -> Any:
    """Return the FX graph of a compiled region's backward if torch still has it, else ``None``."""
    info = getattr(getattr(node, "_forward_cls", None), "_lazy_backward_info", None)
    return getattr(info, "bw_module", None)


def generated_from(module: torch.fx.GraphModule, line: int) -> str:
    """Return the traceback, as text, of the call at `line` of the code that FX generated for `module`.

    Empty if it is unknown.
    """
    numbers, begin = getattr(module, "_lineno_map", None), getattr(module, "_prologue_start", 0)
    at = numbers.get(line - begin) if numbers else None
    nodes = list(module.graph.nodes) if at is not None else []
    return (nodes[at].meta.get("stack_trace") or "") if at is not None and at < len(nodes) else ""


def is_compiled_module(module: object) -> bool:
    """Return whether calls of `module` run compiled code: ``torch.compile(module)``, or ``module.compile()``."""
    return type(module).__name__ == OPTIMIZED or getattr(module, "_compiled_call_impl", None) is not None
