"""What autograd keeps for backward: the ledger, and policies for where it is kept.

The package has the name of its main function, and importing any part of it puts the package where
``backprobe.saved`` looks. So the package itself can be called: it does what ``backprobe.saved.watching.saved`` does.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from .watching import saved

        return saved(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "policies":
            from importlib import import_module

            return import_module(f"{__name__}.policies")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


sys.modules[__name__].__class__ = _CallablePackage
