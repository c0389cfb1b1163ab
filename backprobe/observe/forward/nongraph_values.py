"""Origins of non-finite values outside the graph: the weights of a loss, targets, noise.

Note [Results outside the graph]: an op that makes no node is noted with its result. Results are measured only when
something in the graph is non-finite. Until then the values of a small result with little memory behind it are kept; of
any other result only a weak reference is kept, and it is measured if it is still alive. Results are identified by
address: while the values of a result are kept, no other result has its address. If a result was written in place since,
its own values are unknown, and it counts as bad if its inputs were. Kept values are measured when a backward call is
over, because the script may use the result in later steps.

Note [Numbers of Python]: a value may leave torch as a Python number and come back steps later. What Python does with it
is not observed. Recorded is the line that read a non-finite number out of a tensor, and the op that made that tensor.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import torch

from ...ops import info
from ...records import BadValues, TensorStat
from ...source.frames import Frames
from ...torch_internals import private
from ...torch_internals.measure import FLOATS, MAX_BATCHED_ELEMENTS, Norms, bad_values
from ...torch_internals.structure import expands_to
from .leaves import LeafTensor
from .modules import ModuleWatch
from .oplog import Entry, op_name

_Tensor: Any = torch.Tensor
_Parameter: Any = torch.nn.Parameter
_wrapped, _ref, _next = private.is_wrapped, private.tensor_ref, private.next_sequence_nr
_SET = torch.Tensor.__setitem__
#: Dtypes that autocast casts to.
_AUTOCAST_DTYPES = frozenset((torch.bfloat16, torch.float16))
#: Stands for the address of a Python number among the inputs of an op.
_NUMBER_ADDRESS = -1
#: In-place ops that keep finite values finite if their operand is a number: the values before the op matter.
_FINITE_BY_NUMBER = frozenset(("add_", "sub_", "mul_", "div_"))
#: The most lines remembered that read non-finite numbers.
_MAX_NUMBER_READS = 20
#: The most noted results; the most elements of a result that is measured although nothing is wrong.
MAX_NOTED_RESULTS, MAX_MEASURED_ELEMENTS = 1024, 1 << 20
#: The most measurements on an accelerator that are kept unread, to be read together.
MAX_UNREAD_MEASUREMENTS = 16
#: The most bytes of storage behind a result whose values are kept.
_MAX_KEPT_BYTES = 1 << 14


@dataclass
class NonFiniteResult:
    """A non-finite result of the op that made the nodes `first` to `last`; outside the graph `last` is `first - 1`."""

    first: int
    last: int
    entry: Entry
    output: BadValues
    inputs: tuple[TensorStat, ...]
    #: The op outside the graph that made the non-finite values among the inputs.
    origin: NonFiniteResult | None = None
    #: `origin` was inferred from shape and order only, or from a number that may have come from it.
    guessed: bool = False
    #: For a result outside the graph: its position among those.
    order: int = 0
    #: Leaves of the graph among the inputs that were not finite, and what they held.
    leaves: tuple[tuple[LeafTensor, TensorStat], ...] = ()


#: A weak reference to a non-finite tensor; the op that made it so (``None`` if no op did); whether it has NaN; whether
#: an Inf was apparently written on purpose.
_Bad = tuple[weakref.ref[Any], NonFiniteResult | None, bool, bool]


class NonGraphValues:
    """Tracker of the results of ops outside the graph, which finds the non-finite ones.

    :param holds_results: keep small results until they are measured; not while memory ownership is being measured.
    """

    def __init__(self, frames: Frames, modules: ModuleWatch, holds_results: bool = True) -> None:
        """Start without results; at first all are measured, as in a closely inspected step."""
        self._frames, self._modules = frames, modules
        #: Unmeasured results: values or ``None``, reference, address, version, input addresses, entry, node counter.
        self._unmeasured: list[tuple[Any, ...]] = []
        self._unmeasured_addresses: set[int] = set()
        #: Non-finite results, by address.
        self._bad_by_address: dict[int, _Bad] = {}
        #: Line that read a number -> the op that made it NaN or Inf. See Note [Numbers of Python].
        self._number_origins: dict[tuple[object, int], NonFiniteResult] = {}
        #: The latest non-finite results: node counter, shape, op.
        self._recent_origins: list[tuple[int, Any, NonFiniteResult]] = []
        #: Address -> op, as of the latest measurement: the tensor may only be alive in a node that saved it.
        self._latest_origins: dict[int, NonFiniteResult | None] = {}
        #: How many results were measured.
        self._measured_count = 0
        #: Measurements not read yet, in order: the noted results, the shape and slot of each, and the norms.
        self._unread: list[tuple[list[tuple[Any, ...]], list[tuple[Any, int | None]], Norms]] = []
        #: The results that were measured for the latest fetch: ``clear`` still needs them.
        self._fetched: list[tuple[Any, ...]] = []
        #: Whether the step is closely inspected, so that all noted results are measured, not only the latest when
        #: something is bad.
        self.inspecting = True
        self._holds_results = holds_results

    def note(self, func: object, args: Any, out: Any, frame: FrameType) -> None:
        """Note the result `out` of an op that `frame` called and that made no node."""
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
        waiting, inputs = self._unmeasured_addresses, []
        try:
            own, version = out.data_ptr(), _version(out)
            for value in args:
                if type(value) is _Tensor:
                    at = value.data_ptr()
                    if at == own:
                        if value is not out:
                            return  # a view: the same memory, so the same verdict
                    elif at not in waiting:
                        self._note_input(value, at)
                    inputs.append(at)
                elif type(value) is list or type(value) is tuple:
                    for t in value[:64]:
                        if type(t) is _Tensor:
                            inputs.append(t.data_ptr())
                elif type(value) is float and value - value != 0.0:
                    inputs.append(_NUMBER_ADDRESS)
        except RuntimeError:  # a sparse tensor, or one inside a transform
            return
        code, at = self._line(frame)
        stack = self._modules.stack
        entry = (code, at, func, stack[-1] if stack else None)
        values = _values(out) if self._holds_results else None
        self._unmeasured.append((values, _ref(out), own, version, inputs, entry, _next()))
        waiting.add(own)
        if len(self._unmeasured) > MAX_NOTED_RESULTS:
            self._measure(MAX_MEASURED_ELEMENTS if self.inspecting else 0)
            if len(self._unread) > MAX_UNREAD_MEASUREMENTS or not any(
                norms.has_unread_norms for *_, norms in self._unread
            ):
                self.measure_noted(0)

    def _line(self, frame: FrameType | None) -> tuple[object, int]:
        """Return the code and instruction of the innermost user's frame from `frame` outwards; (``None``, 0) if there
        is none.
        """
        known = self._frames.known
        while frame is not None:
            mine = known.get(id(frame.f_code))
            if self._frames.is_user(frame.f_code) if mine is None else mine:
                return frame.f_code, frame.f_lasti
            frame = frame.f_back
        return None, 0

    def number_read(self, tensor: torch.Tensor, frame: FrameType, before: NonFiniteResult | None) -> None:
        """Record that `frame` read a non-finite number out of `tensor`.

        :param before: the op in a graph that made the value non-finite, if one did.
        """
        line = self._line(frame)
        known = self._number_origins.pop(line, None)
        if known is None:
            self.measure_noted()
            known = self.origin_of((tensor,)) or before
        if known is not None:
            self._number_origins[line] = known
            if len(self._number_origins) > _MAX_NUMBER_READS:
                del self._number_origins[next(iter(self._number_origins))]

    def number_origin(self, nan: bool) -> NonFiniteResult | None:
        """Return the op that may have made a Python number that is NaN (`nan`) or Inf; an Inf may turn into either."""
        known = [one for one in self._number_origins.values() if nan or not one.output.nan]
        return replace(known[-1], guessed=True) if known else None

    def _note_input(self, t: Any, at: int) -> None:
        """Note an input that no observed op made: data, or the result of a library's own code."""
        known = self._bad_by_address.get(at)
        if (known is None or known[0]() is None) and not t.requires_grad and t.dtype in FLOATS:
            self._unmeasured_addresses.add(at)
            self._unmeasured.append(
                (_values(t) if self._holds_results else None, _ref(t), at, _version(t), (), (None, 0, None, None), 0)
            )

    def measure_noted(self, limit: int = 1 << 62) -> None:
        """Measure the noted results whose values are kept or that have at most `limit` elements.

        The non-finite ones are remembered, with the op that made each so.
        """
        self._measure(limit)
        unread, self._unread = self._unread, []
        for noted, measured, norms in unread:
            norms.flush()
            self._remember(noted, measured, norms)

    def norms_to_fetch(self) -> list[Norms]:
        """Measure the noted results on accelerators at the end of a backward call; return all norms to be fetched."""
        if not self.inspecting and any(one[0] is not None and not one[0].is_cpu for one in self._unmeasured):
            self._fetched = self._unmeasured
            self._measure(0)
        return [norms for *_, norms in self._unread]

    def _measure(self, limit: int) -> None:
        """Begin to measure the noted results whose values are kept or that have at most `limit` elements.

        The norms are read later by ``measure_noted``; no result is noted any more.
        """
        noted, self._unmeasured = self._unmeasured, []
        self._unmeasured_addresses.clear()
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
                known = known and not (t.is_nested or private.is_unsafe_to_read(t) or private.is_freed(t))
                shape = None if t is None or t.is_nested else t.shape
                measured.append((shape, norms.take(t) if known else None))
            norms.flush_batches()
        finally:
            torch._C._set_grad_enabled(was)
        self._unread.append((noted, measured, norms))

    def _remember(self, noted: list[tuple[Any, ...]], measured: list[tuple[Any, int | None]], norms: Norms) -> None:
        """Remember which of the `noted` results are non-finite, and the op that made each so.

        :param measured: shape of each result, and its slot in `norms`; ``None`` if it was not measured, so that it
            counts as bad if its inputs were.
        """
        bad = dict(self._bad_by_address)  # includes freed tensors: a noted result may be computed from one
        #: The op that produced each result that was overwritten before it was measured.
        unknown: dict[int, Entry] = {}
        for (_, ref, at, _, inputs, entry, seq), (shape, slot) in zip(noted, measured, strict=True):
            self._measured_count += 1
            values = norms.bad.get(slot) if slot is not None else None
            before = unknown.pop(at, None)
            if slot is not None and values is None:
                bad.pop(at, None)
                continue
            bad_inputs = [bad[i] for i in inputs if i in bad]
            # Prefer a computed value to one that was written on purpose.
            first_bad = next((one for one in bad_inputs if one[1] is not None), bad_inputs[0] if bad_inputs else None)
            name = op_name(entry[2]) if entry[2] is not None else ""
            if values is None and first_bad is None:
                unknown[at] = before if before and inputs == [at] and name in _FINITE_BY_NUMBER else entry
                continue
            observed = values
            if first_bad is None and values is not None and (info(name).passes_on or info(name).makes_no_nan):
                maker = next((unknown[i] for i in inputs if i in unknown), None)
                if maker is not None and maker[2] is not None:  # that op's result was never measured
                    name, entry = op_name(maker[2]), maker
                    observed = BadValues(values.nan, values.inf, 0, ())
            nan = values.nan > 0 if values is not None else first_bad is not None and first_bad[2]
            number = self.number_origin(nan) if _NUMBER_ADDRESS in inputs or info(name).takes_python_values else None
            if first_bad is None and info(name).is_fill and (not nan or number is None):
                bad[at] = (ref, None, nan, True)
                continue
            if first_bad is not None and not (nan and not first_bad[2] and first_bad[3]):
                bad[at] = (ref, first_bad[1], nan, first_bad[3])
                origin = first_bad[1]
            else:
                origin = number
                made = name and not info(name).passes_on and entry[0] is not None
                if origin is None and made and observed is not None:
                    origin = NonFiniteResult(
                        seq, seq - 1, entry, observed, (), None, observed is not values, self._measured_count
                    )
                bad[at] = (ref, origin, nan, origin is None)
            if origin is not None and shape is not None:
                self._recent_origins.append((seq, shape, origin))
        self._bad_by_address = {at: one for at, one in bad.items() if one[0]() is not None}
        self._latest_origins = {at: one[1] for at, one in bad.items()}
        del self._recent_origins[:-100]

    def origin_of(self, tensors: Iterable[object]) -> NonFiniteResult | None:
        """Return the op outside the graph that made one of `tensors` non-finite; ``None`` if there is none. Waiting
        measurements have to be read before.
        """
        for t in tensors:
            if isinstance(t, _Tensor) and t.layout is torch.strided and not t.is_meta and not _wrapped(t):
                origin: NonFiniteResult | None = self._latest_origins.get(t.data_ptr())
                if origin is not None:
                    return origin
        return None

    def origin_by_shape(self, first: int, shape: Sequence[int], any_shape: bool = False) -> NonFiniteResult | None:
        """Return the last op outside the graph, before node `first`, whose non-finite result broadcasts to `shape`.

        :param any_shape: fall back to the last result of any shape, because no other cause is known.
        """
        before = [(own, origin) for seq, own, origin in self._recent_origins[::-1] if seq <= first and own is not None]
        fitting = (origin for own, origin in before if expands_to(own, shape))
        return next(fitting, before[0][1] if before and any_shape else None)

    def origin_by_cast(self, first: int, tensors: Any) -> NonFiniteResult | None:
        """Return the last op outside the graph, before node `first`, that autocast may have cast to one of `tensors`.

        The cast itself is not observed.
        """
        for t in tensors:
            if t.dtype in _AUTOCAST_DTYPES and t.grad_fn is None and not t.requires_grad and bad_values(t) is not None:
                for seq, own, origin in self._recent_origins[::-1]:
                    if seq <= first and own == t.shape:
                        return origin
        return None

    def end_call(self) -> None:
        """End a backward call: measure or forget the results that were made for it."""
        noted, self._fetched = [] if self.inspecting else [*self._fetched, *self._unmeasured], []
        self.measure_noted(MAX_MEASURED_ELEMENTS if self.inspecting else 0)
        gone: dict[int, object] = {}
        kept: dict[int, Any] = {}
        for values, ref, at, version, inputs, entry, seq in noted:
            if values is not None:
                continue
            if entry[2] is not None and info(op_name(entry[2])).passes_on:  # a pass-through op: blame the op before it
                entry = next((gone[i] for i in inputs if i in gone), entry)
            if ref() is None:
                gone[at] = entry
            else:
                kept.pop(at, None)
                kept[at] = (None, ref, at, version, inputs, entry, seq)
        self._unmeasured = [*kept.values()]
        self._unmeasured_addresses = {one[2] for one in self._unmeasured}
        self._recent_origins.clear()
        self._latest_origins = {}

    def clear(self) -> None:
        """Forget all results of ops outside the graph and what was measured of them; called when recording stops."""
        self._unmeasured, self._fetched = [], []
        self._unmeasured_addresses.clear()
        self._unread.clear()
        self._bad_by_address.clear()
        self._number_origins.clear()
        self._recent_origins.clear()
        self._latest_origins = {}


def _version(tensor: torch.Tensor) -> int:
    """Return the version counter of `tensor`, or 0 for an inference tensor, which has none."""
    try:
        return int(tensor._version)
    except RuntimeError:
        return 0


def _values(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a small tensor's values, detached; ``None`` if they are not to be kept.

    That is the case if the tensor or its storage is large, or a dispatch mode would observe the copy.
    """
    if (
        tensor.numel() > MAX_BATCHED_ELEMENTS
        or tensor.untyped_storage().nbytes() > _MAX_KEPT_BYTES
        or private.in_mode()
    ):
        return None
    return tensor.detach()


def _written_with(out: object, args: Sequence[object]) -> bool:
    """Return whether an op wrote to the parameter `out` with another tensor, which excludes plain initialisation."""
    return len(args) > 1 and out is args[0] and any(isinstance(t, _Tensor) for t in args[1:])
