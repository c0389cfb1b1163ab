"""The mode that sees each op below autograd, and notes what it took and gave.

Note [Below autograd]: a ``TorchDispatchMode`` sees what the engine runs in a backward as it sees the forward, and what
compiled code calls of torch's own ops. It runs the same kernels: nothing that they give changes. It is on only in steps
that are recorded to be compared.
"""

from __future__ import annotations

import hashlib
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...float64.fingerprints import digest, plain, print_of, values_of
from ...ops import info, overwrites
from ...records import Site, Taken, TapeOp
from ...source.frames import Frames
from ...source.roots import ModuleCallRef
from ...source.tracebacks import STAND_IN
from ...torch_internals import code_objects, private
from .applied import Calls
from .arguments import as_json
from .space import Space

_next = private.next_sequence_nr
#: Ops that ask something of a tensor and compute nothing.
_ASK = frozenset(("is_pinned", "is_same_size", "sym_size", "sym_numel", "sym_stride", "sym_storage_offset"))
#: What the frames of a file are: nobody's, the user's, a library's, the engine's.
_OURS, _USER, _LIBRARY, _ENGINE = range(4)
_ROOT = __file__.rpartition("observe")[0]


class TapeMode(TorchDispatchMode):
    """Notes ops into ``ops`` while it is on."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """The user's compiled code stays compiled."""
        return True

    def __init__(
        self,
        frames: Frames,
        here: Callable[[], ModuleCallRef | None],
        names: dict[int, str],
        space: Space,
        failed: Callable[[BaseException], None],
    ) -> None:
        super().__init__()
        self.frames, self.here, self.names, self.space, self.failed = frames, here, names, space, failed
        self.ops: list[tuple[TapeOp, ModuleCallRef | None]] = []
        self.count = 0
        self.step = 0
        self.optimizing = False
        #: Hears of ops that run with gradient mode off, where somebody asks for custom functions.
        self.calls: Calls | None = None
        #: It is on, and is to note nothing: Note [Not taken off where code is compiled].
        self.quiet = False
        #: By hash: the numbers of fingerprints.
        self.known: dict[str, int] = {}
        #: Fingerprints that no step has written yet.
        self.fresh: list[Any] = []
        #: By id: a reference, the number of its fingerprint, the count of ops when it was read, where it was.
        self._read: dict[int, tuple[Any, int | None, int, Any]] = {}
        #: Who gave what is at an address, by its layout too, and which value; who wrote to a storage last.
        self._givers: dict[Any, tuple[int, int, int | None]] = {}
        self._writers: dict[int, int] = {}
        #: The number of a node -> the op that it was made for.
        self._by_node: dict[int, int] = {}
        self._next = _next()
        self._schemas: dict[Any, tuple[str, tuple[str, ...], bool]] = {}
        self._kinds: dict[int, tuple[Any, int]] = {}
        self._wheres: list[tuple[ModuleCallRef | None, Site | None, Site | None]] = []

    def new_step(self, step: int) -> None:
        """What is read anew each time: memory that others than torch may have written to."""
        self.step = step
        self.ops, self.fresh = [], []
        self._read.clear()
        self._next = _next()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.quiet or private.tracing():
            return func(*args, **kwargs)
        known = self._schemas.get(func)
        if known is None:
            known = self._schemas[func] = _signature(func)
        if known[0] in _ASK or not known[0]:
            return func(*args, **kwargs)
        noted: Any = None
        try:
            with private.below_autograd():
                noted = self._before(known, func, args, kwargs)
        except Exception as error:
            self.failed(error)
        out = func(*args, **kwargs)
        if noted is not None:
            try:
                with private.below_autograd():
                    self._after(noted, out)
            except Exception as error:
                self.failed(error)
        return out

    def _before(self, known: tuple[str, tuple[str, ...], bool], func: Any, args: Any, kwargs: Any) -> Any:
        name, writes, random = known
        short = name.partition(".")[0]
        taken: list[Taken] = []
        written: list[Any] = []
        given: dict[int, int] = {}
        names = [a.name for a in func._schema.arguments]

        def reading(skip: bool) -> Callable[[Any], int]:
            def tensor(one: Any) -> int:
                at = given.get(id(one))
                if at is None:
                    at = given[id(one)] = len(taken)
                    taken.append(self._take(one, skip, at))
                return at

            return tensor

        tree: list[Any] = []
        for at, value in enumerate(args):
            over = at == 0 and overwrites(short)
            tree.append(as_json(value, reading(over)))
            if at < len(names) and names[at] in writes:
                written += _tensors(value)
        named = {}
        for key, value in kwargs.items():
            named[key] = as_json(value, reading(key in writes))
            if key in writes:
                written += _tensors(value)
        if any(private.is_symbolic(one) for one in (*_tensors(args), *written)):
            return None
        generator = _generator(args, kwargs) if random else None
        state = _state(generator)
        now = _next()
        grad, self._next = now > self._next, now
        node, phase, where = "", "optimizer" if self.optimizing else "forward", self.here()
        running = private.current_node()
        site = inner = None
        if running is not None:
            phase, node = "backward", running.name()
            maker = self._by_node.get(running._sequence_nr())
            if maker is not None:
                where, site, inner = self._wheres[maker]
            elif hasattr(running, "variable"):
                node = f"{node} {self.names.get(id(running.variable), '')}".strip()
        own = self._place(sys._getframe(3), running is not None)
        if own != (None, None):
            site, inner = own
        index = self.count
        self.count += 1
        if self.calls is not None and running is None:
            self.calls.op(sys._getframe(2), index, now - 1)
        if grad:
            self._by_node[now - 1] = index
        self._wheres.append((where, site, inner))
        op = TapeOp(
            *(index, self.step, phase, name, "", where.call if where else 1, site, inner, node),
            (tree, named),
            tuple(taken),
            (),
            state,
            grad,
        )
        return op, where, written, info(short).is_uninitialised or short == "resize_", generator

    def _after(self, noted: Any, out: Any) -> None:
        op, where, written, empty, generator = noted
        if op.random and op.random == _state(generator):  # it could have drawn, and did not
            op = replace(op, random="")
        index = op.index
        values: list[int | None] = []
        for one in written:
            self._writers[_memory(one)] = index
        returned = [one for one in _tensors(out) if not any(one is w for w in written)]
        for number, one in enumerate((*written, *returned)):
            value = None if empty or private.is_symbolic(one) else self._value(one, bool(op.random))
            values.append(value)
            self._givers[_key(one)] = (index, number, value)
        self.ops.append((replace(op, outputs=tuple(values)), where))

    def value_of(self, tensor: Any, first: bool = False) -> int | None:
        """The number of the fingerprint that `tensor` has now. `first`: it is kept before others."""
        with private.below_autograd():
            return self._value(tensor, first)

    def taken(self, tensor: Any, slot: int) -> Taken:
        """`tensor` as a custom function gets it that runs now."""
        with private.below_autograd():
            return self._take(tensor, False, slot)

    def sink(self, kind: str, name: str, tensor: Any) -> None:
        """Note what a gradient or weight is in the end; `tensor` may be ``None``."""
        with private.below_autograd():
            taken = (self._take(tensor, False, 0),) if tensor is not None else ()
        self.ops.append(
            (TapeOp(self.count, self.step, "sink", kind, name, arguments=([{"t": 0}], {}), inputs=taken), None)
        )
        self._wheres.append((None, None, None))
        self.count += 1

    def _take(self, tensor: Any, skip: bool, slot: int) -> Taken:
        """`tensor` as the op that runs now gets it. `skip`: it does not read its values."""
        name = self.names.get(id(tensor), "")
        key, memory = _key(tensor), _memory(tensor)
        giver = self._givers.get(key)
        writer = self._writers.get(memory, -1)
        value = None if skip else self._value(tensor, giver is None)
        if giver is not None:
            if writer > giver[0]:
                return Taken(value, giver[0], giver[1], writer, name)
            if skip or giver[2] is None or giver[2] == value:
                return Taken(value, giver[0], giver[1], None, name)
        # From outside; or written by others than torch, or other memory at the same place.
        self._givers[key] = self.count, -1 - slot, value
        self._writers.pop(memory, None)
        return Taken(value, self.count, -1 - slot, None, name)

    def _value(self, tensor: Any, first: bool = False) -> int | None:
        """The number of the fingerprint of `tensor`. `first`: nothing else tells how it came about, so it is kept
        before others."""
        memo = self._read.get(id(tensor))
        key = _key(tensor)
        here = memo is not None and memo[0]() is tensor and memo[3] == key  # else its .data was put in
        if here and memo is not None and self._writers.get(_memory(tensor), -1) < memo[2]:
            return memo[1]
        found: int | None = None
        if plain(tensor):
            values = values_of(tensor)
            hashed = digest(values)
            found = self.known.get(hashed)
            if found is None:
                found = self.known[hashed] = len(self.known)
                self.fresh.append(print_of(values, hashed))
            self.space.offer(hashed, values, first)
        self._read[id(tensor)] = (weakref.ref(tensor), found, self.count, key)
        return found

    def _place(self, frame: Any, backward: bool) -> tuple[Site | None, Site | None]:
        """The user's line, and the innermost one of a library inside it; in a backward those of a function or hook that
        the engine has called."""
        inner = None
        while frame is not None:
            code = frame.f_code
            kind = self._kinds.get(id(code))
            if kind is None:
                kind = self._kinds[id(code)] = (code, self._kind(code))
            if kind[1] == _USER:
                spot = (code, frame.f_lasti)
                return self.frames.site(spot), self.frames.site(inner) if inner is not None else None
            if kind[1] == _ENGINE and backward:
                break
            if kind[1] == _LIBRARY and inner is None:
                inner = (code, frame.f_lasti)
            frame = frame.f_back
        return (None, self.frames.site(inner)) if inner is not None else (None, None)

    def _kind(self, code: Any) -> int:
        file = code.co_filename
        if self.frames.is_user(code):
            return _USER
        if code is code_objects.ENGINE_CALL:
            return _ENGINE
        if code.co_name == STAND_IN:
            return _OURS
        ours = (
            file.startswith((_ROOT, code_objects.TORCH, "<")) or "importlib" in file or file == code_objects.MODULE_FILE
        )
        return (
            _OURS
            if ours or not file.endswith(".py") or ("/lib/python" in file and "-packages" not in file)
            else _LIBRARY
        )


