"""Finds samples that a loss uses and that carry no gradient to the distribution which the loss trains.

Note [Drawn samples]: ``sample()`` of a distribution draws under ``no_grad``, and the derivative of ``torch.normal`` is
zero. A line that draws in one of these ways is reported if all of this holds:

- The distribution has ``rsample()``, and a parameter of it has a graph. The caller did not turn gradient mode off.
- The root of a backward call is computed from the sample, through operations that pass a gradient on.
- The graph of that call reaches the distribution's parameters through a divergence or an entropy only. A loss that uses
  ``log_prob``, ``rsample()``, or the mean itself, as in a likelihood, reaches them in another way.
- The next optimizer to step trains a parameter that the distribution depends on.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import distributions
from torch.distributions import Distribution

from ...ops import canonical
from ...records import SampleWithoutGradient
from ...source.frames import CodeLocation, variables
from ...torch_internals import private
from ...torch_internals.loss_terms import normal_divergence, terms_of
from ...torch_internals.optimizers import ids_held_by
from ...torch_internals.structure import tensors_in
from ..backward.active_backward import ActiveBackward
from ..forward.detach_points import VALUE_INDEPENDENT
from ..forward.followed_tensors import FollowedTensors, nearest_leaves
from ..forward.oplog import op_name
from ..forward.torch_call_recorder import Op
from ..tracker import Tracker
from ..tracker_context import TrackerContext

_Tensor = torch.Tensor
_DISTRIBUTIONS = os.path.dirname(distributions.__file__) + os.sep
_DIVERGENCES = _DISTRIBUTIONS + "kl.py"
_SAMPLE, _ENTROPY, _NORMAL = "sample", "entropy", "torch.normal"
_DETACH, _EXPAND, _LOG = map(canonical, ("detach", "expand", "log"))
#: Maximum number of lines; of draws in a step; of operations of divergences in a step.
MAX_LINES, MAX_DRAWS, MAX_DIVERGENCES = 50, 500, 5000
#: Maximum number of leaves that are found for each parameter of a distribution, and of nodes on the way to them.
MAX_LEAVES, MAX_NODES = 2, 500
#: Maximum number of nodes of a graph that is searched.
MAX_GRAPH = 50_000
#: How deep distributions may be inside of others, and how far a call of ``entropy`` may be from an operation.
MAX_NESTED, MAX_FRAMES = 4, 6


@dataclass(eq=False)
class _Draw:
    """A call that drew a sample.

    :ivar edges: the nodes and numbers of results that gave the distribution's parameters, by sequence number.
    :ivar own: the ids of parameters that are leaves.
    :ivar nodes: the sequence numbers of the nodes that drew: from the first one to before the second one.
    :ivar leaves: some of the leaves that the distribution depends on, by id.
    """

    spot: CodeLocation | None
    how: str
    distribution: str
    edges: set[tuple[int, int]] = field(default_factory=set)
    own: set[int] = field(default_factory=set)
    nodes: tuple[int, int] = (0, 0)
    leaves: dict[int, weakref.ref[torch.Tensor]] = field(default_factory=dict)


@dataclass
class _Found:
    """A line that draws samples without a gradient."""

    draw: _Draw
    failed: CodeLocation | None
    step: int
    trained: bool = False


class DrawnSamplesTracker(Tracker):
    """Tracker of samples that carry no gradient, in closely inspected steps: Note [Drawn samples]."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without draws."""
        self._context, self._frames = context, context.frames
        self._found: dict[CodeLocation | None, _Found] = {}
        #: Lines with a distribution that a loss trained in another way.
        self._trained_otherwise: set[CodeLocation | None] = set()
        #: Found in calls since the last optimizer's step.
        self._pending: list[_Found] = []
        # Of the running step:
        self._inspecting = True
        self._drawing: _Draw | None = None
        self._draws = 0
        self._drawn: FollowedTensors[frozenset[_Draw]] = FollowedTensors()
        #: The nodes that operations of divergences and entropies made: from the first one to before the second one.
        self._divergences: list[tuple[int, int]] = []

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Forget the draws of the last step."""
        self._forget()
        self._inspecting = inspecting

    def observing_pauses(self) -> None:
        """Forget the draws of the running step."""
        self._forget()

    def _forget(self) -> None:
        """Forget all that belongs to the running step, and finds that wait for an optimizer's step."""
        self._drawing, self._draws, self._pending, self._divergences = None, 0, [], []
        self._drawn.clear()

    # Draws

    def grad_mode_set(self, on: bool, frame: FrameType) -> None:
        """Note that ``sample()`` begins or ends: it is the function that turns gradient mode off."""
        if on:
            self._drawing = None
            return
        code = frame.f_code
        if (
            self._inspecting
            and code.co_name == _SAMPLE
            and code.co_filename.startswith(_DISTRIBUTIONS)
            and torch.is_grad_enabled()
        ):
            drawn_from = variables(frame).get("self")
            if isinstance(drawn_from, Distribution) and drawn_from.has_rsample:
                self._drawing = self._new_draw(_parameters_of(drawn_from), type(drawn_from).__name__, _SAMPLE, frame)

    def _new_draw(self, parameters: Iterable[torch.Tensor], name: str, how: str, frame: FrameType) -> _Draw | None:
        """Return a draw from a distribution with these parameters; ``None`` if none of them has a graph."""
        given = [p for p in parameters if p.requires_grad and private.is_dense(p)]
        if not given or self._draws >= MAX_DRAWS:
            return None
        self._draws += 1
        draw = _Draw(self._frames.spot(frame), how, name)
        for tensor in given:
            node, number = tensor.grad_fn, tensor.output_nr
            while node is not None and canonical(node.name()) == _EXPAND:
                node, number = node.next_functions[0]
            leaf = tensor if node is None else getattr(node, "variable", None)
            if leaf is not None:
                draw.own.add(id(leaf))
            else:
                assert node is not None
                draw.edges.add((node._sequence_nr(), number))
            draw.leaves.update(nearest_leaves(tensor, MAX_LEAVES, MAX_NODES))
        return draw

    def op_inspected(self, op: Op) -> None:
        """Note an op that draws a sample, or that belongs to a divergence; follow other ops on samples."""
        if self._context.recorder.in_builtin_optimizer or private.in_transform():
            return
        if op.after > op.before and _is_divergence(op.frame) and len(self._divergences) < MAX_DIVERGENCES:
            self._divergences.append((op.before, op.after))
        if self._drawing is not None:
            self._note_results(op.out, frozenset((self._drawing,)))
        elif op.func is torch.normal and op.after > op.before:
            draw = self._new_draw(op.tensors(), "", _NORMAL, op.frame)
            if draw is not None:
                draw.nodes = op.before, op.after
                self._note_results(op.out, frozenset((draw,)))
        elif self._drawn:
            self._follow(op)

    def _follow(self, op: Op) -> None:
        """Note results that pass a gradient on to a sample, or would if it had a graph."""
        known = self._drawn.of(op.tensors())
        if not known or not torch.is_grad_enabled() or op.func in VALUE_INDEPENDENT:
            return
        if canonical(op_name(op.func)) != _DETACH:
            self._note_results(op.out, frozenset().union(*known))

    def _note_results(self, out: object, draws: frozenset[_Draw]) -> None:
        """Note that the float tensors in `out` are computed from the samples of `draws`."""
        for tensor in [out] if isinstance(out, _Tensor) else tensors_in(out, depth=2):
            if tensor.is_floating_point():
                self._drawn.put(tensor, draws)

    # Backward calls

    def graph_walked(self, running: ActiveBackward, frame: FrameType) -> None:
        """Find samples from which the roots are computed, and whose distributions they train by divergences only."""
        if running.inside is not None or not self._drawn or len(running.graph.nodes) > MAX_GRAPH:
            return
        draws: frozenset[_Draw] = frozenset().union(*self._drawn.of(running.roots))
        seqs, leaves = set(running.graph.seqs), {id(leaf) for _, leaf in running.graph.leaves}
        reached = [one for one in draws if one.own & leaves or any(seq in seqs for seq, _ in one.edges)]
        if not reached:
            return
        edges, own = self._reached_otherwise(running, reached)
        for draw in reached:
            if draw.edges & edges or draw.own & own:
                self._trained_otherwise.add(draw.spot)
            elif draw.spot in self._found or len(self._found) < MAX_LINES:
                found = _Found(draw, running.spot, self._context.steps.index)
                self._pending.append(self._found.setdefault(draw.spot, found))

    def _reached_otherwise(self, running: ActiveBackward, draws: list[_Draw]) -> tuple[set[tuple[int, int]], set[int]]:
        """Return the edges and leaves that the roots reach without the nodes of divergences and of draws."""
        made = {seq for begin, end in self._divergences for seq in range(begin, end)}
        made |= {seq for draw in draws for seq in range(*draw.nodes)}
        starts = [node for node in running.starts if node is not None]
        divided = _nodes_of_divergence(starts)
        edges, own = set(), set()
        nodes = [node for node in starts if node not in divided and node._sequence_nr() not in made]
        seen = set(nodes)
        for node in nodes:  # grows as we go
            for child, number in node.next_functions:
                if child is None:
                    continue
                seq = child._sequence_nr()
                if child in divided or seq in made:
                    continue
                edges.add((seq, number))
                variable = getattr(child, "variable", None)
                if variable is not None:
                    own.add(id(variable))
                if child not in seen:
                    seen.add(child)
                    nodes.append(child)
        return edges, own

    def optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """Keep the samples of distributions that depend on a parameter which an optimizer has just stepped."""
        if not self._pending:
            return
        held = ids_held_by(optimizer)
        for found in self._pending:
            leaves = (ref() for ref in found.draw.leaves.values())
            found.trained |= any(id(leaf) in held for leaf in leaves if leaf is not None)

    def records(self) -> Iterator[SampleWithoutGradient]:
        """Yield a record of each line whose samples carry no gradient to the distribution that the loss trains."""
        names, site = self._context.names.leaves, self._frames.site
        for spot, one in self._found.items():
            at = site(spot)
            if one.trained and at is not None and spot not in self._trained_otherwise:
                parameters = tuple(sorted(set(names.names_of(one.draw.leaves.values(), parameters_only=True))))
                yield SampleWithoutGradient(
                    one.draw.how, one.draw.distribution, at, site(one.failed), parameters, one.step
                )


