"""Checks the user's backward hooks on modules: where they were registered, and why they cannot work."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ... import thresholds
from ...basics.torch_texts import HOOKED_VIEW, WRITTEN_VIEW
from ...records import HookSeen, Site
from ...source.calls import calls_of_method
from ...source.frames import Frames
from ...source.roots import ModuleCallRef, RootModule
from ...torch_internals import compiled_regions
from ...torch_internals.references import IdentityMap
from ...torch_internals.structure import tensors_in
from ..backward.active_backward import ActiveBackward
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Methods that register a hook on a module's gradients.
GRADIENT_HOOK_METHODS = ("register_full_backward_hook", "register_full_backward_pre_hook", "register_backward_hook")
#: Methods that register a hook on a module's calls.
CALL_HOOK_METHODS = ("register_forward_hook", "register_forward_pre_hook")
#: Maximum number of records.
MAX_RECORDS = 100
#: Modules that contain other modules and have no forward.
_CONTAINERS = (nn.ModuleList, nn.ModuleDict)


@dataclass
class _IdleHook:
    """A hook whose modules returned only outputs without a gradient.

    :ivar module: the first of these modules.
    :ivar backward_count: number of backward calls until its first call.
    :ivar calls: number of calls of the modules; ``calls_without_grad_mode``: of these, with gradient mode off.
    """

    module: weakref.ref[nn.Module]
    where: ModuleCallRef
    backward_count: int
    calls: int = 0
    calls_without_grad_mode: int = 0


class ModuleHookTracker(Tracker):
    """Tracker of problems with backward hooks on modules.

    There is one record for each line that registers a hook and each reason.
    """

    def __init__(self, context: TrackerContext) -> None:
        """Start without hooks."""
        self._context, self._modules, self._frames = context, context.modules, context.frames
        self._found: dict[tuple[Site | None, str], HookSeen] = {}
        #: The last module with a backward hook that returned: the next op may modify its output in place.
        self._last_hooked_module: tuple[ModuleCallRef, nn.Module] | None = None
        #: The same for all such modules, by sequence number of the node that made their output.
        self._modules_by_output: dict[int, tuple[ModuleCallRef, nn.Module]] = {}
        self._called_modules: IdentityMap[bool] = IdentityMap()
        #: Idle hooks, by code. A hook that runs for any module is not idle: it serves the modules that have a gradient.
        self._idle_hooks: dict[CodeType, _IdleHook] = {}
        self._useful_hooks: set[CodeType] = set()
        self._backward_count = 0
        #: Modules with hooks that were uncalled in the last search, with the record to make if they stay uncalled: the
        #: model may be gone when the script ends.
        self._uncalled_modules: list[tuple[RootModule, weakref.ref[nn.Module], HookSeen]] = []
        #: Number of compiled frames when it last changed, and the id of the next hook at that time.
        self._last_compile = 0, 0

    def hooked_module_returned(self, module: nn.Module, where: ModuleCallRef, output: object, nodes: int) -> None:
        """Check a module with a backward hook that returned `output` after making `nodes` nodes."""
        self._last_hooked_module = (where, module)
        first = output[0] if isinstance(output, tuple) and output else output
        if isinstance(first, torch.Tensor) and first.grad_fn is not None:
            self._modules_by_output[first.grad_fn._sequence_nr()] = self._last_hooked_module
            while len(self._modules_by_output) > 1000:
                del self._modules_by_output[next(iter(self._modules_by_output))]
        if module not in self._called_modules:
            self._called_modules[module] = True
        self._note_idle_hooks(module, where, output)
        if not isinstance(output, (torch.Tensor, tuple)) or (
            isinstance(output, tuple) and not any(isinstance(o, torch.Tensor) for o in output)
        ):
            self._add_record(module, where, "output", type(output).__name__, None)
        elif module._is_full_backward_hook is False and nodes > 1:
            self._add_record(module, where, "legacy", str(nodes), None)

    def _note_idle_hooks(self, module: nn.Module, where: ModuleCallRef, output: object) -> None:
        """Note whether the backward of this call can run the hooks of `module`: only if its output requires grad."""
        for hook in (*module._backward_hooks.values(), *module._backward_pre_hooks.values()):
            code = getattr(getattr(hook, "__func__", hook), "__code__", None)
            if code is None or code in self._useful_hooks or not self._frames.is_user(code):
                continue
            if any(t.requires_grad for t in tensors_in(output, depth=3)):
                self._useful_hooks.add(code)
                self._idle_hooks.pop(code, None)
            else:
                idle_hook = self._idle_hooks.setdefault(
                    code, _IdleHook(weakref.ref(module), where, self._backward_count)
                )
                idle_hook.calls += 1
                idle_hook.calls_without_grad_mode += not torch.is_grad_enabled()

    def backward_returned(self, running: ActiveBackward) -> None:
        """Search for modules that were not called although their parameters got gradients."""
        self._backward_count += 1
        compiled = compiled_regions.count()
        if compiled != self._last_compile[0]:
            self._last_compile = compiled, RemovableHandle.next_id
        if (
            self._backward_count >= thresholds.IDLE_HOOK_CALLS_BEFORE_SEARCH
            and self._backward_count & (self._backward_count - 1) == 0
            and not compiled
        ):
            self._keep_uncalled_modules()
        if not self._context.recorder.inspecting or compiled:  # calls of compiled modules are invisible
            return
        for root, model in self._modules.models():
            for module in model.modules():
                if not module._backward_hooks or module in self._called_modules:
                    continue
                if self._modules.was_called(module) or not any(p.grad is not None for p in module.parameters()):
                    continue
                where = ModuleCallRef(root, root.path_of(module), type(module).__name__, 1)
                self._add_record(module, where, "forward", "", None)

    def ended(self) -> None:
        """Record hooks that never got a gradient, and modules with hooks that were never called."""
        for idle_hook in self._idle_hooks.values():
            if (
                min(idle_hook.calls, self._backward_count - idle_hook.backward_count) >= thresholds.IDLE_HOOK_MIN_CALLS
                and (module := idle_hook.module()) is not None
            ):
                self._add_record(
                    module,
                    idle_hook.where,
                    "quiet" if idle_hook.calls_without_grad_mode == idle_hook.calls else "frozen",
                    "",
                    None,
                )
        if compiled_regions.in_use():
            self._note_hooks_added_after_compile()  # calls of compiled modules are invisible
            return
        for _, module, where, reason, detail in self._find_uncalled_modules():
            self._add_record(module, where, reason, detail, None)
        for root, ref, seen in self._uncalled_modules:
            if root.ref() is None and self._modules.counts(ref) == (0, 0):
                self._merge_record(seen)

    def _find_uncalled_modules(self) -> Iterator[tuple[RootModule, nn.Module, ModuleCallRef, str, str]]:
        """Yield modules with hooks that were not called although their parameters got gradients.

        Each comes with its outermost module, its call, the reason and its detail.
        """
        leaves = self._context.names.leaves
        for root, model in self._modules.models():
            for module in model.modules():
                if _first_hook(module) is None or module in self._called_modules or self._modules.was_called(module):
                    continue
                known = [leaf for p in module.parameters() if (leaf := leaves.known(p)) is not None]
                if any(leaf.reached for leaf in known) and not _has_hooked_children(module):
                    where, kind = (
                        ModuleCallRef(root, root.path_of(module), type(module).__name__, 1),
                        type(module).__name__,
                    )
                    is_container = isinstance(module, _CONTAINERS)
                    yield root, module, where, "container" if is_container else "forward", kind if is_container else ""

    def _keep_uncalled_modules(self) -> None:
        """Search for uncalled modules, and keep their records for the case that the model is gone at the end."""
        found = [
            (root, weakref.ref(module), self._hook_record(module, where, reason, detail, None))
            for root, module, where, reason, detail in islice(self._find_uncalled_modules(), MAX_RECORDS)
        ]
        self._uncalled_modules = [(root, ref, seen) for root, ref, seen in found if seen is not None]

    def _note_hooks_added_after_compile(self) -> None:
        """Record modules whose backward hooks were all registered after the last compilation and never called.

        Only modules whose parameters got gradients count. Code that was compiled earlier calls none of these hooks, and
        torch does not check for new ones.
        """
        leaves = self._context.names.leaves
        for root, model in self._modules.models():
            for module in model.modules():
                hook_ids = [n for hooks in (module._backward_hooks, module._backward_pre_hooks) for n in hooks]
                if not hook_ids or module in self._called_modules or min(hook_ids) < self._last_compile[1]:
                    continue
                known = [leaf for p in module.parameters() if (leaf := leaves.known(p)) is not None]
                if any(leaf.reached for leaf in known):
                    where = ModuleCallRef(root, root.path_of(module), type(module).__name__, 1)
                    self._add_record(module, where, "compiled", "", None)

    def op_raised(self, text: str, frame: FrameType, args: Any) -> None:
        """Record an in-place op on the view that a full backward hook makes of a module's output."""
        if HOOKED_VIEW not in text or WRITTEN_VIEW not in text or self._last_hooked_module is None:
            return
        where, module = self._last_hooked_module
        for value in args:
            # This view stands between the op and the node that made the module's output.
            node = _grad_fn_of(value)
            for child, _ in node.next_functions if node is not None else ():
                if child is not None and child._sequence_nr() in self._modules_by_output:
                    where, module = self._modules_by_output[child._sequence_nr()]
        self._add_record(module, where, "inplace", "", self._frames.site(self._frames.spot(frame)))

    def _add_record(
        self, module: nn.Module, where: ModuleCallRef, reason: str, detail: str, bypass: Site | None
    ) -> None:
        """Add a record that a hook of `module` does not work, unless the hook is a library's.

        :param reason: why; `detail`: more about it. ``bypass``: the line that calls ``forward`` directly, if that is
            the reason.
        """
        seen = self._hook_record(module, where, reason, detail, bypass)
        if seen is not None:
            self._merge_record(seen)

    def _hook_record(
        self, module: nn.Module, where: ModuleCallRef, reason: str, detail: str, bypass: Site | None
    ) -> HookSeen | None:
        """Return the record for one module; ``None`` for a library's own hook."""
        name = self._modules.name_of(where) or ""
        hook, methods = _first_hook(module) or (None, GRADIENT_HOOK_METHODS)
        code = getattr(getattr(hook, "__func__", hook), "__code__", None)
        if methods is CALL_HOOK_METHODS and (code is None or not self._frames.is_user(code)):
            return None
        site = registered_at(self._frames, hook, methods, name.rpartition(".")[2])
        return HookSeen(reason, (name,), (detail,), site, bypass)

    def _merge_record(self, seen: HookSeen) -> None:
        """Store a record, merged with those of the same line and reason."""
        key = (seen.site, seen.reason)
        known = self._found.get(key)
        if known is None:
            if len(self._found) < MAX_RECORDS:
                self._found[key] = seen
        elif seen.modules[0] not in known.modules:
            modules, details = (*known.modules, *seen.modules), (*known.details, *seen.details)
            self._found[key] = HookSeen(seen.reason, modules, details, known.site, known.bypass)

    def records(self) -> tuple[HookSeen, ...]:
        """Return the records of hooks that cannot work, one for each line and reason."""
        return tuple(self._found.values())


