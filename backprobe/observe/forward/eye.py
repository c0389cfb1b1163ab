"""The eye: one ``TorchFunctionMode`` that notes, for each op that makes autograd nodes, where it was called.

N1. The mode is off inside its own handler, so what we compute there is not seen again.
N2. Numbers on this thread come from one counter: an op that moved it from a to b made the nodes a..b-1.
N3. Nothing here may add a node or keep a tensor: gradient mode is off while we measure. The values of a small result,
    without its graph, wait in a batch until the forward is over, an in-place op runs, or the batch is full.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...graphs.plan import VIEW_OPS
from ...records import Site
from ...source.frames import Frames, Spot
from ...torchside import places, private
from ...torchside.measure import SMALL
from .cuts import Cuts
from .fingerprints import Fingerprints
from .modules import ModuleWatch
from .oplog import Entry, OpLog, spot_of
from .regions import Regions
from .values import Values
from .writes import kind_of, targets

_VIEWS = frozenset(getattr(torch.Tensor, name) for name in VIEW_OPS)
_Tensor = torch.Tensor
_next = private.next_sequence_nr
_compiling = private.compiling
_frame = sys._getframe
_ref = private.tensor_ref
_wrapped, _profiled = private.is_wrapped, private.profiled
_modes, _tracing = private.dispatch_modes, private.jit_tracing


def _raise(error: BaseException) -> None:
    raise error


class Eye(TorchFunctionMode):
    """Sees every torch call made from Python on the thread that it is entered on."""

    def __init__(self, frames: Frames, modules: ModuleWatch, regions: Regions) -> None:
        super().__init__()
        self.regions = regions
        self._frames = frames
        #: For those who ask what made a node: the numbers below ``first`` were given before we looked.
        self.frames, self.modules, self.first = frames, modules, _next()
        #: The recording or session that it belongs to: a snapshot taken while it is on finds it there.
        self.owner: Any = None
        #: Functions that mean something besides making nodes, and who calls them for us.
        self.special: dict[Any, Callable[..., Any]] = {torch.Tensor.data.__get__: self.read_data}  # type: ignore[attr-defined]
        for function in (torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.__dlpack__):
            self.special[function] = self.read_memory
        self._stack = modules.stack
        self.log = OpLog()
        self.thread = threading.get_ident()
        #: Whether to note ops at all (not at the level ``watch``), and whether to look closely at each.
        self.noting, self.careful = True, True
        #: Whether to look at results: not while everything is bad anyway.
        self.checking = True
        self.last = _next()
        self.values = Values(frames, self._stack)
        self.flush, self._held = self.values.flush, self.values.held
        self.cuts = Cuts(frames, self._stack)
        self._traces = self.cuts.traces
        #: How each function writes in place, if it does.
        self._kinds: dict[Any, Any] = {}
        self.writes = regions.writes
        self.prints = Fingerprints()
        #: Tensors that ``.data`` gave: they have a version counter of their own.
        self._data: dict[int, weakref.ref[Any]] = {}
        #: Inside an optimizer's step: its writes are noted once for each parameter, when it is over.
        self.optimizing = False
        #: Called with the text of an error that an op raised, and the frame that called it.
        self.on_raise: Callable[[str, Any, Any], None] | None = None
        self.on_error: Callable[[BaseException], None] = _raise
        self._entries: dict[Entry, Entry] = {}
        #: How often we are on this thread's stack of modes by ``push``.
        self._pushed = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _compiling() or _tracing():
            return func(*args, **(kwargs or {}))
        special = self.special.get(func)
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
            with private.unprofiled():
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
        profiled = _profiled()
        if profiled:
            private.record_ops(False)
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
                if after == before and not self.optimizing:
                    self.cuts.note(func, out, args)
                    if type(out) is _Tensor and self.checking:
                        self.values.outside(func, out, args, kwargs)
            if after != before:
                self._note(func, out, args, kwargs, before, after)
        except Exception as error:
            self.on_error(error)
        finally:
            if profiled:
                private.record_ops(True)
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
            self.values.check(entry, out, args, kwargs, before, after)
        elif type(out) is _Tensor:
            if out.numel() <= SMALL:
                if _wrapped(out) or _modes():
                    return
                held = self._held
                # Its values, and not the tensor: a graph that the script drops has to go at once.
                held.append(out.data)
                held.append(_ref(out))
                held.append(before)
                held.append(after)
                held.append(entry)
                if len(held) > 5000:
                    self.flush()
            else:
                self.values.now(out, before, after, entry)
        elif type(out) is tuple:
            for t in out:
                if type(t) is _Tensor:
                    self.values.now(t, before, after, entry)

    def read_data(self, func: Any, args: Any, kwargs: Any) -> Any:
        """``x.data``: note that what it gives is ``x`` without its version."""
        out = func(*args, **kwargs)
        if self.noting and not self.optimizing:
            if len(self._data) > 4096:
                self._data = {k: r for k, r in self._data.items() if r() is not None}
            self._data[id(out)] = private.tensor_ref(out)
        if self.noting and self.careful and not self.optimizing:
            try:
                self.cuts.note(func, out, args)
            except Exception as error:
                self.on_error(error)
        return out

    def read_memory(self, func: Any, args: Any, kwargs: Any) -> Any:
        """``x.numpy()`` and the like: what they give shares memory with ``x``."""
        out = func(*args, **kwargs)
        if self.noting and self.careful:
            try:
                self.prints.given(args[0], _next(), self._frames.spot(_frame(2)))
                if not self.optimizing:
                    self.cuts.note(func, out, args)
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

    def is_here(self) -> bool:
        """Whether this is the thread that is watched."""
        return threading.get_ident() == self.thread

    def modes(self) -> tuple[int, int]:
        """The state of the stack of modes, for ``unwind``."""
        return private.mode_depth(), self._pushed

    def push(self, *_: Any) -> None:
        """A hook before a node that runs Python, where the modes of the call are off."""
        self.__enter__()
        self._pushed += 1
        self.last = _next()

    def pop(self, *_: Any) -> None:
        """A hook after such a node."""
        if self._pushed:
            self._pushed -= 1
            self.__exit__(None, None, None)

    def unwind(self, modes: tuple[int, int]) -> None:
        """The engine gives each node the modes back that were on when it was called; not where it raised in a hook."""
        depth, self._pushed = modes
        while private.mode_depth() > depth:
            self.__exit__(None, None, None)

    def _gap(self, now: int) -> None:
        """Nodes were made outside any call that we see: ``Function.apply``, C++ extensions, compiled code."""
        frame: Any = _frame(2)
        spot, name = None, None
        while frame is not None:
            if frame.f_code is places.FUNCTION_APPLY:
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

    def made_at(self, tensor: Any) -> Site | None:
        """The user's line of the op that made `tensor`, which has a node."""
        seq = tensor.grad_fn._sequence_nr()
        _, entries = self.log.slice(seq, seq)
        return self._frames.site(spot_of(entries[0])) if entries else None
