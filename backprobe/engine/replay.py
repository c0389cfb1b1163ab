"""``backprobe.replay``: runs a backward in Python, node by node, forwards and back.

Note [A replay has the engine's bits]: The order of nodes, the summation of gradients and their delivery along edges are
as in the engine (``graph_task.py``); each node is run by the engine or called (``single.py``). So every gradient is
bitwise equal to the engine's.

Note [A replay changes nothing]: Nothing is written to ``.grad`` before ``accumulate``, and the graph stays as it is.

Note [Going back in a replay]: To go back, the replay delivers the recorded results of the earlier nodes again. No node
and no hook runs for it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..basics.errors import BackprobeError
from ..torch_internals import private
from ..torch_internals.isolation import Isolation
from .breakpoints import NamedNodes
from .graph_task import GraphTask
from .parity import Parity, compared, engine_run, rounding
from .provenance import forward_of
from .rerun import check_dtype
from .results import accumulate, gradients, until
from .resume import CONTINUE, FINISH, Resume
from .rules import Rule, Rules
from .runner import ReplayedNode, Runner
from .start import Start
from .steering import Steering
from .stop import Stop
from .stop_controller import StopController

if TYPE_CHECKING:
    from torch.autograd.graph import GradientEdge


class Replay(Steering):
    """A backward run in Python. Created by ``backprobe.replay``; starts before the first node.

    It can do everything that a ``Debugger`` can do at a stop. It can also go back, apply rules, compute in float64, and
    compare itself with the engine. The user's hooks run when their node runs: at a stop before a node, its hooks have
    not run yet.
    """

    def __init__(self, start: Start, rules: Mapping[str, Rule], dtype: torch.dtype | None) -> None:
        """Prepare the backward, and stop before its first node.

        :param start: the roots, gradients and options of the backward.
        """
        super().__init__(StopController(lambda stop: CONTINUE, CONTINUE))
        self._start, self._graph = start, start.graph
        self._pilot.on_stop = lambda stop: CONTINUE
        self._named = NamedNodes(start.graph)
        self._runner = Runner(start, Rules(rules, start.graph), dtype)
        self._task = GraphTask(start.graph, start.roots, start.captured)
        self._isolation = Isolation([n for node in start.graph.nodes for n in node._input_metadata], True)
        self._begun = self._isolation.now
        self._history: list[ReplayedNode] = []
        self._received: Any = None
        self._stop: Stop | None = None
        self._visited: list[tuple[int, str]] = []
        self._limit: int | None = None
        self._accumulated = False
        self._go(Resume("step", 1))

    # What there is

    @property
    def stop(self) -> Stop | None:
        """The current stop; ``None`` if the replay is over."""
        return self._stop

    @property
    def done(self) -> bool:
        """Whether the replay is over."""
        return self._stop is None

    @property
    def position(self) -> int:
        """Number of nodes that have run."""
        return len(self._graph.ran)

    @property
    def runs(self) -> list[ReplayedNode]:
        """The incoming and outgoing gradients of each node, in the order in which the nodes ran."""
        return [ran for ran in self._history if ran.how != "asked"]

    @property
    def grads(self) -> dict[torch.Tensor | GradientEdge, torch.Tensor | None]:
        """The gradients so far, by tensor: of the leaves that got one, or of ``inputs`` (``None`` for those that got
        none).

        For leaves, these are the values that a backward would add to ``.grad``, including those from reentrant
        checkpoints.
        """
        return gradients(self._start, self._history)

    @property
    def named_grads(self) -> dict[str, torch.Tensor | None]:
        """``grads`` of the leaves with a known name, by name (see `model`)."""
        names = {
            id(self._graph.leaf(info.index)): info.parameter
            for info in self._graph.infos
            if info.seq is None and info.parameter
        }
        return {names[id(leaf)]: grad for leaf, grad in self.grads.items() if id(leaf) in names}  # type: ignore[misc]

    @property
    def notes(self) -> list[str]:
        """Deviations from the request, each with its reason."""
        return [f"{ran.node}: {ran.note}" for ran in self._history if ran.note]

    # Going on and back

    def finish(self) -> dict[torch.Tensor | GradientEdge, torch.Tensor | None]:
        """Run to the end without stopping, and return ``grads``."""
        if self._stop is not None:
            self._go(FINISH)
        return self.grads

    def back(self, stops: int = 1) -> Stop:
        """Go back to an earlier stop. Later runs and replacements are discarded; earlier replacements stay.

        :param stops: how many stops to go back.
        :raises BackprobeError: there are fewer earlier stops.
        """
        earlier = self._visited[: -1 if self._stop is not None else None]
        if not 1 <= stops <= len(earlier):
            raise BackprobeError(f"back({stops}): there are {len(earlier)} earlier stops to go back to")
        position, phase = earlier[-stops]
        del self._visited[len(earlier) - stops :]
        return self._return(position, phase)

    def goto(self, position: int) -> Stop:
        """Go forth or back to before the node that runs as number `position` (0 is the first).

        :raises BackprobeError: the backward has no such node.
        """
        if not 0 <= position < self._graph.count:
            raise BackprobeError(
                f"goto({position}): this backward runs {self._graph.count} nodes, 0 to {self._graph.count - 1}"
            )
        if position <= self.position and not (position == self.position and self._before()):
            self._visited = [v for v in self._visited if v < (position, "after")]
            return self._return(position, "before")
        if position > self.position:
            self._limit = position
            try:
                self._go(FINISH)
            finally:
                self._limit = None
        return self._here()

    def _before(self) -> bool:
        """Return whether the replay stands before a node."""
        return self._stop is not None and self._stop.phase == "before"

    def _return(self, position: int, phase: str) -> Stop:
        """Go back to an earlier position of the replay, from the recorded results, and return the stop there.
        :param phase: ``"before"`` or ``"after"`` the node at `position`.
        """
        kept = until(self._history, position, phase)
        if self._stop is not None:
            self._stop.close()
        dropped = len(kept) < len(self._history)
        following = self._history[len(kept)].random if dropped else self._isolation.now
        self._task.begin()
        self._history = kept[:-1] if phase == "after" else kept
        graph = self._graph
        for ran in self._history:
            self._task.ran(ran.node.index, ran.grad_inputs)
        graph.ran[:] = [ran.node.index for ran in kept if ran.how != "asked"]
        self._isolation.now = following
        self._accumulated = False
        if phase == "after":
            last = kept[-1]
            self._history.append(last)
            last.grad_inputs = last.produced
            last.edited_after = False
            stop = Stop(graph, last.node.index, "after", last.grad_outputs, last.produced, "back")
        else:
            node = self._task.next
            assert node is not None
            self._received = self._task.incoming(node)
            stop = Stop(graph, node, "before", self._received, None, "back")
        self._stand(stop)
        return stop

    def _stand(self, stop: Stop) -> None:
        """Stop here, and remember the place for ``back``."""
        self._stop = stop
        self._visited.append((self.position, stop.phase))

    def _here(self) -> Stop:
        """Return the current stop.

        :raises BackprobeError: the replay is over.
        """
        if self._stop is None:
            raise BackprobeError(
                "the replay is over: there is nothing to step through any more; back() or goto(0) goes back"
            )
        return self._stop

    def _go(self, resume: Resume) -> Stop | None:
        """Continue as `resume` says, and return the next stop; ``None`` at the end.

        If a node raises, the replay stands before that node.
        """
        self._pilot.resume = resume
        phase, new = None, None
        if self._stop is not None:
            phase = self._stop.phase
            new = self._stop.close()
        with self._isolation():
            try:
                self._advance(phase, new)
            except BaseException:
                node = self._task.next
                assert node is not None
                stop = Stop(self._graph, node, "before", self._received, None, "it raised")
                if (self.position, "before") in self._visited[-1:]:
                    self._visited.pop()
                self._stand(stop)
                raise
        return self._stop

    def _advance(self, phase: str | None, new: Any) -> None:
        """Run nodes until a stop or the end.

        :param phase: phase of the stop from which it continues; ``None`` at the beginning.
        :param new: gradients that replace the current ones.
        """
        task = self._task
        edited = phase == "before" and new is not None
        if edited:
            self._received = new
        if phase == "after":
            last = self._history[-1]
            if new is not None:
                last.grad_inputs, last.edited_after = new, True
            task.ran(last.node.index, last.grad_inputs)
        while (i := task.next) is not None:
            if phase != "before":
                self._received = task.incoming(i)
                if self._graph.runs(i) and self._stops(i, True, self._received, None):
                    return
            phase = None
            ran = self._run(i)
            ran.edited_before, edited = edited, False
            if ran.how == "asked":
                task.ran(i, ())
                continue
            if self._stops(i, False, ran.grad_outputs, ran.grad_inputs):
                return
            task.ran(i, ran.grad_inputs)
        self._stop = None

    def _run(self, i: int) -> ReplayedNode:
        """Run node `i` with the gradients that it has received, add the run to the history, and return it."""
        before = self._isolation.read()
        self._isolation.now = before
        ran = self._runner.run(i, self._received)
        ran.random = before
        self._history.append(ran)
        if ran.how != "asked":
            self._graph.ran.append(i)
        return ran

    def _stops(self, i: int, before: bool, incoming: object, outgoing: object) -> bool:
        """Stop at node `i`, before or after it, if the controller or ``goto`` says so; return whether it stopped."""
        if self._pilot.resume.kind == "finish":
            if self._limit is None or not before or self.position != self._limit:
                return False
            stop: Stop | None = Stop(self._graph, i, "before", incoming, outgoing, f"position {self._limit}")
        else:
            stop = self._pilot.stop_at(self._named, i, before, incoming, outgoing)
        if stop is None:
            return False
        self._stand(stop)
        return True

    # Results

    def compare(self) -> Parity:
        """Run the same backward in the engine, and compare every node that has run here with it.

        The engine starts from the random state with which this replay started. ``.grad`` is unchanged; the user's hooks
        run again.
        """
        now, self._isolation.now = self._isolation.now, self._begun
        try:
            with self._isolation():
                engine = engine_run(self._start)
        finally:
            self._isolation.now = now
        return compared(self._graph, self.runs, engine)

    def rounding(self) -> Parity:
        """Measure each node's own rounding error.

        Each node that has run is run again in float64, from its incoming gradients and saved tensors, and its result is
        compared with that.
        """
        with self._isolation():
            return rounding(self._start, self.runs)

    def accumulate(self) -> None:
        """Add the gradients of the leaves to ``.grad``, as the backward would have done.

        Hooks that follow the accumulation (``register_post_accumulate_grad_hook``, and Python hooks on the accumulator)
        run.

        :raises BackprobeError: the replay is not over, has accumulated already, or has ``inputs``.
        """
        if self._stop is not None:
            raise BackprobeError("accumulate() before the end: finish() the replay first")
        if self._start.inputs is not None:
            raise BackprobeError("accumulate() is for a replay without inputs=: what was asked for is in grads")
        if self._accumulated:
            raise BackprobeError("this replay has added its gradients to .grad already")
        self._accumulated = True
        accumulate(self._start, self.grads)

    def __repr__(self) -> str:
        at = "over" if self._stop is None else f"{self._stop.phase} {self._stop.node}"
        return f"<replay {at}, {self.position} of {self._graph.count} nodes have run>"


def replay(
    tensors: object,
    grad_tensors: object = None,
    *,
    inputs: object = None,
    create_graph: bool = False,
    rules: Mapping[str, Rule] | None = None,
    dtype: torch.dtype | None = None,
    model: nn.Module | None = None,
    trace: object = None,
) -> Replay:
    """Run a backward in Python, node by node, on an existing graph. Nothing is written to ``.grad``.

    :param tensors: the roots of the backward, as in ``autograd.backward``: a tensor or several.
    :param grad_tensors: their gradients; a one for a scalar.
    :param inputs: compute only the gradients of these tensors, as ``autograd.grad`` does; without it those of all
        leaves.
    :param create_graph: make a graph of the gradients.
    :param rules: place -> rule (``backprobe.replay_rules``). The places are texts as in ``break_at``: a node type
        (``"ReluBackward0"``), ``"module encoder.*"``, ``"model.py:41"``.
    :param dtype: ``torch.float64``: compute the gradients in double precision, from the saved tensors as they are.
        Nodes that cannot run in it, and hooks, run in their own precision; ``notes`` says where that matters.
    :param model: the outermost module, for the names of parameters.
    :param trace: the ``backprobe.trace`` that watched the forward, if its block has ended.
    :raises BackprobeError: there is no graph, an argument is wrong, or a ``torch.func`` transform is active. A graph
        that a backward has freed is detected when its nodes are to run.

    >>> import torch, backprobe
    >>> x = torch.tensor([1.0, -2.0], requires_grad=True)
    >>> replay = backprobe.replay((x * x).sum())
    >>> replay.step().node.name
    'MulBackward0'
    >>> replay.finish()[x]
    tensor([ 2., -4.])
    >>> replay.compare().identical, x.grad
    (True, None)
    """
    if private.in_transform():
        raise BackprobeError("backprobe.replay cannot run inside a torch.func transform")
    check_dtype(dtype)
    if dtype is not None and create_graph:
        raise BackprobeError("create_graph=True does not go with dtype=torch.float64: the casts would be in the graph")
    with private.disable_function_modes():
        forward = forward_of(model, trace, threading.get_ident())
    return Replay(Start(tensors, grad_tensors, inputs, create_graph, forward), rules or {}, dtype)
