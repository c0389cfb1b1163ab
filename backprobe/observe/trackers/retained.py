"""Detects graphs of earlier steps that stay alive, and finds what holds them.

Note [Marks on graphs]: nodes do not support weak references. So one node of each step's graph, the first one made by a
module, carries a mark object in its metadata, which dies with the node. Nothing else of the graph is referenced.
Computations outside of modules, such as weight averages or states, have graphs of their own: the first nodes made there
carry marks too, in the first steps and in every fourth step.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import CellType, CodeType, FrameType, GeneratorType, TracebackType
from typing import Any

import torch

from ... import thresholds
from ...graphs.plan import ACCUMULATE
from ...records import Retained, Site, Step
from ...source.assignments import assigned_in, changes_of, gives
from ...source.frames import CodeLocation, variables
from ...source.sites import site_at
from ...torch_internals import private
from ...torch_internals.structure import tensors_in
from ..backward.active_backward import ActiveBackward
from ..forward.oplog import op_name, spot_of
from ..forward.torch_call_recorder import Op
from ..tracker import Tracker
from ..tracker_context import TrackerContext

_METADATA_KEY = "backprobe"
#: Maximum number of nodes of a graph that are walked.
_MAX_WALKED_NODES = 5_000
#: Maximum number of nodes per step that are marked outside of modules.
MAX_MARKED_OUTSIDE = 64
#: Maximum number of tensors for which a name is searched, and of levels of nested containers.
MAX_NAMED_TENSORS, MAX_CONTAINER_DEPTH = 20, 3
#: Maximum number of objects for which ``gc.get_referrers`` is faster than a search with a set.
MAX_REFERRER_OBJECTS = 16
#: The type of a function decorated with ``lru_cache``.
_LRU_CACHE_TYPE: Any = type(lru_cache(print))
#: Maximum number of frames of a traceback that are followed.
MAX_TRACEBACK_FRAMES = 10

#: Maximum distance of a marked node from the root of its graph.
MAX_MARK_DISTANCE = 64


class Mark:
    """The mark on a node.

    :ivar round: the number of the step, or of the outermost module call if no optimizer has stepped.
    :ivar call: the number of earlier backward calls of that step that kept their graph.
    :ivar step: the number of the step in any case.
    """

    __slots__ = ("__weakref__", "call", "round", "step")

    def __init__(self, number: int, call: int, step: int) -> None:
        self.round, self.call, self.step = number, call, step


class RetainedGraphs(Tracker):
    """Tracker that marks graphs, counts those that are alive, and searches for the holder if there are too many."""

    def __init__(self, context: TrackerContext) -> None:
        """Start in round 0, without marks."""
        self._context, self._modules, self._frames = context, context.modules, context.frames
        self._live_marks: deque[weakref.ref[Mark]] = deque(maxlen=2000)
        self._round = 0
        #: The number of finished steps.
        self._finished_steps = 0
        self._live_graph_limit = thresholds.RETAINED_MIN_GRAPHS
        self._found: Retained | None = None
        #: The record was made before the first backward call, which may still use these graphs.
        self._only_forward = False
        self._had_backward = False
        #: Fast-path steps have ended since the last other step.
        self._had_fast_path_steps = False
        self._search_pause, self._next_search = 8, 0
        #: A forward has run since the last backward call.
        self._had_forward = False
        self._marked_outside = 0
        #: Number of backward calls of this step that kept their graph.
        self._graph_keeping_calls = 0

    def first_module_returned(self, output: object) -> None:
        """Mark the graph of `output`, which the first module of an outermost call returned."""
        node = next((t.grad_fn for t in tensors_in(output, most=100) if t.grad_fn is not None), None)
        if node is not None:
            self._mark(node)

    def sentinel_call_begins(self, spot: CodeLocation | None, roots: Sequence[object]) -> None:
        """Mark a node far from the root: in a step that is not recorded, module outputs are not observed."""
        if roots and self._round % 4 == 0:
            self._mark_far_from_root(roots[0])

    def root_sampled(self, root: object) -> None:
        """Start a round for each marked fast-path step, as the ends of fast-path steps are not observed."""
        self._round += 1
        self._had_fast_path_steps = True
        self._mark_far_from_root(root)

    def ended(self) -> None:
        """Search once more if the last steps took the fast path."""
        if self._had_fast_path_steps:
            self._next_search, self._finished_steps = 0, self._context.steps.index
            self._next_round(False, max(1, len(self._context.steps.recorded_optimizers)))

    def _mark_far_from_root(self, root: object) -> None:
        """Mark a node some edges below the backward call's `root`, unless it has a mark or the root has no graph."""
        node: Any = getattr(root, "grad_fn", None)
        for _ in range(MAX_MARK_DISTANCE if node is not None else 0):
            further = (child for child, _ in node.next_functions if child is not None)
            below = next((child for child in further if child.name() != ACCUMULATE), None)
            if below is None:
                break
            node = below
        if node is not None and _METADATA_KEY not in node.metadata:
            self._mark(node)

    def _mark(self, node: torch.autograd.graph.Node) -> None:
        """Put a mark with the current round into the metadata of `node`, and watch whether it stays alive."""
        mark = Mark(self._round, self._graph_keeping_calls, self._context.steps.index)
        node.metadata[_METADATA_KEY] = mark
        self._live_marks.append(weakref.ref(mark))

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Mark the results of ops outside of modules during this step, in the first steps and in every fourth."""
        events = self._context.events
        events.graph_op.remove(self._mark_result)
        self._marked_outside = 0
        if self._round < 8 or self._round % 4 == 0:
            events.graph_op.add(self._mark_result)

    def observing_pauses(self) -> None:
        """Stop marking the results of ops outside of modules."""
        self._context.events.graph_op.remove(self._mark_result)

    def _mark_result(self, out: object, before: int, after: int, entry: Any) -> None:
        """Mark the node of the result of an op that ran outside of modules; a listener of ``graph_op``.

        It removes itself after ``MAX_MARKED_OUTSIDE`` results of a step.
        """
        if entry[3] is not None or not isinstance(out, torch.Tensor):
            return
        self._marked_outside += 1
        if self._marked_outside > MAX_MARKED_OUTSIDE:  # this creates no more node wrappers: Note [Freeing deep graphs]
            self._context.events.graph_op.remove(self._mark_result)
        elif out.grad_fn is not None and _METADATA_KEY not in out.grad_fn.metadata:
            self._mark(out.grad_fn)

    def op_inspected(self, op: Op) -> None:
        """Mark the result of an op in a closely inspected step as ``_mark_result`` does in others, except in
        optimizers.
        """
        if op.entry is not None and not op.optimizing:
            self._mark_result(op.out, op.before, op.after, op.entry)

    def forward_begins(self) -> None:
        """Start a round for each outermost module call, until there are optimizer steps or backward calls."""
        context = self._context
        self._had_forward = True
        if not context.steps.has_stepped and not context.calls.count and not context.calls.running:
            self._next_round(forward_only=True)

    def step_ended(self, step: Step) -> None:
        """Start the next round, which searches for the holder if too many graphs of earlier steps are alive."""
        self._had_fast_path_steps = False
        self._finished_steps = step.index + 1
        self._next_round(False, max(1, len(self._context.steps.recorded_optimizers)))

    def _next_round(self, forward_only: bool, optimizers: int = 1) -> None:
        """Start a round, and search for the holder if too many earlier graphs are alive.

        :param forward_only: the round is an outermost module call, not a step.
        :param optimizers: how many optimizers take turns: the script's variables hold the last graph of each.
        """
        self._round += 1
        self._graph_keeping_calls = 0
        enough = self._live_graph_limit * optimizers - forward_only
        alive = self._earlier_alive()
        self._context.steps.set_live_graphs(len(alive))
        if self._found is not None and len(alive) > self._found.graphs and not self._found.within:
            self._found = replace(self._found, graphs=len(alive), grew=True, **self._oldest_alive(alive))
        while self._live_marks and self._live_marks[0]() is None:
            self._live_marks.popleft()
        if len(alive) < enough or self._round < self._next_search:
            return
        gc.collect()
        alive = self._earlier_alive()
        if len(alive) < enough:  # the garbage collector freed them; it is slow, so check less often
            self._search_pause *= 2
            self._next_search = self._round + self._search_pause
            return
        self._live_graph_limit *= 4
        self._only_forward = forward_only
        with private.disable_function_modes():
            found = self._find_holder(len(alive), self._earlier_rounds)
        if found is not None and (found.holder or self._found is None):  # later, the name may be gone
            before = self._found
            grew = before is not None and before.graphs < len(alive)
            self._found = replace(found, grew=grew, **self._oldest_alive(alive))

    def _earlier_alive(self) -> dict[int, int]:
        """Return the steps of earlier marked graphs that are alive, by round, without the last round."""
        marks = (mark for ref in self._live_marks if (mark := ref()) is not None)
        return {mark.round: mark.step for mark in marks if mark.round < self._round - 1}

    def _oldest_alive(self, alive: dict[int, int]) -> dict[str, Any]:
        """Return the step of the oldest of these graphs, and the number of steps since then without the last one."""
        first = min(alive.values())
        return {"first": first, "steps": max(self._finished_steps - 1 - first, len(alive))}

    def backward_begins(self) -> None:
        """Start a round if no optimizer marks the end of a step. The first backward call discards earlier results."""
        if not self._had_backward:
            self._had_backward = True
            self._found, self._only_forward, self._live_graph_limit = None, False, thresholds.RETAINED_MIN_GRAPHS
            for ref in self._live_marks:  # all outermost calls so far belong to one step
                mark = ref()
                if mark is not None:
                    mark.round = self._round
        elif self._had_forward and not self._context.steps.optimizers:
            self._next_round(False)  # without an optimizer, a step's end is unknown
        self._had_forward = False

    def graph_walked(self, running: ActiveBackward, frame: FrameType) -> None:
        """Check whether backward calls of one step that keep their graphs each pass through all earlier graphs."""
        if not running.arguments.get("retain_graph") or running.creates_graph or running.kind == "autograd.grad":
            return
        self._graph_keeping_calls += 1
        if self._graph_keeping_calls != thresholds.RETAINED_CALLS_BEFORE_CHECK or self._found is not None:
            return
        calls = {call for start in running.starts[:1] if start is not None for _, call in _marks_below(start)}
        if len(calls) >= thresholds.RETAINED_CALLS_BEFORE_CHECK // 2:
            with private.disable_function_modes():
                self._found = self._find_holder(
                    self._graph_keeping_calls, lambda node: {call for _, call in _marks_below(node)}
                )
                if self._found is not None:
                    self._found = replace(self._found, within=True)

    def records(self) -> tuple[Retained, ...]:
        """Return the record of what holds earlier graphs, if it was found."""
        return (self._found,) if self._found is not None else ()

    def _earlier_rounds(self, node: object) -> set[int]:
        """Return the earlier rounds whose marks are in the graph below `node`."""
        return {number for number, _ in _marks_below(node) if number < self._round - 1}

    def _find_holder(self, alive: int, earlier: Callable[[object], set[int]]) -> Retained | None:
        """Find what holds graphs of earlier steps; ``None`` if no tensor with such a graph was found.

        :param alive: the number of graphs.
        :param earlier: returns the rounds or calls whose marks are in the graph below a node.
        """
        reach: list[tuple[torch.Tensor, set[int]]] = []
        for thing in private.tensors_alive():
            try:
                node = thing.grad_fn
            except RuntimeError:  # an object without a tensor, which older torch leaves for the garbage collector
                continue
            if node is not None:
                rounds = earlier(node)
                if rounds:
                    reach.append((thing, rounds))
        if not reach:
            return None
        # Among tensors that reach equally many graphs and have a name, the first made one: the others derive from it.
        reach.sort(key=lambda item: (-len(item[1]), item[0].grad_fn._sequence_nr()))
        most = len(reach[0][1])
        # If a list holds tensors of one step each, tensors derived from several of them are not the cause.
        apart = [tensor for tensor, rounds in reach if len(rounds) == 1]
        if len(set().union(*(rounds for _, rounds in reach if len(rounds) == 1))) >= max(
            most, thresholds.RETAINED_MIN_GRAPHS
        ):
            found = self._record_of_common_holder(apart, alive)
            if found is not None and found.site is not None:
                return found
        del apart
        if most >= thresholds.RETAINED_MIN_GRAPHS - self._only_forward:
            ends = [tensor for tensor, rounds in reach if len(rounds) == most]
            if len(ends) > MAX_NAMED_TENSORS:
                ends = ends[: MAX_NAMED_TENSORS // 2] + ends[-MAX_NAMED_TENSORS // 2 :]
            reach = []
            end, name = self._first_named(ends)
            site, module, op = self._origin_of(end)
            if name is not None and (site is None or not gives(site, name.name, name.code is not None)):
                site = self._storing_line(name) or site
            how = f"a tensor whose graph {op or 'an operation'} extends"
            return Retained(str(name or ""), how, site, module, alive)
        tensors = [t for t, _ in reach]
        del reach, thing, node, rounds
        return self._record_of_common_holder(tensors, alive)

    def _record_of_common_holder(self, tensors: list[torch.Tensor], alive: int) -> Retained | None:
        """Return a record of the container, or of the function with cached results, that holds many of `tensors`."""
        found: Retained | None = None
        for container, kept in _common_holders(tensors, thresholds.RETAINED_MIN_GRAPHS - self._only_forward):
            code = _caching_function(container)
            if code is not None and self._frames.is_user(code):
                site = site_at(code.co_filename, code.co_firstlineno, code.co_name)
                return Retained(
                    code.co_name, "a function whose results are cached", site, self._origin_of(kept)[1], alive
                )
            _, name = self._first_named([container])
            held = changes_of(self._frames, name.name, name.key, True, name.code) if name is not None else None
            if found is None or held is not None:
                made, module, _ = self._origin_of(kept)
                found = Retained(str(name or ""), f"a {type(container).__name__}", held, module, alive, made=made)
            if held is not None:
                break  # a list that is recreated each time cannot be the holder
        return found

    def _storing_line(self, name: _Name) -> Site | None:
        """Return the line that stores the object called `name`."""
        if name.inside and not name.key:
            return None  # lines that add to a list differ from the line that assigns it
        put = changes_of(self._frames, name.name, name.key, True, name.code) if name.inside else None
        return put or assigned_in(self._frames, name.name, name.code)

    def _origin_of(self, tensor: torch.Tensor) -> tuple[Site | None, str | None, str]:
        """Return the line, module and op that made `tensor`, to name it in a finding."""
        seq = tensor.grad_fn._sequence_nr()
        _, entries = self._context.recorder.log.slice(seq, seq)
        if not entries:
            return None, None, ""
        entry = entries[0]
        name = op_name(entry[2]) if entry[2] is not None else ""
        return self._frames.site(spot_of(entry)), self._modules.place_of(entry[3]), name

    def _first_named(self, things: list[Any]) -> tuple[Any, _Name | None]:
        """Return the first of `things` for which the user's code has a name, and the name.

        The name is a variable or an attribute that is the object or contains it. Without a name, return the first of
        `things` and ``None``. Searching for referrers is slow, so all objects of a level are searched at once.
        """
        level = [(thing, at, "") for at, thing in enumerate(things)]
        first: tuple[int, _Name] | None = None
        for depth in range(MAX_CONTAINER_DEPTH + 1):
            known = {id(held): (at, key) for held, at, key in reversed(level)}
            named, before = [*self._user_variables(known)], first
            holders = (
                _referrers_with_attributes([held for held, _, _ in level])
                if not any(at == 0 for (at, _), _ in named)
                else []
            )
            for _, attributes in holders:
                for name, value in attributes.items():
                    if id(value) in known and isinstance(name, str):
                        named.append((known[id(value)], _Name(name)))
            for (at, key), one in named:
                if first is None or at < first[0]:
                    first = at, replace(one, key=key, inside=depth > 0)
            if before is not None or (first is not None and first[0] == 0):
                break  # items of a named container may be older than it: one more level is enough
            level = [
                (holder, *known[id(value)][:1], known[id(value)][1] or (key if isinstance(key, str) else ""))
                for holder, _ in holders
                if isinstance(holder, (dict, list, tuple, deque)) and holder is not things
                for key, value in (holder.items() if isinstance(holder, dict) else ((None, one) for one in holder))
                if id(value) in known
            ][:MAX_NAMED_TENSORS]
            if not level:
                break
        return (things[first[0]], first[1]) if first is not None else (things[0], None)

    def _user_variables(self, known: Mapping[int, tuple[int, str]]) -> Iterator[tuple[tuple[int, str], _Name]]:
        """Yield the variables of the user's running functions whose values have one of the `known` ids."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            if self._frames.is_user(frame.f_code):
                for name, value in variables(frame).items():
                    if id(value) in known:
                        yield known[id(value)], _Name(name, "", frame.f_code)
            frame = frame.f_back


