"""What nodes have saved, on older torch (2.8): there a saved tensor can be read only by unpacking it.

Note [No unpack hook runs]: Python tells a profile function of each call before the called function's first line. Ours
raises there, if the call comes from the instruction that reads the node, and has seen then what the hook was to unpack.
A hook that is not written in Python cannot be stopped so: it runs. Nothing else is called from there: the garbage
collector waits, and Python runs handlers of signals between other instructions.

Note [Written since the save]: A tensor that was written in place since the save cannot be unpacked: torch raises. Such
a tensor gets a pair of hooks of ours. Torch hands it to the pair, and the pair raises from then on what torch raised.
It goes with its node.

Nothing read here refers to the node that it was read from: what a node has made itself is detached.
"""

from __future__ import annotations

import dis
import gc
import re
import sys
from types import CellType, FrameType
from typing import Any

import torch

from ..torch_texts import FREED, IN_PLACE, IN_PLACE_DETAIL
from .modes import no_dispatch_modes


class Unseen:
    """In the place of what a hook has packed, where it cannot be told."""


class Hook:
    """An unpack hook that was about to be called: what is known of it, under the names that a function has."""

    def __init__(self, frame: FrameType) -> None:
        code = frame.f_code
        self.__code__ = code
        self.__qualname__ = getattr(code, "co_qualname", code.co_name)  # Python 3.10 has the short name only
        held = frame.f_locals
        self.__closure__ = tuple(CellType(held[n]) if n in held else CellType() for n in code.co_freevars)


class Occupied:
    """In the place of a hook, where a profiler and a debugger are on: there is no way to look.
    See Note [No unpack hook runs]."""


class _Called(Exception):
    """A hook was about to be called."""


def _fetch(node: Any, attribute: str) -> Any:
    (value,) = map(getattr, (node,), (attribute,))
    return value


_FETCH = _fetch.__code__
#: Where in it the node is read.
_READS = next(i.offset for i in dis.get_instructions(_FETCH) if i.opname == "UNPACK_SEQUENCE")


class _Watch:
    """One look at a node, during which no hook runs."""

    def __init__(self) -> None:
        self.hook: Hook | None = None
        self.content: Any = None
        #: Tensors that have a pair of ours, in the order in which the node keeps them.
        self.written: list[_Written] = []

    def fetch(self, node: Any, attribute: str) -> Any:
        """The attribute. Raises ``_Called`` at somebody's hook."""
        if sys.getprofile() is None:
            put: Any = sys.setprofile
        elif sys.gettrace() is None:
            put = sys.settrace
        else:
            raise _Called
        self.written.clear()
        collects = gc.isenabled()
        gc.disable()
        put(self._event)
        try:
            return _fetch(node, attribute)
        finally:
            put(None)
            if collects:
                gc.enable()

    def _event(self, frame: FrameType, event: str, arg: Any) -> None:
        caller = frame.f_back
        if event != "call" or caller is None or caller.f_code is not _FETCH or caller.f_lasti != _READS:
            return
        if (
            frame.f_code.co_name == "__torch_dispatch__"
        ):  # of a tensor's own class: torch makes a tensor of what it kept
            return
        content = _first_argument(frame)
        if frame.f_code is _UNPACK:
            content.reading = True
            self.written.append(content)
            return
        self.hook, self.content = Hook(frame), content
        raise _Called


def _first_argument(frame: FrameType) -> Any:
    """What a hook is called with."""
    code, held = frame.f_code, frame.f_locals
    names = [n for n in code.co_varnames[: code.co_argcount] if n not in ("self", "cls")]
    if names:
        return held.get(names[0], Unseen())
    if code.co_flags & 0x04:  # *args
        rest = held.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], ())
        return rest[0] if rest else Unseen()
    return Unseen()


class _Written:
    """A saved tensor that was written in place since: the packed half of a pair of ours. See
    Note [Written since the save]."""

    def __init__(self) -> None:
        self.tensor: Any = None
        #: What torch raises, and the version that it expects. Empty for one that was not written, of a node that keeps
        #: another that was.
        self.text, self.saved = "", -1
        self.reading = False

    def pack(self, tensor: torch.Tensor) -> _Written:
        self.tensor = tensor
        return self

    def blame(self, text: str) -> None:
        match = IN_PLACE_DETAIL.search(text)
        if match is not None:
            self.text, self.saved = text, int(match["saved"])


def _unpack(written: _Written) -> torch.Tensor:
    tensor: torch.Tensor = written.tensor
    if written.reading:
        written.reading = False
        return tensor
    if written.text:
        with torch._C.DisableTorchFunction():
            now = tensor._version
        if now != written.saved:
            text = re.sub(r"is at version \d+", f"is at version {now}", written.text)
            raise RuntimeError(text)
    return tensor


