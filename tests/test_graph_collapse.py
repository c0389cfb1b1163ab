"""Collapsing, folding, drawing and exporting, on graphs of real models."""

from __future__ import annotations

import html
import json
import re
import sys
import xml.etree.ElementTree as ET

import pytest
import torch
from torch import nn

import backprobe
from backprobe import BackprobeError
from backprobe.graphs.collapse import Diagram
from backprobe.graphs.layout import layout
from backprobe.graphs.svg import _size


class Block(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, inners=(16,) * 6) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(8, inner) for inner in inners)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def recorded(model, *inputs):
    with backprobe.graph.recording(model) as recording:
        loss = model(*inputs).square().mean()
    return recording.graph(loss)


@pytest.fixture(scope="module")
def graph():
    torch.manual_seed(0)
    return recorded(Net(), torch.randn(2, 8, requires_grad=True))


TEXT = """\
Net, in the order of the forward
leaf                      float32[2, 8]
Net                       44 nodes, 1,803 parameters, gives 2 x 3, saves 1.66 KiB
├─ blocks.0 … 5 Block x6  each 7 nodes, 296 parameters, gives 2 x 8, saves 272 B
│  ├─ norm LayerNorm      1 node, 16 parameters, gives 2 x 8, saves 80 B
│  ├─ up Linear           2 nodes, 144 parameters, gives 2 x 16, saves 64 B
│  ├─ Relu                2 x 16, saves 128 B
│  ├─ down Linear         2 nodes, 136 parameters, gives 2 x 8, saves 128 B
│  └─ Add                 2 x 8
└─ head Linear            2 nodes, 27 parameters, gives 2 x 3, saves 64 B
Pow                       2 x 3, saves 24 B
Mean                      scalar
→ loss                    scalar"""


def labels(diagram: Diagram):
    return [(box.label, box.times) for box in diagram.boxes if box.kind != "leaf"]


def named(diagram: Diagram, label: str):
    return next(box for box in diagram.boxes if box.label == label)


def test_depths_and_folding(graph) -> None:
    assert labels(graph.collapse(0)) == [("Net", 1), ("Pow", 1), ("Mean", 1), ("loss", 1)]
    one = graph.collapse(1)
    assert labels(one)[:3] == [("Net", 1), ("blocks.0 … 5", 6), ("head", 1)]
    inside = [
        box.label for box in graph.collapse(2).boxes if box.parent == named(graph.collapse(2), "blocks.0 … 5").number
    ]
    assert inside == ["norm", "up", "Relu", "down", "Add"]
    assert [box.label for box in graph.collapse(1, fold=False).inside(1)] == [
        *(f"blocks.{k}" for k in range(6)),
        "head",
    ]
    arrows = {(one.boxes[a.source].label, one.boxes[a.target].label) for a in one.arrows}
    assert arrows == {
        ("leaf", "blocks.0 … 5"),
        ("blocks.0 … 5", "head"),
        ("head", "Pow"),
        ("Pow", "Mean"),
        ("Mean", "loss"),
    }


def test_counts_are_those_of_the_graph(graph) -> None:
    model = Net()
    diagram = graph.collapse(1)
    net, block = named(diagram, "Net"), named(diagram, "blocks.0 … 5")
    assert net.nodes == len([n for n in graph if n.module is not None])
    assert net.parameters == sum(p.numel() for p in model.parameters())
    assert block.parameters == sum(p.numel() for p in model.blocks[0].parameters())
    assert block.nodes == len([n for n in graph.module("blocks.3") if n.kind != "accumulate"])
    assert block.saved == graph.saved_bytes(graph.at("blocks.0"))


def test_open_takes_a_block_out_of_its_like(graph) -> None:
    diagram = graph.collapse(1, open="blocks.2")
    assert labels(diagram)[:3] == [("Net", 1), ("blocks.0 … 1", 2), ("blocks.2", 1)]
    assert [box.label for box in diagram.inside(named(diagram, "blocks.2").number)] == [
        "norm",
        "up",
        "Relu",
        "down",
        "Add",
    ]
    assert ("blocks.3 … 5", 3) in labels(diagram)
    assert labels(graph.collapse(0, open=re.compile(r"^blocks\.[24]$"))).count(("norm", 1)) == 2
    with pytest.raises(BackprobeError, match=r"no module that made nodes fits 'block.2'"):
        graph.collapse(open="block.2")
    with pytest.raises(BackprobeError, match="depth=-1"):
        graph.collapse(-1)


