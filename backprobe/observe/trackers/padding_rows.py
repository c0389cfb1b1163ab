"""Detects embeddings whose padding row stands for something real: it is one of the single ids that are looked up."""

from __future__ import annotations

import ast
import weakref
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

import torch

from ... import thresholds
from ...records import PaddingRowUsed, Site
from ...source.index import indexes
from ...torch_internals import private
from ...torch_internals.saved_by_nodes import embedding_lookup
from ..backward.active_backward import ActiveBackward
from ..tracker import Tracker
from ..tracker_context import TrackerContext

if TYPE_CHECKING:
    from ...torch_internals.walk import LiveGraph

#: Maximum number of backward calls that are checked.
MAX_CALLS = 200
#: Maximum number of tables that are checked.
MAX_TABLES = 50
#: The most ids of one lookup that are read.
MAX_IDS = 100_000
_NODE = "EmbeddingBackward0"


@dataclass
class _Table:
    """An embedding with a padding row.

    :ivar calls: the backward calls that reached it, and ``hits``: of these, with lookups of the padding row.
    :ivar ids, padded: the ids that were looked up, and how many of them were padding.
    :ivar sequences: ids were looked up in rows, as sequences of tokens.
    """

    ref: weakref.ref[torch.Tensor]
    row: int
    calls: int = 0
    hits: int = 0
    ids: int = 0
    padded: int = 0
    sequences: bool = False
    first: int = 0
    name: str = ""


class PaddingRowTracker(Tracker):
    """Tracker that reads the ids of lookups in embeddings with a padding row, in recorded backward calls on the CPU."""

    def __init__(self, context: TrackerContext) -> None:
        self._context = context
        self._tables: dict[int, _Table] = {}
        self._calls = 0

    def graph_walked(self, running: ActiveBackward, frame: FrameType) -> None:
        """Read the ids of all embedding lookups in a graph, in the first calls."""
        graph = running.graph
        if self._calls >= MAX_CALLS or _NODE not in graph.plan.distinct:
            return
        self._calls += 1
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            for i, name in enumerate(graph.plan.names):
                if name == _NODE:
                    self._read(graph, i)

    def _read(self, graph: LiveGraph, i: int) -> None:
        """Count how many ids of the lookup at node `i` are its padding row."""
        node, edges = graph.nodes[i], graph.plan.edges(i)
        leaf = getattr(graph.nodes[edges[0][0]], "variable", None) if edges and edges[0] else None
        row, ids = embedding_lookup(node)
        if leaf is None or ids is None or not 0 <= row < leaf.shape[0]:
            return
        if not ids.is_cpu or private.is_unsafe_to_read(ids) or not 0 < ids.numel() <= MAX_IDS:
            return
        table = self._tables.get(id(leaf))
        if table is None or table.ref() is not leaf:
            if len(self._tables) >= MAX_TABLES:
                return
            table = self._tables[id(leaf)] = _Table(private.tensor_ref(leaf), row)
            table.name = self._context.names.of(leaf)
        table.sequences = table.sequences or ids.dim() > 1
        padded = int((ids == row).sum())
        table.first = table.first if table.hits else self._context.steps.index
        table.calls, table.hits = table.calls + 1, table.hits + bool(padded)
        table.ids, table.padded = table.ids + ids.numel(), table.padded + padded

    def records(self) -> tuple[PaddingRowUsed, ...]:
        """Return a record for each padding row that is looked up as a single id in several calls."""
        found = [
            one for one in self._tables.values() if one.hits >= thresholds.PADDING_ROW_MIN_CALLS and not one.sequences
        ]
        groups: dict[int, list[_Table]] = {}
        for one in found:
            groups.setdefault(one.row, []).append(one)
        lines = self._lines() if found else ()
        return tuple(
            PaddingRowUsed(
                tuple(self._name(one) for one in mine),
                row,
                max(one.padded / one.ids for one in mine),
                min(one.first for one in mine),
                lines,
            )
            for row, mine in groups.items()
        )

    def _name(self, table: _Table) -> str:
        """Return the name of a table; if its weight is gone, the name that it had."""
        leaf = table.ref()
        return self._context.names.of(leaf) if leaf is not None else table.name

    def _lines(self) -> tuple[Site, ...]:
        """Return the lines of the user's code that give a ``padding_idx``."""
        return tuple(
            index.site(call)
            for index in indexes(self._context.frames.users_files(), "padding_idx")
            for call in index.of(ast.Call)
            if any(one.arg == "padding_idx" for one in call.keywords)
        )
