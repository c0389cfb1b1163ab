"""Facts about the engine: the running backward, the order of its nodes, and the calls that start one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.autograd.graph import GradientEdge
from torch.utils.hooks import BackwardHook

from ...graphs.plan import engine_order
from .. import autograd_engine, code_objects, engine_calls, modes
from ..walk import Plans, walk
from .registry import ENGINE, expect, fact, leaf


@fact(
    "the backward that runs",
    "nested backward calls, recomputations and hooks are taken for the forward",
    "_current_graph_task_id _current_autograd_node _will_engine_execute_node _execution_engine",
    [ENGINE],
)
def running() -> None:
    """Check that the running backward, its current node and its end are known inside a hook."""
    x, y = leaf(), leaf()
    made, other = x.exp(), y.sin()
    seen: list[Any] = []

    def hook(grad: torch.Tensor) -> None:
        """Record the state of the running backward, and of one inside it."""
        here = autograd_engine.graph_task()
        autograd_engine.at_end(lambda: seen.append("over"))
        runs = [autograd_engine.runs_node(t.grad_fn) for t in (made, other)]
        seen.append((here, autograd_engine.last_graph_task(), autograd_engine.current_node(), runs))
        seen.append(autograd_engine.in_backward())

    made.register_hook(hook)
    expect(autograd_engine.graph_task() == -1 and not autograd_engine.in_backward(), "a backward counts as running")
    made.sum().backward()
    expect(len(seen) == 3 and seen[2] == "over", "a function for the end of a backward was not called")
    here, inner, node, runs = seen[0]
    expect(seen[1] is True and 0 <= here < inner, f"a backward has the number {here}, and one inside it {inner}")
    expect(node is made.grad_fn, f"inside a node's hook {node} counts as running")
    expect(runs == [True, False], f"which nodes a backward runs: {runs}")


@fact(
    "the engine's own call",
    "replays and single nodes cannot be run",
    "_execution_engine _make_grads",
    [ENGINE],
)
def call() -> None:
    """Check the call of the engine with roots, gradients and requested edges."""
    x = leaf()
    made: torch.Tensor = x.exp()
    (given,) = autograd_engine.root_gradients((made.sum(),), (None,))
    expect(float(given) == 1.0, f"a backward of a scalar starts from {given}")
    edge, grad = GradientEdge(made.grad_fn, 0), torch.full_like(x, 2.0)
    asked = (GradientEdge(*made.grad_fn.next_functions[0]),)
    (found,) = autograd_engine.run_engine((edge,), (grad,), True, False, asked, True, False)
    expect(torch.equal(found, 2 * made) and x.grad is None, f"a node gave {found} for {grad}")
    autograd_engine.run_engine((edge,), (grad,), True, False, (), True, True)
    expect(x.grad is not None and torch.equal(x.grad, 2 * made), f"a backward accumulated {x.grad}")


@fact(
    "the function that backward calls go through",
    "a mode stays on in steps that are not recorded, which costs as much as a function mode in every step",
    "_engine_run_backward TENSOR_BACKWARD",
    [ENGINE],
)
def heard() -> None:
    """Check that calls of ``backward`` and ``grad`` pass a listener, with their arguments."""
    seen: list[Any] = []

    def listener(call: Callable[..., object], *args: Any, **kwargs: object) -> object:
        """Record the call and its caller, pass it on, and return its result."""
        caller = sys._getframe(2)  # two frames up: above our replacement
        adds, arguments = engine_calls.arguments_of(args[1:], kwargs)
        seen.append((len(args[0]), adds, sorted(arguments), caller.f_back is not None and caller.f_back.f_code))
        return call(*args, **kwargs)

    x = leaf()
    expect(engine_calls.listen(listener), "torch.autograd has none by the name that is known")
    try:
        x.exp().sum().backward(retain_graph=True)
        torch.autograd.grad(x.exp().sum(), x)
    finally:
        engine_calls.unlisten(listener)
    x.exp().sum().backward()
    expect([one[:3] for one in seen] == [(1, True, ["retain_graph"]), (1, False, ["inputs"])], f"it was told {seen}")
    expect(seen[0][3] is code_objects.TENSOR_BACKWARD, "a call of Tensor.backward is not told from others")


@fact(
    "order of nodes",
    "times and orders of nodes that are not hooked are wrong, and a replay differs from the engine",
    needs=[ENGINE],
)
def order() -> None:
    """Check that the engine runs nodes in the expected order."""
    x = leaf()
    a, b = x.exp(), x.sin()
    c = (a * b).cos()
    graph = walk([(c + a * 2 + b).sum().grad_fn], Plans())
    ran: list[int] = []
    for i, node in enumerate(graph.nodes):
        node.register_prehook(lambda grads, i=i: ran.append(i))
    start = GradientEdge(graph.nodes[0], 0), torch.ones((), dtype=torch.float32, device="cpu")
    autograd_engine.run_engine(start[:1], start[1:], False, False, (), True, True)
    expected = engine_order(graph.plan, graph.seqs)
    expect(ran == expected, f"nodes ran in the order {ran}, not {expected}")


def _files_above() -> set[str]:
    """Return the files of the code on this thread's stack."""
    frame: FrameType | None = sys._getframe(1)
    found = set()
    while frame is not None:
        found.add(frame.f_code.co_filename)
        frame = frame.f_back
    return found


@fact(
    "hooks on the stack",
    "hooks that read .grad before it is written are not found",
    "MODULE_HOOKS_FILE TENSOR_HOOKS_FILE",
    [ENGINE],
)
def hooks() -> None:
    """Check the files from which the hooks of modules and tensors are called."""
    seen: list[set[str]] = []

    def look(*_: object) -> None:
        """Record the files on the stack; used as a hook."""
        seen.append(_files_above())

    x = leaf()
    x.register_hook(look)
    module = BackwardHook(torch.nn.Module(), [look], [])
    (entered,) = module.setup_input_hook((x,))
    module.setup_output_hook(entered.exp()).sum().backward()
    expect(len(seen) == 2, f"two hooks were called {len(seen)} times")
    expect(code_objects.MODULE_HOOKS_FILE in seen[0], "a module's hook is not called from the file that we know")
    found = [code_objects.MODULE_HOOKS_FILE in seen[1], code_objects.TENSOR_HOOKS_FILE in seen[1]]
    expect(found == [False, True], "a tensor's hook is not called from the file that we know")


@fact(
    "marks on a backward call",
    "derivatives add to captured gradients",
    "_stash_obj_in_tls _get_obj_in_tls _is_key_in_tls _remove_obj_from_tls",
    [ENGINE],
)
def marks() -> None:
    """Check that hooks see the mark on a backward call of backprobe's own, and only there."""
    made = leaf().exp()
    seen: list[bool] = []
    made.grad_fn.register_prehook(lambda grads: seen.append(modes.is_aside()))  # type: ignore[union-attr]
    with modes.aside():
        made.sum().backward(retain_graph=True)
    made.sum().backward()
    expect(seen == [True, False], f"a hook inside a marked call, and inside another, sees the marks {seen}")
