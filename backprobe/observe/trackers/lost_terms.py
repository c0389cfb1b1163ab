"""Finds terms of a loss that were computed from trained parameters and have no graph.

Note [Terms of a loss]: the sums that made the root of a backward call are followed back to their terms. A term without
a graph is reported if all of this holds:

- Its value comes from a tensor that requires a gradient, by an operation under ``no_grad``, by ``detach``, ``item``,
  NumPy or the like; or it is a gradient that ``autograd.grad`` computed without ``create_graph``. Values are followed
  through operations of torch, and through Python by the numbers themselves.
- Or its graph ends at a tensor with such a value, or with one that was compared or rounded before, of which the script
  then said that it requires a gradient, which the script does not read.
- The next optimizer to step trains a parameter that the value depends on.
- Another term has a graph and another value: some losses repeat a term with the gradient stopped at the other input.
- The script does not detach it in the statement that adds it, and it is no baseline: a difference of one function's
  results. A number that is read with ``item()`` in the statement is no such choice.
"""

from __future__ import annotations

import ast
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from types import FrameType
from typing import Any

import torch

from ... import thresholds
from ...ops import canonical
from ...records import LostTerm, Site
from ...source.frames import CodeLocation, variables
from ...source.index import index_of, spans
from ...source.operands import adds_number_read_there
from ...torch_internals import private
from ...torch_internals.async_scalars import Later, capturing
from ...torch_internals.entry_points import as_list
from ...torch_internals.optimizers import ids_held_by
from ..backward.active_backward import ActiveBackward
from ..forward.detach_points import VALUE_INDEPENDENT
from ..forward.followed_tensors import (
    ADDITIONS,
    CASTS,
    DIFFERENCES,
    JOINS,
    MAX_FOLLOWED,
    SCALINGS,
    SHAPES,
    FollowedTensors,
    nearest_leaves,
)
from ..forward.graph_reentry import is_foreign
from ..forward.oplog import op_name
from ..forward.torch_call_recorder import Op
from ..tracker import Tracker
from ..tracker_context import TrackerContext

_Tensor = torch.Tensor
#: Operations whose result is a multiple of their one input with a graph, or has its value.
_SCALINGS = SCALINGS | CASTS | (SHAPES - {"unsqueeze", "flatten"}) | {"clone", "sum", "mean"}
#: Functions that make a tensor of numbers.
_CONSTRUCTORS = frozenset({torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy, torch.scalar_tensor})
#: Maximum number of lines; of parameters of one term; of nodes on the way to them; of places where one value is lost;
#: of numbers in a list.
MAX_LINES, MAX_PARAMETERS, MAX_NODES, MAX_PLACES, MAX_NUMBERS = 50, 8, 500, 3, 64
#: Maximum number of elements of a storage whose number is kept until the end of the step.
MAX_KEPT_BYTES = 1 << 12
#: Maximum number of the latest reads of numbers that an addition may have in its statement.
MAX_DIRECT_READS = 8
NO_GRAD, AUTOGRAD_GRAD = "no_grad", "autograd.grad"


@dataclass
class _GraphExit:
    """A place at which a value leaves the graph.

    :ivar how: see ``LostTerm``.
    :ivar spots: the operation that left the graph, and the places where the value went to Python and came back.
    :ivar off: the line that turned gradient mode off.
    :ivar leaves: some of the leaves that the value depends on, by id.
    :ivar stepwise: the value passed through an operation without a derivative, as a comparison.
    :ivar reborn: the script said afterwards that it requires a gradient.
    """

    how: str
    spots: tuple[CodeLocation | None, ...]
    off: Site | None
    leaves: dict[int, weakref.ref[torch.Tensor]]
    stepwise: bool = False
    reborn: bool = False

    def through(self, spot: CodeLocation | None) -> _GraphExit:
        """Return the same exit with one more place that the value passed, up to ``MAX_PLACES``."""
        if spot in self.spots or len(self.spots) >= MAX_PLACES:
            return self
        return replace(self, spots=(*self.spots, spot))


