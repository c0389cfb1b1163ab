"""See what happens inside ``loss.backward()``, and what went wrong: which node, module, source line and tensor.

Public names are loaded when they are used, so that reading a stored run does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine.attach import breakpoint_backward as breakpoint_backward
    from .engine.handle import Debugger as Debugger
    from .engine.handle import debug as debug
    from .errors import BackprobeError as BackprobeError
    from .observe.tracing import trace as trace
    from .records import Finding as Finding
    from .store.reader import open_run as open
    from .traced import Trace as Trace

#: Public name -> module and name.
_PUBLIC = {
    "BackprobeError": ("errors", "BackprobeError"),
    "Debugger": ("engine.handle", "Debugger"),
    "Finding": ("records", "Finding"),
    "Trace": ("traced", "Trace"),
    "breakpoint_backward": ("engine.attach", "breakpoint_backward"),
    "debug": ("engine.handle", "debug"),
    "open": ("store.reader", "open_run"),
    "trace": ("observe.tracing", "trace"),
}
__version__ = "0.1.0"
__all__ = ["BackprobeError", "Debugger", "Finding", "Trace", "breakpoint_backward", "debug", "open", "trace"]


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _PUBLIC:
        raise AttributeError(f"module 'backprobe' has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    value = getattr(importlib.import_module(f".{module}", __name__), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
