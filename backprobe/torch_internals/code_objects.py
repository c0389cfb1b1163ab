"""Code objects and files of torch's source that are recognised on the stack, and the names of their variables.

If the installed torch lacks one, it is ``None``: nothing on the stack equals it, and whatever depends on it is not
observed. The self-checks in ``facts/`` report it by name.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def _found(path: str) -> Any:
    """Return the object at `path` ("module:name.name"), without decorators; ``None`` if torch has no such object."""
    module, _, names = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in names.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError):
        return None
    return inspect.unwrap(getattr(found, "__func__", found))


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield `code`, and the code of the functions defined inside it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from codes_in(inner)


def _code(path: str) -> CodeType | None:
    """Return the code of the function at `path` ("module:name.name"); ``None`` if torch has no such function."""
    return getattr(_found(path), "__code__", None)


def _file(module: str) -> str | None:
    """Return the source file of `module`; ``None`` if it cannot be imported."""
    try:
        return importlib.import_module(module).__file__
    except ImportError:
        return None


#: Torch's own folder.
TORCH = os.path.dirname(os.path.abspath(str(_file("torch")))) + os.sep
#: The frame below the ``forward`` of every custom function; ``None`` if it is not implemented in Python.
FUNCTION_APPLY = _code("torch.autograd.function:Function.apply")
#: The method that checks whether each new parameter of an optimizer is a leaf. Its ``self`` is the optimizer.
ADD_PARAM_GROUP = _code("torch.optim:Optimizer.add_param_group")
OPTIMIZER = "self"
#: The function that passes calls of torch functions written in Python to the active modes.
HANDLE_TORCH_FUNCTION = _code("torch.overrides:handle_torch_function")
#: The method that calls ``torch.autograd.backward``.
TENSOR_BACKWARD = _code("torch._tensor:Tensor.backward")
#: The function that calls the engine.
ENGINE_CALL = _code("torch.autograd.graph:_engine_run_backward")

#: The methods of a scaler that call the step of an optimizer. Their ``self`` is the scaler.
SCALER_STEP = _code("torch.amp.grad_scaler:GradScaler.step")
SCALER_MAY_STEP = _code("torch.amp.grad_scaler:GradScaler._maybe_opt_step")


def is_handler(code: CodeType) -> bool:
    """Return whether `code` is the op handler of a mode or a tensor subclass."""
    return code.co_name in ("__torch_dispatch__", "__torch_function__")


def is_pack_hook(code: CodeType) -> bool:
    """Return whether `code` is a checkpoint's pack hook. Modes are on while it packs what a custom function saves."""
    return code.co_name == CHECKPOINT_PACK and code.co_filename == CHECKPOINT_FILE


#: The file of ``nn.Module``, and the method below the ``forward`` of each module.
MODULE_FILE = _file("torch.nn.modules.module")
MODULE_CALL = _code("torch.nn.modules.module:Module._call_impl")
#: The file of ``no_grad`` and similar; the file of the functions that they make as decorators, and the variable there
#: that holds the decorated function.
GRAD_MODE_FILE = _file("torch.autograd.grad_mode")
DECORATOR_FILE, DECORATED = _file("torch.utils._contextlib"), "func"

#: The file of checkpoints; the public functions; both halves of a reentrant one, and their variable for the node.
CHECKPOINT_FILE = _file("torch.utils.checkpoint")
CHECKPOINT = _code("torch.utils.checkpoint:checkpoint")
CHECKPOINT_SEQUENTIAL = _code("torch.utils.checkpoint:checkpoint_sequential")
CHECKPOINT_FORWARD = _code("torch.utils.checkpoint:CheckpointFunction.forward")
CHECKPOINT_BACKWARD = _code("torch.utils.checkpoint:CheckpointFunction.backward")
CHECKPOINT_NODE = "ctx"
#: The pack hook of a region, which runs ops itself.
CHECKPOINT_PACK = "pack_hook"
#: Variables of ``checkpoint``: the function, its arguments, and two of the options.
CHECKPOINT_FUNCTION, CHECKPOINT_ARGS, CHECKPOINT_KWARGS = "function", "args", "kwargs"
CHECKPOINT_REENTRANT, CHECKPOINT_RNG = "use_reentrant", ("preserve", "preserve_rng_state")

