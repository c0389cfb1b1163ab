"""Compares the ops of checkpointed regions in the forward with those of the recomputation.

Note [Marks of a checkpoint]: the region of an op is read from torch's own marks: the saved-tensor hooks that a
checkpoint pushes while its function runs (the same ``_CheckpointFrame`` is behind them in the forward and in the
recomputation), or the node of a reentrant checkpoint. Both are referenced weakly, so the record of a region is freed
with its graph. No frame of the user's code is kept.
"""

from __future__ import annotations

import re
import sys
import weakref
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from itertools import islice
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint

from ...records import Cut, RegionDiffers, Site
from ...source.assignments import container_fill_near
from ...source.calls import calls_of_method, checkpointing_lines
from ...source.frames import CodeLocation, variables
from ...source.rng_calls import drawn_before
from ...source.roots import ModuleCallRef
from ...torch_internals import code_objects, private
from ..events import Events
from .detach_points import ObservedCut
from .naming import Naming
from .region_ops import RegionOp, difference, function_name, parameter_state, random_state_hash, sum_and_norm
from .torch_call_recorder import Op
from .writes import WriteLog

if TYPE_CHECKING:
    from ..backward.active_backward import ActiveBackward

_MAX_OPS = 20_000
#: The number of regions per line whose values are compared in any step: a checkpoint may be rare.
ALWAYS_COMPARED_REGIONS = 4
_STOPPED_OP = object()
#: The location of an op that does not belong to the region.
_LIBRARY_LOCATION: CodeLocation = ((lambda: None).__code__, -1)
#: Ops that save only their random state, so a recomputation may end with them.
_RANDOM_OPS = re.compile(r"dropout|rrelu")
_PLAIN_TYPES = frozenset({bool, int, float, str})


@dataclass
class _Region:
    """A call of a checkpoint: its line, and the ops of its forward and of its recomputation in the current backward."""

    spot: CodeLocation | None
    reentrant: bool
    ops: list[RegionOp] = field(default_factory=list)
    first: int = 0
    last: int = 0
    #: Whether its values are compared.
    closely: bool = False
    #: Ids of the leaves that a reentrant checkpoint detaches because none of its inputs requires a gradient.
    lost: dict[int, weakref.ref[torch.Tensor]] | None = None
    where: ModuleCallRef | None = None
    run: Any = None
    recomputed: list[RegionOp] = field(default_factory=list)
    #: Whether the first ops of the forward may not have been observed.
    partial: bool = False
    #: Paths of the modules whose forward ran without our function mode: only the recomputation of their ops was
    #: observed.
    unobserved: set[str] = field(default_factory=set)

    @property
    def comparable_ops(self) -> list[RegionOp]:
        """Return the ops of the recomputation that can be compared.

        They begin with the first op that was observed in the forward. Ops of modules whose forward was not observed are
        left out.
        """
        recomputed = (
            [op for op in self.recomputed if not self._is_unobserved(op)] if self.unobserved else self.recomputed
        )
        if not self.partial:
            return recomputed
        first = (i for i, op in enumerate(recomputed) if self.ops and op.same_call(self.ops[0]))
        return recomputed[next(first, len(recomputed)) :]

    def _is_unobserved(self, op: RegionOp) -> bool:
        """Return whether `op` ran in a module, or below one, whose forward was not observed."""
        path = op.where.path if op.where is not None else None
        return path is not None and any(path == one or path.startswith(f"{one}.") for one in self.unobserved)


