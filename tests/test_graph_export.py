"""Other people's formats, held against what they say of themselves: strict readers of the parts that we write.

The text was also opened in the programs themselves; ``docs/graph.md`` says in which versions.
"""

from __future__ import annotations

import json
import re

import pytest
import torch
from torch import nn

import backprobe

#: Names that mean something in one of the formats.
NAMES = [
    *('a"b', "c\\d", "end", "<b>x</b>", "x;y", "p|q]", "{r}", "#35;", "`code`", "new\nline", "subgraph", "it's", "%%c"),
    *("é→中", "--> z", "a/b", "&amp;", "$$x$$", "\u202e rtl", "\x00nul", "**b**", "1. one", "- two", "click", "\\"),
]


class Nasty(nn.Module):
    def __init__(self):
        super().__init__()
        for name in NAMES:
            self._modules[name] = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x):
        for name in NAMES:
            x = self._modules[name](x) + x
        return x


@pytest.fixture(scope="module")
def graph():
    torch.manual_seed(0)
    model = Nasty()
    with backprobe.graph.recording(model) as recording:
        loss = model(torch.ones(2, 4)).sum()
    return recording.graph(loss)


VARIANTS = [{}, {"depth": 1, "fold": False}, {"depth": 3, "fold": False, "parameters": True, "views": True}]

_DOT = re.compile(r'\s+|"(?:[^"\\]|\\.)*"|->|[{}\[\];=,]|[A-Za-z_][A-Za-z0-9_]*')


def dot_tokens(text):
    """Graphviz's tokens; a quoted string has no line break."""
    at, found = 0, []
    while at < len(text):
        match = _DOT.match(text, at)
        assert match, f"no token at {text[at : at + 40]!r}"
        if not match[0].isspace():
            assert "\n" not in match[0]
            found.append(match[0])
        at = match.end()
    return found


def read_dot(text):
    """Nodes and edges of ``digraph ID { statements }``, by the grammar of Graphviz's manual as far as it is used."""
    tokens = dot_tokens(text)
    nodes, edges = {}, []
    assert tokens[0] == "digraph" and tokens[1].startswith('"') and tokens[2] == "{"
    depth, i = 1, 3

    def attributes(i):
        found = {}
        assert tokens[i] == "["
        i += 1
        while tokens[i] != "]":
            assert re.fullmatch(r"[a-z]+", tokens[i]) and tokens[i + 1] == "="
            found[tokens[i]] = tokens[i + 2]
            i += 3
            if tokens[i] == ",":
                i += 1
        return found, i + 1

    while depth:
        token = tokens[i]
        if token == "}":
            depth, i = depth - 1, i + 1
            continue
        if token == "subgraph":
            assert re.fullmatch(r"cluster_\d+", tokens[i + 1]) and tokens[i + 2] == "{"
            depth, i = depth + 1, i + 3
            continue
        if tokens[i + 1] == "=":
            i += 3
        elif tokens[i + 1] == "->":
            _, end = attributes(i + 3)
            edges.append((token, tokens[i + 2]))
            i = end
        else:
            found, i = attributes(i + 1)
            if token != "node":
                assert re.fullmatch(r"n\d+", token) and token not in nodes
                nodes[token] = found["label"]
        assert tokens[i] == ";"
        i += 1
    assert i == len(tokens)
    return nodes, edges


@pytest.mark.parametrize("options", VARIANTS)
def test_dot(graph, options):
    nodes, edges = read_dot(graph.dot(**options))
    diagram = graph.collapse(**options)
    assert len(nodes) == sum(not box.opened for box in diagram.boxes) > len(NAMES)
    assert len(edges) == len(diagram.arrows) and {end for edge in edges for end in edge} <= set(nodes)
    for label in nodes.values():  # an entity in a label would be read: every & begins one of ours
        assert label.count("&") == label.count("&amp;")


