"""Facts about modules: their contents and their hooks."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.modules import module as every

from .. import called_with, code_objects
from ..compiled_regions import is_compiled_module
from .registry import expect, fact, leaf


@fact(
    "what modules hold",
    "parameters, buffers and modules are not found under their names; state that a recomputation changes is not seen",
    "_parameters _buffers _modules",
)
def holdings() -> None:
    """Check the dicts in which a module holds its parameters, buffers and submodules."""
    module, child, x = nn.Module(), nn.Module(), nn.Parameter(leaf())
    state = x.detach()
    held: Any = (module._parameters, module._buffers, module._modules)
    for dictionary, name, value in zip(held, ("weight", "state", "child"), (x, state, child), strict=True):
        dictionary[name] = value  # registering would call the user's global hooks
    expect([module.weight is x, module.state is state, module.child is child] == [True] * 3, "a module holds others")
    expect(dict(module.named_parameters()) == {"weight": x}, "a module does not list what it holds")
    inits = [getattr(cls.__init__, "__code__", None) for cls in nn.BatchNorm1d.__mro__]
    counts = any(code is not None and "num_batches_tracked" in code.co_consts for code in inits)
    expect(counts, "a batch norm does not count in num_batches_tracked")


@fact(
    "calls of modules",
    "ops have no lines of libraries, or those of another call of the same line",
    "MODULE_CALL TORCH",
)
def calls() -> None:
    """Check the method through which modules are called, and the folder of torch's modules."""
    code = getattr(nn.Module.__call__, "__code__", None)  # calling one would call the user's hooks
    name = getattr(code_objects.MODULE_CALL, "co_name", None)
    expect(code is not None and name in code.co_names, f"a call of a module does not go through {name}")
    expect(str(every.__file__).startswith(code_objects.TORCH), f"torch's modules are not in {code_objects.TORCH}")


@fact(
    "hooks of modules",
    "hook-never-fires, legacy-hook-partial and hook-inplace-conflict are silent",
    "_backward_hooks _backward_pre_hooks _forward_hooks _forward_pre_hooks _is_full_backward_hook",
)
def hooks() -> None:
    """Check the dicts in which a module holds its hooks, and how the kinds of backward hooks differ."""
    full, legacy, none = nn.Module(), nn.Module(), nn.Module()
    full.register_full_backward_hook(lambda *_: None)
    full.register_full_backward_pre_hook(lambda *_: None)
    legacy.register_backward_hook(lambda *_: None)
    counts = [(len(m._backward_hooks), len(m._backward_pre_hooks)) for m in (full, legacy, none)]
    expect(counts == [(1, 1), (1, 0), (0, 0)], f"modules with hooks count {counts}")
    forward = nn.Module()
    forward.register_forward_hook(lambda *_: None)
    forward.register_forward_pre_hook(lambda *_: None)
    counts = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in (forward, none)]
    expect(counts == [(1, 1), (0, 0)], f"modules with hooks of the forward count {counts}")
    kinds = [m._is_full_backward_hook for m in (full, legacy, none)]
    expect(kinds == [True, False, None], f"whether backward hooks are full ones: {kinds}")


@fact(
    "compiled modules",
    "capture does not say why a compiled module gave nothing",
    "_compiled_call_impl",
)
def compiled() -> None:
    """Check how a compiled module differs from a plain one."""
    module = nn.Module()
    plain = hasattr(module, "_compiled_call_impl") and not is_compiled_module(module)
    expect(plain, "a plain module counts as compiled, or does not know")
    module._compiled_call_impl = print
    expect(is_compiled_module(module), "a module that was compiled does not count as compiled")


@fact(
    "hooks for all modules",
    "a hook of the script's for all modules sees modules of ours, or what watching takes is not measured",
    "_has_any_global_hook",
)
def global_hooks() -> None:
    """Check that a hook for all modules is noticed."""
    before = bool(every._has_any_global_hook())
    handle = every.register_module_forward_hook(lambda *_: None)
    during = bool(every._has_any_global_hook())
    handle.remove()
    expect(during and bool(every._has_any_global_hook()) == before, "a hook for all modules is not seen")


@fact(
    "keyword arguments of a call",
    "--save-batch leaves out what a model is given by keyword",
)
def keyword_arguments() -> None:
    """Check that the keyword arguments of a module call can be found."""
    expect(bool(called_with.CALLS), "the function that calls hooks of modules has no keyword arguments in sight")
