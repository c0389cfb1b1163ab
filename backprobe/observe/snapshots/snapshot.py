"""``backprobe.graph``: convert an autograd graph into plain data.

One walk over the nodes, roots first. It reads no tensor values and runs no saved-tensor hooks. It attaches nothing but
what frees a deep graph safely (Note [Freeing deep graphs]).
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.autograd.graph import GradientEdge

from ...basics.errors import BackprobeError
from ...graphs.data import Columns, GraphFacts, GraphRoot, NodePlace, TensorMeta
from ...graphs.graph import Graph
from ...graphs.order import borders
from ...torch_internals import deep_graph_free, private
from ...torch_internals.measure import dtype_name, shape_of
from ..forward.node_places import NodePlaces
from ..forward.observers import ForwardObservers
from ..live import LiveTrace
from ..session import Session
from .nodes import NodeReader
from .recording import Recording
from .recording import recording as _recording
from .tensor_names import TensorNames

if TYPE_CHECKING:
    from ...records import ModuleCall

#: A tensor, a gradient edge, a node, or several of these in a dict by name or in a list.
Roots = Any


def graph(
    roots: Roots,
    *,
    model: nn.Module | Mapping[str, nn.Module] | None = None,
    tensors: Mapping[str, object] | None = None,
    recording: Recording | LiveTrace | None = None,
    saved: bool = True,
) -> Graph:
    """Return the autograd graph that `roots` reach, as plain data.

    It holds no tensor and no torch object, and can be pickled.

    Module calls and source lines are known for nodes that ran while a recording was on (``backprobe.graph.recording``
    or ``backprobe.trace``). An active recording is found; pass one that is over. ``Graph.notes`` says what is missing.

    :param roots: a tensor that requires a gradient, a ``GradientEdge`` or a node; a list of them, or a dict by name.
    :param model: for the names of parameters and buffers; a dict of models puts each one's label before its names.
    :param tensors: further tensors for later queries by name, such as ``{"hidden": h}``.
    :param recording: the recording that was on when the graph was built.
    :param saved: read the saved tensors of each node.
    :raises BackprobeError: a root has no graph, or an argument is of another type.
    """
    found = _named(roots, "root")
    if not found:
        raise BackprobeError("no roots: give backprobe.graph a loss, or several in a list or dict")
    owner = _owner(recording)  # before modes are hidden
    with private.disable_function_modes():
        starts = [(name, *_start(name, value, "root")) for name, value in found]
        names = TensorNames(model, owner.modules if owner is not None else None)
        asked = [(name, *_start(name, value, "tensor")) for name, value in _named(tensors or {}, "tensor")]
        collecting = gc.isenabled()
        gc.disable()  # a graph makes many objects and no garbage: each collection would be wasted
        try:
            return _snapshot(starts, asked, names, owner.origins() if owner is not None else None, saved)
        finally:
            if collecting:
                gc.enable()


#: ``backprobe.graph.recording`` is a public name.
graph.recording = _recording  # type: ignore[attr-defined]


def _snapshot(
    starts: list[tuple[str, object, int, TensorMeta | None]],
    asked: list[tuple[str, object, int, TensorMeta | None]],
    names: TensorNames,
    origins: NodePlaces | None,
    saved: bool,
) -> Graph:
    """Return the graph below the nodes `starts` as plain data.

    :param starts: (name, node, output, metadata) of each root; ``asked``: the same of tensors for later queries.
    :param origins: gives the places where nodes were made; ``None`` without a recording.
    :raises BackprobeError: a tensor of `asked` is not in the graph.
    """
    columns = Columns()
    reader = NodeReader(columns, names, saved)
    nodes: list[torch.autograd.graph.Node] = []
    try:
        index = _walk([node for _, node, _, _ in starts], columns, reader, nodes)
    except BaseException:
        if len(nodes) > deep_graph_free.MIN_DEEP_NODES:  # the nodes read so far need safe freeing too
            missing = len(nodes) + 1 - len(columns.starts)
            begins = [*columns.starts, *[len(columns.targets)] * missing]
            deep_graph_free.protect(nodes, borders(begins, columns.targets, deep_graph_free.BAND))
        raise
    if len(nodes) > deep_graph_free.MIN_DEEP_NODES:
        deep_graph_free.protect(nodes, borders(columns.starts, columns.targets, deep_graph_free.BAND))
    reader.resolve(index)
    notes = list(names.notes)
    calls: tuple[ModuleCall, ...] = ()
    if origins is not None:
        columns.places, columns.place, calls = origins.find(columns.seqs)
        unseen = sum(1 for i, row in enumerate(columns.place) if not row and i not in reader.leaves)
        if unseen:
            notes.append(
                f"{unseen} of {len(nodes) - len(reader.leaves)} nodes were made outside of the recording, or in "
                "another thread: their module call and line are not known"
            )
    else:
        columns.places, columns.place = [NodePlace()], columns.place[:0]
        columns.place.extend([0] * len(nodes))
        notes.append(
            "no recording was on when this graph was built, so module calls and lines are not known: build it inside "
            "'with backprobe.graph.recording(model) as recording:' and ask recording.graph(loss)"
        )
    notes += reader.notes()
    tensors: dict[str, tuple[int, int]] = {}
    for name, node, output, _ in asked:
        if node not in index:
            raise BackprobeError(f"the tensor {name!r} is not in the graph of the roots: no gradient goes to it")
        tensors[name] = (index[node], output)
    roots = tuple(GraphRoot(name, index[node], output, meta) for name, node, output, meta in starts)
    facts = GraphFacts(roots, reader.leaves, calls, tensors, reader.inside, names.model, tuple(notes))
    return Graph(columns, facts)


def _walk(
    starts: Iterable[object], columns: Columns, reader: NodeReader, nodes: list[torch.autograd.graph.Node]
) -> dict[object, int]:
    """Fill the columns, roots first, and append each node to `nodes` as it is found. Returns the index of each node."""
    index: dict[object, int] = {}
    for node in starts:
        if node not in index:
            index[node] = len(nodes)
            nodes.append(node)
    get, read = index.get, reader.read
    edges, targets, numbers = columns.starts.append, columns.targets.append, columns.numbers.append
    count = 0
    for node in nodes:  # grows as we go
        read(node)
        for child, number in node.next_functions:
            numbers(number)
            count += 1
            if child is None:
                targets(-1)
                continue
            i = get(child)
            if i is None:
                i = index[child] = len(nodes)
                nodes.append(child)
            targets(i)
        edges(count)
    return index


def _named(values: object, what: str) -> list[tuple[str, object]]:
    """Return (name, value) for each value that was given as a dict, a list or one value."""
    if isinstance(values, Mapping):
        return [(str(name), value) for name, value in values.items()]
    if isinstance(values, (list, tuple)) and not isinstance(values, GradientEdge):
        return [(f"{what}{i}", value) for i, value in enumerate(values)]
    return [("loss" if what == "root" else what, values)]


def _start(name: str, value: object, what: str) -> tuple[object, int, TensorMeta | None]:
    """Return the node, the output number and the metadata of a root.

    :param what: what to call `value` in errors.
    :raises BackprobeError: `value` has no graph, or is no tensor, edge or node.
    """
    if isinstance(value, GradientEdge):
        meta = value.node._input_metadata  # type: ignore[attr-defined]
        seen = meta[value.output_nr] if value.output_nr < len(meta) else None
        return value.node, value.output_nr, _meta(seen) if seen is not None else None
    if isinstance(value, torch.Tensor):
        if not value.requires_grad:
            reason = "It was made under no_grad, detached, or from nothing that requires one"
            if not (value.is_floating_point() or value.is_complex()):
                reason = "Only tensors of floating point or complex dtype can: give the one that it was made from"
            raise BackprobeError(
                f"the {what} {name!r} ({dtype_name(value.dtype)}{list(value.shape)}) has no graph: it does not require "
                f"a gradient. {reason}"
            )
        edge = private.gradient_edge(value)
        return edge.node, edge.output_nr, _meta(value)
    if hasattr(value, "next_functions") and hasattr(value, "_sequence_nr"):
        return value, 0, None
    raise BackprobeError(
        f"the {what} {name!r} is a {type(value).__name__}: give a tensor, a torch.autograd.graph.GradientEdge or a "
        "node (tensor.grad_fn)"
    )


def _meta(value: torch.Tensor) -> TensorMeta:
    """Return the shape, dtype and device of a tensor, or of a node's input, as plain data."""
    return TensorMeta(shape_of(value), dtype_name(value.dtype), str(value.device))


def _owner(recording: Recording | LiveTrace | None) -> Recording | ForwardObservers | None:
    """Return what knows the origins of nodes: the given recording, or the innermost recording or trace that is on."""
    if recording is None:
        owners = (getattr(mode, "owner", None) for mode in reversed(private.function_modes()))
        owner = next((owner for owner in owners if owner is not None), None)
        return owner.forward if isinstance(owner, Session) else owner
    known: Recording | ForwardObservers | None
    if isinstance(recording, LiveTrace):
        known = recording.session.forward if recording.session is not None else None
    elif isinstance(recording, Recording):
        known = recording if recording.first >= 0 else None
    else:
        raise BackprobeError(
            f"recording is a {type(recording).__name__}: give what backprobe.graph.recording() or trace() gave"
        )
    if known is None:
        raise BackprobeError("the recording has not been entered: with backprobe.graph.recording(model) as recording:")
    return known
