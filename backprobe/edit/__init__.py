"""Change gradients on their way: by name, at parameters, module inputs and outputs, and graph nodes.

The package has the name of its main function, and importing any part of it puts the package where
``backprobe.edit`` looks. So the package itself can be called: it does what ``backprobe.edit.attach.edit`` does.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from . import actions as actions


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from .attach import edit

        return edit(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
