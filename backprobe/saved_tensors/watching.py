"""The forward while a ledger is open: the user's line and the module of each op that makes nodes."""

from __future__ import annotations

import sys
import threading
import weakref
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ..errors import BackprobeError
from ..graphs.data import NodePlace
from ..kept.holders import Holders
from ..kept.reading import Nowhere, read
from ..records import ModuleCall
from ..source.frames import Frames
from ..source.roots import clean_path
from ..torchside import autograd_engine, backward_by_name, modes, places, references
from ..torchside.entry_points import BY_FUNCTION, node_of
from ..torchside.walk import Plans, walk
from .ledger import Ledger


class Forward(TorchFunctionMode):
    """Notes ops on the thread that enters it. Nodes of one thread are numbered by one counter: an op that moved it
    from a to b made the nodes a to b-1."""

    def __init__(self, model: nn.Module, frames: Frames, on_backward: Any) -> None:
        super().__init__()
        self._frames, self._on_backward = frames, on_backward
        self._paths = {id(m): clean_path(model, path) for path, m in model.named_modules()}
        #: Path, class, number among the calls of this path, depth and parent of each call; those that are running.
        self._calls: list[tuple[str, str, int, int, int]] = []
        self._stack: list[int] = []
        self._counts: dict[str, int] = {}
        self._thread = threading.get_ident()
        self._handles: list[Any] = []
        self.last = self.first = autograd_engine.next_sequence_nr()
        self._ends: list[int] = []
        self._entries: list[tuple[Any, int, str]] = []
        self._made: list[weakref.ref[torch.Tensor]] = []

    def start(self) -> None:
        register = nn.modules.module
        self._handles = [
            register.register_module_forward_pre_hook(self._enter_module),
            register.register_module_forward_hook(self._leave_module, always_call=True),
        ]
        self.__enter__()
        backward_by_name.show(self)

    def stop(self) -> None:
        backward_by_name.unshow(self)
        self.__exit__(None, None, None)
        while self._handles:
            self._handles.pop().remove()

    def _enter_module(self, module: nn.Module, args: Any) -> None:
        if not modes.compiling() and threading.get_ident() == self._thread:
            self._note(None, None)
            above = self._stack[-1] if self._stack else -1
            path = self._paths.get(id(module))
            if path is None:  # no part of the model: what it makes counts for the call around it
                self._stack.append(above)
                return
            number = self._counts[path] = self._counts.get(path, 0) + 1
            depth = self._calls[above][3] + 1 if above >= 0 else 0
            self._stack.append(len(self._calls))
            self._calls.append((path, type(module).__name__, number, depth, above))

    def _leave_module(self, module: nn.Module, args: Any, output: Any) -> None:
        if not modes.compiling() and threading.get_ident() == self._thread and self._stack:
            self._note(None, None)
            self._stack.pop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if modes.compiling():
            return func(*args, **(kwargs or {}))
        entry = BY_FUNCTION.get(func)
        if entry is not None and self._on_backward is not None:
            self._on_backward(entry.begins_at(args, kwargs or {}))
        self._note(None, None)
        out = func(*args, **(kwargs or {}))
        if autograd_engine.next_sequence_nr() != self.last:
            self._note(sys._getframe(1), func)
            for value in out if isinstance(out, (tuple, list)) else (out,):
                if isinstance(value, torch.Tensor) and value.requires_grad:
                    self._made.append(references.tensor_ref(value))
            if len(self._made) > 20_000:
                self._made = [r for r in self._made if r() is not None]
        return out

    def _note(self, frame: Any, func: Any) -> None:
        """Nodes were made since the last note: by ``func``, or by something that the mode does not see."""
        now = autograd_engine.next_sequence_nr()
        if now == self.last:
            return
        self.last = now
        name = getattr(func, "__name__", "")
        if frame is None:
            frame = sys._getframe(2)
            look: Any = frame
            while look is not None and look.f_code is not places.FUNCTION_APPLY:
                look = look.f_back
            frame, name = (look or frame), "Function.apply" if look is not None else ""
        self._ends.append(now)
        self._entries.append((self._frames.spot(frame), self._stack[-1] if self._stack else -1, name))

    def find(self, seqs: Sequence[int]) -> tuple[list[NodePlace], Sequence[int], tuple[ModuleCall, ...]]:
        """A table of places, the row of each node in it, and the module calls."""
        calls = tuple(
            ModuleCall(i, path, name, number, depth, parent, None, ())
            for i, (path, name, number, depth, parent) in enumerate(self._calls)
        )
        made_at, known = [NodePlace()], {-1: 0}
        rows = []
        for seq in seqs:
            at = bisect_right(self._ends, seq) if self.first <= seq < self.last else -1
            at = at if at < len(self._ends) else -1
            row = known.get(at)
            if row is None:
                row = known[at] = len(made_at)
                spot, call, name = self._entries[at]
                op = name if name not in ("__get__", "Function.apply") else ""
                made_at.append(NodePlace(call, self._frames.site(spot), op, True))
            rows.append(row)
        return made_at, rows, calls

    def roots(self) -> list[Any]:
        """Nodes of the tensors that were made in the block and are still there."""
        return [t.grad_fn for r in self._made if (t := r()) is not None]


