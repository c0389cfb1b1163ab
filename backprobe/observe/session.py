"""The session: owns everything that is attached to torch, and undoes it in reverse order."""

from __future__ import annotations

import dataclasses
import inspect
import os
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ..graph.plan import needed_for, running_node
from ..packed import Packed, Signature, unpack
from ..records import (
    ACCUMULATE_SEQ,
    Cut,
    Facts,
    FunctionChecked,
    NoGradient,
    OptimizerSeen,
    Parameter,
    Raised,
    RankSeen,
    RankWait,
    RegionGradient,
    Reuse,
    SavedBytes,
    SilentWrite,
    Site,
    Step,
    Stray,
    Unseen,
)
from . import private
from .backward import Hooks, Program, Watch, as_list, describe, node_of, root_record
from .checkpointed import Checkpointed
from .children import Children
from .defined import changed_after, changes_of, returns_at, use_of
from .divergence import Diverging
from .eye import Eye
from .fingerprints import arrays_over
from .frames import Frames, variables
from .functions import Functions
from .graphs import Keeper, Plans, walk
from .hooked import Hooked
from .leaves import Leaf, Leaves
from .ledger import saved_bytes, silent_writes
from .measure import dtype_name
from .modules import ModuleWatch, modules_in_sight
from .origins import Origins
from .raw import LiveLayout, Recorded
from .recompute import Recompute
from .regions import Regions
from .retained import Retention
from .stale import StaleReads
from .steps import StepWatch
from .strays import Strays
from .waiting import Waiting, in_use, of_collective
from .writes import WriteLog, mutation, names_of_storage, variable_of

_GRAD_MODE = torch.autograd.grad_mode.__file__
_ADD_GROUP = inspect.unwrap(torch.optim.Optimizer.add_param_group).__code__
_ROOTS = {"Tensor.backward": "self", "autograd.backward": "tensors", "autograd.grad": "outputs"}
#: Backward calls in a row with bad values that are looked at closely.
TROUBLE = 3
_clock = time.perf_counter
#: Seconds that cannot be measured from inside: of an op under the eye, of a module call, of handing a node's gradients
#: to a hook. Measured with bench/overhead.py where a call of an empty function took ``_CALL``; for the report's
#: "took about" only.
_OP, _MODULE, _NODE, _CALL = 4e-6, 3.6e-6, 2.5e-6, 4.0e-8


@dataclass(frozen=True)
class Settings:
    """What to record.

    :ivar level: ``watch`` (parameters and steps), ``trace`` (every node) or ``explain`` (all looked at at once).
    :ivar every: record nodes in each N-th step; the others are watched.
    :ivar first, last: record nodes in these steps only, counted from 0; ``last`` is not included, ``None`` is no end.
    :ivar careful: steps at the start that are looked at closely, and after trouble.
    """

    level: str = "trace"
    every: int = 1
    first: int = 0
    last: int | None = None
    careful: int = 3
    #: What to look for besides: ``functions``, ``divergence``.
    ask: frozenset[str] = frozenset()
    #: Say nothing while the script runs.
    quiet: bool = False

    def traced(self, step: int) -> bool:
        if self.level == "watch" or step < self.first or (self.last is not None and step >= self.last):
            return False
        return (step - self.first) % self.every == 0


@dataclass
class _Running:
    """A backward call that is going on."""

    kind: str
    arguments: dict[str, Any]
    roots: Sequence[Any]
    starts: list[Any]
    number: dict[Any, int]
    seqs: list[int]
    live: LiveLayout
    watch: Watch
    index: int
    step: int
    inside: int | None = None
    spot: Any = None
    depth: int = 0
    pushed: int = 0
    began: float = 0.0
    ended: float = 0.0
    watching: float = 0.0
    error: BaseException | None = None

    def free(self) -> None:
        """Let go of all but what a later call may ask about."""
        self.roots, self.starts, self.number, self.seqs, self.arguments = (), [], {}, [], {}
        self.watch.release()
        self.watch = None  # type: ignore[assignment]


class Sink(Protocol):
    """Who wants to know. Called in the thread that trains."""

    def backward(self, recorded: Recorded) -> None: ...
    def step(self, step: Step, session: Session) -> None: ...


