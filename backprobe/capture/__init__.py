"""Capture: the tensors and gradients of modules, by name.

``bp.capture`` is a function, and this package has its name. Importing the package first, as other parts do, would hide
the function; so the package can be called too.
"""

from __future__ import annotations

import sys
from types import ModuleType

from .activations import Activations as Activations
from .activations import Gradients as Gradients
from .api import capture as capture
from .api import modules as modules


class _Callable(ModuleType):
    __call__ = staticmethod(capture)


sys.modules[__name__].__class__ = _Callable