def _signature(func: Any) -> tuple[str, tuple[str, ...], bool]:
    """The name of an op, the arguments that it writes to, whether it draws random numbers."""
    schema = getattr(func, "_schema", None)
    if schema is None or schema.name.startswith("profiler::"):
        return "", (), False
    writes = tuple(a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write)
    name = f"{schema.name.removeprefix('aten::')}.{schema.overload_name}".rstrip(".")
    writes += info(name).hidden_writes
    return name, writes, torch.Tag.nondeterministic_seeded in func.tags


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)


def _memory(tensor: Any) -> int:
    if private.has_dispatch(tensor):  # a wrapper has no memory, and no address of its own
        return id(tensor)
    try:
        return private.storage_key(tensor.untyped_storage())
    except (RuntimeError, NotImplementedError):
        return id(tensor)


def _key(tensor: Any) -> Any:
    if private.has_dispatch(tensor):
        return id(tensor)
    try:
        return (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
    except (RuntimeError, NotImplementedError):
        return id(tensor)


def _generator(args: Any, kwargs: Any) -> Any:
    """What an op that is random draws from: what it was given, or that of the device."""
    for one in (*args, *kwargs.values()):
        if isinstance(one, torch.Generator):
            return one
    devices = [one.device for one in _tensors(list(args))] + [kwargs.get("device") or torch.device("cpu")]
    index = devices[0].index
    if devices[0].type != "cuda":
        return torch.random.default_generator
    return torch.cuda.default_generators[torch.cuda.current_device() if index is None else index]


def _state(generator: Any) -> str:
    """The state of a generator of random numbers, as a hash."""
    if generator is None:
        return ""
    return hashlib.blake2b(bytes(generator.get_state().tolist()), digest_size=8).hexdigest()
