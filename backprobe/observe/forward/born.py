"""Where a value that is not finite was born, when that was outside the graph: weights of a loss, targets, noise.

Note [Results outside the graph]: an op that makes no node is noted with its result, and nothing is measured, until
something in the graph is not finite. A small result with little memory behind it waits as it is; of another only a
reference is kept, and it is measured if it is still there. Addresses say what is what: while a result waits, no other
has its own. A result that was written in place since is not known, and passes on what went into it.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch

from ...graphs.plan import FILLS, MOVES
from ...records import BadValues, TensorStat
from ...source.frames import Frames
from ...torchside import private
from ...torchside.measure import FLOATS, SMALL, Norms
from .modules import ModuleWatch
from .oplog import Entry, op_name

_Tensor: Any = torch.Tensor
_wrapped, _ref, _next = private.is_wrapped, private.tensor_ref, private.next_sequence_nr
_SET = torch.Tensor.__setitem__
#: Results that wait, and elements of one that is looked at though nothing is wrong.
MOST, LARGE = 1024, 1 << 20
#: Bytes behind a result that waits.
_BYTES = 1 << 14


@dataclass
class SeenBad:
    """A result that was not finite, of the op that made the nodes `first` to `last`."""

    first: int
    last: int
    entry: Entry
    output: BadValues
    inputs: tuple[TensorStat, ...]
    #: The op outside the graph that made the values which this one was given.
    origin: SeenBad | None = None
    #: That op was told by shape and order only.
    guessed: bool = False


class Outside:
    """Results of ops outside the graph, and which of them hold what is not finite."""

    def __init__(self, frames: Frames, modules: ModuleWatch) -> None:
        self._frames, self._modules = frames, modules
        #: What waits: values or ``None``, reference, address, version, addresses of inputs, entry, counter of nodes.
        self._noted: list[tuple[Any, ...]] = []
        self._waiting: set[int] = set()
        #: Address -> reference to a tensor that is not finite, and the op that made it so, ``None`` where no op did.
        self._bad: dict[int, tuple[weakref.ref[Any], SeenBad | None]] = {}
        #: The latest of them: counter of nodes, shape, op.
        self._recent: list[tuple[int, Any, SeenBad]] = []
        #: Address -> the op, in the last look: the tensor may be gone since, but for a node that saved it.
        self._used: dict[int, SeenBad | None] = {}
        #: Whether all that waits is looked at, and not only the latest when something is wrong.
        self.careful = True
        #: Whether small results are held: not where it is asked who holds what.
        self.holding = True

    def note(self, func: Any, args: Any, out: Any, frame: Any) -> None:
        """An op that `frame` called made `out`, and no node."""
        if type(out) is not _Tensor:
            if type(out) is tuple:
                for one in out[:8]:
                    if type(one) is _Tensor:
                        self.note(func, args, one, frame)
                return
            if func is not _SET or type(args[0]) is not _Tensor:
                return
            out = args[0]
        if out.dtype not in FLOATS:
            return
        waiting, inputs = self._waiting, []
        try:
            own, version = out.data_ptr(), out._version
            for value in args:
                if type(value) is _Tensor:
                    at = value.data_ptr()
                    if at == own:
                        if value is not out:
                            return  # a view: what holds for the one holds for the other
                    elif at not in waiting:
                        self._data(value, at)
                    inputs.append(at)
                elif type(value) is list or type(value) is tuple:
                    for t in value[:64]:
                        if type(t) is _Tensor:
                            inputs.append(t.data_ptr())
        except RuntimeError:  # an inference tensor, a sparse one, one of a transform
            return
        known = self._frames.known
        while frame is not None:
            mine = known.get(id(frame.f_code))
            if self._frames.is_user(frame.f_code) if mine is None else mine:
                break
            frame = frame.f_back
        code, at = (frame.f_code, frame.f_lasti) if frame is not None else (None, 0)
        stack = self._modules.stack
        entry = (code, at, func, stack[-1] if stack else None)
        self._noted.append((_values(out) if self.holding else None, _ref(out), own, version, inputs, entry, _next()))
        waiting.add(own)
        if len(self._noted) > MOST:
            if self.careful:
                self.settle(LARGE)
            else:
                del self._noted[: MOST // 2]
                self._waiting = {one[2] for one in self._noted}

    def _data(self, t: Any, at: int) -> None:
        """An op got what no op that we saw has made: of the data, or of a library's own code."""
        if at not in self._bad and not t.requires_grad and t.dtype in FLOATS:
            self._waiting.add(at)
            self._noted.append(
                (_values(t) if self.holding else None, _ref(t), at, t._version, (), (None, 0, None, None), 0)
            )

    def settle(self, limit: int = 1 << 62) -> None:
        """Measure what waits and has no more than `limit` elements, and remember what is not finite."""
        noted, self._noted = self._noted, []
        self._waiting.clear()
        if not noted:
            return
        was = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        measured: list[tuple[Any, int | None]] = []
        try:
            norms = Norms(sums=True)
            for values, ref, _, version, *_ in noted:
                t = ref() if values is None else values
                known = t is not None and t._version == version and t.numel() <= limit
                known = known and not (t.is_nested or private.hands_off(t) or private.is_freed(t))
                measured.append((t, norms.take(t) if known else None))
            norms.flush()
        finally:
            torch._C._set_grad_enabled(was)
        bad = {at: one for at, one in self._bad.items() if one[0]() is not None}
        #: What was written over before anybody looked: who had made it.
        unknown: dict[int, Entry] = {}
        for (_, ref, at, _, inputs, entry, seq), (t, slot) in zip(noted, measured, strict=True):
            values = norms.bad.get(slot) if slot is not None else None
            unknown.pop(at, None)
            if slot is not None and values is None:
                bad.pop(at, None)
                continue
            came = next((bad[i] for i in inputs if i in bad), None)
            name = op_name(entry[2]) if entry[2] is not None else ""
            if values is None and came is None:
                unknown[at] = entry
                continue
            if came is None and name in MOVES:
                maker = next((unknown[i] for i in inputs if i in unknown), None)
                if maker is not None and maker[2] is not None:
                    name, entry = op_name(maker[2]), maker
            if values is not None and came is None and not values.nan and name in FILLS:
                bad.pop(at, None)
                continue
            if came is not None:
                origin = came[1]
            else:
                assert values is not None
                made = name and name not in MOVES and entry[0] is not None
                origin = SeenBad(0, 0, entry, values, ()) if made else None
            bad[at] = (ref, origin)
            if origin is not None and t is not None:
                self._recent.append((seq, t.shape, origin))
        self._bad = {at: one for at, one in bad.items() if one[0]() is not None}
        self._used = {at: one[1] for at, one in bad.items()}
        del self._recent[:-100]

    def origin_of(self, tensors: Any) -> SeenBad | None:
        """The op outside the graph that made what is not finite in one of `tensors`. ``settle`` comes first."""
        for t in tensors:
            if isinstance(t, _Tensor) and t.layout is torch.strided and not t.is_meta and not _wrapped(t):
                origin: SeenBad | None = self._used.get(t.data_ptr())
                if origin is not None:
                    return origin
        return None

    def guess(self, first: int, shape: Any) -> SeenBad | None:
        """The last op outside the graph, before node `first` was made, that could have been added to a result of
        `shape`."""
        for seq, own, origin in self._recent[::-1]:
            if seq <= first and own is not None and _fits(own, shape):
                return origin
        return None

    def clear(self) -> None:
        """A backward call is over: what was made for it and is gone does not matter any more."""
        if self.careful:
            self.settle(LARGE)
        gone: dict[int, Any] = {}
        kept: dict[int, Any] = {}
        for _, ref, at, version, inputs, entry, seq in self._noted:
            if entry[2] is not None and op_name(entry[2]) in MOVES:  # what made that is who is asked for
                entry = next((gone[i] for i in inputs if i in gone), entry)
            if ref() is None:
                gone[at] = entry
            else:
                kept.pop(at, None)
                kept[at] = (None, ref, at, version, inputs, entry, seq)
        self._noted = [*kept.values()]
        self._waiting = {one[2] for one in self._noted}
        self._recent.clear()
        self._used = {}

    def forget(self) -> None:
        """Watching stops: keep nothing."""
        self._noted.clear()
        self._waiting.clear()
        self._bad.clear()
        self._recent.clear()
        self._used = {}


def _values(tensor: Any) -> Any:
    """The values of a small tensor with little memory behind it, without its graph; not where a mode would see it."""
    if tensor.numel() > SMALL or tensor.untyped_storage().nbytes() > _BYTES or private.in_mode():
        return None
    return tensor.detach()


def _fits(own: Any, shape: Any) -> bool:
    """Whether `own` can be broadcast to `shape`, and is not a mere number."""
    return len(own) <= len(shape) and all(a in (1, b) for a, b in zip(reversed(own), reversed(shape), strict=False))