def test_different_modules_are_not_folded() -> None:
    diagram = recorded(Net((16, 16, 24, 16, 16, 16)), torch.randn(2, 8, requires_grad=True)).collapse(1)
    assert [label for label in labels(diagram) if label[0].startswith("blocks")] == [
        *[("blocks.0 … 1", 2), ("blocks.2", 1), ("blocks.3 … 5", 3)]
    ]

    class Skips(nn.Module):
        """The last two blocks take a value from far above, the others do not."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Bilinear(4, 4, 4) for _ in range(6))

        def forward(self, x):
            first = x = x * torch.ones(4, requires_grad=True)
            for k, layer in enumerate(self.layers):
                x = layer(x, first if k > 3 else x)
            return x

    found = labels(recorded(Skips(), torch.randn(2, 4)).collapse(1))
    assert ("layers.0 … 3", 4) in found and ("layers.4 … 5", 2) in found


def test_projections_side_by_side_are_not_a_repeated_block() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            return self.query(x) @ self.key(x).T @ self.value(x)

    found = [label for label, _ in labels(recorded(Attention(), torch.randn(4, 4)).collapse(1))]
    assert {"query", "key", "value"} <= set(found)


def test_a_loop_folds_with_a_recording_and_without_one() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.RNNCell(3, 4)

        def forward(self, x):
            h = torch.zeros(x.shape[1], 4)
            for frame in x:
                h = self.cell(frame, h)
            return h

    found = recorded(Loop(), torch.randn(50, 2, 3))
    assert any(box.label.startswith("cell") and box.times >= 48 for box in found.collapse(1).boxes)
    x = torch.ones(3, requires_grad=True)
    for _ in range(1000):
        x = (x * 2).sin()
    flat = backprobe.graph(x.sum())
    assert len(flat.collapse().boxes) <= 6 and max(box.times for box in flat.collapse().boxes) >= 999


def test_arrows_of_any_diagram_go_down_and_join_what_the_graph_joins(graph) -> None:
    for options in ({}, {"depth": 2, "views": True}, {"depth": 3, "parameters": True}, {"depth": 9, "fold": False}):
        diagram = graph.collapse(**options)
        assert all(arrow.source < arrow.target for arrow in diagram.arrows)
        assert all(not diagram.boxes[n].opened for arrow in diagram.arrows for n in (arrow.source, arrow.target))
    whole = graph.collapse(9, fold=False, views=True, parameters=True)
    closed = [box for box in whole.boxes if not box.opened]
    assert len(closed) == len(graph) + 1  # each node, and the root
    pairs = {(n.index, edge[0]) for n in graph for edge in n.edges if edge is not None}
    assert len(whole.arrows) == len(pairs) + 1


def test_boxes_lie_inside_their_parents_and_apart(graph) -> None:
    for options in ({"depth": 1}, {"depth": 3}, {"depth": 3, "parameters": True}, {"depth": 9, "fold": False}):
        diagram = graph.collapse(**options)
        placed = layout(diagram, _size).placed
        for one in placed.values():
            if one.box.parent >= 0:
                around = placed[one.box.parent]
                assert around.x <= one.x and one.x + one.width <= around.x + around.width
                assert around.y <= one.y and one.y + one.height <= around.y + around.height
            for two in placed.values():
                if two is not one and two.box.parent == one.box.parent:
                    apart = (
                        one.x + one.width <= two.x
                        or two.x + two.width <= one.x
                        or one.y + one.height <= two.y
                        or two.y + two.height <= one.y
                    )
                    assert apart, (one.box.label, two.box.label)


def test_lines_end_at_boxes_and_go_down(graph) -> None:
    placed = layout(graph.collapse(2), _size)
    tops = {round(one.y, 3) for one in placed.placed.values()}
    for line in placed.lines:
        ys = [y for _, y in line.points]
        assert ys == sorted(ys)
        if line.arrow:
            assert round(ys[-1], 3) in tops


EVIL = "<script>alert(\"x\")</script> & 'y' \x00\x1b[31m"


@pytest.fixture(scope="module")
def evil():
    holder = nn.Module()
    holder._modules[EVIL] = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    holder._parameters = {EVIL + "p": nn.Parameter(torch.ones(3))}
    holder.forward = lambda x: holder._modules[EVIL](x) * holder._parameters[EVIL + "p"]
    with backprobe.graph.recording(holder) as recording:
        loss = holder(torch.ones(2, 3)).sum()
    return recording.graph({EVIL: loss})


def test_names_are_escaped_everywhere(evil) -> None:
    options = {"depth": 3, "parameters": True}
    drawn = evil.svg(**options)
    tree = ET.fromstring(drawn)
    texts = "".join(tree.itertext())
    assert "<script" not in drawn and "alert" in html.unescape(texts) and "\x1b" not in drawn
    assert not [e for e in tree.iter() if e.tag.endswith("script")]
    page = evil._repr_html_()
    assert "<script" not in page and "\x1b" not in page
    assert "\x1b" not in evil.text(**options) and "\x00" not in evil.text(**options)
    for line in evil.mermaid(**options).splitlines():
        assert "<script" not in line and line.count('"') in (0, 2)
    for line in evil.dot(**options).splitlines():
        assert len(re.findall(r'(?<!\\)"', line)) % 2 == 0
    for made in (evil.to_json(), evil.to_model_explorer(), evil.to_chrome_trace()):
        assert json.loads(made)


def test_text_of_a_small_graph(graph) -> None:
    assert str(graph) == TEXT


def test_a_first_block_whose_input_needs_no_gradient_is_not_like_the_others() -> None:
    found = labels(recorded(Net(), torch.randn(2, 8)).collapse(1))
    assert ("blocks.0", 1) in found and ("blocks.1 … 5", 5) in found


def test_too_many_boxes_are_refused_with_a_way_out() -> None:
    x = torch.ones(3, requires_grad=True)
    y = x
    for k in range(700):
        y = y * 2 if (k * k) % 7 in (1, 3) and k % 11 else (y.sin() if k % 3 else y.cos() + y)
    graph = backprobe.graph(y.sum())
    with pytest.raises(BackprobeError, match=r"boxes, and nobody can read more than 600: use a smaller depth="):
        graph.svg(fold=False)
    assert "<pre>" in graph._repr_html_() or "<svg" in graph._repr_html_()


def test_json_has_everything(graph) -> None:
    made = json.loads(graph.to_json())
    assert len(made["nodes"]) == len(graph) and len(made["calls"]) == len(graph.calls)
    for node in graph:
        row = made["nodes"][node.index]
        assert row["name"] == node.name and row["seq"] == node.seq and len(row["saved"]) == len(node.saved)
        assert [tuple(e) if e else None for e in row["edges"]] == list(node.edges)


def test_model_explorer(graph) -> None:
    (one,) = json.loads(graph.to_model_explorer())["graphs"]
    ids = {node["id"] for node in one["nodes"]}
    assert len(ids) == len(graph)
    edges = [(e["sourceNodeId"], node["id"]) for node in one["nodes"] for e in node["incomingEdges"]]
    assert len(edges) == graph.edges and all(source in ids for source, _ in edges)
    assert {node["namespace"] for node in one["nodes"]} >= {"Net/blocks.3/up", "Net/head", ""}
    assert all(isinstance(a["value"], str) for node in one["nodes"] for a in node["attrs"])


def test_chrome_trace_nests(graph) -> None:
    events = json.loads(graph.to_chrome_trace())["traceEvents"]
    spans = sorted((e["ts"], -e["dur"]) for e in events if e["ph"] == "X")
    assert len(spans) == len(graph.calls) + len([n for n in graph if n.kind != "accumulate"])
    stack: list[int] = []
    for begin, negative in spans:
        while stack and stack[-1] <= begin:
            stack.pop()
        assert not stack or begin - negative <= stack[-1]
        stack.append(begin - negative)


def test_tables(graph, monkeypatch) -> None:
    made = graph.to_networkx()
    assert (len(made), made.number_of_edges()) == (len(graph), graph.edges)
    assert made.nodes[0]["name"] == graph[0].name
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(BackprobeError, match=r"Graph.to_networkx\(\) needs networkx.*pip install networkx"):
        graph.to_networkx()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BackprobeError, match=r"Graph.to_pandas\(\) needs pandas.*pip install pandas"):
        graph.to_pandas()


def test_pandas(graph) -> None:
    pandas = pytest.importorskip("pandas")
    frame = graph.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == len(graph)
    assert frame[frame.module == "head"].name.tolist() == [n.name for n in graph if n.module == "head"]


def test_differences(graph) -> None:
    assert not graph.compare(graph) and str(graph.compare(graph)) == f"no difference in {len(graph)} nodes"

    class Changed(Net):
        def forward(self, x):
            for k, block in enumerate(self.blocks):
                x = block(x).tanh() if k == 3 else block(x)
            return self.head(x)

    other = recorded(Changed(), torch.randn(2, 8, requires_grad=True))
    found = graph.compare(other)
    assert [n.name for n in found.added] == ["TanhBackward0"] and not found.removed
    assert "+ the model: TanhBackward0" in str(found)
    moved = [change for change in found.changed if any("gradients went to" in what for what in change.what)]
    assert moved and all("TanhBackward0" in what for change in moved for what in change.what)
    wider = graph.compare(recorded(Net(), torch.randn(5, 8, requires_grad=True)))
    assert not wider.added and not wider.removed
    assert "float32[2, 3] became float32[5, 3]" in str(wider)
    fewer = graph.compare(recorded(Net((16,) * 5), torch.randn(2, 8, requires_grad=True)))
    assert {n.module for n in fewer.removed if n.module} == {
        "blocks.5",
        "blocks.5.up",
        "blocks.5.norm",
        "blocks.5.down",
    }
    assert sum(n.parameter is not None for n in fewer.removed) == 6


def test_a_real_model_of_many_layers_fits_a_page() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=24, num_attention_heads=2, intermediate_size=32, vocab_size=50
    )
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(config)
    ids = torch.randint(0, 50, (2, 6))
    with backprobe.graph.recording(model) as recording:
        loss = model(input_ids=ids, labels=torch.tensor([0, 1])).loss
    graph = recording.graph(loss)
    diagram = graph.collapse()
    assert ("layer.0 … 23", 24) in labels(diagram) and len(diagram.boxes) <= 60
    assert graph.find(module="bert.encoder.layer.7.attention.self.query", type="AddmmBackward0")
    ET.fromstring(graph.svg())
    assert set(graph.reached()) == {name for name, _ in model.named_parameters()}
    assert len(graph.bottlenecks("loss", "bert.embeddings.word_embeddings.weight")) > 24