@dataclass
class _Term:
    """A number, or a few that were stacked, and the operation that made it.

    :ivar value: the number, without its graph; ``None`` if it is not kept.
    :ivar numbers: variables of Python whose values come from a graph, and that may be among the arguments.
    """

    name: str
    spot: CodeLocation | None
    graph: bool
    cut: _GraphExit | None
    value: Any
    parts: tuple[_Term, ...] = ()
    numbers: tuple[tuple[str, _GraphExit], ...] = ()


@dataclass
class _Found:
    """A term without a graph, and where it is added; ``names``: one of these variables must be in that statement.

    The empty name stands for a number that the statement itself reads.
    """

    cut: _GraphExit
    added: CodeLocation | None
    names: set[str]
    step: int
    trained: bool = False


@dataclass
class _Step:
    """Values and terms that are followed in the running step.

    :ivar lost: where values left the graph; ``reborn``: of those of which the script said afterwards that they require
        a gradient.
    :ivar read: number read from a tensor -> where; ``sums``: line of a read -> sum and count of its numbers.
    :ivar arrays: addresses of NumPy arrays over tensors; ``codes``: functions that made some.
    """

    lost: FollowedTensors[_GraphExit] = field(default_factory=FollowedTensors)
    reborn: FollowedTensors[_GraphExit] = field(default_factory=FollowedTensors)
    terms: FollowedTensors[_Term] = field(default_factory=FollowedTensors)
    read: dict[float, _GraphExit] = field(default_factory=dict)
    sums: dict[CodeLocation | None, tuple[float, int, _GraphExit | None]] = field(default_factory=dict)
    arrays: dict[int, _GraphExit] = field(default_factory=dict)
    codes: dict[Any, _GraphExit] = field(default_factory=dict)


