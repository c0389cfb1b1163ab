"""Checks whether a compiled region computes the same as its ops run eagerly, and finds the first op that differs.

Both run on copies of the region's inputs, forward and backward, and the ops once more in float64, which shows how far
rounding takes either. The compiled code is wrong if it is much farther from float64 than the eager ops are. If so,
prefixes of the graph are compiled by the same backend, and bisection finds the shortest wrong one; its last op is the
culprit. That op is then also tested alone, on its actual inputs and on random numbers of the same shapes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter
from torch.utils._pytree import tree_leaves

from .compiled_graphs import CompiledGraph, RegionCall, copy_of
from .compiled_norms import MAX_MEMORY_SHARE, BoundedNotes, TooLarge, free_memory
from .region_reexecution import reexecute, run_on_own_thread
from .thread_state import put_autocast

#: A result is wrong if its error against float64 exceeds this many times the eager error, and this many rounding units.
MAX_ERROR_RATIO, MAX_ROUNDING_UNITS = 20.0, 64.0
#: The most nodes that a graph may have.
MAX_NODES = 5000


@dataclass(frozen=True)
class WrongRegion:
    """A region whose compiled code computes wrong results.

    :ivar node: the first wrong node of the region's graph; ``None``: no prefix of the graph is wrong by itself.
    :ivar backward: the gradients are wrong; otherwise the forward.
    :ivar off, usual: relative distance from float64 of the compiled code and of the eager ops.
    :ivar alone: the op is wrong even if it is compiled alone, on its actual inputs.
    :ivar script: a script that reproduces it, if random numbers do.
    """

    node: torch.fx.Node | None
    backward: bool
    off: float
    usual: float
    alone: bool = False
    script: str = ""


class Unchecked(Exception):
    """The error for a region that cannot be checked, with the reason."""


def wrong_region(call: RegionCall) -> WrongRegion | None:
    """Return how the compiled code of a region call is wrong; ``None`` if it computes the same as its ops.

    :raises Unchecked: the region draws random numbers, is too large, or its compiled function is not available.
    """
    region = call.region
    if region.made is None or region.compiler is None or len(region.graph.nodes) > MAX_NODES:
        raise Unchecked("is too large, or is not known as it was compiled")
    found: WrongRegion | None = run_on_own_thread(lambda: _compare_with_ops(call), call)
    return found


def _compare_with_ops(call: RegionCall) -> WrongRegion | None:
    """Compare a region call with its ops, and search for the first wrong node; runs on a thread of its own.
    :returns: ``None`` if they compute the same.
    :raises Unchecked: the region draws random numbers, or needs more memory than is free.
    """
    # A third leaves room for float64 and for the original results.
    tensors = _TensorNotes(MAX_MEMORY_SHARE / 3 * free_memory(call.args))
    try:
        reexecute(call, tensors)
    except (TooLarge, torch.OutOfMemoryError) as error:
        raise Unchecked("needs more memory than is free") from error
    put_autocast(call.autocast)
    region = call.region
    whole = _SubgraphRun(region.module, copy_of(region.graph), call.args)
    if region.draws and whole.draws():
        raise Unchecked("draws random numbers")
    found = whole.differs(region.made)
    if found is None:
        return None
    backward, off, usual = found
    nodes = [node for node in region.graph.nodes if node in tensors.nodes]
    low, high = 0, len(nodes)
    worst: tuple[float, float] | None = None
    while low < high:  # finds the first node after which it is wrong
        middle = (low + high) // 2
        done = set(nodes[: middle + 1])
        gives = [n for n in nodes[: middle + 1] if n is nodes[middle] or not done.issuperset(n.users)]
        part = _SubgraphRun(region.module, _graph_up_to(region, nodes[middle].next, gives), call.args)
        seen = part.compiled_differs(region.compiler, backward)
        if seen is not None:
            high, worst = middle, seen
        else:
            low = middle + 1
    if worst is None:  # wrong only if the whole graph is compiled together
        return WrongRegion(None, backward, off, usual)
    alone, script = _check_alone(region, nodes[high], call.args, backward)
    return WrongRegion(nodes[high], backward, *worst, alone, script)


class _TensorNotes(BoundedNotes):
    """Notes that also collect the nodes that returned a tensor."""

    def __init__(self, limit: float) -> None:
        """Begin without nodes.
        :param limit: bytes that the notes may keep.
        """
        super().__init__(limit)
        self.nodes: set[object] = set()

    def note(self, node: object, given: list[object], before: list[object], out: object) -> None:
        """Record the run of `node`; see ``Notes.note``."""
        super().note(node, given, before, out)
        if isinstance(out, torch.Tensor):
            self.nodes.add(node)


def _graph_up_to(region: CompiledGraph, end: object, gives: Sequence[object]) -> Graph:
    """Return a region's graph up to the node `end`, with the results of `gives` as outputs.

    Placeholders precede all other nodes, so it takes the same inputs as the region.
    """
    graph = Graph()
    made: dict[object, torch.fx.Node] = {}
    for node in region.graph.nodes:
        if node is end:
            break
        made[node] = graph.node_copy(node, lambda one: made[one])
    graph.output(tuple(made[one] for one in gives))
    return graph


def _check_alone(
    region: CompiledGraph, node: torch.fx.Node, args: Sequence[object], backward: bool
) -> tuple[bool, str]:
    """Return whether `node` is wrong when compiled alone, and a script that shows it on random numbers (or "")."""
    needs = node.all_input_nodes
    values = dict(
        zip(needs, _operations_of(region.module, _graph_up_to(region, node, needs))(*_copies(args)), strict=True)
    )
    graph = Graph()
    given: list[Any] = []
    inputs: dict[torch.fx.Node, torch.fx.Node] = {}
    for one in needs:
        inputs[one] = graph.placeholder(f"x{len(given)}")
        given.append(values[one])
    graph.output((graph.node_copy(node, lambda one: inputs[one]),))
    if not all(isinstance(value, torch.Tensor) for value in given):
        return False, ""
    part = _SubgraphRun(region.module, graph, given)
    if part.compiled_differs(region.compiler, backward) is None:
        return False, ""
    random = torch.Generator().manual_seed(0)
    drawn = [_random_like(value, random) for value in given]
    if any(one is None for one in drawn):
        return True, ""
    if _SubgraphRun(region.module, graph, drawn).compiled_differs(region.compiler, backward) is None:
        return True, ""
    return True, _script(GraphModule(region.module, copy_of(graph)), drawn, backward, _backend(region.compiler))


def _random_like(value: Any, random: torch.Generator) -> torch.Tensor | None:
    """Return random numbers of the shape and dtype of `value`; ``None`` if it is no floating-point tensor on the
    CPU.
    """
    if not value.is_floating_point() or not value.is_cpu:
        return None
    return torch.randn(value.shape, generator=random).to(value.dtype).requires_grad_(value.requires_grad)


def _backend(compiler: object) -> str:
    """Return the backend as source text for ``torch.compile``."""
    name = getattr(compiler, "_compiler_name", None)
    known = sys.modules["torch._dynamo"].list_backends(exclude_tags=())
    return repr(name) if name in known else "BACKEND"


def _script(module: GraphModule, drawn: Sequence[Any], backward: bool, backend: str) -> str:
    """Return a script that compares the compiled graph of `module` with its ops on random inputs.
    :param drawn: inputs whose shapes, dtypes and ``requires_grad`` it uses.
    :param backward: whether it compares gradients instead of results.
    :param backend: source text of the backend.
    :returns: empty if the graph needs parameters or buffers.
    """
    code = "\n".join(line for line in module.code.strip().splitlines() if line.strip())
    if list(module.parameters()) or list(module.buffers()) or "self." in code:
        return ""
    lines = ["import torch", "from torch import device, inf, nan", "", code.replace("(self, ", "("), ""]
    lines.append("random = torch.Generator().manual_seed(0)")
    names = [f"x{i}" for i in range(len(drawn))]
    for name, one in zip(names, drawn, strict=True):
        more = ".requires_grad_()" if one.requires_grad else ""
        lines.append(f"{name} = torch.randn({list(one.shape)}, generator=random).to({one.dtype}){more}")
    call = f"({', '.join(names)})[0]"
    lines.append(f"plain, compiled = forward{call}, torch.compile(forward, backend={backend}){call}")
    if backward:
        wanted = ", ".join(n for n, one in zip(names, drawn, strict=True) if one.requires_grad)
        lines.append(f"plain, compiled = (torch.autograd.grad(y.sum(), [{wanted}])[0] for y in (plain, compiled))")
    lines.append("print((plain - compiled).norm() / plain.norm())")
    return "\n".join(lines) + "\n"


def _operations_of(module: torch.nn.Module, graph: object) -> Callable[..., Any]:
    """Return a function that runs the nodes of a graph one by one."""
    steps = Interpreter(module, graph=graph)
    steps.extra_traceback = False
    return steps.run  # type: ignore[no-any-return]


class _SubgraphRun:
    """A graph and the inputs to run it on."""

    def __init__(self, module: torch.nn.Module, graph: torch.fx.Graph, args: Sequence[object]) -> None:
        """Take the module that holds the graph's attributes, the graph, and its inputs."""
        self._module, self._graph, self._args = module, graph, args

    def compiled_differs(self, compiler: Callable[..., Any], backward: bool) -> tuple[float, float] | None:
        """Return the distances from float64 if the result of `compiler` is wrong, else ``None``.

        The forward is compared, or the backward if `backward` is true.
        """
        module = GraphModule(self._module, copy_of(self._graph))  # a compiler may modify it
        try:
            made = compiler(module, _copies(self._args))
            found = self.differs(made, backward)
        except Exception:  # a prefix of the graph may not be compilable
            return None
        return found[1:] if found is not None and found[0] == backward else None

    def draws(self) -> bool:
        """Return whether two runs differ: attention may draw random numbers, but usually does not."""
        operations = _operations_of(self._module, self._graph)
        once, twice = (self._run(operations, self._args)[0] for _ in range(2))
        return not all(torch.equal(a, b) for a, b in zip(once, twice, strict=True))

    def differs(self, made: Callable[..., object], backward: bool | None = None) -> tuple[bool, float, float] | None:
        """Return how the results of `made` differ from those of the graph's ops; ``None`` if they do not.

        The value is (whether it is in the backward, the distance of `made` from float64, that of the ops).

        :param backward: compare the backward only (``True``), the forward only (``False``), or both (``None``).
        """
        operations = _operations_of(self._module, self._graph)
        plain = self._run(operations, self._args)
        try:
            exact = self._run(operations, self._args, in_float64=True)
        except RuntimeError:  # mixed dtypes: the graph names one
            exact = plain
        own = self._run(made, self._args)
        for is_backward in (False, True) if backward is None else (backward,):
            for mine, theirs, true in zip(own[is_backward], plain[is_backward], exact[is_backward], strict=False):
                found = _wrong_distances(mine, theirs, true)
                if found is not None:
                    return is_backward, *found
        return None

    def _run(
        self, function: Callable[..., object], args: Sequence[object], in_float64: bool = False
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Return the results of `function`, and the gradients of its inputs for random incoming gradients.

        :param in_float64: run in float64.
        """
        given = _copies(args, in_float64)
        outs = [o for o in tree_leaves(function(*given)) if isinstance(o, torch.Tensor)]
        random = torch.Generator().manual_seed(1)
        roots, came = [], []
        for out in outs:
            drawn = torch.randn(out.shape, generator=random)
            if out.requires_grad and out.is_floating_point():
                roots.append(out)
                came.append(drawn.to(out.dtype).to(out.device))
        wanted = [a for a in given if isinstance(a, torch.Tensor) and a.requires_grad]
        grads = torch.autograd.grad(roots, wanted, came, allow_unused=True) if roots and wanted else ()
        return [out.detach() for out in outs], list(grads)


def _copies(args: Sequence[object], in_float64: bool = False) -> list[object]:
    """Return copies of `args`; equal tensors share one copy. `in_float64`: floating-point ones in float64."""
    known: dict[int, torch.Tensor] = {}
    for a in args:
        if isinstance(a, torch.Tensor) and id(a) not in known:
            copy = a.detach().clone()
            copy = copy.double() if in_float64 and a.is_floating_point() else copy
            known[id(a)] = copy.requires_grad_(a.requires_grad)
    return [known[id(a)] if isinstance(a, torch.Tensor) else a for a in args]


def _wrong_distances(mine: Any, theirs: Any, true: Any) -> tuple[float, float] | None:
    """Return the distances of `mine` and `theirs` from `true` if `mine` is much farther away, else ``None``."""
    if theirs is None or mine is None or true is None:
        return None if (mine is None) == (theirs is None) else (float("inf"), 0.0)
    if not theirs.is_floating_point() or mine.shape != theirs.shape:
        return None
    size = float(true.double().norm())
    if not torch.equal(mine.isfinite(), theirs.isfinite()):
        return (float("inf"), 0.0) if bool((theirs.isfinite() & ~mine.isfinite()).any()) else None
    if not size or size - size != 0.0 or not bool(mine.isfinite().all()):
        return None
    off, usual = (float((one.double() - true.double()).norm()) / size for one in (mine, theirs))
    bound = max(MAX_ERROR_RATIO * usual, MAX_ROUNDING_UNITS * torch.finfo(theirs.dtype).eps)
    return (off, usual) if off > bound else None
