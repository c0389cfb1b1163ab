"""Finds the module classes whose forward takes another path while a torch function mode is on.

Note [Modules that query modes]: ``nn.MultiheadAttention``, ``nn.TransformerEncoderLayer`` and ``nn.TransformerEncoder``
call ``has_torch_function`` and skip their fast path if it is true, as it is under any function mode. Both paths return
the same up to rounding, except for padded positions and nested tensors. If the call builds a graph, these modules take
the slow path in any case. So our mode leaves the stack for such a call if the call builds no graph. Code that queries
modes to dispatch (``handle_torch_function``) only calls the mode, and is not affected.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType

import torch
from torch import nn

from .code_objects import codes_in
from .structure import tensors_in

#: Torch functions that report whether a function mode is on.
QUERIES = frozenset(
    {
        *("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"),
        *("_has_torch_function", "_has_torch_function_unary", "_has_torch_function_variadic"),
        *("is_torch_function_mode_enabled", "_is_torch_function_mode_enabled", "_len_torch_function_stack"),
        *("_get_current_function_mode", "_get_current_function_mode_stack", "_get_function_stack_at"),
    }
)
_DISPATCHES = "handle_torch_function"
_FUNCTIONS = frozenset(
    found
    for owner in (torch.overrides, torch._C)
    for name in QUERIES
    if isinstance(found := getattr(owner, name, None), (BuiltinFunctionType, FunctionType))
)
#: The most functions that are searched for one class, including those that they call by a global name.
MAX_FUNCTIONS = 300
_known: weakref.WeakKeyDictionary[type[nn.Module], bool] = weakref.WeakKeyDictionary()


def queries_modes(kind: type[nn.Module]) -> bool:
    """Return whether methods of this module class, or functions that they call, branch on a query of function modes."""
    found = _known.get(kind)
    if found is None:
        found = _known[kind] = _search(kind)
    return found


def _search(kind: type[nn.Module]) -> bool:
    """Search the code of the methods of `kind`, and the functions that they call, for a query of function modes."""
    waiting = [function for base in kind.__mro__ if base is not nn.Module for function in _methods(base)]
    seen: set[CodeType] = set()
    while waiting and len(seen) < MAX_FUNCTIONS:
        function = waiting.pop()
        if function.__code__ in seen:
            continue
        seen.add(function.__code__)
        names = {name for code in codes_in(function.__code__) for name in code.co_names}
        called = {name: function.__globals__.get(name) for name in names}
        if _DISPATCHES not in names and any(
            name in QUERIES or (isinstance(value, (BuiltinFunctionType, FunctionType)) and value in _FUNCTIONS)
            for name, value in called.items()
        ):
            return True
        waiting += [value for value in called.values() if isinstance(value, FunctionType) and not _is_torchs(value)]
    return False


def _methods(owner: type) -> Iterator[FunctionType]:
    """Yield the functions that a class defines: methods, properties' getters, and functions behind decorators."""
    for value in vars(owner).values():
        for one in (value, getattr(value, "__func__", None), getattr(value, "fget", None)):
            while isinstance(one, FunctionType):
                yield one
                one = getattr(one, "__wrapped__", None)


def _is_torchs(function: FunctionType) -> bool:
    """Return whether the function belongs to torch, which queries modes to dispatch, or to the standard library."""
    package = (function.__module__ or "").partition(".")[0]
    return package == "torch" or package in sys.stdlib_module_names


def builds_graph(module: nn.Module, args: object, kwargs: dict[str, object]) -> bool:
    """Return whether a call of `module` may build a graph."""
    if not torch.is_grad_enabled():
        return False
    with torch._C.DisableTorchFunction():  # reading an attribute is visible to the script's modes
        return any(tensor.requires_grad for tensor in tensors_in((args, kwargs))) or any(
            parameter.requires_grad for parameter in module.parameters()
        )
