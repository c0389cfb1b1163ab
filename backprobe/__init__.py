"""See what happens inside ``loss.backward()``, and what went wrong: which node, module, source line and tensor.

Public names are loaded when they are used, so that reading a stored run does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .capture.api import capture as capture
    from .capture.api import modules as modules
    from .derivatives.dense import jacobian as jacobian
    from .derivatives.linear import jvp as jvp
    from .derivatives.linear import linearize as linearize
    from .derivatives.linear import vjp as vjp
    from .derivatives.norms import jacobian_norm as jacobian_norm
    from .derivatives.spectral import spectral_norm as spectral_norm
    from .derivatives.sweep import sensitivity as sensitivity
    from .edit import actions as edits
    from .edit.attach import edit as edit
    from .edit.multi import on_gradients as on_gradients
    from .engine import rules as rules

    graph: Any  # a package that can be called: see its first lines
    from .engine.attach import breakpoint_backward as breakpoint_backward
    from .engine.handle import Debugger as Debugger
    from .engine.handle import debug as debug
    from .engine.replay import Replay as Replay
    from .engine.replay import replay as replay
    from .errors import BackprobeError as BackprobeError
    from .observe.tracing import explain as explain
    from .observe.tracing import trace as trace
    from .records import Finding as Finding
    from .saved import policies as policies
    from .saved.policies import mark_written as mark_written
    from .saved.watching import saved as saved
    from .store.reader import open_run as open
    from .traced import Trace as Trace

#: Public name -> module and name.
_PUBLIC = {
    "BackprobeError": ("errors", "BackprobeError"),
    "Debugger": ("engine.handle", "Debugger"),
    "Finding": ("records", "Finding"),
    "Replay": ("engine.replay", "Replay"),
    "Trace": ("traced", "Trace"),
    "breakpoint_backward": ("engine.attach", "breakpoint_backward"),
    "capture": ("capture", "capture"),
    "debug": ("engine.handle", "debug"),
    "edit": ("edit.attach", "edit"),
    "edits": ("edit", "actions"),
    "explain": ("observe.tracing", "explain"),
    "graph": ("graph", "package"),
    "jacobian": ("derivatives.dense", "jacobian"),
    "jacobian_norm": ("derivatives.norms", "jacobian_norm"),
    "jvp": ("derivatives.linear", "jvp"),
    "linearize": ("derivatives.linear", "linearize"),
    "mark_written": ("saved.policies", "mark_written"),
    "modules": ("capture", "modules"),
    "on_gradients": ("edit.multi", "on_gradients"),
    "open": ("store.reader", "open_run"),
    "policies": ("saved", "policies"),
    "replay": ("engine.replay", "replay"),
    "rules": ("engine", "rules"),
    "saved": ("saved.watching", "saved"),
    "sensitivity": ("derivatives.sweep", "sensitivity"),
    "spectral_norm": ("derivatives.spectral", "spectral_norm"),
    "trace": ("observe.tracing", "trace"),
    "vjp": ("derivatives.linear", "vjp"),
}
__version__ = "0.1.0"
__all__ = [
    "BackprobeError",
    "Debugger",
    "Finding",
    "Replay",
    "Trace",
    "breakpoint_backward",
    "capture",
    "debug",
    "edit",
    "edits",
    "explain",
    "graph",
    "jacobian",
    "jacobian_norm",
    "jvp",
    "linearize",
    "mark_written",
    "modules",
    "on_gradients",
    "open",
    "policies",
    "replay",
    "rules",
    "saved",
    "sensitivity",
    "spectral_norm",
    "trace",
    "vjp",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _PUBLIC:
        raise AttributeError(f"module 'backprobe' has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    value = getattr(importlib.import_module(f".{module}", __name__), attribute)
    globals()[name] = value
    part = module.split(".")[0]
    if part in _PUBLIC and part != name:  # importing ``edit`` has put the package in the place of the function
        __getattr__(part)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