_UNPACK = _unpack.__code__


class _Attribute:
    """What one attribute of a node keeps: a tensor, or a list of them, which torch unpacks together."""

    def __init__(self, node: Any, attribute: str, raws: list[Any], many: bool) -> None:
        self._node, self._name, self._raws, self.many = node, attribute, raws, many
        self.freed = False
        self.hook: Any = None
        self._content: Any = None
        self._values: list[Any] = []
        self._own: list[bool] = []
        self._written: dict[int, _Written] = {}
        with torch._C.DisableTorchFunction(), no_dispatch_modes():
            self._read()

    def _read(self) -> None:
        watch = _Watch()
        try:
            try:
                value = watch.fetch(self._node, self._name)
            except RuntimeError as error:
                if IN_PLACE not in str(error):
                    self.freed = FREED in str(error)
                    return
                value = self._open(watch, str(error))
        except _Called:
            self.hook, self._content = watch.hook or Occupied(), watch.content
            return
        values = list(value) if self.many else [value]
        present = [i for i, v in enumerate(values) if v is not None]
        self._written = dict(zip(present, watch.written, strict=False))
        self._own = [v is not None and v.grad_fn is self._node for v in values]
        with torch.no_grad():
            self._values = [v.detach() if own else v for v, own in zip(values, self._own, strict=True)]

    def _open(self, watch: _Watch, text: str) -> Any:
        """Put pairs of ours on what cannot be unpacked, and unpack it."""
        for raw in self._raws:
            written = _Written()
            try:
                raw.register_hooks(written.pack, _unpack)
            except RuntimeError:  # it has a pair, or it is no tensor
                continue
            written.blame(text)
            try:
                value = watch.fetch(self._node, self._name)
            except RuntimeError as error:
                if str(error) == text:  # another was written, not this one
                    written.text, written.saved = "", -1
                text = str(error)
            else:
                return value
        raise _Called

    def tensor(self, i: int) -> Any:
        return self._values[i] if i < len(self._values) else None

    def packed(self, i: int) -> Any:
        """What a hook has packed. Of several only the first can be seen."""
        first = next((k for k, raw in enumerate(self._raws) if raw is not None), 0)
        return self._content if i == first and self.hook is not None and self._content is not None else Unseen()

    def changed(self, i: int) -> bool:
        return i in self._written and bool(self._written[i].text)

    def own(self, i: int) -> bool:
        return i < len(self._own) and self._own[i] and not self.changed(i)

    def hidden(self, i: int) -> int:
        """Users of the memory that nobody can see: where torch makes a new tensor of what it keeps, what it keeps."""
        if self.tensor(i) is None:
            return 0
        if i in self._written or self._own[i]:
            return 1
        with torch._C.DisableTorchFunction(), no_dispatch_modes():
            again = _Watch().fetch(self._node, self._name)
        return int((again[i] if self.many else again) is not self._values[i])


class Slot:
    """One saved tensor, with what newer torch shows of it."""

    def __init__(self, attribute: _Attribute, i: int) -> None:
        self._attribute, self._i = attribute, i

    @property
    def unpack_hook(self) -> Any:
        if self._attribute.freed:
            raise RuntimeError("a backward has freed it")
        return self._attribute.hook

    @property
    def data(self) -> Any:
        """The tensor, or what a hook has packed."""
        hooked = self._attribute.hook is not None
        return self._attribute.packed(self._i) if hooked else self._attribute.tensor(self._i)

    @property
    def many(self) -> bool:
        return self._attribute.many

    @property
    def hidden_users(self) -> int:
        return self._attribute.hidden(self._i)

    @property
    def own(self) -> bool:
        """Whether the node has made it."""
        return self._attribute.own(self._i)

    @property
    def changed(self) -> bool:
        """Whether it was written in place since the save."""
        return self._attribute.changed(self._i)

    @property
    def freed(self) -> bool:
        return self._attribute.freed


def slots(node: Any, raw_attribute: str, raw: Any) -> list[Slot]:
    """What `node` keeps under an attribute that begins with ``_raw``, of which torch has given `raw`."""
    name = raw_attribute[len("_raw") :]
    if not hasattr(type(node), name):  # a Function written in Python
        name = name[1:]
    many = isinstance(raw, (tuple, list))
    raws = list(raw) if many else [raw]
    attribute = _Attribute(node, name, raws, many)
    return [Slot(attribute, i) for i in range(len(raws))]
