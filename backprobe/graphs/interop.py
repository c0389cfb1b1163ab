"""Conversion of a graph to networkx or pandas objects, if those packages are installed."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..basics.errors import BackprobeError

if TYPE_CHECKING:
    from .graph import Graph


def _needed(package: str, method: str) -> ModuleType:
    """Import and return a package that `method` needs.

    :raises BackprobeError: it is not installed.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise BackprobeError(f"{method} needs {package}, which is not installed: pip install {package}") from error


def networkx_graph(graph: Graph) -> Any:
    """Return a ``networkx.MultiDiGraph``: nodes by number with the data of ``Node``, edges with ``output`` and
    ``input``.
    """
    networkx = _needed("networkx", "Graph.to_networkx()")
    made = networkx.MultiDiGraph(model=graph.facts.model, roots=[root.node for root in graph.roots])
    for node in graph:
        made.add_node(
            node.index,
            **{key: getattr(node, key) for key in ("name", "seq", "kind", "module", "call", "site", "op", "parameter")},
            shapes=tuple(meta.shape for meta in node.inputs),
            dtypes=tuple(meta.dtype for meta in node.inputs),
            saved=node.saved,
        )
        for output, edge in enumerate(node.edges):
            if edge is not None:
                made.add_edge(node.index, edge[0], output=output, input=edge[1])
    return made


def data_frame(graph: Graph) -> Any:
    """Return a ``pandas.DataFrame`` with a row for each node. ``saved_bytes`` sums tensors, without merging shared
    storages.
    """
    pandas = _needed("pandas", "Graph.to_pandas()")
    rows = [
        {
            "node": node.index,
            "name": node.name,
            "seq": node.seq,
            "kind": node.kind,
            "module": node.module,
            "call": node.call,
            "file": node.site.file if node.site else None,
            "line": node.site.line if node.site else None,
            "op": node.op,
            "parameter": node.parameter,
            "shape": node.inputs[0].shape if node.inputs else None,
            "dtype": node.inputs[0].dtype if node.inputs else None,
            "saved": len(node.saved),
            "saved_bytes": sum(s.bytes for s in node.saved),
            "freed": node.freed,
            "to": tuple(edge[0] for edge in node.edges if edge is not None),
        }
        for node in graph
    ]
    return pandas.DataFrame(rows)
