"""Places in torch's own source that we recognise when they are on the stack, and what their variables are called.

One that this torch does not have is ``None``: nothing on the stack is equal to it, and what depends on it is not seen.
The self-checks in ``facts/`` say so by name.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from types import CodeType
from typing import Any


def _found(path: str) -> Any:
    """What `path` ("module:name.name") leads to, without decorators; ``None`` where torch has no such thing."""
    module, _, names = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in names.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError):
        return None
    return inspect.unwrap(getattr(found, "__func__", found))


def _code(path: str) -> CodeType | None:
    return getattr(_found(path), "__code__", None)


def _file(module: str) -> str | None:
    try:
        return importlib.import_module(module).__file__
    except ImportError:
        return None


#: Torch's own folder.
TORCH = os.path.dirname(os.path.abspath(str(_file("torch")))) + os.sep
#: Under every custom function's own ``forward``; ``None`` where it is no Python.
FUNCTION_APPLY = _code("torch.autograd.function:Function.apply")
#: Asks each new parameter of an optimizer whether it is a leaf. Its ``self`` is the optimizer.
ADD_PARAM_GROUP = _code("torch.optim:Optimizer.add_param_group")
OPTIMIZER = "self"
#: Calls a function of torch's that is written in Python for the modes that are on.
HANDLE_TORCH_FUNCTION = _code("torch.overrides:handle_torch_function")
#: Calls ``torch.autograd.backward``.
TENSOR_BACKWARD = _code("torch._tensor:Tensor.backward")
#: Calls the engine.
ENGINE_CALL = _code("torch.autograd.graph:_engine_run_backward")


def is_handler(code: CodeType) -> bool:
    """Whether `code` is a mode's or a subclass's, that is called for every op."""
    return code.co_name in ("__torch_dispatch__", "__torch_function__")


def is_pack_hook(code: CodeType) -> bool:
    """Whether `code` is a checkpoint's, and keeps what is saved: what a custom function saves it gets with modes on."""
    return code.co_name == CHECKPOINT_PACK and code.co_filename == CHECKPOINT_FILE


#: The file of ``nn.Module``, and under the ``forward`` of each module.
MODULE_FILE = _file("torch.nn.modules.module")
MODULE_CALL = _code("torch.nn.modules.module:Module._call_impl")
#: Where ``no_grad`` and its like are; the file of the function that one makes as a decorator, and its variable for what
#: it is on.
GRAD_MODE_FILE = _file("torch.autograd.grad_mode")
DECORATOR_FILE, DECORATED = _file("torch.utils._contextlib"), "func"

#: The file of checkpoints; the functions that a person calls; both halves of a reentrant one, and their variable for
#: the node.
CHECKPOINT_FILE = _file("torch.utils.checkpoint")
CHECKPOINT = _code("torch.utils.checkpoint:checkpoint")
CHECKPOINT_SEQUENTIAL = _code("torch.utils.checkpoint:checkpoint_sequential")
CHECKPOINT_FORWARD = _code("torch.utils.checkpoint:CheckpointFunction.forward")
CHECKPOINT_BACKWARD = _code("torch.utils.checkpoint:CheckpointFunction.backward")
CHECKPOINT_NODE = "ctx"
#: The hooks that keep what a region saves; one calls ops itself.
CHECKPOINT_PACK = "pack_hook"
#: Variables of ``checkpoint``: the function, its arguments, and two of the options.
CHECKPOINT_FUNCTION, CHECKPOINT_ARGS, CHECKPOINT_KWARGS = "function", "args", "kwargs"
CHECKPOINT_REENTRANT, CHECKPOINT_RNG = "use_reentrant", ("preserve", "preserve_rng_state")

#: Files under the hooks of modules, and under those of tensors.
MODULE_HOOKS_FILE, TENSOR_HOOKS_FILE = _file("torch.utils.hooks"), _file("torch.autograd.graph")

#: Where collectives are; names of functions there that are not the collective itself.
_COLLECTIVES = _file("torch.distributed")
COLLECTIVES = os.path.dirname(os.path.abspath(_COLLECTIVES)) + os.sep if _COLLECTIVES else "\0"
COLLECTIVE_WRAPPER, COLLECTIVE_WAITS = "wrapper", ("wait", "_wait")
DDP_FILE = _file("torch.nn.parallel.distributed")

#: A pipeline's stage, and its functions that run the model on memory with nothing in it, to learn shapes.
PIPELINE_FILE = os.path.join(TORCH, "distributed", "pipelining", "stage.py")
PIPELINE_REHEARSALS = frozenset({"_backward_metadata_inference", "_forward_metadata_inference", "_shape_inference"})


def in_rehearsal(frame: Any) -> bool:
    """Whether `frame` runs for a pipeline that learns its shapes: what is computed there means nothing."""
    if "torch.distributed.pipelining.stage" not in sys.modules:
        return False
    while frame is not None:
        code = frame.f_code
        if code.co_name in PIPELINE_REHEARSALS and code.co_filename == PIPELINE_FILE:
            return True
        frame = frame.f_back
    return False


#: Files of functions that use gradients and make nothing bad of finite ones.
KEEPS_FINITE = frozenset(
    (MODULE_FILE, _file("torch.nn.utils.clip_grad"), _file("torch.amp.grad_scaler"), _file("torch.optim.optimizer"))
)


#: The file of custom functions.
FUNCTION_FILE = _file("torch.autograd.function")


def is_once(function: Any) -> bool:
    """Whether the backward of a custom function is marked as one that has no derivative."""
    backward = getattr(function, "backward", None)
    code = getattr(backward, "__code__", None)
    return hasattr(backward, "__wrapped__") and code is not None and code.co_filename == FUNCTION_FILE


def is_decorator(code: CodeType) -> bool:
    """Whether `code` is of a function that ``no_grad`` and its like make as a decorator, but not of a generator."""
    mine = code.co_filename == DECORATOR_FILE and DECORATED in code.co_freevars
    return mine and not code.co_flags & inspect.CO_GENERATOR


def checkpoint_arguments(local: dict[str, Any]) -> tuple[Any, Any, Any, bool, bool] | None:
    """The function, its arguments, and whether it is reentrant and keeps the random state: from the variables of
    ``checkpoint``. ``None`` where they have other names."""
    names = (CHECKPOINT_FUNCTION, CHECKPOINT_ARGS, CHECKPOINT_KWARGS, CHECKPOINT_REENTRANT)
    keeps = [bool(local[name]) for name in CHECKPOINT_RNG if name in local]
    if not keeps or not all(name in local for name in names):
        return None
    function, args, kwargs, reentrant = (local[name] for name in names)
    return function, args, kwargs, bool(reentrant), keeps[0]
