"""The dispatch mode that records each op below autograd, with its inputs and outputs.

Note [Below autograd]: a ``TorchDispatchMode`` sees the ops that the engine runs in a backward as it sees the forward's,
and torch's own ops that compiled code calls. The same kernels run, so results do not change. The mode is on only in
steps that are recorded for comparison.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType
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
from ...torch_internals.references import IdentityMap
from .applied import CustomFunctionCalls
from .arguments import as_json
from .space import TensorCopies

_next = private.next_sequence_nr
#: Ops that query a property of a tensor and compute nothing.
_QUERY_OPS = frozenset(("is_pinned", "is_same_size", "sym_size", "sym_numel", "sym_stride", "sym_storage_offset"))
#: Kinds of frames, by file: backprobe's or Python's, the user's, a library's, the engine's.
_OWN_FRAME, _USER_FRAME, _LIBRARY_FRAME, _ENGINE_FRAME = range(4)
_ROOT = __file__.rpartition("observe")[0]


class OpRecordingMode(TorchDispatchMode):
    """Records ops into ``ops`` while it is on."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Keep the user's compiled code compiled."""
        return True

    def __init__(
        self,
        frames: Frames,
        here: Callable[[], ModuleCallRef | None],
        names: IdentityMap[str],
        space: TensorCopies,
        failed: Callable[[BaseException], None],
    ) -> None:
        super().__init__()
        self.frames, self.here, self.names, self.space, self.failed = frames, here, names, space, failed
        self.ops: list[tuple[TapeOp, ModuleCallRef | None]] = []
        self.count = 0
        self.step = 0
        self.optimizing = False
        #: Receives ops that run with gradient mode off, if custom functions are checked.
        self.calls: CustomFunctionCalls | None = None
        #: Whether the mode stays on the stack but records nothing: Note [Not taken off where code is compiled].
        self.quiet = False
        #: Hash -> index of the fingerprint.
        self.known: dict[str, int] = {}
        #: Fingerprints that have not been written yet.
        self.fresh: list[Any] = []
        #: Tensor id -> weak reference, index of its fingerprint, count of ops when it was read, key of its memory.
        self._read: dict[int, tuple[Any, int | None, int, Any]] = {}
        #: Address and layout -> (op, output, fingerprint) that produced the value there; storage -> the op that wrote
        #: last.
        self._givers: dict[Any, tuple[int, int, int | None]] = {}
        self._writers: dict[int, int] = {}
        #: The numbers of tensors that have no address, and how many were given.
        self._numbers: IdentityMap[int] = IdentityMap(private.tensor_ref)
        self._unaddressed = 0
        #: Sequence number of a node -> the op that made the node.
        self._by_node: dict[int, int] = {}
        self._next = _next()
        self._schemas: dict[Any, tuple[str, tuple[str, ...], bool]] = {}
        self._kinds: dict[int, tuple[Any, int]] = {}
        self._wheres: list[tuple[ModuleCallRef | None, Site | None, Site | None]] = []

    def new_step(self, step: int) -> None:
        """Begin a step: forget fingerprints, since code other than ops may have written to memory."""
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
        if known[0] in _QUERY_OPS or not known[0]:
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
        written: list[torch.Tensor] = []
        given: dict[int, int] = {}
        names = [a.name for a in func._schema.arguments]

        def reading(skip: bool) -> Callable[[Any], int]:
            def tensor(one: object) -> int:
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
                node = f"{node} {self.names.get(running.variable) or ''}".strip()
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
            self._writers[self._memory(one)] = index
        returned = [one for one in _tensors(out) if not any(one is w for w in written)]
        for number, one in enumerate((*written, *returned)):
            value = None if empty or private.is_symbolic(one) else self._value(one, bool(op.random))
            values.append(value)
            self._givers[self._key(one)] = (index, number, value)
        self.ops.append((replace(op, outputs=tuple(values)), where))

    def value_of(self, tensor: torch.Tensor, first: bool = False) -> int | None:
        """Return the index of the fingerprint of `tensor`'s current values. `first`: keep the values before others."""
        with private.below_autograd():
            return self._value(tensor, first)

    def taken(self, tensor: torch.Tensor, slot: int) -> Taken:
        """Return `tensor` as an input of the custom function that runs now."""
        with private.below_autograd():
            return self._take(tensor, False, slot)

    def sink(self, kind: str, name: str, tensor: object) -> None:
        """Record the final value of a gradient or weight; `tensor` may be ``None``."""
        with private.below_autograd():
            taken = (self._take(tensor, False, 0),) if tensor is not None else ()
        self.ops.append(
            (TapeOp(self.count, self.step, "sink", kind, name, arguments=([{"t": 0}], {}), inputs=taken), None)
        )
        self._wheres.append((None, None, None))
        self.count += 1

    def _take(self, tensor: torch.Tensor, skip: bool, slot: int) -> Taken:
        """Return `tensor` as an input of the op that runs now. `skip`: the op does not read its values."""
        name = self.names.get(tensor) or ""
        key, memory = self._key(tensor), self._memory(tensor)
        giver = self._givers.get(key)
        writer = self._writers.get(memory, -1)
        value = None if skip else self._value(tensor, giver is None)
        if giver is not None:
            if writer > giver[0]:
                return Taken(value, giver[0], giver[1], writer, name)
            if skip or giver[2] is None or giver[2] == value:
                return Taken(value, giver[0], giver[1], None, name)
        # The value comes from outside, was written by code other than ops, or is other memory at the same address.
        self._givers[key] = self.count, -1 - slot, value
        self._writers.pop(memory, None)
        return Taken(value, self.count, -1 - slot, None, name)

    def _value(self, tensor: torch.Tensor, first: bool = False) -> int | None:
        """Return the index of the fingerprint of `tensor`.

        `first`: no recorded op produced the values, so they are kept before others.
        """
        memo = self._read.get(id(tensor))
        key = self._key(tensor)
        here = memo is not None and memo[0]() is tensor and memo[3] == key  # otherwise .data was assigned
        if here and memo is not None and self._writers.get(self._memory(tensor), -1) < memo[2]:
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
        self._read[id(tensor)] = (private.tensor_ref(tensor), found, self.count, key)
        return found

    def _memory(self, tensor: torch.Tensor) -> int:
        if private.has_dispatch(tensor):  # a wrapper has no memory, and no address of its own
            return self._number(tensor)
        try:
            return private.storage_key(tensor.untyped_storage())
        except (RuntimeError, NotImplementedError):
            return self._number(tensor)

    def _key(self, tensor: torch.Tensor) -> Any:
        if private.has_dispatch(tensor):
            return self._number(tensor)
        try:
            return (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        except (RuntimeError, NotImplementedError):
            return self._number(tensor)

    def _number(self, tensor: torch.Tensor) -> int:
        """Return a number that only this tensor has: a negative one, as no address is."""
        number = self._numbers.get(tensor)
        if number is None:
            self._unaddressed += 1
            number = self._numbers[tensor] = -self._unaddressed
        return number

    def _place(self, frame: FrameType | None, backward: bool) -> tuple[Site | None, Site | None]:
        """Return the user's line, and the innermost line of a library that it calls.

        In a backward, only lines of a function or hook that the engine has called count.
        """
        inner = None
        while frame is not None:
            code = frame.f_code
            kind = self._kinds.get(id(code))
            if kind is None:
                kind = self._kinds[id(code)] = (code, self._kind(code))
            if kind[1] == _USER_FRAME:
                spot = (code, frame.f_lasti)
                return self.frames.site(spot), self.frames.site(inner) if inner is not None else None
            if kind[1] == _ENGINE_FRAME and backward:
                break
            if kind[1] == _LIBRARY_FRAME and inner is None:
                inner = (code, frame.f_lasti)
            frame = frame.f_back
        return (None, self.frames.site(inner)) if inner is not None else (None, None)

    def _kind(self, code: Any) -> int:
        file = code.co_filename
        if self.frames.is_user(code):
            return _USER_FRAME
        if code is code_objects.ENGINE_CALL:
            return _ENGINE_FRAME
        if code.co_name == STAND_IN:
            return _OWN_FRAME
        ours = (
            file.startswith((_ROOT, code_objects.TORCH, "<")) or "importlib" in file or file == code_objects.MODULE_FILE
        )
        return (
            _OWN_FRAME
            if ours or not file.endswith(".py") or ("/lib/python" in file and "-packages" not in file)
            else _LIBRARY_FRAME
        )


def _signature(func: Any) -> tuple[str, tuple[str, ...], bool]:
    """Return the name of an op, the arguments that it writes to, and whether it draws random numbers."""
    schema = getattr(func, "_schema", None)
    if schema is None or schema.name.startswith("profiler::"):
        return "", (), False
    writes = tuple(a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write)
    name = f"{schema.name.removeprefix('aten::')}.{schema.overload_name}".rstrip(".")
    writes += info(name).hidden_writes
    return name, writes, torch.Tag.nondeterministic_seeded in func.tags


def _tensors(value: object) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)


def _generator(args: Any, kwargs: Any) -> Any:
    """Return the generator that a random op draws from: the one passed to it, or the default of its device."""
    for one in (*args, *kwargs.values()):
        if isinstance(one, torch.Generator):
            return one
    devices = [one.device for one in _tensors(list(args))] + [kwargs.get("device") or torch.device("cpu")]
    index = devices[0].index
    if devices[0].type != "cuda":
        return torch.random.default_generator
    return torch.cuda.default_generators[torch.cuda.current_device() if index is None else index]


def _state(generator: Any) -> str:
    """Return a hash of the state of a random number generator."""
    if generator is None:
        return ""
    return hashlib.blake2b(bytes(generator.get_state().tolist()), digest_size=8).hexdigest()
