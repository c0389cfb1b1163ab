"""Backward hooks that users put on modules: where they were registered, and what keeps them from doing their work."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from types import CodeType
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ...records import HookSeen, Site
from ...source.definitions import calls_of_method
from ...source.frames import Frames
from ...source.roots import ModuleCallRef, RootModule
from ...torch_internals import compiled_regions
from ...torch_internals.structure import tensors_in
from ...torch_texts import HOOKED_VIEW, WRITTEN_VIEW
from ..backward.calls import ActiveBackward
from ..events import Tracker
from ..tracker_context import TrackerContext

#: Methods that register a hook on gradients of a module.
MODULE_HOOKS = ("register_full_backward_hook", "register_full_backward_pre_hook", "register_backward_hook")
#: Those that register one on its calls.
FORWARD_HOOKS = ("register_forward_hook", "register_forward_pre_hook")
#: Calls of a module, and backward calls, after which a hook that had nothing to hear is one that never has.
IDLE = 3
#: Backward calls after which it is looked at first which hooked modules were not called; modules that are told.
FEW, MOST = 4, 100
#: Modules that hold others, and have no forward.
_CONTAINERS = (nn.ModuleList, nn.ModuleDict)


@dataclass
class _Idle:
    """A hook whose modules gave what has no gradient: the first of them, the backward calls until then, the calls, and
    those of them with gradient mode off."""

    module: weakref.ref[nn.Module]
    where: ModuleCallRef
    since: int
    calls: int = 0
    quiet: int = 0


class Hooked(Tracker):
    """What was seen of modules with backward hooks, one entry for each module and reason."""

    def __init__(self, scene: TrackerContext) -> None:
        self._scene, self._modules, self._frames = scene, scene.modules, scene.frames
        self._found: dict[tuple[Any, str], HookSeen] = {}
        #: The last module with a backward hook that returned, and its output: what comes next may change that in place.
        self._last: tuple[ModuleCallRef, nn.Module] | None = None
        #: The same for all of them, by the number of the node that made their output.
        self._outputs: dict[int, tuple[ModuleCallRef, nn.Module]] = {}
        self._called: set[int] = set()
        #: By hook. One that runs for another module is there for those that have a gradient.
        self._idle: dict[CodeType, _Idle] = {}
        self._busy: set[CodeType] = set()
        self._backwards = 0
        #: Of hooked modules that nobody had called when that was looked at last, what is to be told if it stays so: at
        #: the end of a script its model may be gone.
        self._uncalled: list[tuple[RootModule, weakref.ref[nn.Module], int, HookSeen]] = []
        #: How many frames had been compiled when more were found last, and the number of the next hook then.
        self._compiled = 0, 0

    def hooked_left(self, module: nn.Module, where: ModuleCallRef, output: Any, nodes: int) -> None:
        """A module with a backward hook returned `output`, having made `nodes` nodes."""
        self._last = (where, module)
        first = output[0] if isinstance(output, tuple) and output else output
        if isinstance(first, torch.Tensor) and first.grad_fn is not None:
            self._outputs[first.grad_fn._sequence_nr()] = self._last
            while len(self._outputs) > 1000:
                del self._outputs[next(iter(self._outputs))]
        self._called.add(id(module))
        self._heard(module, where, output)
        if not isinstance(output, (torch.Tensor, tuple)) or (
            isinstance(output, tuple) and not any(isinstance(o, torch.Tensor) for o in output)
        ):
            self._note(module, where, "output", type(output).__name__, None)
        elif module._is_full_backward_hook is False and nodes > 1:
            self._note(module, where, "legacy", str(nodes), None)

    def _heard(self, module: nn.Module, where: ModuleCallRef, output: Any) -> None:
        """Note whether the hooks of `module` can hear anything of this call."""
        for hook in (*module._backward_hooks.values(), *module._backward_pre_hooks.values()):
            code = getattr(getattr(hook, "__func__", hook), "__code__", None)
            if code is None or code in self._busy or not self._frames.is_user(code):
                continue
            if any(t.requires_grad for t in tensors_in(output, depth=3)):
                self._busy.add(code)
                self._idle.pop(code, None)
            else:
                idle = self._idle.setdefault(code, _Idle(weakref.ref(module), where, self._backwards))
                idle.calls += 1
                idle.quiet += not torch.is_grad_enabled()

    def backward_ran(self, running: ActiveBackward) -> None:
        """Look for hooked modules that were not called though their parameters got gradients."""
        self._backwards += 1
        compiled = compiled_regions.count()
        if compiled != self._compiled[0]:
            self._compiled = compiled, RemovableHandle.next_id
        if self._backwards >= FEW and self._backwards & (self._backwards - 1) == 0 and not compiled:
            self._remember()
        if not self._scene.eye.careful or compiled:  # what runs compiled is not seen being called
            return
        for root in self._modules.roots:
            model = root.ref()
            if model is None:
                continue
            for module in model.modules():
                if not module._backward_hooks or id(module) in self._called:
                    continue
                if self._modules.was_called(module) or not any(p.grad is not None for p in module.parameters()):
                    continue
                where = ModuleCallRef(root, root.path_of(module), type(module).__name__, 1)
                self._note(module, where, "forward", "", None)

    def ended(self) -> None:
        """Look once more: hooks may have been put there late, in steps of which little was noted."""
        for idle in self._idle.values():
            if min(idle.calls, self._backwards - idle.since) >= IDLE and (module := idle.module()) is not None:
                self._note(module, idle.where, "quiet" if idle.quiet == idle.calls else "frozen", "", None)
        if compiled_regions.in_use():
            self._after_compiling()  # what runs compiled is not seen being called
            return
        for _, module, where, reason, detail in self._never_called():
            self._note(module, where, reason, detail, None)
        for root, ref, number, seen in self._uncalled:
            if root.ref() is None and number not in self._called and self._modules.counts(ref) == (0, 0):
                self._put(seen)

    def _never_called(self) -> Iterator[tuple[RootModule, nn.Module, ModuleCallRef, str, str]]:
        """Hooked modules whose parameters got gradients, and that nobody called: with a reason and what it is of."""
        leaves = self._scene.names.leaves
        for root in self._modules.roots:
            model = root.ref()
            for module in model.modules() if model is not None else ():
                if _hook_of(module) is None or id(module) in self._called or self._modules.was_called(module):
                    continue
                known = [leaf for p in module.parameters() if (leaf := leaves.of_id(id(p))) is not None]
                if any(leaf.reached for leaf in known) and not _hooked_inside(module):
                    where, kind = (
                        ModuleCallRef(root, root.path_of(module), type(module).__name__, 1),
                        type(module).__name__,
                    )
                    holds = isinstance(module, _CONTAINERS)
                    yield root, module, where, "container" if holds else "forward", kind if holds else ""

    def _remember(self) -> None:
        """What would be told if the script ended here."""
        found = [
            (root, weakref.ref(module), id(module), self._seen(module, where, reason, detail, None))
            for root, module, where, reason, detail in islice(self._never_called(), MOST)
        ]
        self._uncalled = [(root, ref, number, seen) for root, ref, number, seen in found if seen is not None]

    def _after_compiling(self) -> None:
        """Backward hooks that came after the last frame was compiled: code that was compiled before has none of them,
        and torch does not look whether there are new ones."""
        leaves = self._scene.names.leaves
        for root in self._modules.roots:
            model = root.ref()
            for module in model.modules() if model is not None else ():
                late = [n for hooks in (module._backward_hooks, module._backward_pre_hooks) for n in hooks]
                if not late or id(module) in self._called or min(late) < self._compiled[1]:
                    continue
                known = [leaf for p in module.parameters() if (leaf := leaves.of_id(id(p))) is not None]
                if any(leaf.reached for leaf in known):
                    where = ModuleCallRef(root, root.path_of(module), type(module).__name__, 1)
                    self._note(module, where, "compiled", "", None)

    def op_raised(self, text: str, frame: Any, args: Any) -> None:
        """An in-place op met the view that a full backward hook makes of a module's output."""
        if HOOKED_VIEW not in text or WRITTEN_VIEW not in text or self._last is None:
            return
        where, module = self._last
        for value in args:
            # The view that a full hook makes stands between the op and the node that made the module's output.
            node = _grad_fn(value)
            for child, _ in node.next_functions if node is not None else ():
                if child is not None and child._sequence_nr() in self._outputs:
                    where, module = self._outputs[child._sequence_nr()]
        self._note(module, where, "inplace", "", self._frames.site(self._frames.spot(frame)))

    def _note(self, module: nn.Module, where: ModuleCallRef, reason: str, detail: str, bypass: Site | None) -> None:
        seen = self._seen(module, where, reason, detail, bypass)
        if seen is not None:
            self._put(seen)

    def _seen(
        self, module: nn.Module, where: ModuleCallRef, reason: str, detail: str, bypass: Site | None
    ) -> HookSeen | None:
        """What is to be told of one module; ``None`` of a library's own hook."""
        name = self._modules.name_of(where) or ""
        hook, methods = _hook_of(module) or (None, MODULE_HOOKS)
        code = getattr(getattr(hook, "__func__", hook), "__code__", None)
        if methods is FORWARD_HOOKS and (code is None or not self._frames.is_user(code)):
            return None
        site = registered_at(self._frames, hook, methods, name.rpartition(".")[2])
        return HookSeen(reason, (name,), (detail,), site, bypass)

    def _put(self, seen: HookSeen) -> None:
        """Those of one line and reason are told together."""
        key = (seen.site, seen.reason)
        known = self._found.get(key)
        if known is None:
            if len(self._found) < MOST:
                self._found[key] = seen
        elif seen.modules[0] not in known.modules:
            modules, details = (*known.modules, *seen.modules), (*known.details, *seen.details)
            self._found[key] = HookSeen(seen.reason, modules, details, known.site, known.bypass)

    def records(self) -> tuple[HookSeen, ...]:
        return tuple(self._found.values())


