"""Parameters that one line's backward calls reached, and from some step on do not: frozen, cut off.

Note [What stopped]: each line that calls backward is looked at apart, so that schemes which train parts in turn have
nothing that stops. A parameter has stopped where the line went on without it for a while, which has to be longer than
any time that it had been away before, and no other line reaches it either.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...records import Site, StoppedLearning, Unreduced
from ...source.frames import Spot
from ...torch_texts import UNREDUCED
from ...torchside import places, private
from ..backward.calls import Running
from ..backward.layouts import LiveLayout
from ..backward.recorded import Recorded
from ..events import Tracker
from ..forward.leaves import Leaf
from ..scene import Scene
from ..schedule.steps import SeenOptimizer

#: Calls of a line that a parameter has to be away for, and the part of the calls before that it has to be.
AWAY, SHARE = 5, 0.2
#: Calls that are enough where an operation was seen to cut the path.
SEEN_CUT = 30
#: How many times as often a module is called that one part of the script froze and another goes on to train.
SHARED = 1.8
#: Calls after which it is looked at why, and how often in a run.
LOOK_AFTER, LOOKS = 2, 3


@dataclass
class _Away:
    """A parameter that a line does not reach any more.

    :ivar call, recorded, step: of the first call without it: its number, how many were recorded until then, its step.
        ``counts``: calls of its module until then.
    :ivar beside: one that the line goes on to reach, and the calls of its module.
    """

    leaf: Leaf
    call: int
    recorded: int
    step: int
    counts: tuple[int, int]
    beside: tuple[Leaf, tuple[int, int]] | None


@dataclass
class _Line:
    """The backward calls of one line: all, and those that were recorded."""

    calls: int = 0
    recorded: int = 0
    same: int = 0
    live: LiveLayout | None = None
    leaves: dict[int, Leaf] = field(default_factory=dict)
    away: dict[int, _Away] = field(default_factory=dict)
    #: The longest time that a parameter was away and came back.
    gaps: dict[int, int] = field(default_factory=dict)


@dataclass
class _Frozen:
    """``requires_grad`` of a tensor was turned off, ``indirectly``: by a library's code; ``again``: by the line that
    had done so before, and it had been thawed since."""

    ref: weakref.ref[Any]
    spot: Spot | None
    step: int
    indirectly: bool
    again: bool = False
    back: bool = False


class Stopped(Tracker):
    """Compares the parameters that calls of a line reach."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._names, self._modules = scene, scene.names, scene.modules
        self._lines: dict[Any, _Line] = {}
        self._frozen: dict[int, _Frozen] = {}
        #: The last call: its line and step.
        self._latest: tuple[Spot | None, int] = (None, 0)
        self._looks = 0
        #: Optimizer -> the step in which it stepped last.
        self._last: dict[int, int] = {}

    def optimizer_over(self, optimizer: Any) -> None:
        self._last[id(optimizer)] = self._scene.steps.index

    def requires_grad_set(self, tensor: Any, on: bool, frame: Any) -> None:
        """Note where a parameter was frozen, and whether it was thawed."""
        if not on:
            if len(self._frozen) > 100_000 or not tensor.requires_grad:
                return
            mine = frame.f_code.co_filename == places.MODULE_FILE or self._names.frames.is_user(frame.f_code)
            spot = self._names.frames.spot(frame)
            before = self._frozen.get(id(tensor))
            again = before is not None and before.ref() is tensor and before.back and before.spot == spot
            step = self._scene.steps.index
            self._frozen[id(tensor)] = _Frozen(private.tensor_ref(tensor), spot, step, not mine, again)
            return
        known = self._frozen.get(id(tensor))
        if known is not None and known.ref() is tensor:
            known.back = True

    def call_counted(self, spot: Spot | None, roots: Sequence[Any]) -> None:
        """It is taken to go where the last one of its line went that was recorded."""
        line = self._lines.get(spot)
        if line is not None:
            line.calls += 1

    def backward_over(self, running: Running, recorded: Recorded) -> None:
        if running.inside is not None or recorded.raised is not None or running.kind == "autograd.grad":
            return
        line = self._lines.get(running.spot)
        if line is None:
            if len(self._lines) > 100:
                return
            line = self._lines[running.spot] = _Line()
        line.calls += 1
        line.recorded += 1
        self._latest = running.spot, recorded.step
        live = running.live
        if live is line.live:
            line.same += 1
            if line.away and line.same == LOOK_AFTER and self._looks < LOOKS:
                self._looks += 1
                self._scene.look_closely(recorded.step + 2)
            return
        line.live, line.same = live, 1
        before, line.leaves = line.leaves, {id(leaf): leaf for leaf in live.named.values() if leaf.root is not None}
        counts = self._modules.counts
        other = next((leaf for key, leaf in line.leaves.items() if key in before), None)
        beside = (other, counts(other.owner)) if other is not None else None
        for key in before.keys() - line.leaves.keys():
            leaf = before[key]
            line.away[key] = _Away(leaf, line.calls, line.recorded, recorded.step, counts(leaf.owner), beside)
        for key in line.away.keys() & line.leaves.keys():
            line.gaps[key] = max(line.gaps.get(key, 0), line.calls - line.away.pop(key).call)

    def records(self) -> tuple[StoppedLearning | Unreduced, ...]:
        """What stopped, by step and reason."""
        groups: dict[Any, list[_Away]] = {}
        for spot, line in self._lines.items():
            for key, away in line.away.items():
                gone = line.calls - away.call + 1
                least, share = max(AWAY, 3 * line.gaps.get(key, 0)), SHARE * away.call
                if away.call <= AWAY or gone < max(least, min(share, SEEN_CUT)):
                    continue
                holder = self._held(away)
                if any(key in other.leaves for other in self._lines.values()) or holder is None:
                    continue
                other = self._in_its_place(away.leaf, line)
                if other is not None:
                    why: tuple[str, Site | None] = "replaced", self._names.frames.site(holder.spot)
                    away = replace(away, leaf=other)
                else:
                    why = self._reason(away, line.recorded - away.recorded + 1)
                if why[0] != "cut" and gone < share:
                    continue
                groups.setdefault((spot, *why), []).append(away)
        found = []
        for (spot, reason, site), mine in groups.items():
            if reason:
                names = tuple(self._names.leaves.name(one.leaf) for one in mine)
                failed = self._names.frames.site(spot)
                found.append(StoppedLearning(names, min(one.step for one in mine), reason, site, failed))
        return (*found, *self._unreduced())

    def _unreduced(self) -> list[Unreduced]:
        """What data-parallel training waited for, where the script ended with that."""
        spot, step = self._latest
        line = self._lines.get(spot)
        if self._scene.raised is None or UNREDUCED not in str(self._scene.raised) or line is None:
            return []
        leaves, frames = self._names.leaves, self._names.frames
        groups: dict[tuple[Site | None, tuple[Site, ...], bool], list[Leaf]] = {}
        for leaf in leaves.beside(line.leaves.values()):
            if id(leaf) in line.leaves or not (leaf.reached or leaf.requires_grad):
                continue
            tensor = leaf.ref()
            frozen = self._frozen.get(id(tensor)) if tensor is not None and not tensor.requires_grad else None
            site = frames.site(frozen.spot) if frozen is not None and frozen.ref() is tensor else None
            choices = () if site is not None else tuple(leaves.choices(leaf))
            groups.setdefault((site, choices, bool(leaf.reached)), []).append(leaf)
        return [
            Unreduced(tuple(map(leaves.name, mine)), step, site, choices, frames.site(spot), before)
            for (site, choices, before), mine in groups.items()
        ]

    def _held(self, away: _Away) -> SeenOptimizer | None:
        """An optimizer that holds it and went on: training was not over for all of it."""
        holders = self._holders(away.leaf)
        return next((one for n, one in holders if self._last.get(n, -1) >= away.step + AWAY - 1), None)

    def _holders(self, leaf: Leaf) -> list[tuple[int, SeenOptimizer]]:
        """The optimizers that hold a parameter."""
        optimizers = self._scene.steps.optimizers
        return [(n, one) for n, one in optimizers.items() if (r := one.refs.get(id(leaf.ref()))) and r() is not None]

    def _in_its_place(self, leaf: Leaf, line: _Line) -> Leaf | None:
        """The parameter of the same name in another model of the same class that the line reaches instead, and that no
        optimizer holds."""
        if leaf.root is None:
            return None
        mine = leaf.path, leaf.shape, leaf.root.class_name
        for one in line.leaves.values():
            if (
                one.root is not None
                and one.root is not leaf.root
                and mine == (one.path, one.shape, one.root.class_name)
            ):
                return None if self._holders(one) else one
        return None

    def _reason(self, away: _Away, gone: int) -> tuple[str, Site | None]:
        leaf, frames = away.leaf, self._names.frames
        tensor = leaf.ref()
        if tensor is None:
            return "", None
        frozen = self._frozen.get(id(tensor))
        if not tensor.requires_grad:
            if frozen is None or frozen.ref() is not tensor:
                return "", None
            meant = not (frozen.indirectly or frozen.again)
            if meant and not self._restored_in_part(leaf, frozen) and not self._shared(away, gone):
                return "", None
            return "frozen", frames.site(frozen.spot)
        calls, quiet = self._since(leaf, away.counts)
        if calls or self._modules.counts(leaf.owner) == (0, 0):  # nobody calls its module: its own methods run
            return "cut", None
        evaluated = self._since(*away.beside)[1] if away.beside is not None else 0
        if quiet - evaluated > gone / 2:
            return "quiet", self._modules.turned_off(leaf.owner)
        return "uncalled", None  # another part runs in its place, or what it gave once

    def _since(self, leaf: Leaf, then: tuple[int, int]) -> tuple[int, int]:
        """Calls of a parameter's module, with gradient mode on and off."""
        calls, quiet = self._modules.counts(leaf.owner)
        return calls - then[0], quiet - then[1]

    def _shared(self, away: _Away, gone: int) -> bool:
        """Whether its module is called more often since it was frozen: as what it was, and as what was to be frozen."""
        calls, before = self._since(away.leaf, away.counts)[0], away.counts[0]
        return before > 0 and calls * away.recorded >= SHARED * before * gone

    def _restored_in_part(self, leaf: Leaf, frozen: _Frozen) -> bool:
        """Whether `leaf` was frozen with all of its model, of which another part was thawed again."""
        mine = [
            self._frozen.get(id(tensor))
            for one in self._names.leaves.reached()
            if one.root is leaf.root and (tensor := one.ref()) is not None
        ]
        together = [one for one in mine if one is not None and one.spot == frozen.spot and one.step == frozen.step]
        return len(together) == len(mine) and any(one.back for one in together)