class LostTerms(Tracker):
    """Tracker of terms of losses without a graph: Note [Terms of a loss]."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without values and terms."""
        self._context, self._frames = context, context.frames
        self._step = _Step()
        self._found: dict[Any, _Found] = {}
        #: Found in calls since the last optimizer's step.
        self._pending: list[_Found] = []
        #: The places of values that require a gradient again, and of which the gradient was read.
        self._spots_with_used_gradient: set[tuple[CodeLocation | None, ...]] = set()
        self._later = Later()

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Forget the values and terms of the last step."""
        self._step, self._pending = _Step(), []

    def observing_pauses(self) -> None:
        """Forget the values and terms of the running step."""
        self._step, self._pending = _Step(), []

    # Values that leave the graph

    def op_inspected(self, op: Op) -> None:
        """Follow a value that an op takes out of the graph, into a tensor or a Python number, and note ops that make
        scalars.
        """
        if self._context.recorder.in_builtin_optimizer or private.in_transform():
            return
        tensors = op.tensors()
        if not tensors:
            if op.func in _CONSTRUCTORS and type(op.out) is _Tensor and op.args:
                self._note_constructed(op)
            return
        if not all(map(private.is_dense, tensors)):
            return
        out = op.out
        if type(out) is float or type(out) is list:
            cut = self._find_cut(op.func, tensors[:1], op.frame)
            cut = None if cut is not None and cut.stepwise else cut
            if cut is not None or self._step.read:
                self._note_numbers(out, cut, self._frames.spot_of_op(op.frame))
        elif type(out) is _Tensor and private.is_dense(out):
            cut = None
            if not out.requires_grad and op.func not in VALUE_INDEPENDENT:
                cut = self._find_cut(op.func, tensors, op.frame)
                if cut is not None and not out.is_floating_point():
                    cut = replace(cut, stepwise=True)
                self._note_lost(out, cut)
                cut = None if cut is None or cut.stepwise else cut
            name = canonical(op_name(op.func))
            if out.numel() == 1 or name in JOINS:
                self._note_term(op, name, tensors, cut)

    def data_read(self, tensor: torch.Tensor, out: object, frame: FrameType) -> None:
        """Note that ``tensor.data`` of a tensor with a graph was read: its value has left the graph."""
        if tensor.requires_grad and private.is_dense(tensor):
            self._note_lost(out, self._new_cut("data", [tensor], frame))

    def memory_read(self, func: object, tensor: torch.Tensor, out: object, frame: FrameType) -> None:
        """Note that a tensor's value went to NumPy, with the array's address and the user's function that made it."""
        if not private.is_dense(tensor):
            return
        cut = self._find_cut(func, [tensor], frame)
        if cut is None or cut.stepwise:
            return
        if type(out).__module__ == "numpy" and len(self._step.arrays) < MAX_FOLLOWED:
            user = self._frames.first(frame)
            self._step.arrays[tensor.data_ptr()] = cut
            if user is not None:
                self._step.codes[user.f_code] = cut

    def leaf_begins(self, tensor: torch.Tensor, frame: FrameType) -> None:
        """Note that a value which has left the graph is to get a gradient of its own."""
        cut = self._step.lost.get(tensor)
        if cut is not None:
            self._step.reborn.put(tensor, replace(cut, reborn=True).through(self._frames.spot_of_op(frame)))

    def grad_read_or_set(self, value: object, put: bool, frame: FrameType) -> None:
        """Note that the script reads or sets the gradient of a value that requires one again: that use is intended."""
        for tensor, cut in self._step.reborn.items():
            if tensor.grad is value:
                self._spots_with_used_gradient.add(cut.spots)

    def backward_returned(self, running: ActiveBackward) -> None:
        """Note the gradients that a call of ``autograd.grad`` returned without a graph."""
        if running.kind != AUTOGRAD_GRAD or running.creates_graph or not isinstance(running.result, tuple):
            return
        leaves: dict[int, weakref.ref[torch.Tensor]] = {}
        for root in running.roots:
            leaves.update(nearest_leaves(root, MAX_PARAMETERS, MAX_NODES))
        cut = _GraphExit(AUTOGRAD_GRAD, (running.spot,), None, leaves)
        for grad in running.result:
            if type(grad) is _Tensor and private.is_dense(grad):
                self._note_lost(grad, cut)

    def _find_cut(self, func: object, tensors: Iterable[torch.Tensor], frame: FrameType) -> _GraphExit | None:
        """Return where the values of `tensors` leave the graph: in this call of `func`, or earlier; ``None`` if they
        never had a graph.
        """
        sources, earlier = [], None
        for t in tensors:
            known = self._step.lost.get(t)
            if known is not None:
                earlier = known if earlier is None or earlier.stepwise else earlier
            elif t.requires_grad:
                sources.append(t)
            elif self._step.codes and (earlier is None or earlier.stepwise) and is_foreign(t):
                earlier = self._cut_of_numpy(frame) or earlier
        if earlier is not None and not (earlier.stepwise and sources):
            for t in sources:
                if len(earlier.leaves) < MAX_PARAMETERS:
                    earlier.leaves.update(nearest_leaves(t, MAX_PARAMETERS, MAX_NODES))
            return earlier
        return self._new_cut(op_name(func), sources, frame) if sources else None

    def _new_cut(self, name: str, sources: Iterable[object], frame: FrameType) -> _GraphExit:
        """Return the exit of values from the graph in an op called by `frame`, with the leaves near its `sources`.

        :param name: how the value leaves the graph, unless gradient mode is off.
        """
        leaves: dict[int, weakref.ref[torch.Tensor]] = {}
        for t in sources:
            leaves.update(nearest_leaves(t, MAX_PARAMETERS, MAX_NODES))
        off = not torch.is_grad_enabled()
        site = self._context.modules.grad_off.last if off else None
        return _GraphExit(NO_GRAD if off else name, (self._frames.spot_of_op(frame),), site, leaves)

    def _note_lost(self, tensor: torch.Tensor, cut: _GraphExit | None) -> None:
        """Follow `tensor`, whose value left the graph at `cut`; stop following it if that is ``None``."""
        if cut is None:
            self._step.lost.drop(tensor)
        else:
            self._step.lost.put(tensor, cut)

    # Values in Python

    def _note_numbers(self, out: object, cut: _GraphExit | None, spot: CodeLocation | None) -> None:
        """Note the Python numbers that an op returned, and the sum of the numbers read at this line.

        :param cut: where their values left the graph; ``None`` if they never had one.
        """
        for number in [out] if type(out) is float else _numbers_in(out):
            if cut is not None and len(self._step.read) < MAX_FOLLOWED:
                self._step.read[number] = cut
        if type(out) is float:
            total, count, earlier = self._step.sums.get(spot, (0.0, 0, None))
            self._step.sums[spot] = total + out, count + 1, earlier or cut

    def _cut_of_number(self, number: float) -> _GraphExit | None:
        """Return where a tensor's value became the Python number `number`, or the sum or mean of the numbers read at a
        place.
        :returns: ``None`` if it is not known.
        """
        if number in (0.0, 1.0, -1.0):
            return None
        known = self._step.read.get(number)
        if known is None and len(self._step.sums) < MAX_NUMBERS:
            sums = self._step.sums.values()
            known = next((cut for total, count, cut in sums if cut and number in (total, total / count)), None)
        return known

    def _note_constructed(self, op: Op) -> None:
        """Note a tensor that is made of numbers which were read from tensors."""
        value, step = op.args[0], self._step
        cut = None
        if type(value).__module__ == "numpy":
            if type(value).__name__ == "ndarray":
                cut = step.arrays.get(value.__array_interface__["data"][0])
            cut = cut or self._cut_of_numpy(op.frame)
        elif step.read:
            numbers = [value] if type(value) is float else _numbers_in(value)
            cut = next((known for one in numbers if (known := self._cut_of_number(one)) is not None), None)
        if cut is not None and op.out.is_floating_point() and not op.out.requires_grad:
            cut = cut.through(self._frames.spot_of_op(op.frame))
            self._note_lost(op.out, cut)
            if op.out.numel() == 1:
                self._step.terms.put(op.out, _Term("", cut.spots[-1], False, cut, _value(op.out)))

    def _cut_of_numpy(self, frame: FrameType) -> _GraphExit | None:
        """Return where the running function of the user's turned a tensor into an array of NumPy."""
        user = self._frames.first(frame)
        return self._step.codes.get(user.f_code) if user is not None else None

    def _variables_added(self, op: Op) -> tuple[tuple[str, _GraphExit], ...]:
        """Return the variables of the user's function whose numbers an addition may add."""
        added = [one for one in op.args if isinstance(one, float)]
        user = self._frames.first(op.frame) if added and (self._step.read or self._step.codes) else None
        if user is None:
            return ()
        found = []
        for name, value in islice(variables(user).items(), 500):
            if type(value) is float and (cut := self._cut_of_number(value)) is not None:
                found.append((name, cut))
        reads = islice(reversed(self._step.read.values()), MAX_DIRECT_READS)
        found += [("", cut) for cut in reads if (at := cut.spots[-1]) is not None and at[0] is user.f_code]
        if type(added[0]) is not float and (cut := self._cut_of_numpy(user)) is not None:
            found += [(name, cut) for name, value in variables(user).items() if value is added[0]]
        return tuple(found)

    # Terms

    def _note_term(self, op: Op, name: str, tensors: Iterable[torch.Tensor], cut: _GraphExit | None) -> None:
        """Note a number that requires a gradient or was computed from one that does, and how it was made."""
        out = op.out
        if not out.requires_grad and cut is None:
            return
        parts = []
        for t in tensors if name in ADDITIONS or name in _SCALINGS or name in JOINS else ():
            known, lost = self._step.terms.get(t), self._step.lost.get(t)
            if known is not None:
                parts.append(known)
            elif t.requires_grad:
                parts.append(_Term("", None, True, None, _value(t)))
            elif lost is not None:
                parts.append(_Term("", lost.spots[-1], False, _unless_stepwise(lost), _value(t)))
        numbers = self._variables_added(op) if name in ADDITIONS and out.requires_grad else ()
        spot = self._frames.spot_of_op(op.frame)
        cut = cut or self._reborn_cut(out)
        graph = out.requires_grad and cut is None
        self._step.terms.put(out, _Term(name, spot, graph, cut, _value(out), tuple(parts), numbers))

    def _reborn_cut(self, tensor: torch.Tensor) -> _GraphExit | None:
        """Return where a number left the graph, if its own graph only reaches values that require a gradient again."""
        reborn = self._step.reborn
        if not reborn or not tensor.requires_grad:
            return None
        known = [reborn.get(ref()) for ref in nearest_leaves(tensor, MAX_PARAMETERS, MAX_NODES).values()]
        return known[0] if known and None not in known else None

    def graph_walked(self, running: ActiveBackward, frame: FrameType) -> None:
        """Find the terms of a loss that have no graph, when a backward call from the loss begins."""
        step = self._step
        if running.inside is not None or not (step.lost or step.read or step.codes):
            return
        if running.kind == AUTOGRAD_GRAD:  # the script asks for the gradients of its inputs
            self._spots_with_used_gradient.update(
                cut.spots for cut in step.reborn.of(as_list(running.arguments.get("inputs")))
            )
        for term in step.terms.of(running.roots):
            self._check_root(term)

    def _check_root(self, root: _Term) -> None:
        """Note the terms without a graph of a backward call's root, if other terms have one."""
        with_graph, without, numbers = _terms_of(root)
        if not with_graph:
            return
        alive = self._different(without, with_graph) if without else []
        for term, added in alive:
            assert term.cut is not None
            self._note_found(term.cut, added, set())
        for (name, cut), added in numbers:
            self._note_found(cut, added, {name})

    def _different(
        self, without: list[tuple[_Term, CodeLocation | None]], with_graph: list[_Term]
    ) -> list[tuple[_Term, CodeLocation | None]]:
        """Return those terms `without` a graph whose value is not zero, and differs from that of each term with a
        graph.
        """
        terms = [*(term for term, _ in without), *with_graph]
        if capturing() or private.in_mode():
            return []
        known = [term for term in terms if term.value is not None]
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            values = dict(zip(map(id, known), self._later.fetch([one.value.reshape(()) for one in known]), strict=True))
        others = [values[id(term)] for term in with_graph if id(term) in values]
        found = []
        for term, added in without:
            value = values.get(id(term))
            if value is None or (
                value != 0
                and not any(abs(value - one) <= thresholds.LOSS_TERM_TOLERANCE * abs(value) for one in others)
            ):
                found.append((term, added))
        return found

    def _note_found(self, cut: _GraphExit, added: CodeLocation | None, names: set[str]) -> None:
        """Note a term without a graph, until the next optimizer step shows whether it depends on trained parameters.

        :param added: the line that adds it to the loss.
        :param names: variables, one of which must be in that statement.
        """
        key = added, cut.how, cut.spots
        known = self._found.get(key)
        if known is None:
            if len(self._found) >= MAX_LINES:
                return
            known = self._found[key] = _Found(cut, added, set(), self._context.steps.index)
        known.names |= names
        known.cut.leaves.update(cut.leaves)
        self._pending.append(known)

    def optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """Mark the terms found since the last optimizer step that depend on a parameter of the optimizer which just
        stepped.
        """
        if not self._pending:
            return
        held = ids_held_by(optimizer)
        for found in self._pending:
            leaves = (ref() for ref in found.cut.leaves.values())
            found.trained |= any(id(leaf) in held for leaf in leaves if leaf is not None)

    def records(self) -> tuple[LostTerm, ...]:
        """Return a record of each lost term that depends on trained parameters and does not look intended."""
        names, site = self._context.names.leaves, self._frames.site
        found = []
        for one in self._found.values():
            spots = [at for spot in one.cut.spots if (at := site(spot)) is not None]
            added = site(one.added)
            if (
                not one.trained
                or not spots
                or one.cut.spots in self._spots_with_used_gradient
                or _is_intended(one, spots, added)
            ):
                continue
            cuts = [one.cut.off, *spots] if one.cut.off is not None else spots
            cuts = list({(at.file, at.line): at for at in reversed(cuts)}.values())[::-1]
            parameters = tuple(sorted(set(names.names_of(one.cut.leaves.values(), parameters_only=True))))
            found.append(LostTerm(one.cut.how, tuple(cuts), added, parameters, one.step, one.cut.reborn))
        return tuple(found)


