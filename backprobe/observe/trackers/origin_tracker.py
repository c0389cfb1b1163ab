"""Locates the origin of a non-finite loss from the graph of its backward, even if the forward was not recorded."""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch

from ...graphs.plan import engine_order
from ...records import Born, InferredLine, Site
from ...source.dataflow import is_singular, singular_before
from ...source.frames import variables
from ...torch_internals import private
from ...torch_internals.entry_points import root_record
from ..backward.active_backward import ActiveBackward
from ..backward.line_inference import can_make_nonfinite, first_bad_node
from ..backward.nonfinite_origin import NonFiniteOrigin, bad_storages, nonfinite_origin
from ..backward.pending_call_record import PendingCallRecord
from ..forward.writes import names_of_storage, variable_of
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Maximum number of backward calls that are investigated.
MAX_INVESTIGATED_CALLS = 20
#: Maximum number of nodes whose lines are inferred.
MAX_INFERRED_NODES = 200


class OriginTracker(Tracker):
    """Tracker that investigates the graph of the first backward call in a row that starts from non-finite roots.

    Roots on an accelerator are skipped, because reading one would wait for it.
    """

    def __init__(self, context: TrackerContext) -> None:
        """Start without findings."""
        self._context = context
        self._found: list[Born] = []
        self._inferred: list[InferredLine] = []
        self._bad_calls_in_a_row = 0

    def graph_walked(self, running: ActiveBackward, frame: FrameType) -> None:
        """Search the graph of a call from non-finite roots for the op that first made a NaN or Inf, in the first call
        of a row.
        """
        number = {node: i for i, node in enumerate(running.graph.nodes[: len(running.starts)])}
        starts = [
            number[start]
            for root, start in zip(running.roots, running.starts, strict=True)
            if start is not None and getattr(root, "is_cpu", False) and root_record(root, None).bad is not None
        ]
        if not starts:
            self._bad_calls_in_a_row = 0
            return
        self._bad_calls_in_a_row += 1
        if self._bad_calls_in_a_row > 1 or len(self._found) >= MAX_INVESTIGATED_CALLS:
            return
        found = nonfinite_origin(running.graph, starts)
        if found is not None:
            here = found.node, found.how, found.kept, found.output, found.sure
            before = self._entering_tensor(running, found, frame) if found.how == "outside" else ("", None, False)
            behind = None
            if found.how == "leaf" and running.graph.span[0] < self._context.calls.recorded_from:
                behind, before = self._leaf_source(running), ("", self._new_singular_line(), False)
            again = self._context.steps.calls_closure_again
            self._found.append(Born(running.index, *here, *before, found.masked, found.others, behind, again))

    def backward_recorded(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Record the candidate lines of nodes that a finding may name, if their forward was not recorded."""
        layouts = self._context.calls.layouts
        if not layouts.inferred or not recorded.has_trouble or len(self._inferred) >= MAX_INFERRED_NODES:
            return
        origins = [(one.node, *one.others, one.behind) for one in self._found[-1:] if one.backward == running.index]
        nodes = [i for one in origins for i in one if i is not None]
        nodes += [bad.node for bad in running.watch.bad_nodes[:MAX_INVESTIGATED_CALLS]]
        nodes += [i for i, node in enumerate(running.graph.nodes[: len(running.starts)]) if node in running.starts]
        if running.graph.plan.names:
            nodes += [0]
        for failed in (recorded.raised, recorded.cause.reuse):
            nodes += [failed.node] if failed is not None and failed.node is not None else []
        for i in dict.fromkeys(nodes):
            if running.graph.seqs[i] in layouts.inferred:
                self._inferred.append(InferredLine(running.index, i, layouts.candidates(running.graph, i)))

    def _leaf_source(self, running: ActiveBackward) -> int | None:
        """Return the node whose backward may have made the leaves non-finite.

        Assumes that the graph of the previous step was like this one.
        """
        graph, layouts = running.graph, self._context.calls.layouts
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            bad = {i: not bool(leaf.isfinite().all()) for i, leaf in graph.leaves if private.is_plain(leaf)}
        custom = set(graph.custom)
        order = engine_order(graph.plan, graph.seqs, running.live.needed)
        found = first_bad_node(graph.plan, order, bad, custom, layouts.new_nodes)
        if found is not None and (found in custom or can_make_nonfinite(graph.plan.names[found])):
            return found
        only_bad = {i: True for i, is_bad in bad.items() if is_bad}  # the others may belong to another loss
        other = first_bad_node(graph.plan, order, only_bad, custom, layouts.new_nodes)
        return other if other is not None else found

    def _new_singular_line(self) -> Site | None:
        """Return a line that ran for the first time recently and calls an op that is not finite everywhere."""
        frames = self._context.names.frames
        latest = self._context.calls.layouts.scanner.latest()
        sites = [site for spot in latest if (site := frames.site(spot)) is not None]
        return next((site for site in sites if is_singular(site)), None)

    def _entering_tensor(
        self, running: ActiveBackward, found: NonFiniteOrigin, frame: Any
    ) -> tuple[str, Site | None, bool]:
        """Describe a non-finite tensor that entered the graph at a node from outside.

        :returns: its name in the user's code, the line that may have made it non-finite, and whether that was done
            without torch.
        """
        names = self._context.names
        storages = bad_storages(running.graph, found.node)
        brought = bool(storages) and all(one for _, one in storages)
        for storage, _ in storages:
            variable, around = variable_of(storage, frame, names.frames), frame
            while variable and variable not in variables(around):
                around = around.f_back
            if variable:
                at = names.frames.site((around.f_code, around.f_lasti))
                return variable, singular_before(at, names.frames, variable) if at is not None else None, brought
        root = next((r for storage, _ in storages if (r := names_of_storage(storage, names.modules)) is not None), None)
        name = names.modules.full_name(*root) if root is not None else ""
        site = running.live.layout(names).nodes[found.node].site
        return name, singular_before(site, names.frames) if site is not None else None, brought

    def records(self) -> tuple[Born | InferredLine, ...]:
        """Return the origins that were found, and the lines that were inferred."""
        return (*self._found, *self._inferred)
