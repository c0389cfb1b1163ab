"""Facts about nodes: their sequence numbers, names, metadata and hooks."""

from __future__ import annotations

import functools
import sys
import weakref
from typing import Any, ClassVar

import torch

from ...basics import torch_texts
from ...graphs import plan
from ...ops import info
from ...records import ACCUMULATE_SEQ
from .. import autograd_engine
from ..custom_calls import CustomCalls
from ..deep_graph_free import protect
from ..node_hooks import NodeHooks
from ..walk import Plans, walk
from .registry import ENGINE, expect, fact, leaf


@fact(
    "numbers of nodes",
    "nodes, gradients and errors have no line, no module and no op",
    "_sequence_nr _get_sequence_nr",
)
def numbers() -> None:
    """Check that nodes get consecutive sequence numbers, and accumulators their special one."""
    x = leaf()
    first = autograd_engine.next_sequence_nr()
    made: torch.Tensor = x.exp().sin()
    with torch.no_grad():
        x.exp()
    after = autograd_engine.next_sequence_nr()
    expect(after == first + 2, f"two nodes moved the counter by {after - first}")
    below = made.grad_fn.next_functions[0][0]
    given = [below._sequence_nr(), made.grad_fn._sequence_nr()]
    expect(given == [first, first + 1], f"nodes made at {first} have the numbers {given}")
    accumulator = below.next_functions[0][0]
    expect(accumulator._sequence_nr() == ACCUMULATE_SEQ, f"an accumulator has {accumulator._sequence_nr()}")


@fact(
    "passing over numbers",
    "a replay or a debugger's thread numbers new nodes otherwise than the script alone would",
    "_FunctionBase _functions",
)
def skipping() -> None:
    """Check that the counter of sequence numbers can be moved forward."""
    first = autograd_engine.next_sequence_nr()
    autograd_engine.skip_sequence_numbers(5)
    moved = autograd_engine.next_sequence_nr() - first
    expect(moved == 5, f"the counter was to move by 5, and moved by {moved}")


@fact(
    "shapes of gradients",
    "the debugger, replays and graphs do not know the shapes that nodes take",
    "_input_metadata",
)
def metadata() -> None:
    """Check that a node knows the shapes, dtypes and devices of its outputs."""
    (one,) = leaf().exp().grad_fn._input_metadata  # type: ignore[union-attr]
    seen = (tuple(one.shape), one.dtype, str(one.device), bool(one.is_nested_tensor))
    expect(seen == ((3,), torch.float32, "cpu", False), f"a node of 3 floats says {seen}")
    two = leaf(4).view(2, 2).unbind()[0].grad_fn._input_metadata  # type: ignore[union-attr]
    expect(len(two) == 2, f"a node of two outputs says {len(two)}")


@fact(
    "names of nodes",
    "accumulators and reshapes are taken for other nodes: orders, norms and parameters are wrong",
)
def names() -> None:
    """Check the names of nodes that are recognised by name: accumulators, reshapes, casts, functions flat
    everywhere.
    """
    x = leaf(4)
    made = x.view(2, 2)
    accumulator: Any = made.grad_fn.next_functions[0][0]  # type: ignore[union-attr]
    expect(accumulator.name() == plan.ACCUMULATE, f"an accumulator is called {accumulator.name()}")
    expect(accumulator.variable is x, "an accumulator does not have its leaf for its variable")
    reshaped = (
        *(made, made.t(), made.transpose(0, 1), made.permute(1, 0), made.unsqueeze(0), made.unsqueeze(0).squeeze(0)),
        *(made.clone(), made.t().reshape(4), x.unflatten(0, (2, 2))),
    )
    others = [n for t in reshaped if not info(n := t.grad_fn.name()).reshapes]  # type: ignore[union-attr]
    expect(not others, f"nodes that reshape are called {others}")
    called = made.double().grad_fn.name()  # type: ignore[union-attr]
    expect(called == "ToCopyBackward0", f"a cast is called {called}")
    flat = {f: getattr(x, f)().grad_fn.name() for f in ("sign", "round", "floor", "ceil", "trunc")}
    others = [n for f, n in flat.items() if not n.startswith(f.capitalize())]
    expect(not others, f"functions that are flat everywhere have nodes called {others}")


@fact(
    "writes into views",
    "edits of views are lost where the base is written, and gradients of such views are named wrongly",
    "COPY_SLICES AS_STRIDED",
)
def slices() -> None:
    """Check the names of the nodes that appear when a view or its base is written in place."""
    base = leaf() * 1
    view = base[:2]
    view.mul_(2)
    expect(base.grad_fn.name() == torch_texts.COPY_SLICES, f"the base's node is called {base.grad_fn.name()}")  # type: ignore[union-attr]
    base.mul_(2)
    called = view.grad_fn.name()  # type: ignore[union-attr]
    expect(called == torch_texts.AS_STRIDED, f"the view's new node is called {called}")


class _Twice(torch.autograd.Function):
    """A function that records its ctx, and its caller and arguments as found on the stack."""

    seen: ClassVar[list[Any]] = []

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        """Record ctx, caller and arguments in ``seen``; return twice `x`."""
        calls = CustomCalls(lambda frame: dict(frame.f_locals))
        under = calls.innermost(sys._getframe())
        _Twice.seen = [ctx, None if under is None else (under.f_back.f_code, calls.arguments_of(under))]
        return x * 2

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
        """Return twice `grad`."""
        return grad * 2