def _terms_of(
    root: _Term,
) -> tuple[
    list[_Term], list[tuple[_Term, CodeLocation | None]], list[tuple[tuple[str, _GraphExit], CodeLocation | None]]
]:
    """Return the terms that `root` is the sum of: with a graph, without one, and numbers of Python.

    Each of the latter comes with the place that adds it.
    """
    with_graph: list[_Term] = []
    without: list[tuple[_Term, CodeLocation | None]] = []
    numbers: list[tuple[tuple[str, _GraphExit], CodeLocation | None]] = []
    stack: list[tuple[_Term, CodeLocation | None, bool]] = [(root, None, False)]
    visited = 0
    while stack and visited < 1000:
        term, added, scaled = stack.pop()
        visited += 1
        graphs = [part for part in term.parts if part.graph]
        if not term.graph:
            inner = [part for part in term.parts if part.cut is not None]
            if term.name in _SCALINGS and len(inner) == 1 and inner[0].value is not None:
                stack.append((inner[0], added, True))
            elif term.cut is not None:
                without.append((term, added))
        elif term.name in ADDITIONS or term.name in JOINS:
            if term.name in DIFFERENCES and (scaled or _is_baseline(term)):
                with_graph.append(term)
                continue
            numbers += [(one, term.spot) for one in term.numbers]
            stack += [(part, term.spot, scaled) for part in term.parts]
        elif term.name in _SCALINGS and len(graphs) == 1 and (graphs[0].value is not None or graphs[0].name in JOINS):
            joined = graphs[0].name in JOINS
            stack.append((graphs[0], added, scaled or (added is not None and not joined)))
        else:
            with_graph.append(term)
    return with_graph, without, numbers


