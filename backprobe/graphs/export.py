"""Export to other formats: DOT, Mermaid, JSON, Model Explorer's JSON and the Chrome trace that Perfetto reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from ..basics.text import plain
from ..records import ACCUMULATE_SEQ
from .collapse import Box, Diagram
from .outline import facts, name
from .words import plain_type

if TYPE_CHECKING:
    from .graph import Graph

FORMAT = 1


def _nested(diagram: Diagram) -> Iterator[tuple[Box, int, bool]]:
    """Yield (box, depth, whether it ends here): an opened box before and after its contents, a closed one once."""
    children: dict[int, list[Box]] = {}
    for box in diagram.boxes:
        children.setdefault(box.parent, []).append(box)
    stack = [(box, 1, False) for box in reversed(children.get(-1, []))]
    while stack:
        box, depth, ends = stack.pop()
        yield box, depth, ends
        if box.opened and not ends:
            stack.append((box, depth, True))
            stack += [(b, depth + 1, False) for b in reversed(children.get(box.number, []))]


def dot(diagram: Diagram) -> str:
    """Return `diagram` in Graphviz's language (DOT); opened boxes are clusters."""

    def quoted(*lines: str) -> str:
        """Return lines as one quoted and escaped DOT string."""
        # Graphviz reads entities in labels too.
        words = [plain(line).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"') for line in lines if line]
        return '"' + "\\n".join(words) + '"'

    rows = [f"digraph {quoted(diagram.title)} {{", '  node [shape=box, style="rounded"];', "  compound=true;"]
    for box, depth, ends in _nested(diagram):
        indent = "  " * depth
        if ends:
            rows.append(indent + "}")
        elif box.opened:
            rows += [f"{indent}subgraph cluster_{box.number} {{", f"{indent}  label={quoted(name(box))};"]
        else:
            rows.append(f"{indent}n{box.number} [label={quoted(name(box), facts(box))}];")
    for arrow in diagram.arrows:
        rows.append(f"  n{arrow.source} -> n{arrow.target} [tooltip={quoted(arrow.label or 'values')}];")
    return "\n".join([*rows, "}", ""])


def mermaid(diagram: Diagram) -> str:
    """Return `diagram` as Mermaid, for Markdown; opened boxes are subgraphs."""

    def quoted(*lines: str) -> str:
        """Return lines as one quoted Mermaid string; characters that Mermaid may interpret are written as
        their code.
        """
        # Mermaid reads numbered entities inside quotes; with letters, signs and spaces alone nothing is markup.
        words = (
            "".join(c if c.isalnum() or c in " .,_-…→" else f"#{ord(c)};" for c in plain(line))
            for line in lines
            if line
        )
        # Two dollar signs begin a formula, also as entities: a zero-width space separates them.
        return '"' + "<br/>".join(words).replace("#36;#36;", "#36;#8203;#36;") + '"'

    rows = ["flowchart TB"]
    for box, depth, ends in _nested(diagram):
        indent = "  " * depth
        if ends:
            rows.append(indent + "end")
        elif box.opened:
            rows.append(f"{indent}subgraph n{box.number}[{quoted(name(box))}]")
        else:
            rows.append(f"{indent}n{box.number}[{quoted(name(box), facts(box))}]")
    rows += [f"  n{arrow.source} --> n{arrow.target}" for arrow in diagram.arrows]
    return "\n".join([*rows, ""])


def to_json(graph: Graph) -> str:
    """Return all data of a graph as JSON."""
    made: dict[str, object] = {
        "format": FORMAT,
        "model": graph.facts.model,
        "notes": list(graph.notes),
        "roots": [asdict(root) for root in graph.roots],
        "tensors": {name: {"node": i, "output": out} for name, (i, out) in graph.tensors.items()},
        "calls": [asdict(call) for call in graph.calls],
        "leaves": [{"node": i, **asdict(leaf)} for i, leaf in sorted(graph.leaves.items())],
        "nodes": [asdict(node) for node in graph],
        "inside": {str(i): [asdict(op) for op in ops] for i, ops in graph.facts.inside.items()},
    }
    return json.dumps(made)


def model_explorer(graph: Graph) -> str:
    """Return Model Explorer's graph collection as JSON. Edges go in forward direction, namespaces are module calls."""
    spaces: list[str] = []
    for call in graph.calls:  # a call's name below its parent's, which comes first
        parent = spaces[call.parent] if call.parent >= 0 else ""
        around = graph.calls[call.parent].path if call.parent >= 0 else ""
        own = call.name.removeprefix(around + ".") if around else call.name
        spaces.append("/".join(part for part in (parent, (own or call.class_name).replace("/", "_")) if part))
    nodes = []
    for node in graph:
        made_in = graph.call_of(node.index)
        attributes = {
            "sequence number": str(node.seq) if node.seq != ACCUMULATE_SEQ else "",
            "line": str(node.site or ""),
        }
        attributes.update(op=node.op, parameter=node.parameter or "", type=node.name)
        attributes.update((f"saves {s.name}", f"{s.meta or s.hook} ({s.role})") for s in node.saved)
        sources = [(k, *edge) for k, edge in enumerate(node.edges) if edge is not None]
        nodes.append(
            {
                "id": str(node.index),
                "label": node.parameter or plain_type(node.name),
                "namespace": spaces[made_in] if made_in >= 0 else "",
                "attrs": [{"key": key, "value": value} for key, value in attributes.items() if value],
                "incomingEdges": [
                    {"sourceNodeId": str(to), "sourceNodeOutputId": str(number), "targetNodeInputId": str(k)}
                    for k, to, number in sources
                ],
                "outputsMetadata": [
                    {
                        "id": str(k),
                        "attrs": [{"key": "shape", "value": f"{meta.dtype}[{','.join(map(str, meta.shape))}]"}],
                    }
                    for k, meta in enumerate(node.inputs)
                ],
            }
        )
    title = graph.facts.model or "graph"
    return json.dumps({"label": title, "graphs": [{"id": title, "nodes": nodes}]})


def chrome_trace(graph: Graph) -> str:
    """Return a Chrome trace in JSON whose time axis is the forward order, one microsecond for each node.

    A graph has no real times.
    """
    own = sorted(
        (i for i in range(len(graph)) if graph.columns.seqs[i] != ACCUMULATE_SEQ), key=graph.columns.seqs.__getitem__
    )
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": graph.facts.model or "graph"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "order of the forward, not time"}},
    ]
    for at, i in enumerate(own):
        around = graph.call_of(i)
        while around >= 0:
            first.setdefault(around, at)
            last[around] = at
            around = graph.calls[around].parent
    for call in graph.calls:
        if call.index in first:
            span = {"ts": first[call.index], "dur": last[call.index] - first[call.index] + 1}
            title = call.name or call.class_name
            args = {"class": call.class_name, "line": str(call.site or "")}
            events.append({"ph": "X", "name": title, "cat": "module", "pid": 1, "tid": 1, **span, "args": args})
    for at, i in enumerate(own):
        node = graph[i]
        args = {"node": str(i), "line": str(node.site or ""), "shape": ", ".join(map(str, node.inputs))}
        args["saves"] = ", ".join(f"{s.name} {s.meta}" for s in node.saved)
        kind = {"name": plain_type(node.name), "cat": node.kind}
        events.append({"ph": "X", **kind, "pid": 1, "tid": 1, "ts": at, "dur": 1, "args": args})
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})
