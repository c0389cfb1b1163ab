"""Recording of the forward while a ledger is open: the user's line and the module of each op that makes nodes."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ...basics.errors import BackprobeError
from ...graphs.data import NodePlace
from ...observe.forward.torch_call_recorder import Op
from ...observe.snapshots.recording import Recording
from ...records import ModuleCall
from ...saved_memory.holders import Holders
from ...saved_memory.reading import Nowhere, read
from ...source.frames import Frames
from ...torch_internals import backward_by_name, modes, references
from ...torch_internals.entry_points import BY_FUNCTION, EntryPoint, node_of
from ...torch_internals.walk import Plans, walk
from .ledger import Ledger

if TYPE_CHECKING:
    from ...observe.forward.torch_call_recorder import Handler
    from ...source.caller_frames import Args, Function, Kwargs


class Forward:
    """A recording of the ops that a block runs, and of their results that are still alive."""

    def __init__(self, model: nn.Module, on_backward: Callable[[list[object], FrameType], None]) -> None:
        """Prepare the recording.
        :param on_backward: called with the roots and the calling frame before each backward call.
        """
        self._recording = Recording(model)
        self._recording.modules.inspecting = False  # values are not inspected
        self._recorder, self._on_backward = self._recording.recorder, on_backward
        self._recorder.inspecting = True
        self._recorder.special.update((function, self._called(entry)) for function, entry in BY_FUNCTION.items())
        self._recorder.events.attach(self)
        self._made: list[weakref.ref[torch.Tensor]] = []

    def start(self) -> None:
        """Start the recording."""
        self._recording.__enter__()
        backward_by_name.show(self._recorder)

    def stop(self) -> None:
        """End the recording."""
        backward_by_name.unshow(self._recorder)
        self._recording.__exit__(None, None, None)

    def _called(self, entry: EntryPoint) -> Handler:
        """Return a handler of calls of `entry` that reports the call before it runs."""

        def call(func: Function, args: Args, kwargs: Kwargs, frame: FrameType) -> object:
            """Report a backward call, run it, and return its result."""
            self._on_backward(entry.begins_at(args, kwargs), frame)
            return self._recorder.call(func, args, kwargs, frame)

        return call

    def op_inspected(self, op: Op) -> None:
        """Remember the results of an op that require grad."""
        for value in op.out if isinstance(op.out, (tuple, list)) else (op.out,):
            if op.entry is not None and isinstance(value, torch.Tensor) and value.requires_grad:
                self._made.append(references.tensor_ref(value))
        if len(self._made) > 20_000:
            self._made = [r for r in self._made if r() is not None]

    def find(self, seqs: Sequence[int]) -> tuple[list[NodePlace], Sequence[int], tuple[ModuleCall, ...]]:
        """Return a table of places, the row of each node in it, and the module calls."""
        return self._recording.origins().find(seqs)

    def roots(self) -> list[Any]:
        """Return the nodes of the tensors that were made in the block and are still alive."""
        return [t.grad_fn for r in self._made if (t := r()) is not None]


class SavedBlock(Ledger):
    """The ledger of a ``with`` block: read when the block ends, or before the first backward in it."""

    def __init__(self, model: nn.Module) -> None:
        """Take the model; recording begins with the block."""
        from .trial import Trials

        super().__init__(None, Trials(model))
        self._model = model
        self._forward: Forward | None = None
        self._frames = Frames()

    def __enter__(self) -> SavedBlock:
        """Start to record the forward.
        :raises BackprobeError: the block runs already.
        """
        if self._forward is not None:
            raise BackprobeError("this ledger's block is running already")
        self._reading = None
        self._forward = Forward(self._model, self._before_backward)
        self._forward.start()
        return self

    def __exit__(self, *error: object) -> None:
        """End the recording, and read the ledger unless a backward call has done so."""
        forward, self._forward = self._forward, None
        if forward is None:
            return
        forward.stop()
        if self._reading is None:
            self._take(forward, forward.roots(), sys._getframe(1))

    def _before_backward(self, roots: list[object], frame: FrameType) -> None:
        """Read the ledger before the first backward call in the block, from the graph of its roots."""
        if self._reading is None and self._forward is not None:
            self._take(self._forward, [node_of(root) for root in roots], frame)

    def _take(self, forward: Forward, roots: list[object], frame: FrameType) -> None:
        """Read the graph of `roots` into this ledger.
        :param frame: the frame whose variables count as the user's.
        """
        with modes.disable_function_modes():
            holders = Holders(frame, self._frames, [self._model])
            self._reading = read(walk(roots, Plans(1)), forward, holders)


def saved_tensors(subject: object) -> Ledger:
    """List what autograd saves for backward: ``backprobe.saved_tensors(loss)``, or
    ``with backprobe.saved_tensors(model) as ledger:`` around a forward.

    For a loss, its existing graph is read: bytes by op and dtype, and their other holders; lines and modules are
    unknown. Over a block, each op is recorded, so that bytes have a line and a module; the ledger is read when the
    block ends, or when the first backward in it begins. Nothing is unpacked or run.

    :param subject: a tensor with a graph, or several; or the model that runs in the block.
    :raises BackprobeError: a tensor has no graph, or the subject is none of these.

    >>> import torch, backprobe as bp
    >>> x = torch.ones(1024, 256, requires_grad=True)
    >>> loss = x.sin().exp().sum()
    >>> ledger = bp.saved_tensors(loss)
    >>> ledger.bytes, [(e.node, e.name) for e in ledger.entries if not e.holder]
    (1048576, [('ExpBackward0', 'result')])
    """
    if isinstance(subject, nn.Module):
        return SavedBlock(subject)
    tensors = [subject] if isinstance(subject, torch.Tensor) else subject
    if not isinstance(tensors, (tuple, list)) or not all(isinstance(t, torch.Tensor) for t in tensors) or not tensors:
        raise BackprobeError(
            f"saved_tensors() takes a tensor with a graph, several, or a model; not a {type(subject).__name__}"
        )
    for number, tensor in enumerate(tensors):
        if tensor.grad_fn is None:
            which = f"tensor {number} of shape" if len(tensors) > 1 else "a tensor of shape"
            why = "Was it made under torch.no_grad(), or detached?"
            if tensor.requires_grad:
                why = "It is a leaf, and begins graphs: give the loss that was computed from it."
            elif not (tensor.is_floating_point() or tensor.is_complex()):
                why = f"Its dtype is {tensor.dtype}, and only floating point and complex tensors have gradients."
            raise BackprobeError(
                f"{which} {tuple(tensor.shape)} has no graph (grad_fn is None): nothing is kept for its backward. {why}"
            )
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("backprobe.user_tools.saved_hooks"):
        frame = frame.f_back
    with modes.disable_function_modes():
        # Not passed as tensors: a list of those would hold what the graph holds.
        graph = walk([t.grad_fn for t in tensors], Plans(1))
        return Ledger(read(graph, Nowhere(), Holders(frame, Frames())))
