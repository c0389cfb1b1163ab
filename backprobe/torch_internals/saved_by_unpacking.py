"""Reads the tensors that nodes saved on older torch (2.8), which exposes a saved tensor only by unpacking it.

Note [No unpack hook runs]: Python calls the profile function for each call, before the first line of the called
function. Our profile function raises there if the call comes from the instruction that reads the node; by then it has
seen the argument of the hook. A hook that is not written in Python cannot be stopped in this way: it runs. Nothing else
is called from that instruction: the garbage collector is disabled, and Python runs signal handlers between other
instructions.

Note [Written since the save]: a tensor that was written in place since the save cannot be unpacked: torch raises. Such
a tensor gets a pair of our hooks. Torch passes it to the pack hook, and from then on the unpack hook raises torch's
error. The pair is freed with its node.

Nothing read here references the node that it was read from: the node's own results are detached.
"""

from __future__ import annotations

import dis
import gc
import re
import sys
from types import CellType, FrameType
from typing import Any

import torch

from ..basics.torch_texts import FREED, IN_PLACE, IN_PLACE_DETAIL
from .modes import no_dispatch_modes


class Unseen:
    """Placeholder for a packed value that cannot be determined."""


class Hook:
    """An unpack hook that was about to be called: what is known of it, as attributes named like those of a function."""

    def __init__(self, frame: FrameType) -> None:
        """Take the code and the closure of the hook that runs in `frame`."""
        code = frame.f_code
        self.__code__ = code
        self.__qualname__ = getattr(code, "co_qualname", code.co_name)  # Python 3.10 has the short name only
        held = frame.f_locals
        self.__closure__ = tuple(CellType(held[n]) if n in held else CellType() for n in code.co_freevars)


class Occupied:
    """Placeholder for a hook if both a profiler and a debugger are on, so that nothing can be observed.

    See Note [No unpack hook runs].
    """


class _UnpackHookCalled(Exception):
    """The exception that stops an unpack hook that was about to be called."""


def _fetch(node: object, attribute: str) -> Any:
    """Return an attribute of `node`.

    Reads it in one known instruction, by which ``_GuardedRead`` recognises the caller.
    """
    (value,) = map(getattr, (node,), (attribute,))
    return value


_FETCH = _fetch.__code__
#: The offset of the instruction that reads the node.
_READ_OFFSET = next(i.offset for i in dis.get_instructions(_FETCH) if i.opname == "UNPACK_SEQUENCE")


class _GuardedRead:
    """A single reading of a node, during which no hook runs."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        self.hook: Hook | None = None
        self.content: object = None
        #: Tensors that have a pair of our hooks, in the order in which the node saved them.
        self.written: list[_WrittenTensor] = []

    def fetch(self, node: object, attribute: str) -> Any:
        """Return the attribute. Raises ``_UnpackHookCalled`` if that would call an unpack hook."""
        if sys.getprofile() is None:
            put: Any = sys.setprofile
        elif sys.gettrace() is None:
            put = sys.settrace
        else:
            raise _UnpackHookCalled
        self.written.clear()
        collects = gc.isenabled()
        gc.disable()
        put(self._on_call)
        try:
            return _fetch(node, attribute)
        finally:
            put(None)
            if collects:
                gc.enable()

    def _on_call(self, frame: FrameType, event: str, arg: object) -> None:
        """Stop an unpack hook that the reading is about to call; used as profile function, with its arguments.
        :raises _UnpackHookCalled: the call is such a hook; ``hook`` and ``content`` then hold it and its argument.
        """
        caller = frame.f_back
        if event != "call" or caller is None or caller.f_code is not _FETCH or caller.f_lasti != _READ_OFFSET:
            return
        if (
            frame.f_code.co_name == "__torch_dispatch__"
        ):  # of a tensor subclass: torch builds a tensor of that class from what it saved
            return
        content = _first_argument(frame)
        if frame.f_code is _UNPACK:
            content.reading = True
            self.written.append(content)
            return
        self.hook, self.content = Hook(frame), content
        raise _UnpackHookCalled


def _first_argument(frame: FrameType) -> Any:
    """Return the value that the unpack hook in `frame` was called with; a placeholder if it cannot be found."""
    code, held = frame.f_code, frame.f_locals
    names = [n for n in code.co_varnames[: code.co_argcount] if n not in ("self", "cls")]
    if names:
        return held.get(names[0], Unseen())
    if code.co_flags & 0x04:  # *args
        rest = held.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], ())
        return rest[0] if rest else Unseen()
    return Unseen()


class _WrittenTensor:
    """A saved tensor that was written in place since: the packed value of a pair of our hooks.

    See Note [Written since the save].
    """

    def __init__(self) -> None:
        """Begin without a tensor."""
        self.tensor: torch.Tensor | None = None
        #: The error that torch raises, and the version that it expects. Empty for a tensor that was not written, if its
        #: node saved another that was.
        self.text, self.saved = "", -1
        self.reading = False

    def pack(self, tensor: torch.Tensor) -> _WrittenTensor:
        """Keep `tensor`, which torch passes to the pack hook; return this object as the packed value."""
        self.tensor = tensor
        return self

    def blame(self, text: str) -> None:
        """Keep torch's error and the version that it expects, if `text` is an error for a tensor written in place."""
        match = IN_PLACE_DETAIL.search(text)
        if match is not None:
            self.text, self.saved = text, int(match["saved"])


