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
from types import CodeType, FrameType
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
from .arguments import as_json
from .function_calls import CustomFunctionCalls
from .tensor_copies import TensorCopies

_next_sequence_nr = private.next_sequence_nr
#: Ops that query a property of a tensor and compute nothing.
_QUERY_OPS = frozenset(("is_pinned", "is_same_size", "sym_size", "sym_numel", "sym_stride", "sym_storage_offset"))
#: Kinds of frames, by file: backprobe's or Python's, the user's, a library's, the engine's.
_OWN_FRAME, _USER_FRAME, _LIBRARY_FRAME, _ENGINE_FRAME = range(4)
_PACKAGE_FOLDER = __file__.rpartition("observe")[0]


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
        current_module: Callable[[], ModuleCallRef | None],
        names: IdentityMap[str],
        copies: TensorCopies,
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Make the mode without putting it on the stack.

        :param current_module: returns the module call that is running.
        :param names: display names or numbers of weights.
        :param copies: keeps copies of values that cannot be computed again.
        """
        super().__init__()
        self.frames, self.current_module, self.names, self.copies, self.on_error = (
            frames,
            current_module,
            names,
            copies,
            on_error,
        )
        self.ops: list[tuple[TapeOp, ModuleCallRef | None]] = []
        self.op_count = 0
        self.step = 0
        self.in_optimizer_step = False
        #: Receives ops that run with gradient mode off, if custom functions are checked.
        self.function_calls: CustomFunctionCalls | None = None
        #: The mode is on the stack but records nothing: Note [Not taken off where code is compiled].
        self.is_paused = False
        #: Hash -> index of the fingerprint.
        self.fingerprint_indices: dict[str, int] = {}
        #: Fingerprints that have not been written yet.
        self.unwritten_fingerprints: list[Any] = []
        #: Tensor id -> weak reference, index of its fingerprint, count of ops when it was read, key of its memory.
        self._last_reads: dict[int, tuple[Callable[[], torch.Tensor | None], int | None, int, object]] = {}
        #: Address and layout -> (op, output, fingerprint) that produced the value there; storage -> the op that wrote
        #: last.
        self._producers: dict[object, tuple[int, int, int | None]] = {}
        self._last_writers: dict[int, int] = {}
        #: The numbers of tensors that have no address, and how many were given.
        self._tensor_numbers: IdentityMap[int] = IdentityMap(private.tensor_ref)
        self._unaddressed_count = 0
        #: Sequence number of a node -> the op that made the node.
        self._op_by_node: dict[int, int] = {}
        self._expected_seq = _next_sequence_nr()
        self._signatures: dict[object, tuple[str, tuple[str, ...], bool]] = {}
        self._frame_kinds: dict[int, tuple[CodeType, int]] = {}
        self._op_places: list[tuple[ModuleCallRef | None, Site | None, Site | None]] = []

    def new_step(self, step: int) -> None:
        """Begin a step: forget fingerprints, since code other than ops may have written to memory."""
        self.step = step
        self.ops, self.unwritten_fingerprints = [], []
        self._last_reads.clear()
        self._expected_seq = _next_sequence_nr()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        """Run an op and record it with its inputs and outputs. Called by torch for each op below autograd.

        Queries, tracing, and a paused mode are not recorded. Errors of the recording go to ``on_error``.
        """
        kwargs = kwargs or {}
        if self.is_paused or private.tracing():
            return func(*args, **kwargs)
        known = self._signatures.get(func)
        if known is None:
            known = self._signatures[func] = _signature(func)
        if known[0] in _QUERY_OPS or not known[0]:
            return func(*args, **kwargs)
        pending: Any = None
        try:
            with private.below_autograd():
                pending = self._record_inputs(known, func, args, kwargs)
        except Exception as error:
            self.on_error(error)
        out = func(*args, **kwargs)
        if pending is not None:
            try:
                with private.below_autograd():
                    self._record_outputs(pending, out)
            except Exception as error:
                self.on_error(error)
        return out

    def _record_inputs(
        self, known: tuple[str, tuple[str, ...], bool], func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Record an op that is about to run: its arguments, place, phase and the state of its random generator.

        :param known: the op's name, the arguments that it writes to, and whether it is random.
        :returns: what ``_record_outputs`` needs; ``None`` if an argument is symbolic.
        """
        name, writes, random = known
        short = name.partition(".")[0]
        inputs: list[Taken] = []
        written: list[torch.Tensor] = []
        input_positions: dict[int, int] = {}
        names = [a.name for a in func._schema.arguments]

        def reader(is_overwritten: bool) -> Callable[[object], int]:
            """Return a function that adds a tensor to the inputs. `is_overwritten`: the op does not read its values."""

            def position_of(one: object) -> int:
                """Return the position of a tensor among the inputs, to which it is added if it is new."""
                at = input_positions.get(id(one))
                if at is None:
                    at = input_positions[id(one)] = len(inputs)
                    inputs.append(self._input_of(one, is_overwritten, at))
                return at

            return position_of

        tree: list[object] = []
        for at, value in enumerate(args):
            over = at == 0 and overwrites(short)
            tree.append(as_json(value, reader(over)))
            if at < len(names) and names[at] in writes:
                written += _tensors(value)
        named = {}
        for key, value in kwargs.items():
            named[key] = as_json(value, reader(key in writes))
            if key in writes:
                written += _tensors(value)
        if any(private.is_symbolic(one) for one in (*_tensors(args), *written)):
            return None
        generator = _generator(args, kwargs) if random else None
        state = _generator_hash(generator)
        now = _next_sequence_nr()
        made_node, self._expected_seq = now > self._expected_seq, now
        node, phase, where = "", "optimizer" if self.in_optimizer_step else "forward", self.current_module()
        running = private.current_node()
        site = inner = None
        if running is not None:
            phase, node = "backward", running.name()
            maker = self._op_by_node.get(running._sequence_nr())
            if maker is not None:
                where, site, inner = self._op_places[maker]
            elif hasattr(running, "variable"):
                node = f"{node} {self.names.get(running.variable) or ''}".strip()
        own = self._user_and_library_line(sys._getframe(3), running is not None)
        if own != (None, None):
            site, inner = own
        index = self.op_count
        self.op_count += 1
        if self.function_calls is not None and running is None:
            self.function_calls.add_op(sys._getframe(2), index, now - 1)
        if made_node:
            self._op_by_node[now - 1] = index
        self._op_places.append((where, site, inner))
        op = TapeOp(
            *(index, self.step, phase, name, "", where.call if where else 1, site, inner, node),
            (tree, named),
            tuple(inputs),
            (),
            state,
            made_node,
        )
        return op, where, written, info(short).is_uninitialised or short == "resize_", generator

    def _record_outputs(self, pending: Any, out: object) -> None:
        """Complete the record of an op that has run: fingerprints of what it wrote and returned, as the producer of
        these.
        """
        op, where, written, empty, generator = pending
        if op.random and op.random == _generator_hash(generator):  # it could have drawn, and did not
            op = replace(op, random="")
        index = op.index
        values: list[int | None] = []
        for one in written:
            self._last_writers[self._storage_key(one)] = index
        returned = [one for one in _tensors(out) if not any(one is w for w in written)]
        for number, one in enumerate((*written, *returned)):
            value = None if empty or private.is_symbolic(one) else self._fingerprint_index(one, bool(op.random))
            values.append(value)
            self._producers[self._layout_key(one)] = (index, number, value)
        self.ops.append((replace(op, outputs=tuple(values)), where))

    def fingerprint_index(self, tensor: torch.Tensor, has_priority: bool = False) -> int | None:
        """Return the index of the fingerprint of `tensor`'s current values.

        :param has_priority: keep a copy of the values before those that can be computed again.
        """
        with private.below_autograd():
            return self._fingerprint_index(tensor, has_priority)

    def function_input(self, tensor: torch.Tensor, slot: int) -> Taken:
        """Return `tensor` as an input of the custom function that runs now."""
        with private.below_autograd():
            return self._input_of(tensor, False, slot)

    def sink(self, kind: str, name: str, tensor: object) -> None:
        """Record a pseudo-op that takes the final value of a gradient or weight; `tensor` may be ``None``."""
        with private.below_autograd():
            inputs = (self._input_of(tensor, False, 0),) if tensor is not None else ()
        self.ops.append(
            (TapeOp(self.op_count, self.step, "sink", kind, name, arguments=([{"t": 0}], {}), inputs=inputs), None)
        )
        self._op_places.append((None, None, None))
        self.op_count += 1

    def _input_of(self, tensor: torch.Tensor, is_overwritten: bool, slot: int) -> Taken:
        """Return `tensor` as an input of the op that runs now. `is_overwritten`: the op does not read its values."""
        name = self.names.get(tensor) or ""
        key, memory = self._layout_key(tensor), self._storage_key(tensor)
        producer = self._producers.get(key)
        writer = self._last_writers.get(memory, -1)
        value = None if is_overwritten else self._fingerprint_index(tensor, producer is None)
        if producer is not None:
            if writer > producer[0]:
                return Taken(value, producer[0], producer[1], writer, name)
            if is_overwritten or producer[2] is None or producer[2] == value:
                return Taken(value, producer[0], producer[1], None, name)
        # The value comes from outside, was written by code other than ops, or is other memory at the same address.
        self._producers[key] = self.op_count, -1 - slot, value
        self._last_writers.pop(memory, None)
        return Taken(value, self.op_count, -1 - slot, None, name)

    def _fingerprint_index(self, tensor: torch.Tensor, has_priority: bool = False) -> int | None:
        """Return the index of the fingerprint of `tensor`.

        :param has_priority: no recorded op produced the values, so a copy of them is kept before others.
        """
        last_read = self._last_reads.get(id(tensor))
        key = self._layout_key(tensor)
        is_current = (
            last_read is not None and last_read[0]() is tensor and last_read[3] == key
        )  # otherwise .data was assigned
        if (
            is_current
            and last_read is not None
            and self._last_writers.get(self._storage_key(tensor), -1) < last_read[2]
        ):
            return last_read[1]
        found: int | None = None
        if plain(tensor):
            values = values_of(tensor)
            hashed = digest(values)
            found = self.fingerprint_indices.get(hashed)
            if found is None:
                found = self.fingerprint_indices[hashed] = len(self.fingerprint_indices)
                self.unwritten_fingerprints.append(print_of(values, hashed))
            self.copies.add_if_fits(hashed, values, has_priority)
        self._last_reads[id(tensor)] = (private.tensor_ref(tensor), found, self.op_count, key)
        return found

    def _storage_key(self, tensor: torch.Tensor) -> int:
        """Return the key of a tensor's storage; the tensor's own number if it has no memory."""
        if private.has_dispatch(tensor):  # a wrapper has no memory, and no address of its own
            return self._tensor_number(tensor)
        try:
            return private.storage_key(tensor.untyped_storage())
        except (RuntimeError, NotImplementedError):
            return self._tensor_number(tensor)

    def _layout_key(self, tensor: torch.Tensor) -> object:
        """Return the address, shape, strides and dtype of a tensor; its own number if it has no address."""
        if private.has_dispatch(tensor):
            return self._tensor_number(tensor)
        try:
            return (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        except (RuntimeError, NotImplementedError):
            return self._tensor_number(tensor)

    def _tensor_number(self, tensor: torch.Tensor) -> int:
        """Return a number that only this tensor has: a negative one, as no address is."""
        number = self._tensor_numbers.get(tensor)
        if number is None:
            self._unaddressed_count += 1
            number = self._tensor_numbers[tensor] = -self._unaddressed_count
        return number

    def _user_and_library_line(self, frame: FrameType | None, backward: bool) -> tuple[Site | None, Site | None]:
        """Return the user's line, and the innermost line of a library that it calls.

        In a backward, only lines of a function or hook that the engine has called count.
        """
        inner = None
        while frame is not None:
            code = frame.f_code
            kind = self._frame_kinds.get(id(code))
            if kind is None:
                kind = self._frame_kinds[id(code)] = (code, self._frame_kind(code))
            if kind[1] == _USER_FRAME:
                spot = (code, frame.f_lasti)
                return self.frames.site(spot), self.frames.site(inner) if inner is not None else None
            if kind[1] == _ENGINE_FRAME and backward:
                break
            if kind[1] == _LIBRARY_FRAME and inner is None:
                inner = (code, frame.f_lasti)
            frame = frame.f_back
        return (None, self.frames.site(inner)) if inner is not None else (None, None)

    def _frame_kind(self, code: CodeType) -> int:
        """Return whether code is the user's, a library's, the engine's call, or backprobe's, torch's or Python's
        own.
        """
        file = code.co_filename
        if self.frames.is_user(code):
            return _USER_FRAME
        if code is code_objects.ENGINE_CALL:
            return _ENGINE_FRAME
        if code.co_name == STAND_IN:
            return _OWN_FRAME
        ours = (
            file.startswith((_PACKAGE_FOLDER, code_objects.TORCH, "<"))
            or "importlib" in file
            or file == code_objects.MODULE_FILE
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


def _tensors(value: object) -> Iterator[torch.Tensor]:
    """Yield the tensors in `value`, also in nested lists and tuples."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)


def _generator(args: Any, kwargs: Any) -> torch.Generator | None:
    """Return the generator that a random op draws from: the one passed to it, or the default of its device."""
    for one in (*args, *kwargs.values()):
        if isinstance(one, torch.Generator):
            return one
    devices = [one.device for one in _tensors(list(args))] + [kwargs.get("device") or torch.device("cpu")]
    index = devices[0].index
    if devices[0].type != "cuda":
        return torch.random.default_generator
    return torch.cuda.default_generators[torch.cuda.current_device() if index is None else index]


def _generator_hash(generator: Any) -> str:
    """Return a hash of the state of a random number generator; empty for ``None``."""
    if generator is None:
        return ""
    return hashlib.blake2b(bytes(generator.get_state().tolist()), digest_size=8).hexdigest()
