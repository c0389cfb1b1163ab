"""The engine: numbers of nodes, the backward that is running, the calls that start one."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from .modes import no_dispatch_modes, undispatched, unseen

#: Sequence number that the next node made on this thread will get.
next_sequence_nr = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]

#: The engine's number of the backward that is running on this thread; -1 where none is.
graph_task = torch._C._current_graph_task_id

#: Have a function called when the backward that runs on this thread is over. Where it fails, the function is dropped
#: without a call.
at_end = torch.autograd.Variable._execution_engine.queue_callback

#: The engine's entry point that ``autograd.backward`` and ``autograd.grad`` call: (roots, their gradients, retain
#: graph, create graph, inputs, allow unused, accumulate). No inputs: all that can be reached. It goes through no
#: function mode.
run_engine = torch.autograd.Variable._execution_engine.run_backward


def in_backward() -> bool:
    """Whether this thread runs a backward call: a module called now is called by a recomputation or a hook."""
    return bool(torch._C._current_graph_task_id() != -1)


def last_graph_task() -> int:
    """Number of a backward call made here and now: those to come have higher ones. Makes no node and no random number;
    -1 where a backward cannot be made (inference mode)."""
    found = [-1]
    try:
        with torch._C.DisableTorchFunction(), no_dispatch_modes(), torch.enable_grad():
            x = torch.zeros((), requires_grad=True, device="cpu")
            x.register_hook(lambda grad: found.append(graph_task()))
            torch.autograd.grad(x, x)
    except RuntimeError:
        pass
    return found[-1]


def gradient_edge(tensor: torch.Tensor) -> GradientEdge:
    """The gradient edge of `tensor`. Torch makes a view of a leaf to find its accumulator: no mode of the script's sees
    that view."""
    with unseen(), undispatched():
        return get_gradient_edge(tensor)


def current_node() -> Any:
    """The node that the engine runs on this thread, or ``None``."""
    return torch._C._current_autograd_node()


def runs_node(node: Any) -> bool | None:
    """Whether the backward that runs on this thread runs `node`, or captures its gradient. ``None``: torch cannot
    tell."""
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:  # a leaf in ``autograd.grad``
        return None


def root_gradients(roots: Sequence[Any], grads: Sequence[Any]) -> tuple[Any, ...]:
    """What a backward starts from: a one for each scalar root without a gradient. Raises what torch raises for those
    that do not fit."""
    return tuple(torch.autograd._make_grads(tuple(roots), tuple(grads), is_grads_batched=False))  # type: ignore


def post_accumulate_hooks(leaf: torch.Tensor) -> dict[int, Any]:
    """The hooks that run after the gradient of `leaf` is accumulated; the dict that torch reads."""
    return getattr(leaf, "_post_accumulate_grad_hooks", None) or {}


def skip_sequence_numbers(count: int) -> None:
    """Move this thread's sequence counter on by `count`: about 0.2 microseconds each."""
    if count <= 0:
        return
    before = next_sequence_nr()
    make: Any = torch._C._FunctionBase
    make()
    if next_sequence_nr() == before:  # older torch numbers it only when it is applied
        make = functools.partial(torch._C._functions.DelayedError, "", 1)
    for _ in range(before + count - next_sequence_nr()):
        make()
