"""Calls a function right after ``import torch`` has finished. Imports nothing of ours, and no torch.

Note [The import of torch]: torch is imported when the script imports it, so what the script sets before that (variables
of the environment, ``sys.path``) counts. A finder that never finds anything stands first in ``sys.meta_path``. It sees
the first ``torch.something`` that torch imports in its own ``__init__``, and gives ``torch.__spec__`` a class that
hears when the import system sets ``_initializing`` to ``False``: the last thing that it does. No frame of ours is on
the stack while torch is imported, finders and loaders are the ones that there are without us, and an import that fails
is seen when it is tried again. When torch is there the finder and the class are gone.
"""

import sys


class TorchImport:
    """Calls `then` once, when torch has been imported, in the thread that imported it."""

    def __init__(self, then):
        self._then = then
        self._watched = None

    def start(self):
        """At once if torch has been imported already."""
        spec = _spec()
        if spec is not None and not getattr(spec, "_initializing", False):
            self._then()
            return
        sys.meta_path.insert(0, self)
        if spec is not None:  # another thread is importing it
            self._watch(spec)

    def stop(self):
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._watched = None

    def find_spec(self, name, path=None, target=None):
        if name.startswith("torch."):
            spec = _spec()
            if spec is not None and spec is not self._watched and getattr(spec, "_initializing", False):
                self._watch(spec)
        return None

    def _watch(self, spec):
        finder, real = self, type(spec)

        class Watched(real):  # type: ignore[misc, valid-type]
            def __setattr__(self, name, value):
                real.__setattr__(self, name, value)  # type: ignore[call-arg]
                if name == "_initializing" and not value:
                    self.__class__ = real
                    finder._ended(self)

        Watched.__name__, Watched.__qualname__, Watched.__module__ = real.__name__, real.__qualname__, real.__module__
        try:
            spec.__class__ = Watched
        except TypeError:  # a class of somebody's own, with another layout
            return
        self._watched = spec

    def _ended(self, spec):
        """The import of `spec` has succeeded, or failed."""
        if spec is self._watched and _spec() is spec:
            self.stop()
            self._then()


def _spec():
    """``torch.__spec__`` if torch is there, or is being imported."""
    torch = sys.modules.get("torch")
    try:
        return object.__getattribute__(torch, "__dict__").get("__spec__")  # a lazy module is not to be loaded by us
    except AttributeError:
        return None
