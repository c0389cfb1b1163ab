"""Goes back in a running backward whose graph is kept.

Note [Going back in the engine]: The engine runs forward only. To go back, the debugger ends its call, undoes its
changes, and starts it again: without stops until the target, and with the gradients that the user had replaced before
it.

Note [What going back puts back]: ``.grad`` of the leaves that were accumulated into, and the random state. The user's
hooks run again. A position is the number of debugger hooks called so far, which is the same each time.

Note [What cannot be put back]: The effects of a hook after an accumulation (an optimizer step, for example). Going back
is then refused.
"""

from __future__ import annotations

import torch

from ..basics.errors import BackprobeError
from ..torch_internals import private
from ..torch_internals.isolation import RandomState
from .backward_graph import BackwardGraph


class Rewind(BaseException):
    """Ends the engine's call, which then begins again."""


class Journal:
    """The events of one backward call that are needed to go back in it.

    :ivar clock: number of debugger hooks called so far.
    :ivar target: the clock at which to stop again; ``None`` if it is not going back.
    """

    def __init__(self, graph: BackwardGraph) -> None:
        """Save the random state, before the call runs a node of `graph`."""
        devices = {m.device for node in graph.nodes for m in node._input_metadata}
        self._random = RandomState(d for d in devices if d.type == "cuda")
        #: Leaf id -> (the leaf, its ``.grad`` before, a copy of that).
        self._grads: dict[int, tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]] = {}
        self._edits: dict[int, tuple[torch.Tensor | None, ...]] = {}
        self._visited: list[int] = []
        self.clock = 0
        self.target: int | None = None

    def tick(self) -> None:
        """Count a call of a debugger hook."""
        self.clock += 1

    def keep(self, leaf: torch.Tensor) -> None:
        """Save the ``.grad`` of a leaf before its accumulator runs."""
        if id(leaf) not in self._grads:
            grad = leaf.grad
            with torch.no_grad(), private.disable_function_modes():
                self._grads[id(leaf)] = (leaf, grad, None if grad is None else grad.detach().clone())

    def stopped(self) -> None:
        """Record that the backward stopped at this clock."""
        self._visited.append(self.clock)

    def edited(self, grads: tuple[torch.Tensor | None, ...]) -> None:
        """Record that the user replaced gradients here."""
        self._edits[self.clock] = grads

    def edits(self) -> tuple[torch.Tensor | None, ...] | None:
        """Return the gradients that were replaced here in the previous run, on the way to the target."""
        return self._edits.get(self.clock)

    @property
    def under_way(self) -> bool:
        """Whether the target has not been reached yet."""
        return self.target is not None and self.clock < self.target

    def choose(self, phase: str, stops: int) -> None:
        """Make an earlier stop the target.

        :param phase: phase of the current stop.
        :raises BackprobeError: there are fewer stops, or something cannot be undone.
        """
        earlier = self._visited if phase == "exception" else self._visited[:-1]
        if not 1 <= stops <= len(earlier):
            raise BackprobeError(f"back({stops}): there are {len(earlier)} earlier stops in this backward")
        for leaf, _, _ in self._grads.values():  # see Note [What cannot be put back]
            if private.post_accumulate_hooks(leaf):
                raise BackprobeError(
                    f"cannot go back: a leaf of shape {list(leaf.shape)} has a hook that runs after its gradient is "
                    "accumulated, and what such a hook has done cannot be put back; backprobe.replay(loss) goes "
                    "back and forth without accumulating"
                )
        target = earlier[-stops]
        self.target = target
        self._visited = earlier[:-stops]
        self._edits = {clock: grads for clock, grads in self._edits.items() if clock < target}

    def restore(self) -> None:
        """Undo what the call changed: ``.grad`` of the leaves, and the random state."""
        self.clock = 0
        with torch.no_grad(), private.disable_function_modes():
            for leaf, grad, copy in self._grads.values():
                if grad is not None and copy is not None:
                    grad.detach().copy_(copy)
                leaf.grad = grad
        self._grads.clear()
        self._random.restore()