def _parameters_of(drawn_from: Distribution) -> Iterator[torch.Tensor]:
    """Yield the tensors that are attributes of a distribution, or of distributions that it contains."""
    open_ = [(drawn_from, 0)]
    for one, depth in open_:  # grows as we go
        for value in list(vars(one).values()):
            if isinstance(value, _Tensor):
                yield value
            elif isinstance(value, Distribution) and depth < MAX_NESTED:
                open_.append((value, depth + 1))


def _is_divergence(frame: FrameType | None) -> bool:
    """Return whether torch runs this frame to compute a divergence or an entropy of distributions."""
    for _ in range(MAX_FRAMES):
        if frame is None or not frame.f_code.co_filename.startswith(_DISTRIBUTIONS):
            return False
        if frame.f_code.co_filename == _DIVERGENCES or frame.f_code.co_name == _ENTROPY:
            return True
        frame = frame.f_back
    return False


def _nodes_of_divergence(starts: list[Any]) -> set[Any]:
    """Return the nodes of a divergence from the standard normal that the script computes by itself.

    Terms of weight zero are among them: the weight of a divergence often begins there.
    """
    if len(starts) != 1:
        return set()
    terms = terms_of(starts[0])
    unused = {one.node for one in terms if one.weight == 0}
    with private.measuring():
        divergence = normal_divergence(terms)
    if divergence is None:
        return unused
    weight = -divergence.squares.weight
    logs = {one.node for one in terms if canonical(one.node.name()) == _LOG and math.isclose(one.weight, weight)}
    return {*divergence.nodes, *logs, *unused}