class Session:
    """Watches from ``start`` to ``stop``. What it saw goes to `sink`.

    :param own: folders whose code is the user's though it is installed.
    """

    def __init__(self, sink: Sink, settings: Settings | None = None, own: tuple[str, ...] = ()) -> None:
        self.sink = sink
        self.settings = settings or Settings()
        self.frames = Frames(own)
        self.modules = ModuleWatch(self.frames)
        special: dict[Any, Callable[..., Any]] = {
            function: self._entry_point(function, kind)
            for function, kind in (
                (torch.Tensor.backward, "Tensor.backward"),
                (torch.autograd.backward, "autograd.backward"),
                (torch.autograd.grad, "autograd.grad"),
            )
        }
        special[torch.Tensor.register_hook] = self._register_hook
        special[torch.Tensor.grad.__get__] = self._read_grad  # type: ignore[attr-defined]
        special[torch.Tensor.is_leaf.__get__] = self._read_is_leaf  # type: ignore[attr-defined]
        special[private.set_grad_enabled] = self._set_grad_mode
        self.regions = Regions(self.modules, self.frames, WriteLog())
        self.eye = Eye(self.frames, self.modules, self.regions, special)
        special[torch.Tensor.data.__get__] = self.eye.read_data  # type: ignore[attr-defined]
        for function in (torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.__dlpack__):
            special[function] = self.eye.read_memory
        self.eye.owner = self
        #: The sequence number that the first node after ``start`` gets.
        self.first = 0
        self.leaves = Leaves(self.modules, self.frames)
        self.stale = StaleReads(self.frames)
        self.hooked = self.modules.hooked = Hooked(self.modules, self.frames)
        self.recompute = self.modules.recompute = Recompute(self.modules, self.frames)
        self.functions = Functions(self.modules, self.frames) if "functions" in self.settings.ask else None
        self.diverging = Diverging(self.modules) if "divergence" in self.settings.ask else None
        self.modules.diverging = self.diverging
        if "checkpoints" in self.settings.ask:
            self.regions.samples = Checkpointed(self.modules, self.frames, self._name_of)
        self._gradients: tuple[RegionGradient, ...] = ()
        self._checked: tuple[FunctionChecked, ...] = ()
        self._second_order = False
        self._saved: tuple[SavedBytes, ...] = ()
        self._ledgers = 0
        self._silent: list[SilentWrite] = []
        #: Where ``backward(create_graph=True)`` was called -> the leaves that it reached.
        self._created: dict[Any, list[Leaf]] = {}
        self.retention = self.modules.retention = Retention(self.modules, self.frames, self.eye.log)
        self.strays = Strays(self.modules, self.frames)
        self.modules.on_stray = self.strays.module
        self.leaves.on_stray = self.strays.leaf
        self.modules.on_root = self.leaves.scan
        self.steps: StepWatch = StepWatch(self._name_of, self._step_over)
        self.modules.on_outermost = self._forward_begins
        self.keeper = Keeper()
        self.calls = 0
        self.compiled = 0
        self.watching = 0.0
        self._plans = Plans()
        self._hooks = Hooks()
        self._hooked = 0
        #: Seconds of the first step, and what of it was watching.
        self._first: tuple[float, float] | None = None
        self._speed = _call_time() / _CALL
        self._layouts: list[LiveLayout] = []
        self._layout_count = 0
        self._changed: set[int] = set()
        self._inside: list[int] = []
        #: The last calls: where, the lowest sequence number of their graph, the counter when they were over.
        self._past: deque[tuple[_Running, int, int]] = deque(maxlen=1024)
        self._pushed = 0
        self._careful_until = self.settings.careful
        self._leaf_slots: dict[int, tuple[Signature, list[tuple[Leaf, int | None]]]] = {}
        self._pid, self._thread = os.getpid(), threading.get_ident()
        self._no_gradients: dict[Any, NoGradient] = {}
        self._troubled = 0
        self._filter: Any = None
        #: Processes that the script starts, where they are watched; what the script raised; whether ranks wait.
        self.children: Children | None = None
        self.raised: BaseException | None = None
        self._waiting: Waiting | None = None
        #: A debugger that backward calls go through: called with kind, arguments and what runs the call.
        self.around: Callable[[str, Any, Any, Callable[[], Any]], Any] | None = None
        #: What failed in our own code, if anything did.
        self.error: BaseException | None = None
        self.steps.on_optimizer = self._optimizing
        self.eye.on_raise = self._op_raised
        self.eye.on_error = self.modules.on_error = self.steps.on_error = self.broke
        self._entered = self._attached = False
        self.begin = _clock()

    def start(self) -> None:
        self.begin = _clock()
        self._pid, self._thread = os.getpid(), threading.get_ident()
        self.first = private.next_sequence_nr()
        self.resume()

    def resume(self) -> None:
        """Attach. Does nothing where it is attached already."""
        if self._entered or self.error is not None:
            return
        self.modules.start()
        self.steps.start()
        self._set_detail()
        # Said for hooks that do something with what they get; ours tell an OptimizedModule from the module inside it.
        warnings.filterwarnings("ignore", message=r"Using `torch.compile\(module\)` when there are global hooks")
        self._filter = warnings.filters[0]
        self.eye.__enter__()
        self._entered = self._attached = True
        if self.functions is not None:
            self.functions.start()

    def pause(self) -> None:
        """Detach, and keep what is known for ``resume``."""
        if not self._entered:
            return
        self._entered = self._attached = False
        if self.functions is not None:
            self.functions.stop()
        self.eye.__exit__(None, None, None)
        if self._filter in warnings.filters:
            warnings.filters.remove(self._filter)  # type: ignore[attr-defined]
        self.eye.flush()
        self.steps.pause()
        self.modules.stop()

    def leave(self) -> None:
        """In a forked child: take off what the parent had put on, without finishing anything."""
        self._pid = os.getpid()
        self._inside.clear()
        private.drop_mode(self.eye)
        self._entered = self._attached = False
        self.modules.stop()
        self.steps.remove()

    def stop(self) -> None:
        """Detach for good: the last step is over, and nothing of the graph is held any longer."""
        ended = self._entered
        self.pause()
        if self.functions is not None and ended:
            self._checked = self.functions.check(self._second_order)
        if self.regions.samples is not None and ended:
            self._gradients = self.regions.samples.check()
        self.steps.stop()
        if self._waiting is not None:
            self._waiting.stop()
        self.keeper.release(everything=True)

    def origins(self) -> Origins:
        """Where the nodes of a graph were made, as far as it was recorded."""
        log = self.eye.log
        first = max(self.first, log.ends[0]) if log.dropped and log.ends else self.first
        return Origins(log.ends, log.entries, self.modules, self.frames, first, 0)

    def _name_of(self, leaf: Any) -> str:
        return self.leaves.name(self.leaves.get(leaf))

    # Steps

    def _set_detail(self) -> None:
        step, settings = self.steps.index, self.settings
        traced = settings.traced(step)
        careful = traced and (settings.level == "explain" or step < self._careful_until)
        self.eye.noting, self.eye.careful = traced, careful
        self.eye.checking = self._troubled <= TROUBLE
        if traced:
            self.eye.last = private.next_sequence_nr()
        self.modules.careful, self.modules.keep_trail = careful, traced

    def _forward_begins(self) -> None:
        if self._waiting is None and self.children is not None and in_use():
            self._waiting = Waiting(self.frames, say=not self.settings.quiet)
            self._waiting.start()
        if self.steps.stepped:
            self.steps.finish()
        elif not self.calls and not self._inside:
            self.retention.next_round(forward_only=True)

    def _step_over(self, step: Step) -> None:
        begin = _clock()
        self.sink.step(step, self)
        self.watching += _clock() - begin
        if self._first is None:
            self._first = (self.steps.total, self.watching + self.steps.spent)
        self.eye.log.trim()
        self.retention.next_round(False, max(1, len(self.steps.stepped_by)))
        self.modules.new_step(self.steps.index)
        self._set_detail()

    def _optimizing(self, optimizer: Any, begins: bool) -> None:
        self.eye.optimizing = begins
        if begins or not self.eye.noting:
            return
        spot, seq = self.frames.spot(sys._getframe(2)), private.next_sequence_nr()
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.eye.writes.add(p, seq, f"{type(optimizer).__name__}.step", spot, None)

    @property
    def cost(self) -> float:
        """What watching has cost so far as a share of the steps' own time, estimated: measured in hooks and walks,
        counted elsewhere."""
        ops = len(self.eye.log.ends) + self.eye.log.added
        counted = ops * _OP + self.modules.total * _MODULE + self._hooked * _NODE
        spent = self.watching + self.steps.spent + counted * self._speed
        if self._first is None:
            return spent / max(_clock() - self.begin - spent, 1e-9)
        # The first step holds the script's own preparations, and ours.
        seconds, before = self.steps.total - self._first[0], self._first[1]
        return (spent - before) / max(seconds - (spent - before), 1e-9) if seconds else 0.0

    # Backward calls

    def _entry_point(self, function: Any, kind: str) -> Callable[..., Any]:
        signature = inspect.signature(function)

        def call(func: Any, args: Any, kwargs: Any) -> Any:
            if os.getpid() != self._pid:
                return func(*args, **kwargs)
            if self.around is None:
                return watched(func, args, kwargs)
            return self.around(kind, args, kwargs, lambda: watched(func, args, kwargs))

        def watched(func: Any, args: Any, kwargs: Any) -> Any:
            if not self._attached:
                return func(*args, **kwargs)
            return self._backward(func, args, kwargs, kind, signature)

        return call

    def _register_hook(self, func: Any, args: Any, kwargs: Any) -> Any:
        tensor = args[0] if args else kwargs.get("self")
        if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None:
            self._changed.add(tensor.grad_fn._sequence_nr())
            if len(self._changed) > 100_000:
                self._changed.clear()
        return func(*args, **kwargs)

    def _read_grad(self, func: Any, args: Any, kwargs: Any) -> Any:
        """``.grad`` of a tensor that is not a leaf is ``None`` for ever: note who reads it."""
        value = func(*args, **kwargs)
        if self._inside and self._attached and args[0].grad_fn is None:
            self.stale.read(args[0], value, sys._getframe(2), self._name_of, self.steps.index)
        elif value is None and self._attached:
            tensor = args[0]
            frame = sys._getframe(2)
            if tensor.grad_fn is not None and not tensor.retains_grad and self.frames.is_user(frame.f_code):
                site = self.frames.site((frame.f_code, frame.f_lasti))
                key = ("nonleaf", site)
                known = self._no_gradients.get(key)
                if known is not None:
                    self._no_gradients[key] = dataclasses.replace(known, count=known.count + 1)
                elif len(self._no_gradients) < 100:
                    name = self.eye.names_in(frame).get(id(tensor), "")
                    where = self.modules.name_of(self.modules.stack[-1] if self.modules.stack else None)
                    made = self.eye.made_at(tensor)
                    self._no_gradients[key] = NoGradient("nonleaf", site, None, where, name, 1, made)
        return value

    def _read_is_leaf(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An optimizer asks this of every parameter it is given: that is how we see where one is made."""
        frame = sys._getframe(2)
        if frame.f_code is _ADD_GROUP and self._attached:
            above = frame.f_back
            self.steps.made(
                frame.f_locals["self"],
                self.frames.spot(frame),
                lambda: [m for _, m in modules_in_sight(above, self.frames)],
            )
        return func(*args, **kwargs)

    def _set_grad_mode(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Note where gradient mode was turned off last, and how deep we are in such places."""
        if self._attached and threading.get_ident() == self.eye.thread:
            on = bool(args[0] if args else kwargs.get("mode", kwargs.get("enabled", True)))
            frame: Any = sys._getframe(2)
            while frame is not None and frame.f_code.co_filename == _GRAD_MODE:
                frame = frame.f_back
            if frame is not None:
                self.regions.gradient_mode(frame, on)
                self.eye.library_off = self.eye.library_off and not on
                if not on and torch.is_grad_enabled():
                    self._grad_turned_off(frame)
        return func(*args, **kwargs)

    def _grad_turned_off(self, frame: Any) -> None:
        self.eye.library_off = not self.frames.is_user(frame.f_code)
        if frame.f_code.co_name == "decorate_context":  # @torch.no_grad(): the function's first line is the decorator's
            code = getattr(variables(frame).get("func"), "__code__", None)
            if code is not None and self.frames.is_user(code):
                self.eye.library_off = False
                self.modules.grad_off = Frames.site_of(code.co_filename, code.co_firstlineno, code.co_name)
                return
        if not self.eye.library_off:
            self.modules.grad_off = self.frames.site(self.frames.spot(frame))

    def _op_raised(self, text: str, frame: Any, args: Any) -> None:
        """An op of the forward raised: for a reason that we know?"""
        self.hooked.conflict(text, frame, args)
        if "Inference tensors cannot be saved for backward" in text and len(self._no_gradients) < 100:
            failed = self.frames.site(self.frames.spot(frame))
            site = use_of(self.frames, "inference_mode", failed.file if failed else "")
            where = self.modules.name_of(self.modules.stack[-1] if self.modules.stack else None)
            self._no_gradients[("inference", site)] = NoGradient("inference", site, failed, where, "")

    def _note_no_graph(self, text: str, running: _Running) -> None:
        """A backward call met a root without a graph: was it built while gradient mode was off?"""
        site, failed = self.modules.grad_off, self.frames.site(running.spot)
        if "does not require grad" not in text or len(self._no_gradients) > 100:
            return
        if any(isinstance(r, torch.Tensor) and r.is_inference() for r in running.roots):
            site = use_of(self.frames, "inference_mode", failed.file if failed else "") or site
        elif torch.is_grad_enabled() and not self.modules.all_quiet() and not self.modules.lost_grad:
            return
        if site is None:
            return
        self._no_gradients[("grad-mode", site)] = NoGradient("grad-mode", site, failed, "", "")

    def _backward(self, func: Any, args: Any, kwargs: Any, kind: str, signature: inspect.Signature) -> Any:
        running = None
        try:
            running = self._begin_call(args, kwargs, kind, signature)
        except Exception as error:
            self.broke(error)
        if running is None:
            return func(*args, **kwargs)
        try:
            result = func(*args, **kwargs)
        except BaseException as error:
            running.error = error
            raise
        finally:
            running.ended = _clock()
            try:
                self._end_call(running)
            except Exception as error:
                self.broke(error)
        return result

    def _begin_call(self, args: Any, kwargs: Any, kind: str, signature: inspect.Signature) -> _Running | None:
        """Walk the graph and hook it. ``None``: there is nothing to watch."""
        begin = _clock()
        self.keeper.release()
        self.retention.backward_came()
        try:
            arguments = dict(signature.bind(*args, **kwargs).arguments)
        except TypeError:  # wrong use: torch says so
            return None
        nested = bool(self._inside)
        if self.steps.stepped and not nested:
            self.steps.finish()
        roots = as_list(arguments.pop(_ROOTS[kind]))
        if not self.eye.noting:
            self._note_call(roots, nested)
            return None
        starts = [_safe_node(root) for root in roots]
        nodes, seqs, plan = walk(starts, self._plans)
        leaves = [(i, nodes[i].variable) for i in plan.leaves]
        if not nested and kind != "autograd.grad" and not self.steps.accumulates([v for _, v in leaves]):
            self.steps.finish()
        self.eye.flush()
        needed = self._needed(kind, arguments, nodes, plan)
        number = {n: i for i, n in enumerate(nodes[: len(starts)])}
        before = {number[n] for n in starts if n is not None}
        before.update(i for i, v in leaves if v._backward_hooks or getattr(v, "_post_accumulate_grad_hooks", None))
        if self._changed:
            before.update(i for i, seq in enumerate(seqs) if seq in self._changed)
        self._second_order = self._second_order or bool(arguments.get("create_graph"))
        here = threading.get_ident() == self.eye.thread
        live = self._live(plan, seqs, leaves, needed)
        hooked = set()
        if self.eye.careful and not nested:
            on = {id(v) for v in self.stale.begin([v for _, v in leaves], self._push if here else None)}
            hooked = {i for i, v in leaves if id(v) in on}
        watch = Watch(
            nodes,
            plan,
            before,
            self._hooks,
            self.eye.careful,
            live.program,
            self._troubled > TROUBLE,
            bool(arguments.get("create_graph")),
            self._push if here else None,
            self._pop if here else None,
            self.regions.within(seqs) if here and self.regions.known else (),
            hooked,
        )
        watch.on_error = self.broke
        self._read_saved(nodes, seqs, live)
        frame = sys._getframe(4)
        running = _Running(kind, arguments, roots, starts, number, seqs, live, watch, self.calls, self.steps.index)
        running.inside = self._inside[-1] if nested else None
        running.spot = self.frames.spot(frame)
        running.depth, running.pushed = private.mode_depth(), self._pushed
        if arguments.get("create_graph") and kind != "autograd.grad" and len(self._created) < 100:
            self._created.setdefault(running.spot, list(live.named.values()))
        self.calls += 1
        self._inside.append(running.index)
        self.modules.in_backward = True
        watch.start()
        running.began = _clock()
        running.watching = running.began - begin
        return running

    def _read_saved(self, nodes: list[Any], seqs: list[int], live: LiveLayout) -> None:
        """Look at what the nodes have saved, where it was asked for or somebody wrote behind autograd's back."""
        if "memory" in self.settings.ask and self._ledgers < 3:
            self._ledgers += 1
            rows = saved_bytes(nodes, seqs, live, live.layout(self.modules, self.leaves, self.frames))
            if sum(r.bytes for r in rows) > sum(r.bytes for r in self._saved):
                self._saved = rows
        if self.eye.prints:
            self._check_memory(nodes, seqs, live)
        writes = self.eye.writes.silent
        if writes and max(w.seq for w in writes) > lowest(seqs)[0] and len(self._silent) < 10:
            layout = live.layout(self.modules, self.leaves, self.frames)
            for i, name, write in silent_writes(nodes, seqs, writes):
                node = layout.nodes[i]
                named = names_of_storage(write.storage, self.modules)
                tensor = (
                    self.modules.full_name(*named)
                    if isinstance(named, tuple)
                    else variable_of(write.storage, sys._getframe(1), self.frames) or f"its saved {name}"
                )
                seen = SilentWrite(
                    tensor,
                    write.op,
                    self.frames.site(write.spot),
                    node.op or node.name,
                    node.site,
                    self.frames.site(self.frames.spot(sys._getframe(5))),
                    node.module,
                    node.name,
                    self.steps.index,
                )
                if not any(s.site == seen.site for s in self._silent):
                    self._silent.append(seen)
            writes.clear()

    def _check_memory(self, nodes: list[Any], seqs: list[int], live: LiveLayout) -> None:
        """Saved tensors whose memory was written from outside torch."""
        prints = self.eye.prints
        with private.unseen():
            for i, seq in enumerate(seqs):
                for name, tensor in private.saved_tensors(nodes[i]) if seq != ACCUMULATE_SEQ else ():
                    found = prints.changed(tensor, seq) if tensor.layout is torch.strided else None
                    if found is None or len(self._silent) >= 10:
                        continue
                    frame = sys._getframe(5)
                    arrays = arrays_over(tensor.untyped_storage(), frame, self.frames)
                    site = next((s for a in arrays if (s := changes_of(self.frames, a)) is not None), None)
                    given = self.frames.site(found.given)
                    if site is None and given is not None:
                        site = changed_after(given)
                    node = live.layout(self.modules, self.leaves, self.frames).nodes[i]
                    seen = SilentWrite(
                        variable_of(tensor.untyped_storage().data_ptr(), frame, self.frames) or f"its saved {name}",
                        "",
                        site or given,
                        node.op or node.name,
                        node.site,
                        self.frames.site(self.frames.spot(frame)),
                        node.module,
                        node.name,
                        self.steps.index,
                    )
                    if not any(s.site == seen.site for s in self._silent):
                        self._silent.append(seen)
        prints.clear()

    def _cycles_now(self) -> tuple[tuple[Site | None, tuple[str, ...]], ...]:
        """Backward calls with ``create_graph`` whose gradients still have a graph."""
        found = []
        with private.unseen():
            for spot, leaves in self._created.items():
                alive = [
                    leaf for leaf in leaves if (p := leaf.ref()) is not None and p.grad is not None and p.grad.grad_fn
                ]
                if alive:
                    found.append((self.frames.site(spot), tuple(self.leaves.name(leaf) for leaf in alive)))
        return tuple(found)

    def _end_call(self, running: _Running) -> None:
        """Unhook the graph, and hand on what was seen."""
        watch, live = running.watch, running.live
        # The engine gives each node the modes back that were on when it was called; not so where it raised in a hook.
        self._pushed = running.pushed
        while private.mode_depth() > running.depth:
            self.eye.__exit__(None, None, None)
        watch.stop()  # before anything that can fail: no hook of ours stays on the graph
        self._inside.pop()
        if not self._inside:
            self.stale.end()
        self.modules.in_backward = bool(self._inside)
        self.regions.compare(running.error, running.step, running.index, running.spot)
        if self.eye.careful:
            self.hooked.bypassed()
        raised = None
        if running.error is not None:
            node, certain = running_node(live.plan, running.seqs, watch.order, live.needed)
            inner = self.frames.site_of_traceback(running.error.__traceback__)
            if inner is None or inner == self.frames.site(running.spot):
                inner = _backward_of(watch.nodes, node, str(running.error))
            elif inner is not None and node is not None and not hasattr(watch.nodes[node], "_forward_cls"):
                # The user's code raised, and this node runs none: a hook did, perhaps on a leaf.
                certain = False
                hooked = [i for i in live.plan.leaves if watch.nodes[i].variable._backward_hooks]
                node = hooked[0] if len(hooked) == 1 else node
            raised = Raised(type(running.error).__name__, str(running.error), node, certain, inner)
            running.error = None
        recorded = self._recorded(watch, live, running.seqs)
        if raised is not None and raised.node is None:
            self._note_no_graph(raised.text, running)
        if raised is not None and raised.node is not None:
            self._look_into(raised, running, recorded)
        else:
            self._past.append((running, recorded.base, private.next_sequence_nr()))
        recorded.index, recorded.step, recorded.kind = running.index, running.step, running.kind
        recorded.site, recorded.raised = self.frames.site(running.spot), raised
        recorded.arguments = {name: describe(value) for name, value in running.arguments.items()}
        recorded.roots = tuple(
            root_record(r, None if n is None else running.number.get(n))
            for r, n in zip(running.roots, running.starts, strict=True)
        )
        recorded.seconds, recorded.inside = running.ended - running.began - watch.watching, running.inside
        self.keeper.keep(watch.nodes, [r for r in running.roots if isinstance(r, torch.Tensor)])
        if recorded.trouble and (scale := self._loss_scale()) is not None:
            recorded.arguments["loss_scale"] = f"{scale:g}"
        self._account(recorded, running.inside is not None)
        self.sink.backward(recorded)
        spent = running.watching + watch.watching + (_clock() - running.ended)
        self.watching += spent
        self.steps.watching += spent
        if running.arguments.get("create_graph") and threading.get_ident() == self.eye.thread:
            self.eye.made_by(running.spot, running.kind)
        self.eye.last = private.next_sequence_nr()
        running.free()

    def _look_into(self, raised: Raised, running: _Running, recorded: Recorded) -> None:
        """What the two errors that other lines cause are about."""
        assert raised.node is not None
        seq = running.seqs[raised.node]
        if "modified by an inplace operation" in raised.text:
            kept = private.saved_tensors(running.watch.nodes[raised.node])
            recorded.mutated = mutation(raised.text, kept, seq, self.eye.writes)
            region = self.regions.inputs_of(seq)
            if region is not None and recorded.mutated is not None and recorded.mutated.write is None:
                # The recomputation has not begun: what was changed is what the checkpoint keeps to begin with.
                spot, first, tensors = region
                kept = [("input of the checkpoint", t) for t in tensors]
                recorded.mutated = mutation(raised.text, kept, first, self.eye.writes)
                recorded.region = self.frames.site(spot)
            if recorded.mutated is not None:
                recorded.named = names_of_storage(recorded.mutated.storage, self.modules) or variable_of(
                    recorded.mutated.storage, sys._getframe(1), self.frames
                )
        elif "backward through the graph a second time" in raised.text:
            recorded.reuse = self._reuse(raised.node, running)

    def _reuse(self, node: int, running: _Running) -> Reuse | None:
        """The earlier call that ran `node`, and where the new graph enters the old one on the way to it."""
        seqs, plan = running.seqs, running.live.plan
        seq = seqs[node]
        for past, base, counter in reversed(self._past):
            shift = past.live.base - base
            if seq >= counter or seq + shift not in past.live.seq_set:
                continue
            into: dict[int, list[int]] = {}
            for i in range(len(seqs)):
                for edge in plan.edges(i):
                    if edge is not None:
                        into.setdefault(edge[0], []).append(i)
            entries: list[tuple[int, int, int]] = []
            stack, seen = [node], {node}
            while stack:
                old = stack.pop()
                for producer in into.get(old, ()):
                    if producer in seen:
                        continue
                    if seqs[producer] >= counter:
                        entries.append((seqs[producer], producer, old))
                    else:
                        seen.add(producer)
                        stack.append(producer)
            first = min(entries, default=None)
            site = self.frames.site(past.spot)
            if first is None:
                return Reuse(past.index, site, past.step, None, node)
            return Reuse(past.index, site, past.step, first[1], first[2])
        return None

    def _loss_scale(self) -> float | None:
        """The scale of a ``GradScaler`` that the user's code holds here."""
        frame: Any = sys._getframe(1)
        while frame is not None:
            if self.frames.is_user(frame.f_code):
                local = variables(frame)
                for value in (*local.values(), *getattr(local.get("self"), "__dict__", {}).values()):
                    if isinstance(value, torch.amp.GradScaler) and value.is_enabled():
                        return float(value.get_scale())
            frame = frame.f_back
        return None

    def broke(self, error: BaseException) -> None:
        """Something of ours failed. The script goes on as it would alone; we stop watching, and say so."""
        if self.error is None:
            self.error = error
        self._attached = False
        self.eye.noting = False
        self.modules.stop()
        self.steps.pause()

    def _note_call(self, roots: Sequence[Any], nested: bool) -> None:
        """Where nodes are not recorded: the call and its loss."""
        if not nested:
            self.steps.backwards.append(self.calls)
            for root in roots:
                if isinstance(root, torch.Tensor) and root.numel() == 1 and root.is_cpu:
                    self.steps.loss = root_record(root, None).value
        self.calls += 1

    def _push(self, *_: Any) -> None:
        self.eye.__enter__()
        self._pushed += 1
        self.eye.last = private.next_sequence_nr()

    def _pop(self, *_: Any) -> None:
        if self._pushed:
            self._pushed -= 1
            self.eye.__exit__(None, None, None)

    def _needed(self, kind: str, arguments: dict[str, Any], nodes: list[Any], plan: Any) -> frozenset[int] | None:
        inputs = arguments.get("inputs")
        if inputs is None:
            return None
        number = {n: i for i, n in enumerate(nodes)}
        wanted = [number[n] for n in (_safe_node(i) for i in as_list(inputs)) if n in number]
        return frozenset(needed_for(plan, wanted, kind != "autograd.grad"))

    def _recorded(self, watch: Watch, live: LiveLayout, seqs: list[int]) -> Recorded:
        raw = watch.raw()
        signature = live.signature
        if raw is not None or signature is None:
            assert raw is not None
            order, out, came = raw
            signature = Signature(
                tuple(int(i) for i in order),
                tuple((int(i), k, s, tuple(shape), dtype_name(dtype)) for i, k, s, shape, dtype in out),
                tuple((int(i), k, s, tuple(shape), dtype_name(dtype)) for i, k, s, shape, dtype in came),
            )
            if not self.eye.careful:
                live.signature = signature
                live.program = Program(order, out, came, live.plan)
        norms = watch.norms
        bad_seen, self.eye.bad = tuple(self.eye.bad), []
        return Recorded(
            *(0, 0, "", {}, (), None, 0.0, None),
            live=live,
            signature=signature,
            norms=norms.values,
            times=watch.seconds,
            unmeasured=frozenset(norms.unmeasured),
            bad=norms.bad,
            bad_nodes=tuple(watch.bad_nodes),
            bad_seen=bad_seen,
            base=lowest(seqs)[0],
            inside=None,
            modules=self.modules,
            leaves=self.leaves,
            frames=self.frames,
        )

    def _live(self, plan: Any, seqs: list[int], leaves: Any, needed: Any) -> LiveLayout:
        base, top = lowest(seqs)
        ends, entries = self.eye.log.slice(base, top)
        # A plain tensor that needs a gradient may be new every step (an adversarial input): any will do in its place.
        ids = [id(v) if v.__class__ is not torch.Tensor else 0 for _, v in leaves]
        for at, live in enumerate(self._layouts):
            if live.fits(plan, seqs, base, entries, ids, needed):
                if at:
                    self._layouts.insert(0, self._layouts.pop(at))
                return live
        self.compiled += any(n.startswith("CompiledFunction") for n in plan.names)
        named = {i: self.leaves.get(v) for i, v in leaves}
        live = LiveLayout(plan, seqs, base, ends, entries, ids, needed, named, self._layout_count)
        self._layout_count += 1
        self._layouts.insert(0, live)
        del self._layouts[16:]
        return live

    def _account(self, recorded: Recorded, nested: bool) -> None:
        """What a call means for the step, for the parameters, and for how closely to look at the next."""
        trouble = recorded.trouble
        if not nested:
            self.steps.backwards.append(recorded.index)
            for root in recorded.roots:
                if root.value is not None and recorded.kind != "autograd.grad":
                    self.steps.loss = root.value
        eye = self.eye
        self._troubled = self._troubled + 1 if trouble else 0
        if trouble:
            if self._troubled <= TROUBLE:
                self._careful_until = max(self._careful_until, recorded.step + 2)
            elif self._troubled > TROUBLE:  # everything is bad from here on, and looking closely at it is slow
                self._careful_until = 0
        elif recorded.bad_seen:
            for seen in recorded.bad_seen:
                key = seen.entry[:3]
                eye.tolerated[key] = eye.tolerated.get(key, 0) + 1
        norms, live = recorded.norms, recorded.live
        if recorded.raised is None and live.settled:  # every leaf has had a gradient: nothing to look up
            for leaf in live.named.values():
                leaf.reached += 1
        else:
            reached = self._slots_of(recorded)
            for leaf, slot in reached:
                leaf.reached += 1
                leaf.alive = leaf.alive or slot is None or norms[slot] != 0.0
            live.settled = len(reached) == len(live.named) and all(leaf.alive for leaf, _ in reached)
        if recorded.step < 3 or not recorded.index % 64:
            self.leaves.refresh()
        self._hooked += len(recorded.signature.order)

    def _slots_of(self, recorded: Recorded) -> list[tuple[Leaf, int | None]]:
        """Each leaf that got a gradient, with the slot of its norm. Worked out once for a signature, by
        unpacking a call whose norms are the numbers of their slots."""
        live = recorded.live
        known = self._leaf_slots.get(live.index)
        if known is not None and known[0] is recorded.signature:
            return known[1]
        numbers = [float(i) for i in range(len(recorded.norms))]
        runs = unpack(
            Packed(
                live.layout(self.modules, self.leaves, self.frames),
                recorded.signature,
                numbers,
                recorded.times,
                recorded.unmeasured,
                {},
                recorded.raised is not None,
            )
        )
        found: list[tuple[Leaf, int | None]] = []
        for i, leaf in live.named.items():
            came = runs[i].grad_outputs
            if came and came[0] is not None:
                norm = came[0].norm
                found.append((leaf, None if norm is None else int(norm)))
        if len(self._leaf_slots) > 64:
            self._leaf_slots.clear()
        self._leaf_slots[live.index] = (recorded.signature, found)
        return found

    # What is known at the end

    def facts(self) -> Facts:
        """What is known of the run as a whole, so far."""
        return Facts(
            self.parameters(),
            self.cuts(),
            self.unseen(),
            self.found_strays(),
            self.optimizers(),
            self.no_gradients(),
            self.hooked.records(),
            self.recompute.records(),
            self.retention.found,
            self._checked,
            self.diverging.records() if self.diverging is not None else (),
            self._saved,
            tuple(self._silent),
            self._cycles_now(),
            self.regions.records(),
            self.stale.records(),
            self._ranks(),
            tuple(sorted(self.settings.ask)),
            self._gradients,
        )

    def _ranks(self) -> tuple[RankSeen, ...]:
        found = self.children.records() if self.children is not None else ()
        waiting = self._waiting
        if waiting is None:
            return found
        error = self.raised
        waits = waiting.records(error is not None)
        if error is not None and of_collective(error) and not any(w.ended == "raised" for w in waits):
            site = self.frames.site_of_traceback(error.__traceback__)
            waits = (*waits, RankWait("a collective operation", site, time.time(), 0.0, "raised"))
        text = "" if error is None else str(error)[:500]
        own = RankSeen(waiting.rank, os.getpid(), waits, waiting.trail(), True, text)
        return (own, *found)

    def parameters(self) -> tuple[Parameter, ...]:
        """What became of every parameter of every outermost module."""
        present = [o.present for o in self.steps.optimizers.values() if o.present and o.refs]
        return self.leaves.parameters(self.steps.held if self.steps.ever_stepped else None, present)

    def cuts(self) -> tuple[Cut, ...]:
        """Ops that lost a gradient's path, those with a tensor for a result first."""
        found = []
        for spot, (where, ids) in self.regions.lost.items():
            names = [self.leaves.name(leaf) for n in ids if (leaf := self.leaves.of_id(n)) is not None]
            found.append(Cut("checkpoint", self.frames.site(spot), self.modules.name_of(where), tuple(sorted(names))))
        arrived = self.eye.arrived
        for _, cut in sorted(self.eye.cuts.items(), key=lambda c: (c[0] not in arrived, c[1].rank)):
            names = [self.leaves.name(leaf) for n in cut.leaves if (leaf := self.leaves.of_id(n)) is not None]
            found.append(
                Cut(
                    cut.op, self.frames.site(cut.spot), self.modules.name_of(cut.where), tuple(sorted(names)), cut.count
                )
            )
        return tuple(found)

    def found_strays(self) -> tuple[Stray, ...]:
        """Trainable tensors that ``parameters()`` does not list."""
        return self.strays.records(self.steps.held if self.steps.ever_stepped else None)

    def optimizers(self) -> tuple[OptimizerSeen, ...]:
        """The optimizers that stepped."""
        return tuple(
            OptimizerSeen(o.name, self.frames.site(o.spot), len(o.refs), self.leaves.orphans(o.refs), o.groups)
            for o in self.steps.optimizers.values()
        )

    def no_gradients(self) -> tuple[NoGradient, ...]:
        """Places where a gradient could not be had."""
        return tuple(self._no_gradients.values())

    def unseen(self) -> tuple[Unseen, ...]:
        """What was not observed, counted."""
        found = []
        for reason in self.regions.samples.skipped if self.regions.samples is not None else ():
            found.append(Unseen("checkpointed region", 1, f"not compared: {reason}"))
        for reason in self.functions.skipped if self.functions is not None else ():
            found.append(Unseen("custom function", 1, f"not checked: {reason}"))
        if self.error is not None:
            text = f"{type(self.error).__name__}: {self.error}"
            found.append(Unseen("internal error", 1, f"backprobe stopped watching there, the script went on: {text}"))
        if self.compiled:
            found.append(Unseen("compiled regions", self.compiled, "each shows as one node; its inside was not seen"))
        if self.modules.other_threads:
            found.append(
                Unseen(
                    "module calls in other threads",
                    self.modules.other_threads,
                    "only the thread that started backprobe is watched",
                )
            )
        if self.eye.log.dropped:
            found.append(Unseen("ops", self.eye.log.dropped, "older than the op log reaches: their nodes have no line"))
        if self.eye.unchecked:
            found.append(
                Unseen(
                    "forward results",
                    self.eye.unchecked,
                    "not checked for NaN and Inf: a tensor subclass or a transform",
                )
            )
        owners = {id(leaf.owner): leaf.owner for leaf in self.leaves.reached()}
        around = sum(self.modules.counts(owner) == (0, 0) for owner in owners.values() if owner is not None)
        if around:
            found.append(
                Unseen("modules", around, "got gradients, but were not called as modules: their own calls are not seen")
            )
        return tuple(found)


def lowest(seqs: list[int]) -> tuple[int, int]:
    """The lowest and the highest sequence number of the nodes that have one of their own."""
    own = [s for s in seqs if s != ACCUMULATE_SEQ]
    return (min(own), max(own)) if own else (0, 0)


def _backward_of(nodes: list[Any], node: int | None, text: str) -> Site | None:
    """Where the backward of the custom function that the error is about returns."""
    for one in [nodes[node]] if node is not None else []:
        found = returns_at(getattr(one, "_forward_cls", None))
        if found is not None:
            return found
    named = next((n for n in nodes if hasattr(n, "_forward_cls") and n.name() in text), None)
    return returns_at(named._forward_cls) if named is not None else None


def _call_time() -> float:
    """Seconds of a call of an empty function on this machine, now."""

    def empty() -> None: ...

    begin = _clock()
    for _ in range(2000):
        empty()
    return (_clock() - begin) / 2000


def _safe_node(root: Any) -> Any:
    try:
        return node_of(root)
    except (AttributeError, RuntimeError, TypeError):
        return None
