"""Finds recurrent modules whose hidden state is detached at every step of a sequence.

Note [States detached in time]: backpropagation through time is truncated by detaching the hidden state between two
backward calls. If a state is detached at each step of one sequence, no gradient passes from a step to the one before,
and the module learns nothing that takes memory. A module of torch (``nn.GRUCell``, ``nn.LSTM`` and the like) is
reported if all of this holds in each observed backward call:

- The hidden state of a call comes from an earlier call of the same module, and was detached on the way. All parts of
  the state have no graph: an LSTM may detach its output alone.
- The graphs of both calls belong to this backward call. So a state that is detached between two backward calls is not
  meant, and neither is one from a rollout without gradients.
- This holds for three pairs of calls or more, and no call got a state with its graph from an earlier call. So states
  that are detached after every few steps are not meant either.
- A call has one step of time: within a longer one, gradients pass through time.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import NamedTuple

import torch
from torch import nn

from ... import thresholds
from ...ops import canonical, canonical_names
from ...records import DetachedState
from ...source.frames import CodeLocation, variables
from ...source.roots import ModuleCallRef
from ...torch_internals.references import IdentityMap
from ...torch_internals.structure import tensors_in
from ..backward.active_backward import ActiveBackward
from ..forward.followed_tensors import RESHAPES, FollowedTensors
from ..forward.oplog import op_name
from ..forward.torch_call_recorder import Op
from ..tracker import Tracker
from ..tracker_context import TrackerContext

_Tensor = torch.Tensor
_DETACH = canonical("detach")
#: Operations through which a state goes from one call to the next.
_PASSES_ON = RESHAPES | canonical_names("dropout layer_norm")
#: Maximum number of calls that are kept in a step, and of modules.
MAX_CALLS, MAX_MODULES = 5000, 100


class _Nodes(NamedTuple):
    """The sequence numbers of the nodes that a call of a recurrent module made: from ``first`` up to ``end``."""

    first: int
    end: int

    def are_in(self, seqs: set[int]) -> bool:
        """Return whether one of the nodes is among those with these sequence numbers."""
        return any(seq in seqs for seq in range(self.first, self.end))


class _State(NamedTuple):
    """A result of a call of a module, and where it was detached, if it was."""

    module: weakref.ref[nn.Module]
    nodes: _Nodes
    detached: CodeLocation | None = None


class _Pair(NamedTuple):
    """A call whose state came from an earlier call; ``detached``: where it was detached, ``None`` if it was not."""

    before: _Nodes
    nodes: _Nodes
    detached: CodeLocation | None
    called: CodeLocation | None


@dataclass
class _Module:
    """A module whose state was detached.

    :ivar position: its position among the modules.
    :ivar pairs: the most pairs of calls in one backward call. ``backwards``: the number of backward calls.
    """

    name: str
    where: ModuleCallRef | None
    first: int
    position: int
    detached: CodeLocation | None = None
    called: CodeLocation | None = None
    pairs: int = 0
    backwards: int = 0
    is_ruled_out: bool = False


class DetachedStatesTracker(Tracker):
    """Tracker of hidden states that are detached in each step of time: Note [States detached in time]."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without modules."""
        self._context, self._frames = context, context.frames
        self._known: IdentityMap[_Module] = IdentityMap()
        self._modules: list[_Module] = []
        # Of the running step; pairs by the position of their module in the list.
        self._states: FollowedTensors[_State] = FollowedTensors()
        self._pairs: dict[int, list[_Pair]] = {}
        self._calls = 0

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Forget the calls of the last step."""
        self._forget()

    def observing_pauses(self) -> None:
        """Forget the calls of the running step."""
        self._forget()

    def _forget(self) -> None:
        """Forget all that belongs to the running step only."""
        self._states.clear()
        self._pairs.clear()
        self._calls = 0

    def op_inspected(self, op: Op) -> None:
        """Note the calls of recurrent modules, and follow their results to the next call."""
        if op.optimizing:
            return
        if len(op.args) >= thresholds.RECURRENT_OP_MIN_ARGUMENTS and op.entry is not None:
            module = variables(op.frame).get("self")
            if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
                self._note_call(module, op)
            return
        if not self._states or type(op.out) not in (_Tensor, tuple):
            return
        name = canonical(op_name(op.func))
        if name == _DETACH:
            self._note_detached(op.args[0], op.out, op.frame)
        elif name in _PASSES_ON:
            for state in self._states.of(op.tensors()[:1]):
                self._put(op.out, state)

    def data_read(self, tensor: torch.Tensor, out: object, frame: FrameType) -> None:
        """Follow a result to ``tensor.data``."""
        if self._states:
            self._note_detached(tensor, out, frame)

    def _note_detached(self, tensor: object, out: object, frame: FrameType) -> None:
        """Note that a result of a recurrent module was detached, and where."""
        state = self._states.get(tensor)
        if state is not None and state.detached is None:
            self._put(out, state._replace(detached=self._frames.spot_of_op(frame)))

    def _put(self, out: object, state: _State) -> None:
        """Note what is known of the tensors in `out`."""
        for tensor in tensors_in(out):
            self._states.put(tensor, state)

    def _note_call(self, module: nn.Module, op: Op) -> None:
        """Note a call of a recurrent module, and whether its state came from an earlier call."""
        hidden = [op.args[1]] if isinstance(op.args[1], _Tensor) else list(op.args[1])
        self._calls += 1
        if self._calls > MAX_CALLS or not _has_one_step(module, op) or not all(map(_is_state, hidden)):
            return
        nodes = _Nodes(op.before, op.after)
        known = [state for state in self._states.of(hidden) if state.module() is module]
        if known:
            self._add_pair(module, op, nodes, known[0], any(one.requires_grad for one in hidden))
        self._put(op.out, _State(weakref.ref(module), nodes))

    def _add_pair(self, module: nn.Module, op: Op, nodes: _Nodes, state: _State, has_graph: bool) -> None:
        """Note a pair of calls, and the module if it is new.

        :param nodes: those of the later call; `state`: the state that it got from the earlier one.
        :param has_graph: whether a part of that state has a graph.
        """
        known = self._known.get(module)
        if known is None:
            if len(self._modules) >= MAX_MODULES:
                return
            stack = self._context.modules.stack
            where = stack[-1] if stack else None
            known = _Module(type(module).__name__, where, self._context.steps.index, len(self._modules))
            self._known[module] = known
            self._modules.append(known)
        detached = None if has_graph else state.detached
        pair = _Pair(state.nodes, nodes, detached, self._frames.spot_of_op(op.frame))
        self._pairs.setdefault(known.position, []).append(pair)

    def graph_walked(self, running: ActiveBackward, frame: FrameType) -> None:
        """Count the pairs of calls whose graphs both belong to a backward call."""
        if not self._pairs:
            return
        seqs = set(running.graph.seqs)
        for position, pairs in self._pairs.items():
            inside = [pair for pair in pairs if pair.before.are_in(seqs) and pair.nodes.are_in(seqs)]
            known = self._modules[position]
            if any(pair.detached is None for pair in pairs):
                known.is_ruled_out = True
            elif len(inside) >= thresholds.DETACHED_STATE_MIN_PAIRS:
                known.pairs, known.backwards = max(known.pairs, len(inside)), known.backwards + 1
                places = Counter((pair.detached, pair.called) for pair in inside)
                known.detached, known.called = places.most_common(1)[0][0]

    def records(self) -> Iterator[DetachedState]:
        """Yield a record of each module whose state was detached at every step of time."""
        site = self._frames.site
        for one in self._modules:
            if not one.is_ruled_out and one.backwards >= thresholds.DETACHED_STATE_MIN_BACKWARDS:
                name = self._context.modules.place_of(one.where)
                places = site(one.detached), site(one.called)
                yield DetachedState(one.name, name, one.pairs, one.backwards, one.first, *places)


def _has_one_step(module: nn.Module, op: Op) -> bool:
    """Return whether a call of a recurrent module computes one step of time."""
    if isinstance(module, nn.RNNCellBase):
        return True
    given = op.args[0]
    return isinstance(module, nn.RNNBase) and given.dim() == 3 and given.shape[1 if module.batch_first else 0] == 1


def _is_state(value: object) -> bool:
    """Return whether an argument of a recurrent module can be its state, and not the sizes of packed batches."""
    return isinstance(value, _Tensor) and value.is_floating_point()
