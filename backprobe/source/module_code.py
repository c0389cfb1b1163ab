"""Finds the code objects of functions that the modules of a file define."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from types import CodeType, FunctionType, ModuleType


def code_of_modules(files: Collection[str]) -> list[CodeType]:
    """Return the code of the functions and methods in the modules whose file is one of `files`.

    They may have been imported from elsewhere.
    """
    found = []
    for module in list(sys.modules.values()):
        if issubclass(type(module), ModuleType):  # objects in sys.modules may have side effects on attribute access
            names = ModuleType.__getattribute__(module, "__dict__")
            if names.get("__file__") in files:
                found += [function.__code__ for function in _functions(names)]
    return found


def _functions(names: dict[str, object]) -> Iterator[FunctionType]:
    """Yield the functions, and the methods of the classes, among the names of a module."""
    for value in list(names.values()):
        if type(value) is FunctionType:  # not isinstance, which may run code of the object
            yield value
        elif issubclass(type(value), type):
            yield from (one for one in type.__getattribute__(value, "__dict__").values() if type(one) is FunctionType)