def _grad_fn_of(value: object) -> torch.autograd.graph.Node | None:
    """Return the node of `value`.

    :returns: ``None`` if it is no tensor, or if autograd refuses to make the node of a view that was modified in place.
    """
    try:
        return value.grad_fn if isinstance(value, torch.Tensor) else None
    except RuntimeError:
        return None


def _has_hooked_children(module: nn.Module) -> bool:
    """Return whether `module` is a container with modules that have hooks too, as if all modules had been given one."""
    if not isinstance(module, _CONTAINERS):
        return False
    return any(_first_hook(inner) is not None for inner in module.modules() if inner is not module)


def _first_hook(module: nn.Module) -> tuple[Callable[..., object], tuple[str, ...]] | None:
    """Return the first hook of a module and the methods that can have registered it; ``None`` without a hook."""
    for hooks in (module._backward_hooks, module._backward_pre_hooks):
        for hook in hooks.values():
            return hook, GRADIENT_HOOK_METHODS
    for hooks in (module._forward_hooks, module._forward_pre_hooks):
        for hook in hooks.values():
            return hook, CALL_HOOK_METHODS
    return None


def registered_at(frames: Frames, hook: object, methods: tuple[str, ...], of: str = "") -> Site | None:
    """Return the user's line that registered `hook`: the line that has it as argument, or else the first line found.

    :param hook: a function or its code.
    :param methods: names of the methods that can have registered it.
    :param of: the module's name in its parent: a line with this name is preferred if no argument matches.
    """
    code = getattr(hook, "__code__", None) or getattr(getattr(hook, "__func__", None), "__code__", None)
    if isinstance(hook, CodeType):
        code, name = hook, hook.co_name
    else:
        name = getattr(hook, "__name__", "")
    candidates = [
        (site, first, last, argument)
        for method in methods
        for site, first, last, argument in calls_of_method(frames, method)
    ]
    for site, first, last, _ in candidates:
        if code is not None and code.co_filename == site.file and first <= code.co_firstlineno <= last:
            return site
    for site, _, _, argument in candidates:
        if name and argument == name:
            return site
    return next((site for site, *_ in candidates if of and f".{of}." in site.text), None) or (
        candidates[0][0] if candidates else None
    )
