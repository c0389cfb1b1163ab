"""See what happens inside ``loss.backward()``, and what went wrong: which node, module, source line and tensor.

Public names are loaded when they are used, so that reading a stored run does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    graph: Any  # a package that can be called: see its first lines
    from .errors import BackprobeError as BackprobeError
    from .observe.tracing import trace as trace
    from .records import Finding as Finding
    from .store.reader import open_run as open
    from .traced import Trace as Trace

#: Public name -> module and name.
_PUBLIC = {
    "BackprobeError": ("errors", "BackprobeError"),
    "Finding": ("records", "Finding"),
    "Trace": ("traced", "Trace"),
    "graph": ("graph", "package"),
    "open": ("store.reader", "open_run"),
    "trace": ("observe.tracing", "trace"),
}
__version__ = "0.1.0"
__all__ = ["BackprobeError", "Finding", "Trace", "graph", "open", "trace"]


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
