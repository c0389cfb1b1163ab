"""The state of a backward call that is running."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...source.frames import CodeLocation
from ...torch_internals.walk import LiveGraph
from .layouts import LiveLayout
from .node_hook_set import NodeHookSet


@dataclass
class ActiveBackward:
    """A backward call that is running.

    :ivar starts: the nodes of the roots, ``None`` for a root without one.
    :ivar inside: the call that this one is nested in.
    :ivar modes: the mode depths that ``TorchCallRecorder.unwind`` restores.
    """

    kind: str
    arguments: dict[str, Any]
    roots: Sequence[object]
    starts: list[Any]
    graph: LiveGraph
    live: LiveLayout
    index: int
    step: int
    inside: int | None
    spot: CodeLocation | None
    modes: tuple[int, int]
    #: The factor by which a ``GradScaler`` multiplied the roots: recorded norms and losses are divided by it.
    #: ``scale_away`` holds the factor while it is on an accelerator and has not been read.
    scale: float = 1.0
    scale_away: torch.Tensor | None = None
    #: The values of roots on an accelerator, by position among the roots.
    root_values: dict[int, float] = field(default_factory=dict)
    watch: NodeHookSet = field(init=False)
    #: Nodes for which a hook on their tensor enters the recorder: it is left before they run.
    entered: set[int] = field(default_factory=set)
    began: float = 0.0
    #: Processor seconds of this thread when the call began.
    thread_seconds: float = 0.0
    #: The node counter when the call began.
    began_at: int = 0
    ended: float = 0.0
    error: BaseException | None = None
    #: What the call returned: the gradients, for ``autograd.grad``.
    result: object = None
    #: Whether the call was counted when it was made, and its loss added to that of the step.
    was_counted: bool = False
    #: Whether nothing of the forward was recorded: Note [Steps that repeat].
    backward_only: bool = False

    @property
    def creates_graph(self) -> bool:
        """Whether the call was made with ``create_graph``."""
        return bool(self.arguments.get("create_graph"))

    def free(self) -> None:
        """Release all references: a traceback may keep this object alive, and the error keeps its traceback alive."""
        self.error = self.result = None
        self.roots, self.starts, self.arguments, self.scale_away = (), [], {}, None
        self.watch.release()
        del self.graph, self.watch