def _is_baseline(term: _Term) -> bool:
    """Return whether a difference compares two results of one function."""
    if len(term.parts) != 2:
        return False
    one, other = term.parts
    same = bool(one.name) and one.name == other.name
    return same and (one.spot == other.spot or "loss" in one.name or "entropy" in one.name)


def _is_intended(found: _Found, spots: list[Site], added: Site | None) -> bool:
    """Return whether the script removes the graph in the statement that adds the term, or adds no such number there."""
    if added is None:
        return bool(found.names)
    index = index_of(added.file)
    function = index.function_at(added.line, added.function)
    simple = (one for one in index.inside(function) if isinstance(one, ast.stmt) and not hasattr(one, "body"))
    statement = next((one for one in simple if spans(one, added.line)), None)
    if statement is None:
        return True
    if found.cut.how != NO_GRAD and any(at.file == added.file and spans(statement, at.line) for at in spots):
        return "" not in found.names or not adds_number_read_there(statement, index)
    used = {one.id for one in index.walk(statement) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
    return bool(found.names) and not found.names & used


def _numbers_in(value: Any) -> list[float]:
    """Return the numbers in a list or tuple, which may contain others."""
    found: list[float] = []
    stack = [value]
    while stack and len(found) < MAX_NUMBERS:
        one = stack.pop()
        if type(one) is float:
            found.append(one)
        elif type(one) in (list, tuple):
            stack += one[:MAX_NUMBERS]
    return found


def _unless_stepwise(cut: _GraphExit) -> _GraphExit | None:
    """Return `cut`, or ``None`` if the value passed through an operation without a derivative."""
    return None if cut.stepwise else cut


def _value(tensor: torch.Tensor) -> Any:
    """Return a tensor with the value of a number, without its graph; ``None`` if it is not to be kept."""
    if tensor.numel() != 1 or private.is_unsafe_to_read(tensor) or tensor.untyped_storage().nbytes() > MAX_KEPT_BYTES:
        return None
    return tensor.data