class Regions:
    """Recorder of the ops of checkpointed regions, which compares the two runs of each."""

    def __init__(self, names: Naming, writes: WriteLog, events: Events) -> None:
        """Start without regions; ops are not observed before the first checkpoint."""
        self._names, self._modules, self._frames = names, names.modules, names.frames
        self.writes, self._events = writes, events
        #: By torch's frame object, or by the node of a reentrant checkpoint.
        self._regions: weakref.WeakKeyDictionary[Any, _Region] = weakref.WeakKeyDictionary()
        #: The reentrant regions that are running, innermost last, and whether each is a recomputation.
        self._open: list[tuple[_Region, bool]] = []
        self._redone: dict[int, _Region] = {}
        self._found: dict[Any, RegionDiffers] = {}
        #: Per line, how many regions were compared by values; and the user's locations of the ops inside them.
        self._regions_by_line: dict[CodeLocation | None, int] = {}
        self._inner: set[CodeLocation] = set()
        #: Line of a reentrant checkpoint whose inputs require no gradient -> module call, leaves inside, first step.
        self._lost: dict[Any, tuple[ModuleCallRef | None, dict[int, weakref.ref[torch.Tensor]], int]] = {}
        self._step = 0
        #: Whether any checkpoint was seen, and whether every op is observed now: before the first one, only in closely
        #: inspected steps.
        self.known, self._listens = False, False

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Observe every op in this step if it is closely inspected, or if checkpoints were seen before."""
        self._step = step
        self._listen(inspecting or self.known)

    def region_entered(self) -> None:
        """Begin to follow checkpoint regions: the first one of the run is being executed.

        Does nothing the next times.
        """
        if self._listens:
            return
        mark = private.checkpoint_mark()
        if mark is not None and mark[1] is None and not self.known:
            frame = sys._getframe()
            self._begin(mark[0], self._checkpoint(frame), False, frame).partial = True
        self._modules.note_region()

    def mode_query_begins(self, module: torch.nn.Module) -> None:
        """Exclude the ops of a module that queries function modes, in a call that builds no graph.

        They are not observed (Note [Modules that query modes]). If a reentrant checkpoint detaches what they use, all
        parameters of the module count as used.
        """
        region = self._running()
        if region is None:
            return
        if region.lost is not None:
            trained = (p for p in module.parameters() if p.requires_grad)
            region.lost.update((id(p), private.tensor_ref(p)) for p in islice(trained, _MAX_OPS))
        stack = self._modules.stack
        path = stack[-1].path if stack else None
        if path is None:
            region.partial = True  # ops of a module without a name cannot be recognised
        else:
            region.unobserved.add(path)

    def _running(self) -> _Region | None:
        """Return the region that runs its forward; ``None`` outside regions and in a recomputation."""
        mark = private.checkpoint_mark()
        if mark is not None:
            return self._regions.get(mark[0]) if mark[1] is None else None
        return self._open[-1][0] if self._open and not self._open[-1][1] else None

    def _listen(self, wanted: bool) -> None:
        """Register or remove ``_record`` as a listener of every op."""
        if wanted != self._listens:
            self._listens = wanted
            claimed = self._events.op_claimed
            (claimed.add if wanted else claimed.remove)(self._record)

    def grad_mode_set(self, on: bool, frame: FrameType) -> None:
        """Track a reentrant checkpoint.

        It runs its function with gradient mode off, and recomputes it with the mode on.
        """
        code = frame.f_code
        if code is code_objects.CHECKPOINT_FORWARD:  # gradient mode is off already: leaving sets it off again
            ctx = variables(frame).get(code_objects.CHECKPOINT_NODE)
            if ctx is None:
                return
            known = self._regions.get(ctx)
            if known is not None:
                if self._open:
                    self._open.pop()
                if known.lost:
                    self._lost.setdefault(known.spot, (known.where, {}, self._step))[1].update(known.lost)
                return
            trains = self._modules.grad_was_on()
            region = self._begin(ctx, self._frames.spot(frame), True, frame if trains else None)
            if trains and not ctx.next_functions:
                region.lost = {}
            self._open.append((region, False))
        elif code is code_objects.CHECKPOINT_BACKWARD:
            if on:
                ctx = variables(frame).get(code_objects.CHECKPOINT_NODE)
                found = self._regions.get(ctx) if ctx is not None else None
                if found is not None:
                    found.recomputed = []
                    self._redone[id(found)] = found
                    self._open.append((found, True))
            elif self._open and self._open[-1][1]:
                self._open.pop()

    def _record(self, op: Op) -> bool:
        """Record an op of a region; return whether it belongs to a recomputation whose nodes no backward will run.

        A listener of ``op_claimed``. Values are recorded, too, in closely inspected steps and in the first regions of a
        line.
        """
        out = op.out
        mark = private.checkpoint_mark()
        if mark is None:
            if not self._open:
                return False
            region, is_recomputation = self._open[-1]
            if region.lost is not None and len(region.lost) < _MAX_OPS:
                trained = (a for a in op.args if isinstance(a, torch.nn.Parameter) and a.requires_grad)
                region.lost.update((id(p), private.tensor_ref(p)) for p in trained)
        else:
            holder, run = mark
            is_recomputation = run is not None
            known = self._regions.get(holder)
            if known is None:
                if is_recomputation:
                    return True
                known = self._begin(holder, self._checkpoint(op.frame), False, op.frame)
                known.first = op.before
            region = known
            if is_recomputation and region.run is not run:
                region.run, region.recomputed = run, []
                self._redone[id(region)] = region
            elif not is_recomputation:
                region.last = op.after
        ops = region.recomputed if is_recomputation else region.ops
        inside = self._inside(op.frame)
        if inside is not _LIBRARY_LOCATION and len(ops) < _MAX_OPS:
            tensors = [t for t in (out if isinstance(out, (tuple, list)) else (out,)) if isinstance(t, torch.Tensor)]
            if tensors or out is _STOPPED_OP:
                stack = self._modules.stack
                made = tuple((t.shape, t.dtype, t.requires_grad) for t in tensors)
                value = sum_and_norm(tensors[0]) if (op.inspecting or region.closely) and tensors else None
                where = stack[-1] if stack else None
                arguments = (*enumerate(op.args), *op.kwargs.items())
                plain = tuple((k, v) for k, v in arguments if type(v) in _PLAIN_TYPES)
                parameters = tuple(parameter_state(v) for _, v in arguments if type(v) is torch.nn.Parameter)
                drew = random_state_hash(op) if region.closely and _RANDOM_OPS.search(function_name(op)) else None
                if region.closely and inside is not None:
                    self._inner.add(inside)
                ops.append(RegionOp(inside, op.func, where, plain, parameters, made, value, drew))
        return is_recomputation and not region.reentrant

    def _begin(self, holder: Any, spot: CodeLocation | None, reentrant: bool, frame: FrameType | None) -> _Region:
        """Begin a region's forward; `frame` is a frame inside it if its start is to be reported, else ``None``."""
        stack = self._modules.stack
        region = self._regions[holder] = _Region(spot, reentrant, where=stack[-1] if stack else None)
        seen = self._regions_by_line.get(spot, 0)
        if seen < ALWAYS_COMPARED_REGIONS and len(self._regions_by_line) < _MAX_OPS:
            self._regions_by_line[spot], region.closely = seen + 1, True
        self.known, self._modules.no_regions = True, False
        self._listen(True)
        if frame is not None:
            self._events.region_begins.emit(spot, frame, region.where)
        return region

    def recomputation_stopped(self, func: object, args: object, kwargs: object, frame: FrameType) -> None:
        """Record the op at which a recomputation stops: all saved tensors are there, so the op returns no result."""
        self._record(Op(func, args, kwargs, _STOPPED_OP, (0, 0), frame, inspecting=False))

    def _inside(self, frame: Any) -> CodeLocation | None:
        """Return the user's location of an op inside the region; ``None`` if there is none.

        Locations outside the region differ between the two runs. ``_LIBRARY_LOCATION``: the op was run by a hook of
        torch.distributed around a module, which gathers missing shards, or by the checkpoint itself for what a custom
        function saves. Such ops differ between the two runs, too.
        """
        if code_objects.is_pack_hook(frame.f_code):
            return _LIBRARY_LOCATION
        library = False
        while frame is not None and (file := frame.f_code.co_filename) != code_objects.CHECKPOINT_FILE:
            if self._frames.is_user(frame.f_code):
                return frame.f_code, frame.f_lasti
            if library and file == code_objects.MODULE_FILE:
                return _LIBRARY_LOCATION
            library = library or file.startswith(code_objects.COLLECTIVES)
            frame = frame.f_back
        return None

    def _checkpoint(self, frame: Any) -> CodeLocation | None:
        """Return the user's line that called the checkpoint around `frame`, which is inside the checkpointed
        function.
        """
        while frame is not None and frame.f_code.co_filename != code_objects.CHECKPOINT_FILE:
            frame = frame.f_back
        return self._frames.spot(frame)

    def recomputing(self, seqs: list[int]) -> list[int]:
        """Return those of the nodes `seqs` that may recompute a checkpoint's tensors."""
        return self.within(seqs) if self.known else []

    def within(self, seqs: list[int]) -> list[int]:
        """Return the indices of the nodes that may trigger a recomputation: those made inside a checkpoint."""
        firsts: list[int] = []
        lasts: list[int] = []
        for first, last in sorted((r.first, r.last) for r in self._regions.values() if not r.reentrant):
            if lasts and first < lasts[-1]:
                lasts[-1] = max(last, lasts[-1])  # nested regions
            else:
                firsts.append(first)
                lasts.append(last)
        if not firsts:
            return []
        return [i for i, s in enumerate(seqs) if (at := bisect_right(firsts, s)) and s < lasts[at - 1]]

    def inputs_of(self, seq: int) -> tuple[CodeLocation | None, int, list[torch.Tensor | None]] | None:
        """Return the line, the first node and the input tensors of the region that made node `seq`.

        ``None`` if there is none.
        """
        for holder, region in self._regions.items():
            if not region.reentrant and region.first <= seq < region.last:
                saved = [(private.slot_content(one) or (None,))[0] for one in private.checkpoint_inputs(holder)]
                return region.spot, region.first, [t for t in saved if isinstance(t, torch.Tensor)]
        return None

    def backward_returned(self, running: ActiveBackward) -> None:
        """Compare the regions that were recomputed in a backward call that is over."""
        error, step, index, failed = running.error, running.step, running.index, running.spot
        redone, self._redone = self._redone, {}
        raised = isinstance(error, torch.utils.checkpoint.CheckpointError)
        last = next(reversed(redone.values()), None)  # the one that was running when torch raised
        for region in redone.values():
            mine = error is not None and region is last
            reported = mine and raised  # report it even if its beginning was not observed
            found = (
                difference(region.ops, region.comparable_ops, region.reentrant, reported)
                if reported or not region.partial
                else None
            )
            if found is not None or (raised and mine):
                self._note(region, found, str(error) if mine else "", step, index, failed)
            region.recomputed = []
        if raised and last is None:
            self._note_unobserved(str(error), step, index, failed)

    def _note_unobserved(self, raised: str, step: int, index: int, failed: CodeLocation | None) -> None:
        """Record a difference that torch found in a region whose ops were not observed, as in an unrecorded step.

        The random calls in the region's source are the only evidence.
        """
        if None in self._found:
            return
        last: dict[tuple[str, str], Site] = {}  # by function, the last line that ran
        for site in filter(None, map(self._frames.site, self._inner)):
            key = site.file, site.function
            last[key] = max(site, last.get(key, site), key=lambda one: one.line)
        drawn = {line for site in last.values() if (line := drawn_before(site)) is not None}
        region = self._frames.site(next(iter(self._regions_by_line))) if len(self._regions_by_line) == 1 else None
        fields = "unheard", region, None, self._frames.site(failed), None, "", "", "", raised, step, (index,), None
        self._found[None] = RegionDiffers(*fields, drawn.pop() if len(drawn) == 1 else None)

    def _note(
        self,
        region: _Region,
        found: tuple[str, RegionOp, str, str] | None,
        raised: str,
        step: int,
        index: int,
        failed: CodeLocation | None,
    ) -> None:
        """Record the difference between the two runs of a region, or add a backward call to the line's record.

        :param found: kind of difference, op, and how it was in the forward and in the recomputation; ``None`` if
            unknown.
        :param raised: the message of torch's error, if this region caused it.
        :param step, index, failed: of the backward call: its step, its index and its line.
        """
        known = self._found.get(region.spot)
        if known is not None and (known.raised or not raised):
            if len(known.backwards) < 1000:
                self._found[region.spot] = replace(known, backwards=(*known.backwards, index))
            return
        if len(self._found) >= 20:
            return
        how, op, forward, recomputed = found or ("unknown", None, "", "")
        name = getattr(op.func, "__name__", str(op.func)) if op is not None else ""
        changed = None
        if how == "written" and op is not None:
            changed = self._writer(op, recomputed)
        elif how == "arguments" and {forward.rpartition("=")[2], recomputed.rpartition("=")[2]} == {"True", "False"}:
            method = "eval" if recomputed.endswith("False") else "train"
            changed = next((c[0] for c in calls_of_method(self._frames, method)), None)
        cause = self._frames.site(op.spot or region.spot) if op is not None else None
        if changed is None and cause is not None and how in ("extra", "missing", "other", "shape"):
            changed = container_fill_near(cause)
        depends = cause is not None and changed is None and how in ("extra", "missing", "other", "shape", "values")
        where = (op.where or region.where) if op is not None else None
        self._found[region.spot] = RegionDiffers(
            how,
            self._frames.site(region.spot),
            cause,
            self._frames.site(failed),
            self._modules.place_of(where) if op is not None else None,
            name,
            forward,
            recomputed,
            raised,
            step,
            (*(known.backwards if known is not None else ()), index),
            changed,
            drawn_before(cause) if depends and cause is not None else None,
        )

    def _writer(self, op: RegionOp, version: str) -> Site | None:
        """Return the line that changed a parameter of `op` last, if its version in the recomputation is `version`."""
        for storage, now, _ in op.parameters:
            write = self.writes.first_after(storage, 0, now - 1) if version == f"version {now}" else None
            if write is not None:
                return self._frames.site(write.spot)
        return None

    def records(self) -> tuple[Cut | RegionDiffers, ...]:
        """Return the reentrant checkpoints that cut a gradient path, and the regions whose recomputation differed."""
        lines = checkpointing_lines(self._frames) if self._lost else []
        enabled = lines[0] if len(lines) == 1 else None
        observed = (
            ObservedCut("checkpoint", spot, where, leaves, 0, step).record(self._names, None)
            for spot, (where, leaves, step) in self._lost.items()
        )
        cuts = (replace(cut, enabled=enabled) for cut in observed)
        return (*cuts, *self._found.values())
