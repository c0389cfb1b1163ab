"""Detects when Dynamo inspects global state, so that our modes and hooks can be removed meanwhile.

Note [Out of Dynamo's sight]: Dynamo guards on the active function modes and on the global module hooks. It traces
operators through a mode, so that a backend gets method calls (``x.mul(y)`` for ``x * y``) and some methods raise, and
it compiles a function once with our mode and once without. So our modes and hooks are removed while Dynamo's frame
callback is set, or while it captures a graph for export. They are restored while the callback is not set: after the
call of a compiled function, and inside functions that Dynamo skips, such as those that a backend returns. The price is
that the mode does not observe eager code between two graphs of one function.

Note [In place of Dynamo's functions]: while there is a listener, ``torch._dynamo`` has our functions in place of those
that set its callback and that capture a graph. They are removed with the last listener. If Dynamo is not loaded, an
import hook replaces them once it is.

Note [Guards that run Python]: Dynamo clears its callback while it evaluates guards, and a guard can run Python code,
for example the ``__torch_dispatch__`` of a mode. Such code is wrapped in a ``DisableContext``, which sets the callback
to None and afterwards restores what it found: None. That does not mean that Dynamo is done. Only the wrapper knows what
it found, so its frame is inspected.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any

import torch

from .uncompiled import dynamo_passthrough

_DYNAMO, _EVAL_FRAME, _EXPORT = "torch._dynamo", "torch._dynamo.eval_frame", "torch._dynamo.functional_export"
#: The function that sets Dynamo's callback.
SETS_CALLBACK = "_maybe_set_eval_frame"
#: The context in which a graph is captured for ``torch.export``. Torch 2.8 has none: it sets the callback instead.
CAPTURES = "_compiling_state_context"
_listening: list[DynamoActivity] = []
#: Functions that restore torch's own functions, to be called last to first.
_restore_functions: list[Callable[[], None]] = []


class DynamoActivity:
    """Observer that calls a function when Dynamo begins to inspect global state, and when it stops.

    :param changed: called with whether Dynamo is active on the thread that attached.
    :param failed: called with an exception that `changed` raised.
    """

    def __init__(self, changed: Callable[[bool], None], failed: Callable[[Exception], None]) -> None:
        """Take the functions to call; ``attach`` begins the observation."""
        self._changed, self._failed = changed, failed
        self._thread = 0
        #: Whether Dynamo is active, and the compilation that was under way when it became active.
        self.active = False
        self._compilation_at_change: object = None
        #: The number of nested graph captures for export.
        self.captures = 0

    def attach(self) -> None:
        """Start to observe Dynamo on this thread, and replace its functions if this is the first observer."""
        self._thread, self.active = threading.get_ident(), is_active()
        self._compilation_at_change = _compilation()
        if self not in _listening:
            _listening.append(self)
            if len(_listening) == 1:
                _call_when_imported(_DYNAMO, _replace_dynamo_functions)

    def detach(self) -> None:
        """Stop to observe; restore Dynamo's functions if this was the last observer."""
        if self in _listening:
            _listening.remove(self)
            while not _listening and _restore_functions:
                _restore_functions.pop()()
        self.active = False

    def set_active(self, active: bool) -> None:
        """Record that Dynamo's callback was set (`active`) or cleared; changes within a compilation are ignored."""
        if active == self.active or threading.get_ident() != self._thread:
            return
        within = _compilation()
        if not active and (self.captures or (within is not None and within is not self._compilation_at_change)):
            return
        self.active, self._compilation_at_change = active, within
        try:
            self._changed(active)
        except Exception as error:
            self._failed(error)

    @property
    def compiles(self) -> bool:
        """Return whether a compilation is under way on this thread."""
        return _compilation() is not None


def is_active() -> bool:
    """Return whether Dynamo's callback is set on this thread."""
    eval_frame: Any = getattr(torch._C._dynamo, "eval_frame", None)
    asks = getattr(eval_frame, "get_eval_frame_callback", None)
    return asks is not None and asks() is not None


