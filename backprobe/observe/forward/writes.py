"""Writes in place: which op changed which storage, and the version that its tensors had after it.

Note [Versions and addresses]: a version counter belongs to a storage and its views; its address may be another
storage's later. A write counts as one of a saved tensor's only if it came after the save and left a higher version than
the saved one.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch

from ...source.frames import Frames, Spot, variables
from ...source.lines import base_of, likely_write, writes_on, writes_to
from ...source.roots import Where
from ...torch_texts import IN_PLACE_DETAIL
from ...torchside import private
from .modules import ModuleWatch

_ACTIVATIONS = (
    *("relu", "relu6", "elu", "selu", "celu", "leaky_relu", "rrelu", "hardtanh", "hardswish", "hardsigmoid", "silu"),
    *("mish", "threshold", "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"),
)
#: Functions that write when they are told to: name -> (keyword, positions of what they write).
_IF: dict[str, tuple[str, tuple[int, ...]]] = {
    **dict.fromkeys(_ACTIVATIONS, ("inplace", (0,))),
    "embedding": ("max_norm", (1,)),
    "embedding_bag": ("max_norm", (1,)),
    "batch_norm": ("training", (1, 2)),
    "instance_norm": ("use_input_stats", (1, 2)),
}
_ALWAYS = frozenset({"__setitem__", *(f"__i{n}__" for n in ("add", "sub", "mul", "truediv", "floordiv", "pow", "mod"))})


def kind_of(func: Any) -> Any:
    """How `func` writes: ``True``, what it writes when, or ``None``."""
    name = getattr(func, "__name__", "")
    if name in _ALWAYS or (name.endswith("_") and not name.endswith("__") and name != "requires_grad_"):
        return True
    if (module := getattr(func, "__module__", None)) and module.startswith("torch.nn"):
        return _IF.get(name)
    return None


@dataclass(frozen=True)
class Write:
    """One op's write to one storage. ``seq`` is the counter when it ran."""

    storage: int
    version: int
    seq: int
    op: str
    spot: Spot | None
    where: Where | None
    inferred: bool = False


class WriteLog:
    """The last writes."""

    def __init__(self, frames: Frames, modules: ModuleWatch, limit: int = 65_536) -> None:
        self._frames, self._modules = frames, modules
        self._writes: deque[tuple[Any, ...]] = deque(maxlen=limit)
        #: By id, where each optimizer stepped last.
        self._stepped_from: dict[int, Spot | None] = {}
        #: Tensors that ``.data`` gave: they have a version counter of their own.
        self._data: dict[int, weakref.ref[Any]] = {}
        #: Those through ``.data``.
        self.silent: deque[Write] = deque(maxlen=4096)

    def data_read(self, tensor: Any, out: Any, frame: Any) -> None:
        """What ``x.data`` gives is ``x`` without its version."""
        if len(self._data) > 4096:
            self._data = {k: r for k, r in self._data.items() if r() is not None}
        self._data[id(out)] = private.tensor_ref(out)

    def wrote(self, func: Any, written: list[Any], seq: int, frame: Any) -> None:
        spot, stack = self._frames.spot(frame), self._modules.stack
        where = stack[-1] if stack else None
        for t in written:
            if isinstance(t, torch.Tensor):
                known = self._data.get(id(t))
                through_data = known is not None and known() is t
                (self._add_silent if through_data else self._add)(t, seq, func, spot, where)

    def wrote_in_step(self, func: Any, written: list[Any], seq: int, frame: Any) -> None:
        """An optimizer of the script's own writes: through ``.data`` no version shows it."""
        for t in written:
            known = self._data.get(id(t))
            if known is not None and known() is t:
                self._add_silent(t, seq, func, self._frames.spot(frame), None)

    def optimizer_over(self, optimizer: Any) -> None:
        """An optimizer's writes are one entry: which tensors it wrote to is looked up when somebody asks."""
        spot = self._stepped_from[id(optimizer)] = self._frames.spot(sys._getframe())
        self._writes.append((None, 0, private.next_sequence_nr(), weakref.ref(optimizer), spot, None))
        if len(self._stepped_from) > 1000:
            self._stepped_from.clear()

    def optimizer_passed(self, optimizer: Any, seq: int) -> None:
        """One has stepped, and nobody looked, when the counter was `seq`: at the line where it steps, it seems."""
        self._writes.append((None, 0, seq, weakref.ref(optimizer), self._stepped_from.get(id(optimizer)), None))

    def _add(self, tensor: Any, seq: int, op: Any, spot: Spot | None, where: Where | None) -> None:
        try:
            if _is_fake(tensor):
                return
            self._writes.append((tensor.untyped_storage().data_ptr(), tensor._version, seq, op, spot, where))
        except (RuntimeError, NotImplementedError, AttributeError):  # no storage, or one made in inference mode
            return

    def _add_silent(self, tensor: Any, seq: int, op: Any, spot: Spot | None, where: Where | None) -> None:
        """A write through ``.data``, which has a version of its own."""
        try:
            if _is_fake(tensor):
                return
            name = getattr(op, "__name__", str(op))
            self.silent.append(Write(tensor.untyped_storage().data_ptr(), tensor._version, seq, name, spot, where))
        except (RuntimeError, NotImplementedError, AttributeError):
            return

    def statistics_after(self, storage: int, seq: int) -> Write | None:
        """The last write of a normalisation to its running statistics in `storage`, after the op that made node `seq`:
        no version shows it."""
        for pointer, version, at, op, spot, where in reversed(self._writes):
            if at <= seq:
                return None
            if pointer == storage and type(kind_of(op)) is tuple:
                return Write(storage, version, at, op.__name__, spot, where)
        return None

    def first_after(self, storage: int, seq: int, version: int) -> Write | None:
        """The write that took `storage` past `version`, after the op that made node `seq`."""
        for pointer, after, at, op, spot, where in self._writes:
            if pointer is None and at > seq:
                optimizer = op()
                if optimizer is not None and storage in _written(optimizer):
                    return Write(storage, version + 1, at, f"{type(optimizer).__name__}.step", spot, where)
            elif pointer == storage and at > seq and after > version:
                name = op if isinstance(op, str) else getattr(op, "__name__", str(op))
                return Write(pointer, after, at, name, spot, where)
        return None


