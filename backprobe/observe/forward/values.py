"""Finds non-finite results in the forward, op by op or in batches.

Note [Batched checks]: the detached values of a small result are kept in a batch until the forward is over, an op
that writes in place runs, or the batch is full. The tensor itself is not kept alive: a graph that the script drops is
freed at once. Results on an accelerator are measured there at these times, and the measurements are read when a
backward call begins: Note [Nothing waits].

Note [Results that need no check]: a bounded function (``relu``, ``tanh``) of finite values is finite. If its input is
the result of an op that is checked itself, no bad value can originate in it, and its own result is not checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from ...ops import info, rows
from ...records import BadValues, TensorStat, Unseen
from ...source.frames import Frames, variables
from ...torch_internals import private
from ...torch_internals.measure import FLOATS, MAX_BATCHED_ELEMENTS, Norms, bad_values, is_float, stat_of
from ...torch_internals.storage_ids import storage_of
from ...torch_internals.structure import is_a, tensors_in
from ...torch_internals.walk import LiveGraph
from ..own_time import OwnTime
from .detach_points import VALUE_INDEPENDENT
from .naming import Naming
from .nongraph_values import NonFiniteResult, NonGraphValues
from .oplog import Entry, op_name
from .torch_call_recorder import VIEWS, Op

if TYPE_CHECKING:
    from ..backward.pending_call_record import PendingCallRecord

_Tensor, _storage = torch.Tensor, torch.Tensor.untyped_storage
_size = torch.UntypedStorage.nbytes
_BOUNDED_FUNCTIONS = frozenset(
    getattr(home, name)
    for home in (torch, _Tensor, torch.nn.functional)
    for row in rows(lambda row: row.is_bounded)
    for name in (row.name, *row.aliases)
    if hasattr(home, name)
)
#: Nodes of ops whose results are checked.
_CHECKED_NODES = frozenset(
    f"{name}Backward0"
    for name in (
        *("Addmm", "Mm", "Bmm", "Baddbmm", "Linear", "MkldnnLinear", "Convolution", "MkldnnConvolution"),
        *("Add", "Sub", "Mul", "Div", "NativeBatchNorm", "CudnnBatchNorm", "NativeLayerNorm", "NativeGroupNorm"),
    )
)
#: The most small results that are kept, at five list items each: few enough for caches, and freed before Python's
#: garbage collector visits them.
MAX_HELD_RESULTS = 1000
#: The most results on an accelerator that have been measured there and not read yet.
MAX_UNREAD_RESULTS = 1 << 14
#: The most nodes of one op whose saved tensors are read.
MAX_READ_NODES_PER_OP = 20
#: Results of one shape and dtype, and the position of each.
_Group = tuple[Any, Any, list[int]]
_wrapped, _modes, _ref = private.is_wrapped, private.dispatch_modes, private.tensor_ref


class ForwardValues:
    """Checks the results of forward ops for NaN and Inf, and finds the op that made the first bad one."""

    def __init__(self, names: Naming, own: OwnTime, limit: int = 1000, holds_results: bool = True) -> None:
        """Start without results.

        :param limit: the most bad results that are kept until ``take_bad``.
        :param holds_results: passed to ``NonGraphValues``, which checks results of ops that make no node.
        """
        self._frames, self._leaves, self._own, self._limit = names.frames, names.leaves, own, limit
        #: Whether to check: off while all values are bad anyway.
        self.checking = True
        #: Non-finite results since the last ``take_bad``, by sequence number.
        self._bad_results: list[NonFiniteResult] = []
        self._unchecked = 0
        #: Ops that return Inf or NaN by design (a mask of -inf): how many such results were followed by a finite loss.
        self._tolerated: dict[object, int] = {}
        #: Small results that wait, flat: values, reference to the tensor, counter before and after, entry.
        self._held_results: list[Any] = []
        self._norms = Norms(on_bad=self._add_bad_result, sums=True)
        #: The results being measured, flat, four items per slot: reference to the tensor, counter before and after,
        #: entry. One list instead of tuples, which Python's garbage collector would have to visit.
        self._measuring: list[Any] = []
        #: By id of the first op of a batch: all ops of the batch, and how their results were grouped.
        self._cached_groups: dict[int, tuple[list[Entry], list[_Group]]] = {}
        #: The first bad result without a known origin: the inputs of its op are unknown, and its leaves finite. If the
        #: op cannot make NaN of finite values, one of its inputs was a bad value from outside the graph.
        self._unexplained: NonFiniteResult | None = None
        #: The graph of the backward call that begins, while the waiting results are checked.
        self._graph: LiveGraph | None = None
        self.nongraph = NonGraphValues(names.frames, names.modules, holds_results)
        #: Maps a normalisation, as (root, path), to the op that made its running statistics bad; and the bad results of
        #: normalisations that ``_complete_origins`` adds to it.
        self._statistics_origins: dict[object, NonFiniteResult] = {}
        self._pending_statistics: list[tuple[object, NonFiniteResult]] = []

    def set_checking(self, on: bool) -> None:
        """Set whether results are checked for NaN and Inf; off while all values are bad anyway."""
        self.checking = on

    def graph_op(self, out: Any, before: int, after: int, entry: Entry) -> None:
        """Check or hold the result of an op that made nodes, in a step that is not closely inspected."""
        if not self.checking:
            return
        if type(out) is _Tensor:
            if entry[2] in _BOUNDED_FUNCTIONS and _has_checked_input(out.grad_fn):
                return
            if out.numel() > MAX_BATCHED_ELEMENTS:
                self.check_result(out, before, after, entry)
            elif not (_wrapped(out) or _modes()):
                held = self._held_results
                held += (out.data, _ref(out), before, after, entry)  # at once: Note [Handlers of signals]
                if len(held) > MAX_HELD_RESULTS:
                    self.flush(wait=False)
        elif type(out) is tuple:
            for t in out:
                if type(t) is _Tensor:
                    self.check_result(t, before, after, entry)
        elif private.is_distributed(out):
            self.check_result(out, before, after, entry)

    def op_inspected(self, op: Op) -> None:
        """Check whether the result of an op is finite, in a step in which all ops are closely inspected."""
        if not self.checking:
            return
        if op.entry is not None:
            if op.func not in VIEWS:
                self._check_op(op, op.entry)
        elif not op.optimizing:
            self.nongraph_op(op.func, op.args, op.out, op.frame)

    def nongraph_op(self, func: object, args: tuple[Any, ...], out: object, frame: FrameType) -> None:
        """Note the result of an op that made no autograd node, to name its origin if it is non-finite and enters the
        graph.
        """
        if not self.checking:
            return
        if type(out) is float or type(out) is list:
            if args and type(args[0]) is _Tensor and not finite((out,)):
                self._record_number_read(args[0], frame)
        elif func not in VALUE_INDEPENDENT:
            self.nongraph.note(func, args, out, frame)

    def _record_number_read(self, t: torch.Tensor, frame: FrameType) -> None:
        """Record that the script read a non-finite number from `t`, and which op made that value."""
        if t.requires_grad:
            self.flush()
        self.nongraph.number_read(t, frame, self._first_bad() if t.requires_grad else None)

    def _first_bad(self) -> NonFiniteResult | None:
        """Return the origin of the first bad result since the last backward call began; one with NaN is preferred."""
        first = next(
            (one for one in self._bad_results if one.output.nan), self._bad_results[0] if self._bad_results else None
        )
        return first.origin or first if first is not None else None

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Pass on whether the step is closely inspected to the checks of results outside the graph."""
        self.nongraph.inspecting = inspecting

    def observing_pauses(self) -> None:
        """Forget results outside the graph and the known origins of bad running statistics."""
        self.nongraph.clear()
        self._statistics_origins.clear()

    def about_to_write(self) -> None:
        """Measure the waiting results before an in-place write can change their values."""
        if self._held_results:
            with private.hide_from_profiler():
                self.flush(wait=False)

    def backward_recorded(self, running: object, recorded: PendingCallRecord) -> None:
        """Count, after a backward call without trouble, each op with a non-finite result: it becomes tolerated."""
        self.nongraph.end_call()
        if not recorded.has_trouble:
            for one in recorded.nonfinite_results:
                key = one.entry[:3]
                self._tolerated[key] = self._tolerated.get(key, 0) + 1

    def take_bad(self) -> tuple[NonFiniteResult, ...]:
        """Return and clear the non-finite results since the last call."""
        taken, self._bad_results = tuple(self._bad_results), []
        return taken

    def check_result(self, t: object, before: int, after: int, entry: Entry) -> None:
        """Check one result: on the CPU at once, on an accelerator when its measurement is read."""
        if self._is_tolerated(entry) or not is_float(t) or private.is_unsafe_to_read(t):
            return
        self._measuring += (private.tensor_ref(t), before, after, entry)
        was = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            self._norms.now(t)
        finally:
            torch._C._set_grad_enabled(was)

    def _is_tolerated(self, entry: Entry) -> bool:
        """Return whether an op's bad results are ignored: it returned Inf or NaN before in several steps that went
        well.
        """
        return bool(self._tolerated) and self._tolerated.get(entry[:3], 0) > 2

    def flush(self, graph: LiveGraph | None = None, wait: bool = True) -> None:
        """Check the results that wait for NaN and Inf, and add the bad ones to those that ``take_bad`` returns.

        :param graph: holds the nodes of results whose tensors are gone.
        :param wait: wait for accelerators; otherwise results there are measured now and read the next time.
        """
        held = self._held_results[:]
        if not held and not self._measuring:
            if graph is not None and self._bad_results:
                self._fill_in_inputs(graph)
            return
        mark = self._own.begin()
        self._held_results.clear()
        self._graph = graph
        was = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            if not self._norms.has_unread_norms:
                self._read_measurements()
            if held and not private.in_mode():  # a dispatch mode of the user's would see our computations
                self._measure_held(held)
            if wait or not self._norms.has_unread_norms or len(self._measuring) > 4 * MAX_UNREAD_RESULTS:
                self._read_measurements()
                if graph is not None and self._bad_results:
                    self._fill_in_inputs(graph)
                self._complete_origins()
        finally:
            torch._C._set_grad_enabled(was)
            self._graph = None
        self._own.since(mark)

    def _complete_origins(self) -> None:
        """Complete the origins of bad results, once all results so far are checked.

        The first unexplained result may come from outside the graph; bad running statistics come from the first bad
        result.
        """
        unexplained, self._unexplained = self._unexplained, None
        unknown = (
            unexplained is not None
            and unexplained in self._bad_results[:1]
            and unexplained.origin is None
            and not unexplained.inputs
        )
        if (
            unexplained is not None
            and unknown
            and unexplained.output.nan
            and info(op_name(unexplained.entry[2])).makes_no_nan
        ):
            unexplained.origin = self.nongraph.origin_by_shape(
                unexplained.first, unexplained.output.shape, any_shape=True
            )
            unexplained.guessed = unexplained.origin is not None
        for key, result in self._pending_statistics:
            self._statistics_origins.setdefault(key, self._first_bad() or result)
        self._pending_statistics.clear()

    def _read_measurements(self) -> None:
        """Finish and read the pending measurements of ``Norms``, and clear them."""
        self._norms.flush()
        self._unchecked += len(self._norms.unmeasured)
        self._norms.clear()
        self._measuring.clear()

    def _measure_held(self, held: list[Any]) -> None:
        """Measure results of ops that were held until now, those of one shape and dtype together.

        The same ops mostly return the same shapes, so the grouping is cached.

        :param held: five items for each result, of which the first is the tensor and the last the op's entry.
        """
        norms, tensors, entries = self._norms, held[0::5], held[4::5]
        first, base = id(entries[0]), len(norms.values)
        norms.values += [0.0] * len(tensors)
        results = held.copy()
        del results[0::5]
        self._measuring += results
        known = self._cached_groups.get(first)
        try:
            live = [at for at, t in enumerate(tensors) if _size(_storage(t))]
        except (RuntimeError, NotImplementedError):  # one has no storage
            live = [at for at, t in enumerate(tensors) if not private.is_freed(t)]
        if len(live) < len(tensors):  # see Note [Freed memory]
            groups = self._grouped(tensors, entries, live)
        elif known is None or known[0] != entries or self._tolerated:
            groups = self._grouped(tensors, entries)
            if len(self._cached_groups) > 100:
                self._cached_groups.clear()
            if not self._tolerated:
                self._cached_groups[first] = (entries, groups)
        else:
            groups = known[1]
        for shape, dtype, places in groups:
            some = [tensors[at] for at in places]
            slots = [base + at for at in places] if base else places
            done = norms.alike(slots, some, shape, dtype)
            if done < len(places):
                for _, _, rest in self._grouped(tensors, entries, places[done:]):
                    norms.batch([base + at for at in rest], [tensors[at] for at in rest])

    def _grouped(
        self, tensors: list[torch.Tensor], entries: list[Entry], places: Iterable[int] | None = None
    ) -> list[_Group]:
        """Return the `tensors` that can be measured, grouped by shape and dtype, without those of tolerated ops.

        :param entries: the log entry of the op that made each tensor.
        :param places: the positions to consider; all if ``None``.
        """
        groups: dict[object, _Group] = {}
        for at in range(len(tensors)) if places is None else places:
            t = tensors[at]
            if self._is_tolerated(entries[at]):
                continue
            try:
                shape = t.shape
            except RuntimeError:  # a nested tensor has no shape
                continue
            group = groups.get((shape, t.dtype))
            if group is None:
                if t.dtype not in FLOATS or private.is_unsafe_to_read(t):
                    continue
                group = groups[shape, t.dtype] = (shape, t.dtype, [])
            group[2].append(at)
        return list(groups.values())

    def _add_bad_result(self, slot: int, tensor: torch.Tensor, values: BadValues) -> None:
        """Add a result that was measured as NaN or Inf, with the inputs that its op saved and the origin of the bad
        value.

        Called by ``Norms`` for each bad tensor.

        :param slot: the position of the result among those being measured.
        :param values: which bad values the result has.
        """
        ref, first, after, entry = self._measuring[4 * slot : 4 * slot + 4]
        if len(self._bad_results) < self._limit:
            made = ref()
            node = made.grad_fn if made is not None else self._node_of(first, after)
            saved, leaves = _saved_inputs_and_leaves(node, first)
            result = NonFiniteResult(first, after - 1, entry, values, ())
            self._set_inputs(result, saved, leaves)
            self.nongraph.measure_noted()
            result.origin = self.nongraph.origin_of((*(t for _, t in saved), *leaves)) or self._statistics_origin(
                result
            )
            if result.origin is None:
                tensors = [t for _, t in saved]
                result.origin = (
                    self.nongraph.origin_by_cast(first, tensors)
                    if saved
                    else self.nongraph.origin_by_shape(first, values.shape)
                )
                result.guessed = result.origin is not None
                if not (saved or result.guessed or result.leaves):
                    self._unexplained = (
                        result
                        if self._unexplained is None or result.last < self._unexplained.last
                        else self._unexplained
                    )
            self._attribute_to_number(result)
            self._bad_results.append(result)
            self._bad_results.sort(key=lambda b: b.last)

    def _set_inputs(
        self, result: NonFiniteResult, saved: Iterable[tuple[str, torch.Tensor]], leaves: Iterable[torch.Tensor]
    ) -> None:
        """Set the known inputs of the op that made `result`, and its bad leaves. Not every op saves all its inputs."""
        bad = [leaf for leaf in leaves if bad_values(leaf)]
        result.leaves = tuple((self._leaves.get(leaf), stat_of("", leaf)) for leaf in bad)
        storages = {storage_of(leaf) for leaf in bad} - {None}
        result.inputs = tuple(stat_of(name, t) for name, t in saved if storage_of(t) not in storages)

    def _statistics_origin(self, result: NonFiniteResult) -> NonFiniteResult | None:
        """Return the op that made the running statistics of a normalisation bad; ``None`` if they are not to blame.

        If the normalisation's own input was bad, that is remembered instead: it enters the running statistics, whether
        or not the script uses the result.
        """
        where = result.entry[3]
        if where is None or op_name(result.entry[2]) not in ("batch_norm", "instance_norm"):
            return None
        key, own_bad = (where.root, where.path), result.inputs[0].bad if result.inputs else result.output
        if own_bad is not None and key not in self._statistics_origins:
            self._pending_statistics.append((key, result))
        return self._statistics_origins.get(key) if own_bad is None or not result.inputs else None

    def _attribute_to_number(self, result: NonFiniteResult, number: bool = False) -> None:
        """Attribute `result` to a Python number, if it has no other certain origin.

        That requires that a number was an argument (`number`), or that the op cannot make NaN by itself.
        """
        if result.origin is None or (result.guessed and number):
            bad_inputs = [t for t in result.inputs if t.bad is not None]
            is_number_only = (
                info(op_name(result.entry[2])).makes_no_nan
                if not bad_inputs
                else not any(t.shape or t.made for t in bad_inputs)
            )
            if number or is_number_only:
                nan = result.output.nan > 0
                result.origin = self.nongraph.number_origin(nan) or result.origin
                result.guessed = result.origin is not None

    def _fill_in_inputs(self, graph: LiveGraph) -> None:
        """Fill in the inputs of bad results whose tensors were gone when measured, from their nodes in `graph`."""
        self._graph = graph
        for result in self._bad_results:
            if result.inputs or not (result.origin is None or result.guessed):
                continue
            saved, leaves = _saved_inputs_and_leaves(self._node_of(result.first, result.last + 1), result.first)
            if saved or leaves:
                self.nongraph.measure_noted()
                self._set_inputs(result, saved, leaves)
                origin = self.nongraph.origin_of((*(t for _, t in saved), *leaves)) or self._statistics_origin(result)
                sure, origin = (
                    origin is not None,
                    origin or self.nongraph.origin_by_cast(result.first, [t for _, t in saved]),
                )
                result.origin, result.guessed = (
                    origin or result.origin,
                    not sure and (result.guessed or origin is not None),
                )
                self._attribute_to_number(result)
        self._graph = None

    def _node_of(self, first: int, after: int) -> torch.autograd.graph.Node | None:
        """Return the last node that the op made which moved the node counter from `first` to `after`, if the graph is
        known.
        """
        graph = self._graph
        if graph is None:
            return None
        at = max(
            (i for i, seq in enumerate(graph.seqs) if first <= seq < after), key=graph.seqs.__getitem__, default=None
        )
        return None if at is None else graph.nodes[at]

    def _check_op(self, op: Op, entry: Entry) -> None:
        """Check the result of an op at once for NaN and Inf, and note a bad one with its inputs and its origin."""
        out = op.out
        tensors = (out,) if isinstance(out, _Tensor) else out if isinstance(out, (tuple, list)) else ()
        for t in tensors:
            plain = type(t) is _Tensor or private.is_distributed(t)
            if not plain or not is_float(t) or private.is_unsafe_to_read(t):
                self._unchecked += not plain and isinstance(t, _Tensor)
                continue
            was = torch.is_grad_enabled()
            torch._C._set_grad_enabled(False)
            try:
                norms = Norms(sums=True)
                norms.now(t)
                norms.flush()
                if norms.bad and len(self._bad_results) < self._limit:
                    result = NonFiniteResult(op.before, op.after - 1, entry, norms.bad[0], self._inputs(op))
                    self.nongraph.measure_noted()
                    result.origin = self.nongraph.origin_of(
                        tensors_in((op.args, op.kwargs), depth=3)
                    ) or self._statistics_origin(result)
                    self._attribute_to_number(result, any(type(one) is float and one - one != 0.0 for one in op.args))
                    self._bad_results.append(result)
                    self._complete_origins()
            finally:
                torch._C._set_grad_enabled(was)

    def _inputs(self, op: Op) -> tuple[TensorStat, ...]:
        """Return the statistics of the tensors that an op got, with the names that the script's variables give them."""
        names = tensor_names(self._frames, op.frame)
        inputs = []
        for value in [*op.args, *op.kwargs.values()]:
            for t in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(t, _Tensor):
                    inputs.append(stat_of(names.get(id(t), ""), t))
        return tuple(inputs)

    def unseen(self) -> list[Unseen]:
        """Return how many results could not be checked, if any."""
        if not self._unchecked:
            return []
        return [
            Unseen("forward results", self._unchecked, "not checked for NaN and Inf: a tensor subclass or a transform")
        ]


