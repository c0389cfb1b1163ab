"""Regions that ``torch.compile`` has made one node of."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from ..torch_texts import COMPILED, OPTIMIZED
from .walk import Plans, walk

#: What compiles whole backward calls.
_WHOLE = "torch._dynamo.compiled_autograd"


def count() -> int:
    """How many frames Dynamo has compiled in this process."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    return utils.counters["frames"].get("ok", 0) if utils is not None else 0


def in_use() -> bool:
    """Whether Dynamo has compiled anything in this process."""
    return count() > 0


def reached(nodes: Sequence[Any]) -> bool:
    """Whether a backward from `nodes` runs a compiled region."""
    return in_use() and any(name.startswith(COMPILED) for name in walk(nodes, Plans()).plan.names)


def compiles_backward() -> bool:
    """Whether the backward that is about to be called is compiled as a whole, with the hooks on its nodes."""
    return bool(getattr(sys.modules.get(_WHOLE), "compiled_autograd_enabled", False))


@contextmanager
def backward_as_it_is() -> Iterator[None]:
    """Backward calls of ours are not compiled inside, whatever those of the script are."""
    disabled: Any = getattr(sys.modules.get(_WHOLE), "_disable", None)
    with disabled() if disabled is not None and compiles_backward() else nullcontext():
        yield


def is_compiled(node: Any) -> bool:
    """Whether `node` is a whole compiled region."""
    return hasattr(getattr(node, "_forward_cls", None), "compiled_bw")


def backward_module(node: Any) -> Any:
    """The FX graph of what a compiled region runs in its backward, where torch still has it, else ``None``."""
    info = getattr(getattr(node, "_forward_cls", None), "_lazy_backward_info", None)
    return getattr(info, "bw_module", None)


def generated_from(module: Any, line: int) -> str:
    """The traceback, as text, of the call that stands in `line` of the code that FX has written for `module`; empty
    where it is not known."""
    numbers, begin = getattr(module, "_lineno_map", None), getattr(module, "_prologue_start", 0)
    at = numbers.get(line - begin) if numbers else None
    nodes = list(module.graph.nodes) if at is not None else []
    return (nodes[at].meta.get("stack_trace") or "") if at is not None and at < len(nodes) else ""


def is_compiled_module(module: Any) -> bool:
    """Whether calls of `module` run compiled code: ``torch.compile(module)``, or ``module.compile()``."""
    return type(module).__name__ == OPTIMIZED or getattr(module, "_compiled_call_impl", None) is not None