@dataclass(frozen=True)
class _Name:
    """The name of an object: a variable of the function `code`, or an attribute.

    ``inside``: the object is in a container of this name, under ``key`` if the container is a dict.
    """

    name: str
    key: str = ""
    code: CodeType | None = None
    inside: bool = False

    def __str__(self) -> str:
        return f"{self.name}[{self.key!r}]" if self.key else self.name


def _referrers_with_attributes(things: list[object]) -> list[tuple[Any, dict[Any, Any]]]:
    """Return the referrers of `things`, each with its attributes if it is an object."""
    found = [h for h in gc.get_referrers(*things) if type(h).__name__ != "frame" and h is not things]
    found = [h for h in found if not _is_namespace(h)]
    dicts = {id(h): h for h in found if type(h) is dict}
    owned = {id(getattr(one, "__dict__", None)) for one in (gc.get_referrers(*dicts.values()) if dicts else ())}
    attributes = [h if id(h) in dicts and id(h) in owned else getattr(h, "__dict__", None) for h in found]
    return [(h, names if type(names) is dict else {}) for h, names in zip(found, attributes, strict=True)]


def _caching_function(container: object) -> CodeType | None:
    """Return the code of the function whose cached results are in `container`; ``None`` if it is no such cache."""
    for holder in gc.get_referrers(container) if type(container) is dict else ():
        if type(holder) is _LRU_CACHE_TYPE:
            return getattr(holder.__wrapped__, "__code__", None)
    return None


