"""Going back in a running backward whose graph is kept.

Note [Going back in the engine]: The engine runs forward only. So to go back is to end its call, to put back what it has
changed, and to let it begin again: without stops until the place, and with the gradients that a person had replaced
before it.

Note [What going back puts back]: ``.grad`` of the leaves that were accumulated into, and the random state. Hooks of the
user's run again. Places are told by how many hooks of ours have been called, which is the same each time.

Note [What cannot be put back]: What a hook does after an accumulation (an optimizer step, say): then going back is
refused.
"""

from __future__ import annotations

from typing import Any

import torch

from ..errors import BackprobeError
from ..torch_internals import private
from ..torch_internals.isolation import RandomState
from .backward_graph import BackwardGraph


class Rewind(BaseException):
    """Ends the engine's call, which begins again."""


class Journal:
    """What has happened in one backward call, as far as it takes to go back.

    :ivar clock: how many hooks of ours were called in it.
    :ivar target: the clock at which it is to stop again; ``None``: it is not going there.
    """

    def __init__(self, graph: BackwardGraph) -> None:
        devices = {m.device for node in graph.nodes for m in node._input_metadata}
        self._random = RandomState(d for d in devices if d.type == "cuda")
        #: Leaf by id -> the leaf, its ``.grad`` before, and a copy of that.
        self._grads: dict[int, tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]] = {}
        self._edits: dict[int, tuple[Any, ...]] = {}
        self._visited: list[int] = []
        self.clock = 0
        self.target: int | None = None

    def tick(self) -> None:
        self.clock += 1

    def keep(self, leaf: torch.Tensor) -> None:
        """An accumulator is to run: remember what it will change."""
        if id(leaf) not in self._grads:
            grad = leaf.grad
            with torch.no_grad(), private.unseen():
                self._grads[id(leaf)] = (leaf, grad, None if grad is None else grad.detach().clone())

    def stopped(self) -> None:
        self._visited.append(self.clock)

    def edited(self, grads: tuple[Any, ...]) -> None:
        """A person has replaced gradients here."""
        self._edits[self.clock] = grads

    def edits(self) -> tuple[Any, ...] | None:
        """What was replaced here the last time, on the way to the target."""
        return self._edits.get(self.clock)

    @property
    def under_way(self) -> bool:
        """Whether it is on the way to the target, which is further on."""
        return self.target is not None and self.clock < self.target

    def choose(self, phase: str, stops: int) -> None:
        """Make an earlier stop the target.

        :param phase: of the stop where it stands.
        :raises BackprobeError: there are not so many, or something was done that cannot be put back.
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
        """Put back what the call has changed; see Note [What going back puts back]."""
        self.clock = 0
        with torch.no_grad(), private.unseen():
            for leaf, grad, copy in self._grads.values():
                if grad is not None and copy is not None:
                    grad.detach().copy_(copy)
                leaf.grad = grad
        self._grads.clear()
        self._random.put()