class SavedBlock(Ledger):
    """``with backprobe.saved(model) as ledger:`` reads when the block ends, or before the first backward in it."""

    def __init__(self, model: nn.Module) -> None:
        from .trial import Trials

        super().__init__(None, Trials(model))
        self._model = model
        self._forward: Forward | None = None
        self._frames = Frames()

    def __enter__(self) -> SavedBlock:
        if self._forward is not None:
            raise BackprobeError("this ledger's block is running already")
        self._reading = None
        self._forward = Forward(self._model, self._frames, self._before_backward)
        self._forward.start()
        return self

    def __exit__(self, *error: object) -> None:
        forward, self._forward = self._forward, None
        if forward is None:
            return
        forward.stop()
        if self._reading is None:
            self._take(forward, forward.roots(), sys._getframe(1))

    def _before_backward(self, roots: list[Any]) -> None:
        if self._reading is None and self._forward is not None:
            self._take(self._forward, [node_of(root) for root in roots], sys._getframe(2))

    def _take(self, forward: Forward, roots: list[Any], frame: Any) -> None:
        with modes.unseen():
            holders = Holders(frame, self._frames, [self._model])
            self._reading = read(walk(roots, Plans(1)), forward, holders)


def saved(subject: Any) -> Ledger:
    """What is kept for backward: ``backprobe.saved(loss)``, or ``with backprobe.saved(model) as ledger:`` over a
    forward.

    From a loss, the graph that is there is read: bytes by op and dtype, and who else holds them; lines and modules
    are not known any more. Over a block, each op is noted, so that bytes have a line and a module; the ledger is
    read when the block ends, or when the first backward in it begins. Nothing is unpacked or run.

    :param subject: a tensor with a graph, or several; or the model that runs in the block.
    :raises BackprobeError: a tensor has no graph, or it is none of these.

    >>> import torch, backprobe as bp
    >>> x = torch.ones(1024, 256, requires_grad=True)
    >>> loss = x.sin().exp().sum()
    >>> ledger = bp.saved(loss)
    >>> ledger.bytes, [(e.node, e.name) for e in ledger.entries if not e.holder]
    (1048576, [('ExpBackward0', 'result')])
    """
    if isinstance(subject, nn.Module):
        return SavedBlock(subject)
    tensors = [subject] if isinstance(subject, torch.Tensor) else subject
    if not isinstance(tensors, (tuple, list)) or not all(isinstance(t, torch.Tensor) for t in tensors) or not tensors:
        raise BackprobeError(
            f"saved() takes a tensor with a graph, several, or a model; not a {type(subject).__name__}"
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
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("backprobe.saved"):
        frame = frame.f_back
    with modes.unseen():
        # Not given as tensors: a list of those would hold what the graph holds.
        graph = walk([t.grad_fn for t in tensors], Plans(1))
        return Ledger(read(graph, Nowhere(), Holders(frame, Frames())))
