"""Looks up where each node of a graph was made (module call, source line and function) in the op log."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from ...graphs.data import NodePlace
from ...records import ACCUMULATE_SEQ, ModuleCall, Site
from ...source.frames import Frames
from ...source.roots import ModuleCallRef
from .modules import ModuleWatch
from .oplog import Entry, OpLog, op_name, spot_of


def makers(
    seqs: Sequence[int], ends: Sequence[int], entries: Sequence[Entry], first: int
) -> Iterator[tuple[int, Entry]]:
    """Yield (index into `seqs`, op log entry) for the nodes that logged ops made, by ascending sequence number.

    An op made the nodes from the end of the op before it up to its own end. Both lists ascend, so one pass suffices.

    :param first: nodes with a lower number were made before the log began, or by ops that it has dropped.
    """
    order = sorted(range(len(seqs)), key=seqs.__getitem__)
    at = bisect_right(ends, seqs[order[0]]) if order else 0
    for i in order:
        seq = seqs[i]
        if seq == ACCUMULATE_SEQ:
            return
        while at < len(ends) and ends[at] <= seq:
            at += 1
        if at == len(ends):
            return
        if seq >= first:
            yield i, entries[at]


def line_and_op(entry: Entry, frames: Frames) -> tuple[Site | None, str]:
    """Return the user's line of an op, and the op's name."""
    return frames.site(spot_of(entry)), op_name(entry[2]) if entry[2] is not None else ""


class NodePlaces:
    """Lookup of the places where nodes were made, in one pass over their sequence numbers in ascending order."""

    def __init__(self, log: OpLog, modules: ModuleWatch, frames: Frames, calls_from: int = 0) -> None:
        """Prepare a lookup in `log`; module calls are known from the sequence number `calls_from` on."""
        self._log, self._modules, self._frames = log, modules, frames
        self._calls_from = calls_from
        self._places: dict[object, int] = {}
        self._found: list[tuple[int, Entry | None]] = []
        self._older: dict[int, int] = {}
        self._enter: dict[int, tuple[ModuleCallRef, int]] = {}

    def find(self, seqs: Sequence[int]) -> tuple[list[NodePlace], array[int], tuple[ModuleCall, ...]]:
        """Find modules and lines of nodes, given by their sequence numbers.
        :returns: a table of distinct places, for each node its row in the table, and the module calls that made nodes.
        """
        rows = array("q", [0]) * len(seqs)
        self._places[None] = 0
        self._found.append((-1, None))
        trail, moments = self._modules.trail, self._modules.moments
        event = 0
        stack: list[int] = []
        for i, entry in makers(seqs, self._log.ends, self._log.entries, self._log.first):
            seq = seqs[i]
            while event < len(moments) and moments[event] <= seq:
                where = trail[event]
                if where is not None:
                    self._enter[event] = (where, stack[-1] if stack else -1)
                    stack.append(event)
                elif stack:
                    stack.pop()
                event += 1
            call = stack[-1] if stack and seq >= self._calls_from else self._alone(entry[3])
            key = (call, id(entry))
            row = self._places.get(key)
            if row is None:
                row = self._places[key] = len(self._found)
                self._found.append((call, entry))
            rows[i] = row
        numbers, calls = self._calls()
        places = [
            NodePlace()
            if e is None
            else NodePlace(numbers.get(call, -1), *line_and_op(e, self._frames), True, self._frames.inside(e[4]))
            for call, e in self._found
        ]
        return places, rows, calls

    def _alone(self, where: ModuleCallRef | None) -> int:
        """Return a number for a module call of an earlier step, of which the calls around it are not known any more.
        :returns: -1 if `where` is ``None``.
        """
        if where is None:
            return -1
        at = self._older.get(id(where))
        if at is None:
            at = self._older[id(where)] = len(self._modules.trail) + len(self._older)
            self._enter[at] = (where, -1)
        return at

    def _calls(self) -> tuple[dict[int, int], tuple[ModuleCall, ...]]:
        """Return the calls that made nodes, and their parents, renumbered in order: (event -> index, records)."""
        used: set[int] = set()
        for call, _ in self._found:
            while call >= 0 and call not in used:
                used.add(call)
                call = self._enter[call][1]
        modules, counts = self._modules, {}  # type: ignore[var-annotated]
        numbers: dict[int, int] = {}
        calls: list[ModuleCall] = []
        for event in sorted(used):
            where, parent = self._enter[event]
            up = numbers.get(parent, -1)
            path = modules.name_of(where)
            if path is None:
                path = f"({where.class_name})"
            counts[path] = counts.get(path, 0) + 1
            spot, shapes, grad, norm = modules.details.get(event, (None, (), True, None))
            numbers[event] = len(calls)
            depth = calls[up].depth + 1 if up >= 0 else 0
            site, index = self._frames.site(spot), len(calls)
            calls.append(ModuleCall(index, path, where.class_name, counts[path], depth, up, site, shapes, grad, norm))
        return numbers, tuple(calls)
