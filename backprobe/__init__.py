"""See what happens inside ``loss.backward()``, and what went wrong: which node, module, source line and tensor.

Public names are loaded when they are used, so that reading a stored run does not import torch.
"""

# Nothing is imported here when backprobe runs: Note [The working directory is not imported from].
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .basics.errors import BackprobeError as BackprobeError
    from .engine import rules as replay_rules
    from .engine.attach import breakpoint_backward as breakpoint_backward
    from .engine.handle import Debugger as Debugger
    from .engine.handle import debug as debug
    from .engine.replay import Replay as Replay
    from .engine.replay import replay as replay
    from .observe.live import diagnose as diagnose
    from .observe.live import trace as trace
    from .observe.snapshots.recording import recording as recording
    from .observe.snapshots.snapshot import graph as graph
    from .records import Finding as Finding
    from .trace_api import Trace as Trace
    from .trace_api import load_run as load_run
    from .user_tools.activations.api import capture as capture
    from .user_tools.activations.api import list_modules as list_modules
    from .user_tools.derivatives.dense import jacobian as jacobian
    from .user_tools.derivatives.linear import jvp as jvp
    from .user_tools.derivatives.linear import linearize as linearize
    from .user_tools.derivatives.linear import vjp as vjp
    from .user_tools.derivatives.norms import jacobian_norm as jacobian_norm
    from .user_tools.derivatives.spectral import spectral_norm as spectral_norm
    from .user_tools.derivatives.sweep import sensitivity as sensitivity
    from .user_tools.editing import actions as gradient_ops
    from .user_tools.editing.attach import edit_gradients as edit_gradients
    from .user_tools.editing.multi import register_multi_grad_hook as register_multi_grad_hook
    from .user_tools.saved_hooks import policies as offload
    from .user_tools.saved_hooks.policies import increment_version as increment_version
    from .user_tools.saved_hooks.watching import saved_tensors as saved_tensors

#: Public name -> module and the name in it; ``None``: the module itself.
_PUBLIC: "dict[str, tuple[str, str | None]]" = {
    "BackprobeError": ("basics.errors", "BackprobeError"),
    "Debugger": ("engine.handle", "Debugger"),
    "Finding": ("records", "Finding"),
    "Replay": ("engine.replay", "Replay"),
    "Trace": ("trace_api", "Trace"),
    "breakpoint_backward": ("engine.attach", "breakpoint_backward"),
    "capture": ("user_tools.activations.api", "capture"),
    "debug": ("engine.handle", "debug"),
    "diagnose": ("observe.live", "diagnose"),
    "edit_gradients": ("user_tools.editing.attach", "edit_gradients"),
    "gradient_ops": ("user_tools.editing.actions", None),
    "graph": ("observe.snapshots.snapshot", "graph"),
    "increment_version": ("user_tools.saved_hooks.policies", "increment_version"),
    "jacobian": ("user_tools.derivatives.dense", "jacobian"),
    "jacobian_norm": ("user_tools.derivatives.norms", "jacobian_norm"),
    "jvp": ("user_tools.derivatives.linear", "jvp"),
    "linearize": ("user_tools.derivatives.linear", "linearize"),
    "list_modules": ("user_tools.activations.api", "list_modules"),
    "load_run": ("trace_api", "load_run"),
    "offload": ("user_tools.saved_hooks.policies", None),
    "recording": ("observe.snapshots.recording", "recording"),
    "register_multi_grad_hook": ("user_tools.editing.multi", "register_multi_grad_hook"),
    "replay": ("engine.replay", "replay"),
    "replay_rules": ("engine.rules", None),
    "saved_tensors": ("user_tools.saved_hooks.watching", "saved_tensors"),
    "sensitivity": ("user_tools.derivatives.sweep", "sensitivity"),
    "spectral_norm": ("user_tools.derivatives.spectral", "spectral_norm"),
    "trace": ("observe.live", "trace"),
    "vjp": ("user_tools.derivatives.linear", "vjp"),
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
    "diagnose",
    "edit_gradients",
    "gradient_ops",
    "graph",
    "increment_version",
    "jacobian",
    "jacobian_norm",
    "jvp",
    "linearize",
    "list_modules",
    "load_run",
    "offload",
    "recording",
    "register_multi_grad_hook",
    "replay",
    "replay_rules",
    "saved_tensors",
    "sensitivity",
    "spectral_norm",
    "trace",
    "vjp",
]


def load_ipython_extension(shell: "Any") -> None:
    """Load the extension for ``%load_ext backprobe``: the cell magic ``%%backprobe`` (see docs/notebooks.md)."""
    from .integrations.notebook import load

    load(shell)


def unload_ipython_extension(shell: "Any") -> None:
    """Unload the extension for ``%unload_ext backprobe``."""
    from .integrations.notebook import unload

    unload(shell)


def __getattr__(name: str) -> "Any":
    from .basics.lazy_import import load

    if name not in _PUBLIC:
        raise AttributeError(f"module 'backprobe' has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    value: Any = load(module)
    if attribute is not None:
        value = getattr(value, attribute)
    globals()[name] = value
    return value


def __dir__() -> "list[str]":
    return sorted([*__all__, "__version__"])
