"""The session: owns everything that is attached to torch, and undoes it in reverse order."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from ..records import ACCUMULATE_SEQ, BackwardCall, GradStat, Node, NodeRun
from .backward import Graph, Keeper, Watch, describe, node_of, raised_record, root_record
from .eye import Eye, op_name
from .frames import Frames
from .measure import dtype_name
from .modules import ModuleWatch, clean_path

_ROOTS = {"Tensor.backward": "self", "autograd.backward": "tensors", "autograd.grad": "outputs"}


class Session:
    """Watches from ``start`` to ``stop``. What it saw goes to `sink`, one ``BackwardCall`` at a time.

    :param sink: called with each record in the thread that ran the backward.
    :param own: folders whose code is the user's though it is installed.
    """

    def __init__(self, sink: Callable[[BackwardCall], None], own: tuple[str, ...] = ()) -> None:
        self._sink = sink
        self.frames = Frames(own)
        self.modules = ModuleWatch(self.frames)
        kinds = {
            torch.Tensor.backward: "Tensor.backward",
            torch.autograd.backward: "autograd.backward",
            torch.autograd.grad: "autograd.grad",
        }
        self.eye = Eye(self.frames, self.modules, {f: self._entry_point(f, kind) for f, kind in kinds.items()})
        self.keeper = Keeper()
        self.calls = 0
        self.step = 0
        self._changed: set[int] = set()
        self._attached = False

    def start(self) -> None:
        self.modules.start()
        self.eye.__enter__()
        self._attached = True

    def stop(self) -> None:
        if not self._attached:
            return
        self._attached = False
        self.eye.__exit__(None, None, None)
        self.modules.stop()
        self.keeper.release(everything=True)

    def _entry_point(self, function: Any, kind: str) -> Callable[..., Any]:
        signature = inspect.signature(function)

        def call(func: Any, args: Any, kwargs: Any) -> Any:
            return self._backward(func, args, kwargs, kind, signature)

        return call

    def _backward(self, func: Any, args: Any, kwargs: Any, kind: str, signature: inspect.Signature) -> Any:
        self.keeper.release()
        try:
            arguments = dict(signature.bind(*args, **kwargs).arguments)
        except TypeError:  # wrong use: torch says so
            return func(*args, **kwargs)
        roots = arguments.pop(_ROOTS[kind])
        roots = list(roots) if isinstance(roots, (tuple, list)) else [roots]
        nodes = []
        for root in roots:
            try:
                nodes.append(node_of(root))
            except (AttributeError, RuntimeError, TypeError):
                nodes.append(None)
        graph = Graph(nodes)
        watch = Watch(graph, nodes, frozenset(self._changed))
        index = self.calls
        self.calls += 1
        site = self.frames.site(self.frames.spot(sys._getframe(3)))
        tensors = [r for r in roots if isinstance(r, torch.Tensor)]
        number = {n: i for i, n in enumerate(graph.nodes[: len(nodes)])}
        root_records = tuple(root_record(r, number.get(n)) for r, n in zip(roots, nodes, strict=True))
        described = {name: describe(value) for name, value in arguments.items()}
        watch.start()
        begin = time.perf_counter()
        raised = None
        try:
            result = func(*args, **kwargs)
        except BaseException as error:
            raised = raised_record(watch, error)
            raise
        finally:
            seconds = time.perf_counter() - begin
            watch.stop()
            watch.settle()
            runs = self._runs(watch)
            self.keeper.keep(graph.nodes, tensors)
            self._sink(
                BackwardCall(
                    index,
                    self.step,
                    kind,
                    described,
                    root_records,
                    site,
                    seconds,
                    raised,
                    runs,
                    tuple(watch.bad_nodes),
                    tuple(self.eye.bad_ops.values()),
                )
            )
        return result

    def _runs(self, watch: Watch) -> tuple[NodeRun, ...]:
        graph = watch.graph
        order = {node: at for at, node in enumerate(watch.order)}
        incoming: list[dict[int, GradStat]] = [{} for _ in range(len(graph))]
        outgoing: list[list[GradStat | None]] = []
        for i, row in enumerate(graph.edges):
            out: list[GradStat | None] = []
            for k, edge in enumerate(row):
                seen = watch.made.get((i, k))
                stat = None
                if seen is not None:
                    stat = GradStat(tuple(seen[0]), dtype_name(seen[1]), seen[2], watch.bad.get((i, k)))
                out.append(stat)
                if edge is not None and stat is not None:
                    incoming[edge[0]][edge[1]] = stat
            outgoing.append(out)
        for (i, k), seen in watch.came.items():
            incoming[i][k] = GradStat(tuple(seen[0]), dtype_name(seen[1]), seen[2])
        runs = []
        for i in range(len(graph)):
            came = incoming[i]
            at = order.get(i)
            runs.append(
                NodeRun(
                    self._node(graph, i),
                    at,
                    watch.seconds[at] if at is not None else None,
                    tuple(came.get(k) for k in range(max(came, default=-1) + 1)),
                    tuple(outgoing[i]),
                )
            )
        return tuple(runs)

    def _node(self, graph: Graph, i: int) -> Node:
        seq, name = graph.seqs[i], graph.names[i]
        if seq == ACCUMULATE_SEQ:
            return Node(i, name, seq, None, 1, None, "", self._parameter(graph.nodes[i]), graph.edges[i])
        entry = self.eye.log.find(seq)
        if entry is None:
            return Node(i, name, seq, None, 1, None, "", None, graph.edges[i])
        spot, func, call = entry
        return Node(
            i,
            name,
            seq,
            self.modules.module_name(call),
            call.call if call else 1,
            self.frames.site(spot),
            op_name(func) if func is not None else "",
            None,
            graph.edges[i],
        )

    def _parameter(self, node: Any) -> str | None:
        variable = getattr(node, "variable", None)
        if variable is None:
            return None
        for root in self.modules.roots:
            module = root.ref()
            if module is None:
                continue
            for name, p in module.named_parameters(remove_duplicate=False):
                if p is variable:
                    return self.modules.full_name(root, clean_path(module, name))
        return None
