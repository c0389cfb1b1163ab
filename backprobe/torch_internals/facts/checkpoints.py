"""Facts about ``torch.utils.checkpoint``: its frames, hooks, variables and errors."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import CheckpointFunction, checkpoint

from ...basics import torch_texts
from .. import checkpoints, code_objects, saved_by_nodes
from .registry import DYNAMO, ENGINE, expect, fact, leaf, said_by

#: The undecorated function: the decorator disables Dynamo, which imports it.
_checkpoint: Callable[..., torch.Tensor] = inspect.unwrap(checkpoint)


def _region(function: object, x: torch.Tensor) -> torch.Tensor:
    """Run a non-reentrant region that does not preserve the random state."""
    return _checkpoint(function, x, use_reentrant=False, preserve_rng_state=False)


def _frame_of(code: CodeType | None) -> Any:
    """Return the frame on this thread's stack that runs `code`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame


@fact(
    "regions of checkpoints",
    "checkpoints: what the recomputation did differently is not found, and ops in it have no line",
    "_StopRecomputationError CHECKPOINT_FILE",
    [ENGINE, DYNAMO],
)
def regions() -> None:
    """Check that a checkpoint region is recognised in the forward and in its recomputation, which ends early."""
    seen: list[Any] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        """Record the marks of the region that runs, and whether it is stopped; return the sine of an exponential."""
        seen.append(checkpoints.checkpoint_mark())
        made = x.exp()
        try:
            return made.sin()
        except checkpoints.StopRecomputation:
            seen.append("stopped")
            raise

    made = _region(function, leaf())
    expect(checkpoints.checkpoint_mark() is None, "a region counts as running that is over")
    made.sum().backward()
    expect(len(seen) == 3 and seen[2] == "stopped", "a recomputation does not end inside the last op it needs")
    (first, none), (again, run) = seen[0] or (None, None), seen[1] or (None, None)
    expect(first is not None and none is None, "a region that runs for the first time is not recognised")
    expect(again is first and run is not None, "a recomputation is not recognised as the same region's")


@fact(
    "what checkpoints keep of custom functions",
    "a checkpoint around a custom function may be said to do other than in the forward",
    "CHECKPOINT_PACK CHECKPOINT_FILE",
    [ENGINE, DYNAMO],
)
def packed() -> None:
    """Check the code that packs the tensors that a custom function saves inside a region."""

    class Seen(TorchFunctionMode):
        """A mode that records the code in torch's checkpoint file that calls functions."""

        def __torch_function__(
            self,
            func: Callable[..., object],
            types: object,
            args: Sequence[object] = (),
            kwargs: Mapping[str, object] | None = None,
        ) -> object:
            """Run `func`, record its caller, and return its result."""
            code, made = sys._getframe(1).f_code, func(*args, **(kwargs or {}))
            if code.co_filename == _checkpoint.__code__.co_filename and isinstance(made, torch.Tensor):
                seen.append(code)
            return made

    class Own(torch.autograd.Function):
        """A custom function that saves its input."""

        @staticmethod
        def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
            """Save `x`, and return twice `x`."""
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            """Return twice `grad`; read the saved tensor."""
            return grad * (ctx.saved_tensors[0] * 0 + 2)

    def function(x: torch.Tensor) -> torch.Tensor:
        """Call the custom function under the mode."""
        with Seen():
            return Own.apply(x.sin())  # type: ignore[no-any-return, no-untyped-call]

    seen: list[CodeType] = []
    _region(function, leaf()).sum().backward()
    names = ", ".join(code.co_name for code in seen)
    expect(all(map(code_objects.is_pack_hook, seen)), f"what a custom function saves is kept by {names}")


@fact(
    "inputs of checkpoints",
    "memory that checkpoints keep is not counted, and a write to their inputs is not named",
    "CHECKPOINT_FILE",
    [DYNAMO],
)
def inputs() -> None:
    """Check that the inputs that a checkpoint region keeps can be found from its unpack hook."""
    x = leaf().exp()
    node: torch.autograd.graph.Node | None = _region(torch.sin, x).grad_fn
    ((_, slot),) = saved_by_nodes.saved_slots(node)
    frame = checkpoints.checkpoint_frame(slot.unpack_hook)
    expect(frame is not None, "the hook that recomputes does not lead to its region")
    given = [(saved_by_nodes.slot_content(one) or (None,))[0] for one in checkpoints.checkpoint_inputs(frame)]
    same = [t.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for t in given if t is not None]
    expect(same == [True], f"a region with one input keeps {len(given)} tensors")


@fact(
    "arguments of checkpoints",
    "with --check checkpoints no region is compared; modules that change their state twice are not found",
    "CHECKPOINT CHECKPOINT_SEQUENTIAL CHECKPOINT_FUNCTION CHECKPOINT_ARGS CHECKPOINT_KWARGS CHECKPOINT_REENTRANT "
    "CHECKPOINT_RNG",
    [DYNAMO],
)
def arguments() -> None:
    """Check that ``checkpoint`` is on the stack of its function, with the variables that hold its arguments."""
    seen: list[Any] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        """Record the variables of ``checkpoint``, and return the sine of `x`."""
        frame = _frame_of(code_objects.CHECKPOINT)
        seen.append(None if frame is None else dict(frame.f_locals))
        return x.sin()

    x = leaf()
    _region(function, x)
    expect(seen[0] is not None, "checkpoint() is not on the stack of its function")
    given = code_objects.checkpoint_arguments(seen[0])
    expect(given == (function, (x,), {}, False, False), f"checkpoint() has the variables {list(seen[0])}")
    expect(code_objects.CHECKPOINT_SEQUENTIAL is not None, "checkpoint_sequential() is not there")


@fact(
    "reentrant checkpoints",
    "reentrant checkpoints: what the recomputation did differently, and gradients they lose, are not found",
    "CHECKPOINT_FORWARD CHECKPOINT_BACKWARD CHECKPOINT_NODE REENTRANT REENTRANT_NODE",
    [ENGINE, DYNAMO],
)
def reentrant() -> None:
    """Check the frames, the node and the error of a reentrant checkpoint."""
    seen: list[object] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        """Record the node found in the frame of the forward or the recomputation, and return the sine of `x`."""
        again = torch.is_grad_enabled()
        frame = _frame_of(code_objects.CHECKPOINT_BACKWARD if again else code_objects.CHECKPOINT_FORWARD)
        seen.append(None if frame is None else frame.f_locals.get(code_objects.CHECKPOINT_NODE))
        return x.sin()

    x = leaf()
    made = CheckpointFunction.apply(function, False, x)
    text = said_by(lambda: torch.autograd.grad(made.sum(), x))
    expect(torch_texts.REENTRANT in text, f"torch says {text}")
    made = CheckpointFunction.apply(function, False, x)
    made.sum().backward()
    node = made.grad_fn
    expect(node.name() == torch_texts.REENTRANT_NODE, f"a reentrant checkpoint is a {node.name()}")
    expect(len(seen) == 3, f"the function of a reentrant checkpoint ran {len(seen)} times, not 3")
    expect(seen[1] is node, "a reentrant checkpoint's forward does not lead to its node")
    expect(seen[2] is node, "a reentrant checkpoint's backward does not lead to its node")