def _marks_below(node: torch.autograd.graph.Node) -> set[tuple[int, int]]:
    """Return the marks that earlier backward calls have put on the nodes reachable from `node`, as (round, call)."""
    nodes, seen, marks = [node], {node}, set()
    for one in nodes:  # the list grows during the loop
        mark = one.metadata.get(_METADATA_KEY)
        if isinstance(mark, Mark):
            marks.add((mark.round, mark.call))
        for child, _ in one.next_functions:
            if child is not None and child not in seen and len(nodes) < _MAX_WALKED_NODES:
                seen.add(child)
                nodes.append(child)
    return marks


def _common_holders(tensors: list[torch.Tensor], enough: int) -> Iterator[tuple[Any, Any]]:
    """Yield the containers that hold most of `tensors`, each with one of the tensors, nearest containers first.

    Containers are lists, dicts, deques and sets. They may hold the tensors through other containers, objects or
    functions.
    """
    level: dict[int, tuple[Any, Any]] = {id(t): (t, t) for t in tensors}
    own_ids = {id(tensors), id(level), *(id(pair) for pair in level.values())}
    for _ in range(MAX_CONTAINER_DEPTH + 1):
        things = [thing for thing, _ in level.values()]
        count: dict[int, list[Any]] = {}
        frames: dict[int, list[int]] = {}
        held = [(holder, mine) for holder, mine in _referrers_with_ids(things) if id(holder) not in own_ids]
        own_ids |= {id(things), id(held), *map(id, held)}
        for holder, mine in held:
            if holder is things or type(holder).__name__ == "list_iterator":
                continue
            if type(holder) is FrameType:
                frames[id(holder)] = mine
            else:
                for key in mine:
                    count.setdefault(id(holder), [holder, level[key][1], 0])[2] += 1
        for error, mine in _exceptions_holding([h for h, _ in held if id(h) in frames], frames):
            for key in mine:
                count.setdefault(id(error), [error, level[key][1], 0])[2] += 1
        del held
        several = [
            e
            for e in count.values()
            if e[2] >= enough and isinstance(e[0], (list, dict, deque, set)) and not _is_namespace(e[0])
        ]
        for holder, tensor, _ in sorted(several, key=lambda e: -e[2])[:2]:
            yield holder, tensor
        level = {
            key: (holder, tensor)
            for key, (holder, tensor, _) in count.items()
            if isinstance(holder, (tuple, dict, list, CellType, GeneratorType)) or hasattr(holder, "__dict__")
        }
        own_ids |= {
            id(level),
            id(count),
            id(things),
            *(id(p) for p in level.values()),
            *(id(e) for e in count.values()),
        }
        if len(level) > 5000:
            break