@fact(
    "custom functions",
    "nodes of custom functions have no backward to point at, and cannot be run again",
    "_forward_cls",
)
def functions() -> None:
    """Check that the ctx of a custom function is its node, and that the node knows its class and name."""
    made: Any = _Twice.apply(leaf())
    node, (ctx, _) = made.grad_fn, _Twice.seen
    _Twice.seen = []
    expect(ctx is node, "the ctx of a custom function is not its node")
    expect(isinstance(node, torch.autograd.function.BackwardCFunction), f"its node is a {type(node).__name__}")
    expect(node._forward_cls is _Twice, "its node does not know its class")
    expect(node.name() == "_TwiceBackward", f"its node is called {node.name()}")
    expect(node.needs_input_grad == (True,), "its node does not say which inputs need a gradient")


@fact(
    "calls of custom functions",
    "nodes of custom functions have no line",
    "FUNCTION_APPLY",
)
def applied() -> None:
    """Check that a custom function's caller and arguments are found on the stack of its forward."""
    x = leaf()
    _Twice.apply(x)
    (_, found), _Twice.seen = _Twice.seen, []
    expect(found is not None, "a call of a custom function is not on the stack of its forward")
    caller, given = found
    expect(caller is sys._getframe().f_code, f"a custom function is called by {caller.co_name}")
    expect(len(given) == 1 and given[0] is x, f"a custom function is given {given}")


@fact(
    "hooks of nodes",
    "gradients are measured after others have changed them, and edits come too late for the user's hooks",
    needs=[ENGINE],
)
def hooks() -> None:
    """Check that the handle of a node's hook leads to the dict of its hooks, whose order is the order of calls."""
    made = leaf().exp()
    node: Any = made.grad_fn
    for register, count in ((node.register_hook, 2), (node.register_prehook, 1)):
        called: list[str] = []
        register(lambda *_, called=called: called.append("first"))
        handle = register(lambda *_, called=called: called.append("second"))
        known = handle.hooks_dict_ref()
        expect(list(known or ())[1:] == [handle.id], "a handle does not lead to the hooks")
        first = next(iter(known))
        known[first] = known.pop(first)
        torch.autograd.grad(made.sum(), node.next_functions[0][0].variable, retain_graph=True)
        expect(called == ["second", "first"], f"hooks of {count} arguments ran in the order {called}")


@fact(
    "hooks without handles",
    "putting hooks on nodes takes twice as long",
    "_HookMixin",
    needs=[ENGINE],
)
def many_hooks() -> None:
    """Check that hooks can be put on nodes without handles, run in order, and can be removed."""
    made = leaf().exp()
    node: Any = made.grad_fn
    called: list[str] = []
    ours = NodeHooks()
    for register in (node.register_hook, node.register_prehook):
        ours.put([(register, lambda *_: called.append("ours"))])
        register(lambda *_: called.append("theirs"))
    expect(not ours._handles, "torch does not ask how a hook is noted")
    leaves = node.next_functions[0][0].variable
    torch.autograd.grad(made.sum(), leaves, retain_graph=True)
    ours.remove()
    torch.autograd.grad(made.sum(), leaves, retain_graph=True)
    expect(called == ["ours", "theirs"] * 2 + ["theirs"] * 2, f"hooks ran in the order {called}")


@fact(
    "notes on nodes",
    "graphs that stay alive are not noticed",
)
def notes() -> None:
    """Check that a node keeps its Python object and its metadata while it lives, and not longer."""
    made = leaf().exp()
    expect(made.grad_fn is made.grad_fn, "a node is another object at every look")
    held = _Token()
    ref = weakref.ref(held)
    made.grad_fn.metadata["backprobe"] = held  # type: ignore[union-attr]
    del held
    expect(ref() is not None and "backprobe" in made.grad_fn.metadata, "a node forgets its metadata")  # type: ignore[union-attr]
    del made
    expect(ref() is None, "metadata of a node outlives it")


@fact(
    "freeing of deep graphs",
    "a graph of some ten thousand nodes that backprobe has looked at may crash the process when it is freed",
)
def deep() -> None:
    """Check that a protected deep graph is freed band by band."""
    made = leaf()
    for _ in range(12):
        made = made.sin()
    graph = walk([made.grad_fn], Plans())
    order: list[int] = []
    refs = []
    for i, node in enumerate(graph.nodes):
        token = node.metadata["backprobe: a check"] = _Token()
        refs.append(weakref.ref(token, functools.partial(_note, order, i)))
    del node, token
    protect(graph.nodes, graph.plan.borders(4))
    del graph, made
    expect(len(order) == len(refs), f"of {len(refs)} nodes {len(order)} were freed")
    bands = [[order.index(i) for i in range(first, first + 4)] for first in (4, 8)]
    expect(max(bands[0]) < min(bands[1]), f"nodes were freed in the order {order}, not one band after the other")


def _note(order: list[int], i: int, _: object) -> None:
    """Append `i` to `order`; used as the callback of a weak reference."""
    order.append(i)


class _Token:
    """An object that can be weakly referenced."""
