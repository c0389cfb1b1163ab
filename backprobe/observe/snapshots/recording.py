"""``backprobe.graph.recording``: record the module call and the source line of every node that a block makes.

Cheaper than ``backprobe.trace``: backward calls are not observed and no values are read. The record is bounded, and
holds no tensor, module or graph.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING, Any

from torch import nn

from ...basics.errors import BackprobeError
from ...source.frames import Frames
from ...torch_internals import private
from ...torch_internals.uncompiled import disable_dynamo
from ..events import Events
from ..forward.modules import ModuleWatch
from ..forward.node_places import NodePlaces
from ..forward.oplog import OpLog
from ..forward.torch_call_recorder import TorchCallRecorder

if TYPE_CHECKING:
    from ...graphs.graph import Graph


class Recording:
    """A record of the ops and module calls of a block, made by ``backprobe.graph.recording``.

    Read it with ``graph(loss)``.

    A recording belongs to the thread that enters it, and can be entered once.
    """

    def __init__(self, model: nn.Module | None = None, *, limit: int = 2_000_000) -> None:
        """Check the arguments and prepare; the block that is entered is recorded."""
        if model is not None and not isinstance(model, nn.Module):
            raise BackprobeError(f"model is a {type(model).__name__}; give recording() a torch.nn.Module, or nothing")
        if limit < 1000:
            raise BackprobeError(f"limit={limit}: a recording keeps at least 1000 ops")
        self.frames = Frames((os.getcwd(),))
        events = Events(self._broke)
        self.modules = ModuleWatch(self.frames, events, limit)
        if model is not None:
            self.modules.add_root(model, "model")
        self.recorder = TorchCallRecorder(self.frames, self.modules, events, OpLog(limit), owner=self)
        self.recorder.observe(True, False)
        self._faults = events.faults
        self._dynamo = private.DynamoActivity(self._dynamo_looks, lambda error: events.fault(self, error))
        events.attach(self.recorder)
        events.attach(self)
        self._limit = limit
        self._on = False
        #: Sequence numbers that the recording covers: from ``first`` up to, not including, ``last``.
        self.first = self.last = -1
        #: Module calls are known from this sequence number on.
        self.calls_from = 0

    @property
    def error(self) -> BaseException | None:
        """The first internal error, if there was one."""
        return self._faults.first

    @property
    def log(self) -> OpLog:
        """The ops that made nodes."""
        return self.recorder.log

    def __enter__(self) -> Recording:
        """Begin to record the ops and module calls of this thread.

        :raises BackprobeError: the recording has been entered before.
        """
        if self.first >= 0:
            raise BackprobeError("this recording has been entered already; make a new one for each block")
        self.first = self.calls_from = private.next_sequence_nr()
        self.recorder.begin_at(self.first)
        disable_dynamo()
        self._dynamo.attach()
        self.modules.start()
        self.recorder.__enter__()
        self._on = True
        if self._dynamo.active:
            self._dynamo_looks(True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop recording the forward, and note the sequence number at which the recorded nodes end."""
        self._on = False
        self._dynamo.detach()
        self.recorder.return_to_stack()
        self.recorder.log_unobserved_nodes()
        self.recorder.__exit__(kind, error, traceback)
        self.modules.stop()
        self.last = private.next_sequence_nr()

    def origins(self) -> NodePlaces:
        """Return the origins of nodes that are known so far."""
        if self._on:
            self.recorder.log_unobserved_nodes()
        return NodePlaces(self.log, self.modules, self.frames, self.calls_from)

    def graph(self, roots: object, **options: Any) -> Graph:
        """Return ``backprobe.graph(roots, recording=self, **options)``."""
        from .snapshot import graph

        return graph(roots, recording=self, **options)

    def forward_begins(self) -> None:
        """Drop old ops and module calls before an outermost module runs, so that the recording stays bounded."""
        self.log.trim()
        modules = self.modules
        if len(modules.trail) > self._limit // 2:
            modules.new_step(modules.step)
            self.calls_from = private.next_sequence_nr()

    def _dynamo_looks(self, active: bool) -> None:
        """Hide from Dynamo while it is active on this thread. See Note [Out of Dynamo's sight]."""
        if self._on:
            self.recorder.hide_from_dynamo(active)
            self.modules.hide_from_dynamo(active)

    def _broke(self, error: BaseException) -> None:
        """Stop recording after too many internal errors, so that the user's code goes on undisturbed."""
        self.recorder.observe(False, False)
        self.last = private.next_sequence_nr()
        self.modules.stop()


def recording(model: nn.Module | None = None, *, limit: int = 2_000_000) -> Recording:
    """Note the module call and source line of the nodes that the block makes, for ``backprobe.graph``.

    :param model: the outermost module, so that paths begin there; without it the outermost module that is called.
    :param limit: ops that are kept, the newest ones; older nodes have no line then.
    :raises BackprobeError: `model` is no module, or `limit` is below 1000.

    >>> import torch, backprobe
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    >>> with backprobe.graph.recording(model) as recording:
    ...     loss = model(torch.ones(4, 3)).mean()
    >>> [(node.name, node.module) for node in recording.graph(loss)][:3]
    [('MeanBackward0', None), ('ReluBackward0', '1'), ('AddmmBackward0', '0')]
    """
    return Recording(model, limit=limit)
