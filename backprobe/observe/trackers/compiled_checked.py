"""``--check compiled``: whether compiled regions return the same values as their operations."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...records import CompiledWrong, Unseen
from ...torch_internals import private
from ..schedule.settings import Settings
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Maximum number of regions that are checked, and of wrong regions that are reported.
MAX_CHECKED_REGIONS, MAX_WRONG_REGIONS = 200, 10


class CompiledRegionCheck(Tracker):
    """Tracker that keeps the first call of each region, and checks these calls after the script has ended."""

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        """Return whether the check was requested by ``--check compiled``."""
        return "compiled" in settings.checks

    def __init__(self, context: TrackerContext) -> None:
        """Start without regions."""
        self._context = context
        #: By name of a region: its first call and the step.
        self._first_calls: dict[str, tuple[Any, int]] = {}
        self._regions_over_limit: set[str] = set()
        self._found: list[CompiledWrong] = []
        #: Reasons why regions were not checked, and how many regions each applies to.
        self._unchecked: Counter[str] = Counter()

    def region_called(self, call: Any) -> None:
        """Keep the first call of a region, for at most ``MAX_CHECKED_REGIONS`` regions."""
        if len(self._first_calls) < MAX_CHECKED_REGIONS:
            self._first_calls.setdefault(call.region.name, (call, self._context.steps.index))
        elif call.region.name not in self._first_calls:
            self._regions_over_limit.add(call.region.name)

    def ended(self) -> None:
        """Check the kept calls, and count the regions that cannot be checked."""
        self._unchecked[f"was called after {MAX_CHECKED_REGIONS} others"] += len(self._regions_over_limit)
        for name in list(self._first_calls):
            call, step = self._first_calls.pop(name)
            if len(self._found) >= MAX_WRONG_REGIONS:
                self._unchecked[f"comes after {MAX_WRONG_REGIONS} that are wrong"] += 1
                continue
            try:
                self._check(call, step)
            except Exception as error:
                self._unchecked["failed when it was run again"] += 1
                self._context.events.fault(self, error)

    def _check(self, call: Any, step: int) -> None:
        """Run the operations of a region again, and record it if the compiled code had returned other values."""
        try:
            with private.disable_function_modes(), private.hide_ops():
                wrong = private.wrong_region(call)
        except private.Unchecked as why:
            self._unchecked[str(why)] += 1
            return
        if wrong is not None:
            self._found.append(self._record(call, wrong, step))

    def _record(self, call: Any, wrong: Any, step: int) -> CompiledWrong:
        """Return the record of a wrong region: the operation that is wrong, its line and how far it is off."""
        frames, region = self._context.names.frames, call.region
        node = wrong.node
        lines = [frames.site_in(n.meta.get("stack_trace") or "") for n in region.graph.nodes]
        first = next((site for site in lines if site is not None), None)
        return CompiledWrong(
            first.function if first is not None else "",
            private.name_of(node) if node is not None else None,
            frames.site_in(node.meta.get("stack_trace") or "") if node is not None else None,
            private.module_in(region, call.args, node, self._context.names.of) if node is not None else None,
            "backward" if wrong.backward else "forward",
            wrong.off,
            wrong.usual,
            wrong.alone,
            wrong.script,
            step,
            first,
        )

    def records(self) -> tuple[CompiledWrong, ...]:
        """Return the records of wrong regions."""
        return tuple(self._found)

    def unseen(self) -> tuple[Unseen, ...]:
        """Return how many regions were not checked, by reason."""
        return tuple(
            Unseen("compiled regions that were not checked", count, f"each {why}")
            for why, count in self._unchecked.items()
            if count
        )