def _grad_fn(value: Any) -> Any:
    """The node of `value`; ``None`` if it is no tensor, or if autograd refuses to make the node of a view that was
    written in place."""
    try:
        return value.grad_fn if isinstance(value, torch.Tensor) else None
    except RuntimeError:
        return None


def _hooked_inside(module: nn.Module) -> bool:
    """Whether `module` is a container that nobody calls, hooked as all modules are: what it holds is hooked too."""
    if not isinstance(module, _CONTAINERS):
        return False
    return any(_hook_of(inner) is not None for inner in module.modules() if inner is not module)


def _hook_of(module: nn.Module) -> tuple[Any, tuple[str, ...]] | None:
    """The first hook of a module, and the methods that can have registered it."""
    for hooks in (module._backward_hooks, module._backward_pre_hooks):
        for hook in hooks.values():
            return hook, MODULE_HOOKS
    for hooks in (module._forward_hooks, module._forward_pre_hooks):
        for hook in hooks.values():
            return hook, FORWARD_HOOKS
    return None


def registered_at(frames: Frames, hook: Any, methods: tuple[str, ...], of: str = "") -> Site | None:
    """The user's line that registered `hook`, a function or its code: the one whose argument it is, or the only one.

    :param of: what the module is called in the one around it: rather a line that has this name.
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
