"""Capture: the tensors and gradients of modules, by name."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType

from .activations import Activations as Activations
from .activations import Gradients as Gradients
from .api import capture as capture
from .api import modules as modules


class _Callable(ModuleType):
    """``bp.capture`` is a function to its users, and importing this package puts the package there under that name.

    So the package can be called, and is what ``bp.capture`` gives, whichever was imported first.
    """

    __call__ = staticmethod(capture)


_package = sys.modules[__name__]
_package.__class__ = _Callable
_package.__doc__ = capture.__doc__
_package.__dict__["__signature__"] = inspect.signature(capture)
_package.__dict__["capture"] = _package