def _referrers_with_ids(things: list[object]) -> list[tuple[Any, list[int]]]:
    """Return the referrers of `things`, each with the ids of the things that it refers to.

    ``gc.get_referrers`` compares every reference in the process with each of `things`. If these are many, one pass over
    all objects looks up references in a set instead.
    """
    known = set(map(id, things))
    if len(things) <= MAX_REFERRER_OBJECTS:
        return [(h, [*{id(one) for one in gc.get_referents(h)} & known]) for h in gc.get_referrers(*things)]
    found = []
    for holder in gc.get_objects():
        mine = known.intersection(map(id, gc.get_referents(holder)))
        if mine:
            found.append((holder, [*mine]))
    return found


def _exceptions_holding(
    frames: list[FrameType], held: Mapping[int, list[int]]
) -> list[tuple[BaseException, list[int]]]:
    """Return the exceptions whose tracebacks hold finished frames, each with the ids of what these frames hold."""
    running = {id(one) for one in _running_frames()}
    level: list[Any] = [one for one in frames if id(one) not in running]
    mine = {id(one): set(held[id(one)]) for one in level}
    found: list[tuple[BaseException, list[int]]] = []
    for _ in range(MAX_TRACEBACK_FRAMES):
        if not level:
            break
        above = [pair for pair in _referrers_with_ids(level) if isinstance(pair[0], (TracebackType, BaseException))]
        for holder, keys in above:
            mine[id(holder)] = set[int]().union(*(mine[key] for key in keys))
        found += [(holder, sorted(mine[id(holder)])) for holder, _ in above if isinstance(holder, BaseException)]
        level = [holder for holder, _ in above if isinstance(holder, TracebackType)]
    return found


def _running_frames() -> Iterator[FrameType]:
    """Yield the frames of the functions that run now, in all threads."""
    for frame in sys._current_frames().values():
        one: FrameType | None = frame
        while one is not None:
            yield one
            one = one.f_back


def _is_namespace(holder: object) -> bool:
    """Return whether `holder` is the dict of a module's globals."""
    return type(holder) is dict and ("__builtins__" in holder or "__name__" in holder)