#: Files on the stack below module hooks, and below tensor hooks.
MODULE_HOOKS_FILE, TENSOR_HOOKS_FILE = _file("torch.utils.hooks"), _file("torch.autograd.graph")

#: The folder of collectives; names of functions there that are not the collective itself.
_COLLECTIVES = _file("torch.distributed")
COLLECTIVES = os.path.dirname(os.path.abspath(_COLLECTIVES)) + os.sep if _COLLECTIVES else "\0"
COLLECTIVE_WRAPPER, COLLECTIVE_WAITS = "wrapper", ("wait", "_wait")
DDP_FILE = _file("torch.nn.parallel.distributed")

#: The file of a pipeline's stage, and its functions that run the model on uninitialised memory to infer shapes.
PIPELINE_FILE = os.path.join(TORCH, "distributed", "pipelining", "stage.py")
PIPELINE_REHEARSALS = frozenset({"_backward_metadata_inference", "_forward_metadata_inference", "_shape_inference"})


def in_rehearsal(frame: FrameType | None) -> bool:
    """Return whether `frame` runs for a pipeline that infers its shapes, so that computed values are meaningless."""
    if "torch.distributed.pipelining.stage" not in sys.modules:
        return False
    while frame is not None:
        code = frame.f_code
        if code.co_name in PIPELINE_REHEARSALS and code.co_filename == PIPELINE_FILE:
            return True
        frame = frame.f_back
    return False


#: Files of functions that use gradients and make no finite value non-finite.
KEEPS_FINITE = frozenset(
    (MODULE_FILE, _file("torch.nn.utils.clip_grad"), _file("torch.amp.grad_scaler"), _file("torch.optim.optimizer"))
)


#: The file of custom functions.
FUNCTION_FILE = _file("torch.autograd.function")


def is_once(function: object) -> bool:
    """Return whether the backward of a custom function is marked ``once_differentiable``."""
    backward = getattr(function, "backward", None)
    code = getattr(backward, "__code__", None)
    return hasattr(backward, "__wrapped__") and code is not None and code.co_filename == FUNCTION_FILE


def code_of(function: object) -> CodeType | None:
    """Return the code that runs when `function` is called, through partial functions, methods and objects that wrap a
    hook; ``None`` if it is not implemented in Python.
    """
    for _ in range(4):
        partial = isinstance(function, functools.partial)
        inner = getattr(function, "func" if partial else "hook", None)
        if inner is None or not callable(inner):
            break
        function = inner
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None:
        code = getattr(getattr(type(function), "__call__", None), "__code__", None)  # noqa: B004 (the method itself)
    return code if isinstance(code, CodeType) else None


def is_builtin_optimizer(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether `optimizer` is exactly one of torch's own classes, and its step makes no graph."""
    return type(optimizer).__module__.startswith("torch.optim.") and not optimizer.defaults.get("differentiable")


def is_decorator(code: CodeType) -> bool:
    """Return whether `code` is the wrapper that ``no_grad`` or similar makes as a decorator, but not of a generator."""
    mine = code.co_filename == DECORATOR_FILE and DECORATED in code.co_freevars
    return mine and not code.co_flags & inspect.CO_GENERATOR


def checkpoint_arguments(local: dict[str, object]) -> tuple[Any, Any, Any, bool, bool] | None:
    """Return (function, args, kwargs, reentrant, preserves random state) from the variables `local` of ``checkpoint``.

    ``None`` if the variables have other names.
    """
    names = (CHECKPOINT_FUNCTION, CHECKPOINT_ARGS, CHECKPOINT_KWARGS, CHECKPOINT_REENTRANT)
    keeps = [bool(local[name]) for name in CHECKPOINT_RNG if name in local]
    if not keeps or not all(name in local for name in names):
        return None
    function, args, kwargs, reentrant = (local[name] for name in names)
    return function, args, kwargs, bool(reentrant), keeps[0]