def _unpack(written: _WrittenTensor) -> torch.Tensor:
    """Return the tensor of `written`; used as the unpack hook of our pair.
    :raises RuntimeError: torch's error, if the tensor was written in place and this is not our own reading.
    """
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
    """The content of one attribute of a node: a tensor, or a list of tensors that torch unpacks together."""

    def __init__(self, node: object, attribute: str, raws: list[Any], many: bool) -> None:
        """Read the attribute, without running a hook.
        :param raws: the raw saved tensors under it.
        :param many: whether torch unpacks a list of tensors.
        """
        self._node, self._name, self._raws, self.many = node, attribute, raws, many
        self.freed = False
        self.hook: object = None
        self._content: object = None
        self._values: list[object] = []
        self._own: list[bool] = []
        self._written: dict[int, _WrittenTensor] = {}
        with torch._C.DisableTorchFunction(), no_dispatch_modes():
            self._read()

    def _read(self) -> None:
        """Read the attribute into this object: its values, or the hook that hides them, or whether they are freed."""
        watch = _GuardedRead()
        try:
            try:
                value = watch.fetch(self._node, self._name)
            except RuntimeError as error:
                if IN_PLACE not in str(error):
                    self.freed = FREED in str(error)
                    return
                value = self._unpack_with_own_hooks(watch, str(error))
        except _UnpackHookCalled:
            self.hook, self._content = watch.hook or Occupied(), watch.content
            return
        values = list(value) if self.many else [value]
        present = [i for i, v in enumerate(values) if v is not None]
        self._written = dict(zip(present, watch.written, strict=False))
        self._own = [v is not None and v.grad_fn is self._node for v in values]
        with torch.no_grad():
            self._values = [v.detach() if own else v for v, own in zip(values, self._own, strict=True)]

    def _unpack_with_own_hooks(self, watch: _GuardedRead, text: str) -> object:
        """Register pairs of our hooks on the tensors that cannot be unpacked, and return the unpacked value."""
        for raw in self._raws:
            written = _WrittenTensor()
            try:
                raw.register_hooks(written.pack, _unpack)
            except RuntimeError:  # it has a pair already, or it is no tensor
                continue
            written.blame(text)
            try:
                value = watch.fetch(self._node, self._name)
            except RuntimeError as error:
                if str(error) == text:  # another tensor was written, not this one
                    written.text, written.saved = "", -1
                text = str(error)
            else:
                return value
        raise _UnpackHookCalled

    def tensor(self, i: int) -> object:
        """Return tensor number `i`; ``None`` if there is none."""
        return self._values[i] if i < len(self._values) else None

    def packed(self, i: int) -> object:
        """Return the value that a hook packed. Of several tensors, only the first can be read."""
        first = next((k for k, raw in enumerate(self._raws) if raw is not None), 0)
        return self._content if i == first and self.hook is not None and self._content is not None else Unseen()

    def changed(self, i: int) -> bool:
        """Return whether tensor number `i` was written in place since the save."""
        return i in self._written and bool(self._written[i].text)

    def own(self, i: int) -> bool:
        """Return whether tensor number `i` is a result of the node itself."""
        return i < len(self._own) and self._own[i] and not self.changed(i)

    def hidden(self, i: int) -> int:
        """Return the number of references to the memory that Python cannot see.

        Torch holds one if it creates a new tensor object for each reader.
        """
        if self.tensor(i) is None:
            return 0
        if i in self._written or self._own[i]:
            return 1
        with torch._C.DisableTorchFunction(), no_dispatch_modes():
            again = _GuardedRead().fetch(self._node, self._name)
        return int((again[i] if self.many else again) is not self._values[i])


class Slot:
    """A saved tensor, with the attributes that newer torch exposes."""

    def __init__(self, attribute: _Attribute, i: int) -> None:
        """Take the attribute, and the index of the tensor in it."""
        self._attribute, self._i = attribute, i

    @property
    def unpack_hook(self) -> object:
        """The unpack hook; ``None`` if there is none.
        :raises RuntimeError: a backward has freed the tensor.
        """
        if self._attribute.freed:
            raise RuntimeError("a backward has freed it")
        return self._attribute.hook

    @property
    def data(self) -> object:
        """Return the tensor, or the value that a hook packed."""
        hooked = self._attribute.hook is not None
        return self._attribute.packed(self._i) if hooked else self._attribute.tensor(self._i)

    @property
    def many(self) -> bool:
        """Whether torch unpacks this tensor in a list with others."""
        return self._attribute.many

    @property
    def hidden_users(self) -> int:
        """The number of references to the memory that Python cannot see."""
        return self._attribute.hidden(self._i)

    @property
    def own(self) -> bool:
        """Return whether the tensor is a result of the node itself."""
        return self._attribute.own(self._i)

    @property
    def changed(self) -> bool:
        """Return whether it was written in place since the save."""
        return self._attribute.changed(self._i)

    @property
    def freed(self) -> bool:
        """Whether a backward has freed the tensor."""
        return self._attribute.freed


def slots(node: object, raw_attribute: str, raw: Any) -> list[Slot]:
    """Return the slots of `node` under an attribute that begins with ``_raw`` and whose value is `raw`."""
    name = raw_attribute[len("_raw") :]
    if not hasattr(type(node), name):  # a Function written in Python
        name = name[1:]
    many = isinstance(raw, (tuple, list))
    raws = list(raw) if many else [raw]
    attribute = _Attribute(node, name, raws, many)
    return [Slot(attribute, i) for i in range(len(raws))]
