"""The eye: one ``TorchFunctionMode`` that notes, for each op that makes autograd nodes, where it was called.

N1. The mode is off inside its own handler, so what we compute there is not seen again.
N2. Numbers on this thread come from one counter: an op that moved it from a to b made the nodes a..b-1.
N3. Nothing here may add a node or keep a tensor: gradient mode is off while we measure, and a small result waits in a
    batch only until the forward is over, an in-place op runs, or the batch is full.
"""

from __future__ import annotations

import sys
import threading
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..graph.plan import VIEW_OPS
from ..records import BadValues, Site, TensorStat
from . import private
from .fingerprints import Fingerprints
from .frames import Frames, Spot, variables
from .measure import FLOATS, SMALL, Norms, is_float, stat_of
from .modules import ModuleWatch, Where
from .regions import Regions
from .traces import Traces
from .writes import kind_of, targets

_APPLY = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]
_VIEWS = frozenset(getattr(torch.Tensor, name) for name in VIEW_OPS)
_Tensor = torch.Tensor
_next = private.next_sequence_nr
_compiling = private.compiling
_frame = sys._getframe
#: An entry of the op log: code object and instruction of the place, the function, the module call.
Entry = tuple[Any, int, Any, "Where | None"]


def op_name(func: Any) -> str:
    return getattr(func, "__name__", None) or str(func)


def _raise(error: BaseException) -> None:
    raise error


def spot_of(entry: Entry) -> Spot | None:
    return (entry[0], entry[1]) if entry[0] is not None else None


class OpLog:
    """The flight recorder: for each op that made nodes, the counter after it and an entry. A ring of two halves."""

    def __init__(self, limit: int = 262_144) -> None:
        self._limit = limit
        self.ends: list[int] = []
        self.entries: list[Entry] = []
        self.dropped = 0
        self.added = 0

    def trim(self) -> None:
        """Called between steps: the older half goes when the log is full."""
        if len(self.ends) > self._limit:
            half = len(self.ends) // 2
            self.added += half
            del self.ends[:half], self.entries[:half]
            self.dropped += half

    def slice(self, low: int, high: int) -> tuple[list[int], list[Entry]]:
        """The ops that made the nodes `low` to `high`, as ends and entries."""
        a, b = bisect_right(self.ends, low), bisect_left(self.ends, high + 1) + 1
        if a == 0 and self.dropped and self.ends and self.ends[0] > low:
            a = min(1, len(self.ends))  # the first entry may stand for dropped ones too
        return self.ends[a:b], self.entries[a:b]


@dataclass
class SeenBad:
    """A forward result that was not finite, of the op that made the nodes `first` to `last`."""

    first: int
    last: int
    entry: Entry
    output: BadValues
    inputs: tuple[TensorStat, ...]
    #: The op outside the graph that made the NaN which this one was given.
    origin: SeenBad | None = None


@dataclass
class SeenCut:
    """An op that lost the gradient's path, and the ids of the leaves that it was lost for."""

    op: str
    spot: Spot | None
    where: Where | None
    leaves: frozenset[int]
    rank: int
    count: int = 1


