"""Access to the autograd engine: sequence numbers, the running backward, and the calls that start one."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from .modes import disable_function_modes, hide_from_dispatch_modes, no_dispatch_modes

#: Sequence number that the next node made on this thread will get.
next_sequence_nr = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]

#: Return the engine's id of the backward that is running on this thread; -1 if there is none.
graph_task = torch._C._current_graph_task_id

#: Register a function that runs when the current backward on this thread is over. If the backward fails, the function
#: is dropped without a call.
at_end = torch.autograd.Variable._execution_engine.queue_callback

#: The engine's entry point that ``autograd.backward`` and ``autograd.grad`` call: (roots, their gradients, retain
#: graph, create graph, inputs, allow unused, accumulate). Without inputs, all reachable leaves get gradients. Function
#: modes do not intercept it.
run_engine = torch.autograd.Variable._execution_engine.run_backward


def in_backward() -> bool:
    """Return whether this thread runs a backward call.

    If so, a module that is called now is called by a recomputation or a hook.
    """
    return bool(torch._C._current_graph_task_id() != -1)


def last_graph_task() -> int:
    """Return the graph task id of a backward call made here and now; later calls get higher ids.

    Consumes no sequence number and no random number. Returns -1 if a backward is impossible (inference mode).
    """
    found = [-1]
    try:
        with torch._C.DisableTorchFunction(), no_dispatch_modes(), torch.enable_grad():
            x = torch.zeros((), requires_grad=True, device="cpu")
            x.register_hook(lambda grad: found.append(graph_task()))
            torch.autograd.grad(x, x)
    except RuntimeError:
        pass
    return found[-1]


def last_earlier_graph_task() -> int:
    """Return a graph task id that no running call exceeds, and every later call does; -1 if no call can be running.

    On the only Python thread, outside any backward, none is. Otherwise ``last_graph_task`` takes an id.
    """
    return last_graph_task() if in_backward() or len(sys._current_frames()) > 1 else -1


def gradient_edge(tensor: torch.Tensor) -> GradientEdge:
    """Return the gradient edge of `tensor`.

    Torch makes a view of a leaf to find its accumulator; the view is hidden from the script's modes.
    """
    with disable_function_modes(), hide_from_dispatch_modes():
        return get_gradient_edge(tensor)


def current_node() -> torch.autograd.graph.Node | None:
    """Return the node that the engine runs on this thread, or ``None``."""
    return torch._C._current_autograd_node()


def runs_node(node: object) -> bool | None:
    """Return whether the backward running on this thread runs `node`, or captures its gradient.

    ``None``: torch cannot tell.
    """
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:  # a leaf in ``autograd.grad``
        return None


def root_gradients(roots: Sequence[object], grads: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor, ...]:
    """Return the gradients that a backward starts from: 1 for each scalar root without a given one.

    :raises RuntimeError: as torch does for gradients that do not fit their roots.
    """
    return tuple(torch.autograd._make_grads(tuple(roots), tuple(grads), is_grads_batched=False))  # type: ignore


def post_accumulate_hooks(leaf: torch.Tensor) -> dict[int, Callable[..., object]]:
    """Return the hooks that run after the gradient of `leaf` is accumulated: the dict that torch reads."""
    return getattr(leaf, "_post_accumulate_grad_hooks", None) or {}


def skip_sequence_numbers(count: int) -> None:
    """Move this thread's sequence counter on by `count`: about 0.2 microseconds each."""
    if count <= 0:
        return
    before = next_sequence_nr()
    make: Any = torch._C._FunctionBase
    make()
    if next_sequence_nr() == before:  # older torch numbers a node only when it is applied
        make = functools.partial(torch._C._functions.DelayedError, "", 1)
    for _ in range(before + count - next_sequence_nr()):
        make()
