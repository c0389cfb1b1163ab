"""Records what ``torch.compile`` compiled, read from Dynamo's own metrics after each step. No hook is registered."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...records import CompiledRegion, GraphBreak, Recompiled, Site, Step, Unseen
from ...source.sites import site_at
from ...torch_internals import private
from ...torch_internals.compilations import Place
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Maximum number of recompilations, and of graph breaks, that are kept per function: the first ones.
MAX_PER_FUNCTION = 50

_Key = tuple[str, str, str, int]


@dataclass
class _Region:
    """A function that Dynamo compiled separately, and its compilations."""

    first_step: int
    function: str = ""
    site: Site | None = None
    after: int | None = None
    graphs: int = 0
    backwards: int = 0
    cached: int = 0
    ops: int = 0
    seconds: float = 0.0
    recompiled: list[Recompiled] = field(default_factory=list)
    breaks: list[GraphBreak] = field(default_factory=list)
    skipped: str = ""
    limit: bool = False

    def record(self) -> CompiledRegion:
        """Return the record of the region."""
        lists = {"recompiled": tuple(self.recompiled), "breaks": tuple(self.breaks)}
        return CompiledRegion(**{**vars(self), **lists})


class CompilationTracker(Tracker):
    """Tracker that makes one record for each function that Dynamo compiles separately."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without regions."""
        self._context, self._frames = context, context.names.frames
        self._reader = private.Compilations()
        self._regions: dict[_Key, _Region] = {}
        #: The last key for each frame number of Dynamo.
        self._last_key_by_frame: dict[str, _Key] = {}
        self._first_compilations: dict[str, private.Compilation] = {}
        self._ended = False

    def observing_begins(self) -> None:
        """Read the compilations that were made before, of which only the names are needed."""
        compilations, _ = self._reader.new()  # of before; torch does not repeat their functions' names
        for one in compilations:
            if one.function:
                self._first_compilations.setdefault(one.frame, one)

    def step_ended(self, step: Step) -> None:
        """Read what was compiled in the step."""
        self._read_compilations(step.index)

    def ended(self) -> None:
        """Read the compilations of the script; later ones are ignored."""
        self._read_compilations(self._context.steps.index)
        self._ended = True

    def records(self) -> tuple[CompiledRegion, ...]:
        """Return a record of each function that was compiled."""
        self._read_compilations(self._context.steps.index)
        return tuple(region.record() for region in self._regions.values())

    def unseen(self) -> tuple[Unseen, ...]:
        """Return how many compilations torch had dropped before they were read."""
        if not self._reader.lost:
            return ()
        note = "torch keeps the last 64 only, and there were more between two looks"
        return (Unseen("times that more was compiled than is known", self._reader.lost, note, hides=False),)

    def _read_compilations(self, step: int) -> None:
        """Read the compilations and graph breaks since the last time, and add them to their regions as of `step`."""
        if self._ended:
            return
        compilations, breaks = self._reader.new()
        for one in compilations:
            self._add(self._region(one, step), one, step)
        for broken in breaks:
            site = self._innermost(broken.stack)
            found = self._region_of_break(broken.stack)
            seen = GraphBreak(broken.reason, site)
            if found is not None and seen not in found.breaks and len(found.breaks) < MAX_PER_FUNCTION:
                found.breaks.append(seen)

    def _region(self, one: private.Compilation, step: int) -> _Region:
        """Return the region of a compilation.

        Torch gives a function's name only with its first compilation, and numbers functions anew after
        ``torch._dynamo.reset()``.
        """
        named = one if one.function else self._first_compilations.get(one.frame, one)
        key = (one.frame, named.function, named.file, named.line)
        if not one.function:
            key = self._last_key_by_frame.get(one.frame, key)
        region = self._regions.get(key)
        if region is None:
            region = self._regions[key] = _Region(step)
            self._name(region, named)
        self._last_key_by_frame[one.frame] = key
        return region

    def _name(self, region: _Region, one: private.Compilation) -> None:
        """Set the name and the line of a region from its compilation."""
        region.function, region.after = one.function, one.after
        if one.file:
            region.site = site_at(one.file, one.line, one.function)

    def _add(self, region: _Region, one: private.Compilation, step: int) -> None:
        """Add a compilation to its region: its time, and whether it is a backward, a recompilation, a failure or a
        graph.
        """
        region.seconds += one.seconds
        region.cached += one.cached
        if not one.forward:
            region.backwards += 1
            return
        if one.guard and not one.for_us and len(region.recompiled) < MAX_PER_FUNCTION:
            region.recompiled.append(Recompiled(step, one.guard, self._innermost(one.relied)))
        if one.failed:
            region.skipped, region.limit = one.failed, region.limit or one.limit
            if one.failed_at is not None:
                file, line, _ = one.failed_at
                seen = GraphBreak(one.failed, site_at(file, line, region.function))
                if seen not in region.breaks:
                    region.breaks.append(seen)
        elif one.ops:
            region.graphs, region.ops = region.graphs + 1, one.ops

    def _innermost(self, stack: tuple[Place, ...]) -> Site | None:
        """Return the innermost line of the user's code in a stack; ``None`` if there is none."""
        mine = [place for place in stack if self._frames.is_users_file(place[0])]
        return site_at(*mine[-1]) if mine else None

    def _region_of_break(self, stack: tuple[Place, ...]) -> _Region | None:
        """Return the region in which a graph break occurred.

        This is the region of the function in which the stack begins.
        """
        if not stack:
            return None
        file, line, name = stack[0]
        named = [
            region
            for region in self._regions.values()
            if region.site is not None and region.site.file == file and region.function == name
        ]
        # The rest of a function after a graph break is a region of its own: the last one that begins above the line.
        begun = [region for region in named if (region.after or 0) < line]
        return max(begun, key=lambda region: region.after or 0, default=named[0] if named else None)