def _compilation() -> object:
    """Return an object that identifies the compilation under way on this thread, or ``None``."""
    context: Any = getattr(sys.modules.get("torch._guards"), "CompileContext", None)
    return context.try_get() if context is not None else None


def _replace_dynamo_functions() -> None:
    """Replace Dynamo's functions that set its callback and capture graphs by ones that also tell the observers."""
    if not _listening:
        return
    sets: Any = getattr(sys.modules.get(_EVAL_FRAME), SETS_CALLBACK, None)
    if sets is not None:

        @dynamo_passthrough
        def set_and_tell(callback: object) -> object:
            """Set Dynamo's callback, and tell the observers whether it is set; return the callback set before."""
            if callback is not None:
                for one in tuple(_listening):
                    one.set_active(True)
                return sets(callback)
            before = sets(callback)
            if any(one.active for one in _listening) and not _had_no_callback(sys._getframe(1)):
                for one in tuple(_listening):
                    one.set_active(False)
            return before

        _restore_functions.append(replace_attribute(sys.modules[_EVAL_FRAME], SETS_CALLBACK, set_and_tell))
    captures: Any = getattr(sys.modules.get(_EXPORT), CAPTURES, None)
    if captures is not None:

        @contextmanager
        def capture_and_tell() -> Iterator[None]:
            """Capture a graph for export, and tell the observers that Dynamo is active meanwhile."""
            told = [(one, one.active) for one in _listening]
            for one, _ in told:
                one.set_active(True)
                one.captures += 1
            try:
                with captures():
                    yield
            finally:
                for one, before in told:
                    one.captures -= 1
                    one.set_active(before)

        _restore_functions.append(replace_attribute(sys.modules[_EXPORT], CAPTURES, capture_and_tell))


def _had_no_callback(frame: FrameType) -> bool:
    """Return whether `frame` belongs to a ``DisableContext`` that found no callback.

    See Note [Guards that run Python].
    """
    context, names = getattr(sys.modules[_EVAL_FRAME], "DisableContext", None), frame.f_locals
    wrapper = names.get("self")
    if context is None or not isinstance(wrapper, context):
        return False
    return (names["prior"] if "prior" in names else getattr(wrapper, "prior", None)) is None


def replace_attribute(owner: object, name: str, ours: object) -> Callable[[], None]:
    """Replace an attribute, and return a function that restores it unless something else has replaced it since."""
    was = getattr(owner, name)
    setattr(owner, name, ours)

    def undo() -> None:
        """Restore the attribute unless something else has replaced it since."""
        if getattr(owner, name, None) is ours:
            setattr(owner, name, was)

    return undo


class _ImportWatcher(MetaPathFinder):
    """Import hook that finds one module as the other finders do, and calls a function once that module is imported."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        """Take the name of the module, and the function to call."""
        self._name, self._then = name, then

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the module with a loader that calls back; ``None`` for other modules."""
        if name != self._name:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _CallingLoader(spec.loader, self._imported)
                return spec
        return None

    def _imported(self) -> None:
        """Remove this import hook, and call the function: the module is imported."""
        if self in sys.meta_path:
            self.remove()
            self._then()

    def remove(self) -> None:
        """Remove this import hook if it is still installed."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


class _CallingLoader(Loader):
    """Loader that loads a module as `loader` does, and calls a function afterwards."""

    def __init__(self, loader: Loader, then: Callable[[], None]) -> None:
        """Take the loader that does the work, and the function to call."""
        self._loader, self._then = loader, then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module as the other loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module as the other loader does, restore that loader in it, and call the function."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._then()


def _call_when_imported(name: str, then: Callable[[], None]) -> None:
    """Call `then` once the module is imported; at once if it is already."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    if spec is not None and not getattr(spec, "_initializing", False):
        then()
        return
    watch = _ImportWatcher(name, then)
    sys.meta_path.insert(0, watch)
    _restore_functions.append(watch.remove)
