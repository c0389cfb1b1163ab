"""The eye: one ``TorchFunctionMode`` that notes, for each op that makes autograd nodes, where it was called.

N1. The mode is off inside its own handler, so what we compute there is not seen again.
N2. Numbers on this thread come from one counter: an op that moved it from a to b made the nodes a..b-1.
N3. Nothing here may add a node or keep a tensor: gradient mode is off while we measure.
"""

from __future__ import annotations

import sys
import threading
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..records import BadOp
from . import private
from .frames import Frames, Spot
from .measure import bad_values, is_float, stat_of
from .modules import Call, ModuleWatch

_APPLY = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]
_VIEWS = frozenset(
    getattr(torch.Tensor, name)
    for name in (
        *("view", "view_as", "reshape", "transpose", "permute", "t", "squeeze", "unsqueeze", "flatten", "unflatten"),
        *("expand", "expand_as", "narrow", "select", "__getitem__", "chunk", "split", "unbind", "contiguous"),
        *("swapaxes", "movedim"),
    )
)
#: An entry of the op log: the place, the function, the module call.
Entry = tuple[Spot | None, Any, Call | None]


def op_name(func: Any) -> str:
    return getattr(func, "__name__", None) or str(func)


class OpLog:
    """The flight recorder of one thread: for each op that made nodes, the counter after it and an entry."""

    def __init__(self, limit: int = 262_144) -> None:
        self._limit = limit
        self.ends: list[int] = []
        self.entries: list[Entry] = []
        self.dropped = 0

    def add(self, end: int, entry: Entry) -> None:
        self.ends.append(end)
        self.entries.append(entry)
        if len(self.ends) > self._limit:
            half = self._limit // 2
            del self.ends[:half], self.entries[:half]
            self.dropped += half

    def find(self, seq: int) -> Entry | None:
        """The entry whose op made node `seq`."""
        i = bisect_right(self.ends, seq)
        if i < len(self.ends) and (i > 0 or self.dropped == 0):
            return self.entries[i]
        return None


class Eye(TorchFunctionMode):
    """Sees every torch call made from Python on the thread that it is entered on."""

    def __init__(self, frames: Frames, modules: ModuleWatch, entry_points: dict[Any, Callable[..., Any]]) -> None:
        super().__init__()
        self._frames, self._modules, self._entry_points = frames, modules, entry_points
        self.log = OpLog()
        self.thread = threading.get_ident()
        self.check_values = True
        self.last = private.next_sequence_nr()
        self.bad_ops: dict[int, BadOp] = {}
        self.bad_limit = 1000
        self.unchecked = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        entry_point = self._entry_points.get(func)
        if entry_point is not None:
            return entry_point(func, args, kwargs or {})
        before = private.next_sequence_nr()
        if before != self.last:
            self._gap(before)
        out = func(*args, **kwargs) if kwargs else func(*args)
        after = private.next_sequence_nr()
        if after != before:
            self.last = after
            self.log.add(after, (self._frames.spot(sys._getframe(1)), func, self._modules.current))
            if self.check_values and func not in _VIEWS:
                self._check(func, out, args, kwargs, after)
        return out

    def _gap(self, now: int) -> None:
        """Nodes were made outside any call that we see: ``Function.apply``, C++ extensions, compiled code."""
        frame: Any = sys._getframe(2)
        spot, name = None, None
        while frame is not None:
            if frame.f_code is _APPLY:
                spot, name = self._frames.spot(frame.f_back), "Function.apply"
                break
            frame = frame.f_back
        self.log.add(now, (spot, name, self._modules.current))
        self.last = now

    def _check(self, func: Any, out: Any, args: Any, kwargs: Any, seq: int) -> None:
        """Note the result of an op where it is not finite (N3)."""
        tensors = (out,) if isinstance(out, torch.Tensor) else out if isinstance(out, (tuple, list)) else ()
        was = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            for t in tensors:
                if type(t) is not torch.Tensor or not is_float(t) or t.device.type != "cpu":
                    continue
                norm = torch.linalg.vector_norm(t).item()
                if norm - norm != 0.0 and len(self.bad_ops) < self.bad_limit:
                    self._suspect(func, t, args, kwargs, seq)
        except RuntimeError:  # inside vmap, a trace or a capture a value cannot be read
            self.unchecked += 1
        finally:
            torch._C._set_grad_enabled(was)

    def _suspect(self, func: Any, out: Any, args: Any, kwargs: Any, seq: int) -> None:
        values = bad_values(out)
        if values is None:  # the norm's square overflowed
            return
        frame: Any = sys._getframe(3)
        spot = self._frames.spot(frame)
        names = self._names_in(frame)
        inputs = []
        for value in [*args, *(kwargs or {}).values()]:
            for t in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(t, torch.Tensor):
                    inputs.append(stat_of(names.get(id(t), ""), t))
        call = self._modules.current
        self.bad_ops[seq - 1] = BadOp(
            seq - 1,
            op_name(func),
            self._frames.site(spot),
            self._modules.module_name(call),
            call.call if call else 1,
            values,
            tuple(inputs),
        )

    def _names_in(self, frame: Any) -> dict[int, str]:
        """Names that the user's code gives to tensors at this place."""
        names: dict[int, str] = {}
        while frame is not None:
            if self._frames.is_user(frame.f_code):
                for name, value in list(frame.f_locals.items()):
                    if isinstance(value, torch.Tensor):
                        names.setdefault(id(value), name)
                    elif isinstance(value, torch.nn.Module):
                        for path, p in value.named_parameters(remove_duplicate=False):
                            names.setdefault(id(p), path)
            frame = frame.f_back
        return names