def _written(optimizer: Any) -> set[int]:
    """The storages that an optimizer writes to."""
    found = set()
    for group in optimizer.param_groups:
        for p in group["params"]:
            if isinstance(p, torch.Tensor) and p.grad is not None and not _is_fake(p):
                with contextlib.suppress(RuntimeError, NotImplementedError):  # no storage
                    found.add(p.untyped_storage().data_ptr())
    return found


def targets(kind: Any, args: Any, kwargs: Any) -> list[Any]:
    """The tensors that a call of a function of this kind writes."""
    if kind is True:
        first = args[0] if args else (kwargs or {}).get("tensor")
        return list(first) if isinstance(first, (list, tuple)) else [first]
    keyword, positions = kind
    if not (kwargs or {}).get(keyword):
        return []
    return [args[i] for i in positions if i < len(args)]


@dataclass(frozen=True)
class SeenMutation:
    """What an in-place error is about: the saved tensor, and the write."""

    saved_name: str
    producer: str
    shape: tuple[int, ...]
    saved_version: int
    found_version: int
    storage: int | None
    write: Write | None


def mutation(text: str, saved_by: list[tuple[str, Any]], seq: int, log: WriteLog) -> SeenMutation | None:
    """The write behind torch's in-place error `text`, raised while a node ran that was made at `seq` and keeps the
    tensors `saved_by`."""
    match = IN_PLACE_DETAIL.search(text)
    if match is None:
        return None
    shape = tuple(int(n) for n in match["shape"].split(",") if n.strip())
    found, saved = int(match["found"]), int(match["saved"])
    for name, tensor in saved_by:
        if tensor._version != found or tuple(tensor.shape) != shape:
            continue
        storage = tensor.untyped_storage().data_ptr()
        write = log.first_after(storage, seq, saved)
        return SeenMutation(name, _short(match["op"]), shape, saved, found, storage, write)
    return SeenMutation("", _short(match["op"]), shape, saved, found, None, None)


def _is_fake(tensor: Any) -> bool:
    """Whether torch would warn that the memory of `tensor` is asked for: it has none."""
    return not private.is_plain(tensor) and tensor.untyped_storage().device.type == "meta"


def _short(op: str | None) -> str:
    return (op or "").rpartition(":")[2]


def inferred_write(seen: SeenMutation, name: str, news: list[Spot], frames: Frames) -> Write | None:
    """A write that nobody saw, to a tensor that the user's code calls `name`: of the lines that ran for the first time
    (`news`), the one that writes in place to a variable of that name, or else the one that is most likely to write to a
    tensor; where there is none, the only one that ever writes to such a variable."""
    found: list[tuple[int, str, Spot]] = []
    for spot in news:
        site = frames.site(spot)
        write = writes_on(site.file, site.line) if site is not None else None
        if site is not None and write is not None:
            named = bool(name) and base_of(write[1]) == name
            found.append((4 if named else likely_write(site.file, *write), write[0], spot))
    if not found and name:
        lines = [(file, line) for file in frames.users_files() for line in writes_to(file, name)]
        spot_of_line = frames.spot_at(*lines[0]) if len(lines) == 1 else None
        if spot_of_line is not None and (write := writes_on(*lines[0])) is not None:
            found.append((4, write[0], spot_of_line))
    likely, op, place = max(found, key=lambda one: one[0], default=(0, "", None))
    return Write(seen.storage or 0, seen.found_version, 0, op, place, None, True) if likely else None


def names_of_storage(storage: int | None, modules: Any) -> tuple[Any, str] | None:
    """(root, name) of the parameter or buffer that lives in `storage`."""
    if storage is None:
        return None
    for root in modules.roots:
        module = root.ref()
        if module is None:
            continue
        for name, t in (*module.named_parameters(), *module.named_buffers()):
            if isinstance(t, torch.Tensor) and t.layout is torch.strided and t.untyped_storage().data_ptr() == storage:
                return root, name
    return None


def variable_of(storage: int | None, frame: Any, frames: Frames) -> str:
    """What the user's code calls a tensor that lives in `storage`."""
    while frame is not None and storage is not None:
        if frames.is_user(frame.f_code):
            for name, value in variables(frame).items():
                if type(value) is torch.Tensor and value.layout is torch.strided:
                    try:
                        if value.untyped_storage().data_ptr() == storage:
                            return name
                    except (RuntimeError, NotImplementedError):
                        continue
        frame = frame.f_back
    return ""
