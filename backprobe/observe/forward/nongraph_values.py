"""Where a value that is not finite was born, when that was outside the graph: weights of a loss, targets, noise.

Note [Results outside the graph]: an op that makes no node is noted with its result, and nothing is measured, until
something in the graph is not finite. A small result with little memory behind it waits as it is; of another only a
reference is kept, and it is measured if it is still there. Addresses say what is what: while a result waits, no other
has its own. A result that was written in place since is not known, and passes on what went into it. What waits as it
is gets measured when a backward call is over: it may live on in what the script keeps over steps.

Note [Numbers of Python]: a value may leave torch as a number and come back steps later. Nobody sees what Python does
with it; what is known is which line read a number that was not finite out of a tensor, and what had made that tensor.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...ops import info
from ...records import BadValues, TensorStat
from ...source.frames import Frames
from ...torch_internals import private
from ...torch_internals.measure import FLOATS, SMALL, Norms, bad_values
from .modules import ModuleWatch
from .oplog import Entry, op_name

_Tensor: Any = torch.Tensor
_Parameter: Any = torch.nn.Parameter
_wrapped, _ref, _next = private.is_wrapped, private.tensor_ref, private.next_sequence_nr
_SET = torch.Tensor.__setitem__
#: Dtypes that autocast makes copies in.
_HALF = frozenset((torch.bfloat16, torch.float16))
#: Stands for the address of a number among what an op was given.
_NUMBER = -1
#: In-place ops that keep what is finite so where they are given a number: what was there before counts.
_BY_A_NUMBER = frozenset(("add_", "sub_", "mul_", "div_"))
#: Lines that read numbers.
_LINES = 20
#: Results that wait, and elements of one that is looked at though nothing is wrong.
MOST, LARGE = 1024, 1 << 20
#: The most measurements on an accelerator that wait to be read together.
MAX_UNREAD_MEASUREMENTS = 16
#: Bytes behind a result that waits.
_BYTES = 1 << 14


@dataclass
class NonFiniteResult:
    """A result that was not finite, of the op that made the nodes `first` to `last`; none outside the graph."""

    first: int
    last: int
    entry: Entry
    output: BadValues
    inputs: tuple[TensorStat, ...]
    #: The op outside the graph that made the values which this one was given.
    origin: NonFiniteResult | None = None
    #: That op was told by shape and order only, or by a number that may have come from it.
    guessed: bool = False
    #: Of one outside the graph: its place among those.
    order: int = 0


#: A reference to a tensor that is not finite, the op that made it so, ``None`` where no op did, whether it has NaN, and
#: whether an Inf was put there on purpose, as far as can be told.
_Bad = tuple[weakref.ref[Any], NonFiniteResult | None, bool, bool]


class Outside:
    """Results of ops outside the graph, and which of them hold what is not finite."""

    def __init__(self, frames: Frames, modules: ModuleWatch) -> None:
        self._frames, self._modules = frames, modules
        #: What waits: values or ``None``, reference, address, version, addresses of inputs, entry, counter of nodes.
        self._noted: list[tuple[Any, ...]] = []
        self._waiting: set[int] = set()
        #: By address.
        self._bad: dict[int, _Bad] = {}
        #: By line that read a number: the op that made it NaN or Inf. See Note [Numbers of Python].
        self._numbers: dict[tuple[Any, int], NonFiniteResult] = {}
        #: The latest of them: counter of nodes, shape, op.
        self._recent: list[tuple[int, Any, NonFiniteResult]] = []
        #: Address -> the op, in the last look: the tensor may be gone since, but for a node that saved it.
        self._used: dict[int, NonFiniteResult | None] = {}
        #: Results that were looked at.
        self._settled = 0
        #: Measurements that are not read yet, in order: the noted results, the shape and slot of each, and the norms.
        self._unread: list[tuple[list[tuple[Any, ...]], list[tuple[Any, int | None]], Norms]] = []
        #: The results that were measured for the latest fetch: ``clear`` still needs them.
        self._taken: list[tuple[Any, ...]] = []
        #: Whether all that waits is looked at, and not only the latest when something is wrong.
        self.careful = True
        #: Whether small results are held: not where it is asked who holds what.
        self.holding = True

    def note(self, func: Any, args: Any, out: Any, frame: Any) -> None:
        """An op that `frame` called made `out`, and no node."""
        if type(out) is not _Tensor:
            if isinstance(out, tuple):
                for one in out[:8]:
                    if type(one) is _Tensor:
                        self.note(func, args, one, frame)
                return
            if func is _SET and type(args[0]) is _Tensor:
                out = args[0]
            elif type(out) is not _Parameter or not _written_with(out, args):
                return
        if out.dtype not in FLOATS:
            return
        waiting, inputs = self._waiting, []
        try:
            own, version = out.data_ptr(), _version(out)
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
                elif type(value) is float and value - value != 0.0:
                    inputs.append(_NUMBER)
        except RuntimeError:  # a sparse one, one of a transform
            return
        code, at = self._line(frame)
        stack = self._modules.stack
        entry = (code, at, func, stack[-1] if stack else None)
        self._noted.append((_values(out) if self.holding else None, _ref(out), own, version, inputs, entry, _next()))
        waiting.add(own)
        if len(self._noted) > MOST:
            self._measure(LARGE if self.careful else 0)
            if len(self._unread) > MAX_UNREAD_MEASUREMENTS or not any(norms.away for *_, norms in self._unread):
                self.settle(0)

    def _line(self, frame: Any) -> tuple[Any, int]:
        """The user's line that `frame` is called from."""
        known = self._frames.known
        while frame is not None:
            mine = known.get(id(frame.f_code))
            if self._frames.is_user(frame.f_code) if mine is None else mine:
                return frame.f_code, frame.f_lasti
            frame = frame.f_back
        return None, 0

    def number_read(self, tensor: Any, frame: Any, before: NonFiniteResult | None) -> None:
        """`frame` read a number that is not finite out of `tensor`.

        :param before: what made it so where that was in a graph.
        """
        line = self._line(frame)
        known = self._numbers.pop(line, None)
        if known is None:
            self.settle()
            known = self.origin_of((tensor,)) or before
        if known is not None:
            self._numbers[line] = known
            if len(self._numbers) > _LINES:
                del self._numbers[next(iter(self._numbers))]

    def of_number(self, nan: bool) -> NonFiniteResult | None:
        """The op that may have made a number of Python, NaN or Inf, what it is: of an Inf there may come either."""
        known = [one for one in self._numbers.values() if nan or not one.output.nan]
        return replace(known[-1], guessed=True) if known else None

    def _data(self, t: Any, at: int) -> None:
        """An op got what no op that we saw has made: of the data, or of a library's own code."""
        known = self._bad.get(at)
        if (known is None or known[0]() is None) and not t.requires_grad and t.dtype in FLOATS:
            self._waiting.add(at)
            self._noted.append(
                (_values(t) if self.holding else None, _ref(t), at, _version(t), (), (None, 0, None, None), 0)
            )

    def settle(self, limit: int = 1 << 62) -> None:
        """Measure the noted results that are held or have at most `limit` elements, and remember the non-finite."""
        self._measure(limit)
        unread, self._unread = self._unread, []
        for noted, measured, norms in unread:
            norms.flush()
            self._remember(noted, measured, norms)

    def measured(self) -> list[Norms]:
        """Measure the noted results on accelerators at the end of a backward call; return all norms to be fetched."""
        if not self.careful and any(one[0] is not None and not one[0].is_cpu for one in self._noted):
            self._taken = self._noted
            self._measure(0)
        return [norms for *_, norms in self._unread]

    def _measure(self, limit: int) -> None:
        noted, self._noted = self._noted, []
        self._waiting.clear()
        if not noted or (not limit and private.in_mode()):
            return
        was = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        measured: list[tuple[Any, int | None]] = []
        try:
            norms = Norms(sums=True)
            for values, ref, _, version, *_ in noted:
                t = values if values is not None or not limit else ref()
                known = t is not None and _version(t) == version and (values is not None or t.numel() <= limit)
                known = known and not (t.is_nested or private.hands_off(t) or private.is_freed(t))
                shape = None if t is None or t.is_nested else t.shape
                measured.append((shape, norms.take(t) if known else None))
            norms.flush_batches()
        finally:
            torch._C._set_grad_enabled(was)
        self._unread.append((noted, measured, norms))

    def _remember(self, noted: list[tuple[Any, ...]], measured: list[tuple[Any, int | None]], norms: Norms) -> None:
        """Remember which of the `noted` results are non-finite, and the op that made each so."""
        bad = dict(self._bad)  # those that are gone too: what waits may have been made of them
        #: What was written over before anybody looked: who had made it.
        unknown: dict[int, Entry] = {}
        for (_, ref, at, _, inputs, entry, seq), (shape, slot) in zip(noted, measured, strict=True):
            self._settled += 1
            values = norms.bad.get(slot) if slot is not None else None
            before = unknown.pop(at, None)
            if slot is not None and values is None:
                bad.pop(at, None)
                continue
            given = [bad[i] for i in inputs if i in bad]  # rather what was made so than what was put there on purpose
            came = next((one for one in given if one[1] is not None), given[0] if given else None)
            name = op_name(entry[2]) if entry[2] is not None else ""
            if values is None and came is None:
                unknown[at] = before if before and inputs == [at] and name in _BY_A_NUMBER else entry
                continue
            seen = values
            if came is None and values is not None and (info(name).passes_on or info(name).makes_no_nan):
                maker = next((unknown[i] for i in inputs if i in unknown), None)
                if maker is not None and maker[2] is not None:  # nobody has seen what that gave
                    name, entry = op_name(maker[2]), maker
                    seen = BadValues(values.nan, values.inf, 0, ())
            nan = values.nan > 0 if values is not None else came is not None and came[2]
            number = self.of_number(nan) if _NUMBER in inputs or info(name).takes_python_values else None
            if came is None and info(name).is_fill and (not nan or number is None):
                bad[at] = (ref, None, nan, True)
                continue
            if came is not None and not (nan and not came[2] and came[3]):
                bad[at] = (ref, came[1], nan, came[3])
                origin = came[1]
            else:
                origin = number
                made = name and not info(name).passes_on and entry[0] is not None
                if origin is None and made and seen is not None:
                    origin = NonFiniteResult(seq, seq - 1, entry, seen, (), None, seen is not values, self._settled)
                bad[at] = (ref, origin, nan, origin is None)
            if origin is not None and shape is not None:
                self._recent.append((seq, shape, origin))
        self._bad = {at: one for at, one in bad.items() if one[0]() is not None}
        self._used = {at: one[1] for at, one in bad.items()}
        del self._recent[:-100]

    def origin_of(self, tensors: Any) -> NonFiniteResult | None:
        """The op outside the graph that made what is not finite in one of `tensors`. ``settle`` comes first."""
        for t in tensors:
            if isinstance(t, _Tensor) and t.layout is torch.strided and not t.is_meta and not _wrapped(t):
                origin: NonFiniteResult | None = self._used.get(t.data_ptr())
                if origin is not None:
                    return origin
        return None

    def guess(self, first: int, shape: Any, alone: bool = False) -> NonFiniteResult | None:
        """The last op outside the graph, before node `first` was made, that could have been added to a result of
        `shape`.

        :param alone: nothing else that is known can have made that result bad: the last of any shape will do.
        """
        before = [(own, origin) for seq, own, origin in self._recent[::-1] if seq <= first and own is not None]
        fitting = (origin for own, origin in before if _fits(own, shape))
        return next(fitting, before[0][1] if before and alone else None)

    def cast(self, first: int, tensors: Any) -> NonFiniteResult | None:
        """The last op outside the graph, before node `first` was made, whose result autocast may have made one of
        `tensors` from: nobody sees it do that."""
        for t in tensors:
            if t.dtype in _HALF and t.grad_fn is None and not t.requires_grad and bad_values(t) is not None:
                for seq, own, origin in self._recent[::-1]:
                    if seq <= first and own == t.shape:
                        return origin
        return None

    def clear(self) -> None:
        """A backward call is over: what was made for it and is gone does not matter any more."""
        noted, self._taken = [] if self.careful else [*self._taken, *self._noted], []
        self.settle(LARGE if self.careful else 0)
        gone: dict[int, Any] = {}
        kept: dict[int, Any] = {}
        for values, ref, at, version, inputs, entry, seq in noted:
            if values is not None:
                continue
            if entry[2] is not None and info(op_name(entry[2])).passes_on:  # what made that is who is asked for
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
        self._noted, self._taken = [], []
        self._waiting.clear()
        self._unread.clear()
        self._bad.clear()
        self._numbers.clear()
        self._recent.clear()
        self._used = {}


def _version(tensor: Any) -> int:
    """How often it was written to; nobody counts where it was made in inference mode."""
    try:
        return int(tensor._version)
    except RuntimeError:
        return 0


def _values(tensor: Any) -> Any:
    """The values of a small tensor with little memory behind it, without its graph; not where a mode would see it."""
    if tensor.numel() > SMALL or tensor.untyped_storage().nbytes() > _BYTES or private.in_mode():
        return None
    return tensor.detach()


def _written_with(out: Any, args: Any) -> bool:
    """Whether the parameter `out` is what an op wrote to, with another tensor: what fills it alone is its start."""
    return len(args) > 1 and out is args[0] and any(isinstance(t, _Tensor) for t in args[1:])


def _fits(own: Any, shape: Any) -> bool:
    """Whether `own` can be broadcast to `shape`, and is not a mere number."""
    return len(own) <= len(shape) and all(a in (1, b) for a, b in zip(reversed(own), reversed(shape), strict=False))