def finite(values: Iterable[object]) -> bool:
    """Return whether no number among `values`, which may contain lists, is NaN or Inf."""
    return all(finite(one) if type(one) is list else type(one) is not float or one - one == 0.0 for one in values)


def _has_checked_input(node: Any) -> bool:
    """Return whether the input of `node` is the result of an op that was checked itself, or a view of one.

    See Note [Results that need no check].
    """
    for _ in range(4):
        node = node.next_functions[0][0] if node is not None else None  # inside a transform there is none
        name = type(node).__name__
        if name in _CHECKED_NODES:
            return True
        if not info(name).reshapes:
            return False
    return False


def _saved_inputs_and_leaves(node: Any, first: int) -> tuple[list[tuple[str, torch.Tensor]], list[torch.Tensor]]:
    """Return the inputs that the nodes of an op saved, and the leaves among the next functions of these nodes.

    :param node: the last node that the op made; ``None`` if it is unknown.
    :param first: the sequence number of the op's first node.
    """
    saved: list[tuple[str, torch.Tensor]] = []
    leaves: list[torch.Tensor] = []
    nodes = [node] if node is not None else []
    for one in nodes:  # grows as we go
        saved += [(name, t) for name, t in private.saved_tensors(one) if name != "result"]
        for child, _ in one.next_functions if len(nodes) < MAX_READ_NODES_PER_OP else ():
            if child is None or child in nodes:
                continue
            if hasattr(child, "variable"):
                leaves.append(child.variable)
            elif child._sequence_nr() >= first:
                nodes.append(child)
    return saved, leaves


def tensor_names(frames: Frames, frame: FrameType | None) -> dict[int, str]:
    """Return the names of tensors in the variables and modules of the user's frames from `frame` outwards, by tensor
    id.
    """
    names: dict[int, str] = {}
    while frame is not None:
        if frames.is_user(frame.f_code):
            for name, value in variables(frame).items():
                if is_a(value, _Tensor):
                    names.setdefault(id(value), name)
                elif is_a(value, torch.nn.Module):
                    for path, p in value.named_parameters(remove_duplicate=False):
                        names.setdefault(id(p), path)
        frame = frame.f_back
    return names
