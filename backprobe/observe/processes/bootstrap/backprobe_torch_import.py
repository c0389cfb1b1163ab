"""Calls a function right after ``import torch`` has finished. Imports no other part of backprobe, and no torch.

Note [The import of torch]: torch is imported when the script imports it, so that what the script sets before
(environment variables, ``sys.path``) takes effect. A finder that never finds anything is first in ``sys.meta_path``. It
sees the first ``torch.something`` that torch imports in its own ``__init__``, and gives ``torch.__spec__`` a class that
notices when the import system sets ``_initializing`` to ``False``, which is its last action. No frame of backprobe is
on the stack while torch is imported, finders and loaders are the same as without backprobe, and an import that fails is
noticed when it is tried again. Once torch is imported, the finder and the class are removed.
"""

import sys


class TorchImport:
    """Calls `then` once, when torch has been imported, in the thread that imported it."""

    def __init__(self, then):
        self._then = then
        self._watched = None

    def start(self):
        """Start waiting for the import. Calls `then` at once if torch has been imported already."""
        spec = _spec()
        if spec is not None and not getattr(spec, "_initializing", False):
            self._then()
            return
        sys.meta_path.insert(0, self)
        if spec is not None:  # another thread is importing it
            self._watch(spec)

    def stop(self):
        """Stop waiting for the import."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._watched = None

    def find_spec(self, name, path=None, target=None):
        """Find nothing; notice that torch is being imported when it imports its first submodule.

        Called by the import system.
        """
        if name.startswith("torch."):
            spec = _spec()
            if spec is not None and spec is not self._watched and getattr(spec, "_initializing", False):
                self._watch(spec)
        return None

    def _watch(self, spec):
        """Give torch's module spec a class that notices when the import system has finished with it."""
        finder, real = self, type(spec)

        class WatchedLoader(real):  # type: ignore[misc, valid-type]
            """The spec's own class, which notices when ``_initializing`` becomes false, and then is replaced by the
            original.
            """

            def __setattr__(self, name, value):
                """Set an attribute; if it tells that the import is over, restore the spec's class and report the
                end.
                """
                real.__setattr__(self, name, value)  # type: ignore[call-arg]
                if name == "_initializing" and not value:
                    self.__class__ = real
                    finder._ended(self)

        WatchedLoader.__name__, WatchedLoader.__qualname__, WatchedLoader.__module__ = (
            real.__name__,
            real.__qualname__,
            real.__module__,
        )
        try:
            spec.__class__ = WatchedLoader
        except TypeError:  # another class, with an incompatible layout
            return
        self._watched = spec

    def _ended(self, spec):
        """Call `then` if the import of `spec` has succeeded; it may have failed."""
        if spec is self._watched and _spec() is spec:
            self.stop()
            self._then()


def _spec():
    """Return ``torch.__spec__`` if torch is imported or being imported; otherwise ``None``."""
    torch = sys.modules.get("torch")
    try:
        return object.__getattribute__(torch, "__dict__").get("__spec__")  # must not trigger a lazy module
    except AttributeError:
        return None