class Eye(TorchFunctionMode):
    """Sees every torch call made from Python on the thread that it is entered on."""

    def __init__(
        self, frames: Frames, modules: ModuleWatch, regions: Regions, special: dict[Any, Callable[..., Any]]
    ) -> None:
        super().__init__()
        self.regions = regions
        self._frames, self._modules, self._special = frames, modules, special
        #: For those who ask what made a node: the numbers below ``first`` were given before we looked.
        self.frames, self.modules, self.first = frames, modules, _next()
        self._stack = modules.stack
        self.log = OpLog()
        self.thread = threading.get_ident()
        #: The recording or session that it belongs to: a snapshot taken while it is on finds it there.
        self.owner: Any = None
        #: Whether to note ops at all (not at the level ``watch``), and whether to look closely at each.
        self.noting, self.careful = True, True
        #: Whether to look at results: not while everything is bad anyway.
        self.checking = True
        self.last = _next()
        self.bad: list[SeenBad] = []
        self.bad_limit = 1000
        self.cuts: dict[Any, SeenCut] = {}
        self._traces = Traces()
        self.unchecked = 0
        #: Places that give Inf or NaN by design (a mask of -inf): how often, with a finite loss after it.
        self.tolerated: dict[Any, int] = {}
        self._norms = Norms(on_bad=self._batch_bad, sums=True)
        self._waiting: list[tuple[int, int, Entry]] = []
        #: How each function writes in place, if it does.
        self._kinds: dict[Any, Any] = {}
        self.writes = regions.writes
        self.prints = Fingerprints(frames)
        #: Tensors that ``.data`` gave: they have a version counter of their own.
        self._data: dict[int, weakref.ref[Any]] = {}
        #: Gradient mode was turned off by a library last: what it does then may cut a path too.
        self.library_off = False
        #: Inside an optimizer's step: its writes are noted once for each parameter, when it is over.
        self.optimizing = False
        #: Called with the text of an error that an op raised, and the frame that called it.
        self.on_raise: Callable[[str, Any, Any], None] | None = None
        self.on_error: Callable[[BaseException], None] = _raise
        self._held: list[Any] = []
        self._entries: dict[Entry, Entry] = {}
        #: Results outside the graph that hold NaN: id -> reference, the op that made it.
        self._origins: dict[int, tuple[weakref.ref[Any], SeenBad]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _compiling():
            return func(*args, **(kwargs or {}))
        special = self._special.get(func)
        if special is not None:
            return special(func, args, kwargs or {})
        if not self.noting:
            return func(*args, **kwargs) if kwargs else func(*args)
        before = _next()
        if before != self.last:
            self._gap(before)
        kind = self._kinds.get(func, self)
        if kind is self:
            kind = self._kinds[func] = kind_of(func)
        writes = kind is not None or (kwargs and "out" in kwargs)
        if writes and self._held:
            self.flush()  # while what waits has the values that it was made with
        try:
            out = func(*args, **kwargs) if kwargs else func(*args)
        except RuntimeError as error:
            if self.on_raise is not None:
                self.on_raise(str(error), _frame(1), args)
            raise
        except private.StopRecomputation:
            self.regions.stopped(func, args, kwargs, _frame(1))
            raise
        try:
            after = _next()
            if writes:
                self._wrote(kind, func, args, kwargs, after)
            regions = self.regions
            if (regions.known or self.careful) and regions.saw(
                func, args, kwargs, out, before, after, _frame(1), self.careful
            ):
                self.last = after
                return out
            if self.careful:
                if after != before:
                    # A normalisation writes its statistics without a version, and its backward does not read them.
                    own = kind[1] if type(kind) is tuple else ()
                    self.prints.used([a for i, a in enumerate(args) if i not in own], before, after)
                if self._traces.active:
                    self._traces.flow(func, args, kwargs, out, self._stack)
                if after == before:
                    self._lost(func, out, args)
                    if type(out) is _Tensor and self.checking and not self.optimizing:
                        self._outside(func, out, args, kwargs)
            if after != before:
                self._note(func, out, args, kwargs, before, after)
        except Exception as error:
            self.on_error(error)
        return out

    def _note(self, func: Any, out: Any, args: Any, kwargs: Any, before: int, after: int) -> None:
        """The op made nodes: note where, and look at what it gave."""
        self.last = after
        frame: Any = _frame(2)
        known = self._frames.known
        while frame is not None:
            code = frame.f_code
            mine = known.get(code)
            if mine is None:
                mine = self._frames.is_user(code)
            if mine:
                break
            frame = frame.f_back
        stack = self._stack
        where = stack[-1] if stack else None
        made = (code, frame.f_lasti, func, where) if frame is not None else (None, 0, func, where)
        # The same op comes back every step: one tuple for each, so that logs compare fast and make no garbage (N11).
        entry = self._entries.get(made)
        if entry is None:
            entry = self._intern(made)
        self.log.ends.append(after)
        self.log.entries.append(entry)
        if not self.checking or func in _VIEWS:
            return
        if self.careful:
            self._check(entry, out, args, kwargs, before, after)
        elif type(out) is _Tensor:
            if out.numel() <= SMALL:
                held = self._held
                held.append(out)
                held.append(before)
                held.append(after)
                held.append(entry)
                if len(held) > 4000:
                    self.flush()
            else:
                self._now(out, before, after, entry)
        elif type(out) is tuple:
            for t in out:
                if type(t) is _Tensor:
                    self._now(t, before, after, entry)

    def read_data(self, func: Any, args: Any, kwargs: Any) -> Any:
        """``x.data``: note that what it gives is ``x`` without its version."""
        out = func(*args, **kwargs)
        if self.noting and not self.optimizing:
            if len(self._data) > 4096:
                self._data = {k: r for k, r in self._data.items() if r() is not None}
            self._data[id(out)] = weakref.ref(out)
        if self.noting and self.careful:
            try:
                self._lost(func, out, args)
            except Exception as error:
                self.on_error(error)
        return out

    def read_memory(self, func: Any, args: Any, kwargs: Any) -> Any:
        """``x.numpy()`` and the like: what they give shares memory with ``x``."""
        out = func(*args, **kwargs)
        if self.noting and self.careful:
            try:
                self.prints.given(args[0], _next(), self._frames.spot(_frame(2)))
                self._lost(func, out, args)
            except Exception as error:
                self.on_error(error)
        return out

    def _wrote(self, kind: Any, func: Any, args: Any, kwargs: Any, seq: int) -> None:
        """The op may have written in place: note the storages. What waits to be looked at is looked at before."""
        if self.optimizing:
            return
        written = targets(kind, args, kwargs) if kind is not None else []
        if kwargs and "out" in kwargs:
            out = kwargs["out"]
            written += out if isinstance(out, (list, tuple)) else [out]
        if not written:
            return
        spot = self._frames.spot(_frame(2))
        stack = self._stack
        for t in written:
            if isinstance(t, _Tensor):
                where = stack[-1] if stack else None
                known = self._data.get(id(t))
                if known is not None and known() is t:
                    self.writes.add_silent(t, seq, func, spot, where)
                else:
                    self.writes.add(t, seq, func, spot, where)

    def _intern(self, made: Entry) -> Entry:
        if len(self._entries) > 500_000:
            self._entries.clear()
        self._entries[made] = made
        return made

    def _now(self, t: Any, before: int, after: int, entry: Entry) -> None:
        """Look at one result, at once where it is on the CPU."""
        if self._passes(entry) or not is_float(t) or private.hands_off(t):
            return
        self._waiting.append((before, after, entry))
        was = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            self._norms.now(t)
        finally:
            torch._C._set_grad_enabled(was)

    def _passes(self, entry: Entry) -> bool:
        return bool(self.tolerated) and self.tolerated.get(entry[:3], 0) > 2

    def flush(self) -> None:
        """Look at the results that wait."""
        held = self._held
        if not held and not self._waiting:
            return
        self._held = []
        was = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            groups: dict[Any, tuple[list[int], list[Any]]] = {}
            more: list[tuple[list[int], list[Any]]] = []
            waiting, norms = self._waiting, self._norms
            at = len(waiting)
            wrapped, tolerated = private.is_wrapped, bool(self.tolerated)
            if private.in_mode():  # a dispatch mode of the user's would see what we compute
                held = []
            for t, before, after, entry in zip(held[0::4], held[1::4], held[2::4], held[3::4], strict=True):
                if wrapped(t) or (tolerated and self._passes(entry)):
                    continue
                group = groups.get(t.shape)
                if group is None or group[1][0].dtype is not t.dtype:
                    if t.dtype not in FLOATS or private.hands_off(t):
                        continue
                    if group is not None:
                        more.append(group)
                    group = groups[t.shape] = ([], [])
                waiting.append((before, after, entry))
                group[0].append(at)
                group[1].append(t)
                at += 1
            norms.values.extend([0.0] * (at - len(norms.values)))
            for slots, tensors in (*groups.values(), *more):
                norms.batch(slots, tensors)
            norms.flush()
        finally:
            torch._C._set_grad_enabled(was)
        self.unchecked += len(self._norms.unmeasured)
        self._norms.clear()
        self._waiting.clear()

    def _batch_bad(self, slot: int, tensor: Any, values: BadValues) -> None:
        first, after, entry = self._waiting[slot]
        if len(self.bad) < self.bad_limit:
            inputs: tuple[TensorStat, ...] = ()
            if tensor is not None and tensor.grad_fn is not None:
                inputs = tuple(
                    stat_of(name, t) for name, t in private.saved_tensors(tensor.grad_fn) if name != "result"
                )
            self.bad.append(SeenBad(first, after - 1, entry, values, inputs))
            self.bad.sort(key=lambda b: b.last)

    def _gap(self, now: int) -> None:
        """Nodes were made outside any call that we see: ``Function.apply``, C++ extensions, compiled code."""
        frame: Any = _frame(2)
        spot, name = None, None
        while frame is not None:
            if frame.f_code is _APPLY:
                spot, name = self._frames.spot(frame.f_back), "Function.apply"
                break
            frame = frame.f_back
        stack = self._stack
        self.log.ends.append(now)
        self.log.entries.append((*(spot or (None, 0)), name, stack[-1] if stack else None))
        self.last = now

    def made_by(self, spot: Spot | None, name: str) -> None:
        """The nodes made since the last op are those of a call at `spot` that is seen in another way."""
        now = _next()
        if self.noting and now != self.last:
            self.log.ends.append(now)
            self.log.entries.append((*(spot or (None, 0)), name, None))
            self.last = now

    def catch_up(self) -> None:
        """Note nodes that were made since the last op that we saw."""
        now = _next()
        if self.noting and now != self.last:
            self._gap(now)

    def _check(self, entry: Entry, out: Any, args: Any, kwargs: Any, first: int, after: int) -> None:
        """Look at the result of an op at once, with what went into it (N3)."""
        tensors = (out,) if isinstance(out, _Tensor) else out if isinstance(out, (tuple, list)) else ()
        for t in tensors:
            if type(t) is not _Tensor or not is_float(t) or private.hands_off(t):
                self.unchecked += type(t) is not _Tensor and isinstance(t, _Tensor)
                continue
            was = torch.is_grad_enabled()
            torch._C._set_grad_enabled(False)
            try:
                norms = Norms(sums=True)
                norms.now(t)
                norms.flush()
                if norms.bad and len(self.bad) < self.bad_limit:
                    seen = SeenBad(first, after - 1, entry, norms.bad[0], self._inputs(args, kwargs))
                    seen.origin = next((o for a in _tensors(args) if (o := self.origin_of(a)) is not None), None)
                    self.bad.append(seen)
            finally:
                torch._C._set_grad_enabled(was)

    def _outside(self, func: Any, out: Any, args: Any, kwargs: Any) -> None:
        """Look at the result of an op that made no node: a NaN of its may enter the graph later."""
        if not is_float(out) or func in _NO_FLOW or private.hands_off(out) or not torch.is_grad_enabled():
            return
        with torch.no_grad():
            norms = Norms(sums=True)
            norms.now(out)
            norms.flush()
        if not norms.bad or not norms.bad[0].nan:
            return
        came = next((o for t in _tensors(args) if (o := self.origin_of(t)) is not None), None)
        if came is None:
            if any(is_float(t) and bool(t.isnan().any()) for t in _tensors(args)):
                return  # it was in the data
            stack = self._stack
            frame = _frame(2)
            spot = self._frames.spot(frame)
            entry = (*(spot or (None, 0)), func, stack[-1] if stack else None)
            came = SeenBad(0, 0, entry, norms.bad[0], self._inputs(args, kwargs))
        if len(self._origins) > 1000:
            self._origins.clear()
        self._origins[id(out)] = (weakref.ref(out), came)

    def origin_of(self, tensor: Any) -> SeenBad | None:
        """The op outside the graph that made the NaN in `tensor`."""
        known = self._origins.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else None

    def _inputs(self, args: Any, kwargs: Any) -> tuple[TensorStat, ...]:
        names = self.names_in(_frame(4))
        inputs = []
        for value in [*args, *(kwargs or {}).values()]:
            for t in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(t, _Tensor):
                    inputs.append(stat_of(names.get(id(t), ""), t))
        return tuple(inputs)

    def names_in(self, frame: Any) -> dict[int, str]:
        """Names that the user's code gives to tensors at this place."""
        names: dict[int, str] = {}
        while frame is not None:
            if self._frames.is_user(frame.f_code):
                for name, value in variables(frame).items():
                    if isinstance(value, _Tensor):
                        names.setdefault(id(value), name)
                    elif isinstance(value, torch.nn.Module):
                        for path, p in value.named_parameters(remove_duplicate=False):
                            names.setdefault(id(p), path)
            frame = frame.f_back
        return names

    @property
    def arrived(self) -> set[Any]:
        """Keys of the cuts whose values came back into a graph."""
        return self._traces.arrived

    def made_at(self, tensor: Any) -> Site | None:
        """The user's line of the op that made `tensor`, which has a node."""
        seq = tensor.grad_fn._sequence_nr()
        _, entries = self.log.slice(seq, seq)
        return self._frames.site(spot_of(entries[0])) if entries else None

    def _lost(self, func: Any, out: Any, args: Any) -> None:
        """Note an op that took a tensor with a graph and gave something without one."""
        if self.optimizing or func in _NO_FLOW or not (self.library_off or torch.is_grad_enabled()):
            return
        tensor_out = isinstance(out, _Tensor)
        if not tensor_out and func not in _READS:
            return
        sources = [a for a in _tensors(args) if a.requires_grad]
        if not sources or (tensor_out and (out.requires_grad or any(out is a for a in args))):
            return
        spot = self._frames.spot(_frame(2))
        key = (spot, func)
        self._traces.begin(key, out, self._stack)
        known = self.cuts.get(key)
        if known is not None:
            known.count += 1
            return
        if len(self.cuts) > 1000:
            return
        stack = self._stack
        self.cuts[key] = SeenCut(
            op_name(func) if func != _DATA else "data",
            spot,
            stack[-1] if stack else None,
            leaves_of(sources),
            _rank(func, out, spot is not None and self._frames.is_user(_frame(2).f_code)),
        )


def _rank(func: Any, out: Any, direct: bool) -> int:
    """How likely a cut is where the loss lost its path, lowest first: values, then indices, then what is only read. A
    library's own checks come after what the user's code calls."""
    if not isinstance(out, _Tensor):
        return 6 if func in (torch.Tensor.numpy,) else 8
    kind = 0 if out.is_floating_point() or out.is_complex() else 4 if out.dtype is torch.bool else 2
    return kind + (not direct)


_DATA = torch.Tensor.data.__get__
#: Calls that read a tensor's values into Python.
_READS = frozenset(
    getattr(torch.Tensor, name)
    for name in ("item", "tolist", "numpy", "__array__", "__float__", "__int__", "__bool__", "__index__")
)
#: Calls whose result does not depend on the values, or is not part of the forward.
_NO_FLOW = frozenset(
    {
        *(getattr(torch, f"{n}_like") for n in ("zeros", "ones", "empty", "full", "rand", "randn", "randint")),
        *(getattr(torch.Tensor, f"new_{n}") for n in ("zeros", "ones", "empty", "full", "tensor")),
        torch.Tensor.grad.__get__,  # type: ignore[attr-defined]
    }
)


def _tensors(args: Any) -> list[Any]:
    found = []
    for value in args:
        if isinstance(value, _Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found.extend(v for v in value if isinstance(v, _Tensor))
    return found


def leaves_of(tensors: list[Any], limit: int = 20_000) -> frozenset[int]:
    """Ids of the leaves that the graphs of `tensors` reach, looking at no more than `limit` nodes."""
    # A view made while gradient mode was off has no node of its own: its base has.
    tensors = [t._base if t.grad_fn is None and t._base is not None else t for t in tensors]
    leaves = {id(t) for t in tensors if t.grad_fn is None}
    nodes = [t.grad_fn for t in tensors if t.grad_fn is not None]
    seen = set(nodes)
    for node in nodes:  # grows as we go
        variable = getattr(node, "variable", None)
        if variable is not None:
            leaves.add(id(variable))
        for child, _ in node.next_functions:
            if child is not None and child not in seen and len(nodes) < limit:
                seen.add(child)
                nodes.append(child)
    return frozenset(leaves)