def read_mermaid(text):
    """Boxes, their labels as they are read, and arrows; every line is of a known form."""
    lines = text.splitlines()
    assert lines[0] == "flowchart TB"
    label = r'"((?:[^"#;<]|#\d+;|<br/>)*)"'
    depth, boxes, arrows = 0, {}, []
    for line in lines[1:]:
        line = line.strip()
        if line == "end":
            depth -= 1
            assert depth >= 0
        elif opened := re.fullmatch(rf"subgraph n(\d+)\[{label}\]", line):
            depth += 1
            assert opened[2]
        elif box := re.fullmatch(rf"n(\d+)\[{label}\]", line):
            assert box[1] not in boxes
            boxes[box[1]] = re.sub(r"#(\d+);", lambda m: chr(int(m[1])), box[2])
        else:
            arrow = re.fullmatch(r"n(\d+) --> n(\d+)", line)
            assert arrow, line
            arrows.append((arrow[1], arrow[2]))
    assert depth == 0
    return boxes, arrows


@pytest.mark.parametrize("options", VARIANTS)
def test_mermaid(graph, options):
    text = graph.mermaid(**options)
    boxes, arrows = read_mermaid(text)
    diagram = graph.collapse(**options)
    assert len(boxes) == sum(not box.opened for box in diagram.boxes)
    assert len(arrows) == len(diagram.arrows) and {end for arrow in arrows for end in arrow} <= set(boxes)
    assert "$$" not in "".join(boxes.values())  # a formula


def test_labels_come_through(graph):
    """A reader of each format sees the name of each module, unless it has unprintable characters."""
    shown = " ".join(read_mermaid(graph.mermaid(1, fold=False))[0].values()).replace("\u200b", "")
    nodes, _ = read_dot(graph.dot(1, fold=False))
    unquoted = [re.sub(r"\\(.)", r"\1", label[1:-1]).replace("&amp;", "&") for label in nodes.values()]
    for name in NAMES:
        if name.isprintable():
            assert f"{name} Sequential" in shown
            assert any(label.startswith(f"{name} Sequential") for label in unquoted), name


NODE = {"id", "label", "namespace", "attrs", "incomingEdges", "outputsMetadata"}
EDGE = {"sourceNodeId", "sourceNodeOutputId", "targetNodeInputId"}


def test_model_explorer_takes_it(graph):
    """The fields of its ``GraphCollection``, all strings, and nothing else: it reads them strictly."""
    made = json.loads(graph.to_model_explorer())
    assert set(made) == {"label", "graphs"} and isinstance(made["label"], str)
    (one,) = made["graphs"]
    assert set(one) == {"id", "nodes"} and isinstance(one["id"], str)
    ids = [node["id"] for node in one["nodes"]]
    assert len(set(ids)) == len(ids) == len(graph)
    outputs = {node["id"]: {o["id"] for o in node["outputsMetadata"]} for node in one["nodes"]}
    for node in one["nodes"]:
        assert set(node) == NODE and all(isinstance(node[key], str) for key in ("id", "label", "namespace"))
        assert "" not in node["namespace"].split("/")[1:]
        for attribute in node["attrs"]:
            assert set(attribute) == {"key", "value"} and all(isinstance(v, str) for v in attribute.values())
        for edge in node["incomingEdges"]:
            assert set(edge) == EDGE and all(isinstance(v, str) for v in edge.values())
            assert edge["sourceNodeOutputId"] in outputs[edge["sourceNodeId"]]
        for output in node["outputsMetadata"]:
            assert set(output) == {"id", "attrs"}


def test_chrome_trace_is_the_documented_format(graph):
    """Complete events (X) and names (M) of the Trace Event Format: their required keys, types, and nesting."""
    made = json.loads(graph.to_chrome_trace(), parse_constant=lambda c: pytest.fail(f"{c} is no JSON"))
    assert set(made) == {"traceEvents", "displayTimeUnit"} and made["displayTimeUnit"] in ("ms", "ns")
    lanes: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in made["traceEvents"]:
        assert type(event["pid"]) is int and isinstance(event["args"], dict)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name") and isinstance(event["args"]["name"], str)
            assert event["name"] == "process_name" or type(event["tid"]) is int
            continue
        assert event["ph"] == "X" and set(event) == {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"}
        assert all(isinstance(event[key], str) and event[key] for key in ("name", "cat"))
        assert all(type(event[key]) is int and event[key] >= 0 for key in ("ts", "dur", "tid"))
        lanes.setdefault((event["pid"], event["tid"]), []).append((event["ts"], -event["dur"]))
    assert lanes
    for spans in lanes.values():
        open_until: list[int] = []
        for begin, length in sorted(spans):
            while open_until and open_until[-1] <= begin:
                open_until.pop()
            assert not open_until or begin - length <= open_until[-1]
            open_until.append(begin - length)
