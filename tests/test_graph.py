"""Snapshots of real autograd graphs: their content, no side effects, and deep graphs."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
import torch
from case_sampling import sample_cases
from torch import nn
from torch.autograd.graph import get_gradient_edge
from torch.utils.checkpoint import checkpoint

import backprobe
from backprobe import BackprobeError


class Block(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + self.up(self.norm(x)).relu()  # <-- block


class Net(nn.Module):
    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def line_of(mark: str) -> int:
    with open(__file__) as file:
        return next(n for n, line in enumerate(file, 1) if line.rstrip().endswith(f"# <-- {mark}"))


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


def naive(root):
    """Every node by a plain walk: name, number, edges."""
    nodes, index = [root], {root: 0}
    for node in nodes:
        for child, _ in node.next_functions:
            if child is not None and child not in index:
                index[child] = len(nodes)
                nodes.append(child)
    return [
        (n.name(), n._sequence_nr(), tuple(None if c is None else (index[c], k) for c, k in n.next_functions))
        for n in nodes
    ]


def test_nodes_and_edges_are_those_of_a_plain_walk(net) -> None:
    loss = net(torch.randn(3, 4)).square().mean()
    graph = backprobe.graph(loss, model=net)
    assert [(n.name, n.seq, n.edges) for n in graph] == naive(loss.grad_fn)
    assert set(graph.parameters) == {name for name, _ in net.named_parameters()}
    assert graph[0].inputs[0].shape == () and graph[1].inputs[0].shape == (3, 2)
    assert "no recording was on" in graph.notes[0] and graph[0].site is None and not graph[0].seen


def test_module_calls_and_lines(net) -> None:
    with backprobe.graph.recording(net) as recording:
        loss = net(torch.randn(3, 4)).square().mean()  # <-- loss
    graph = recording.graph(loss)
    assert graph.notes == () and graph.facts.model == "Net"
    relus = graph.find(type="ReluBackward")
    assert [(n.module, n.site.line, n.op) for n in relus] == [
        (f"blocks.{k}", line_of("block"), "relu") for k in (2, 1, 0)
    ]
    assert [n.module for n in graph.find(type="AddmmBackward0")] == [
        "head",
        "blocks.2.up",
        "blocks.1.up",
        "blocks.0.up",
    ]
    assert graph[0].module is None and graph[0].site.line == line_of("loss")
    assert {n.name for n in graph.find(line=f"test_graph.py:{line_of('block')}", module="blocks.1")} == {
        *("AddBackward0", "ReluBackward0", "AddmmBackward0", "TBackward0", "NativeLayerNormBackward0")
    }
    assert [c.path for c in graph.calls][:4] == ["", "blocks.0", "blocks.0.norm", "blocks.0.up"]
    assert graph.calls[0].outputs == ((3, 2),)


def test_inside_a_trace_and_after_it(net) -> None:
    with backprobe.trace(net) as trace:
        loss = net(torch.randn(3, 4)).square().mean()
        graph = backprobe.graph(loss)
        loss.backward()
    later = backprobe.graph(loss, recording=trace)
    for one in (graph, later):
        assert [n.module for n in one.find(type="ReluBackward0")] == ["blocks.2", "blocks.1", "blocks.0"]
    assert set(graph.parameters) == {name for name, _ in net.named_parameters()}
    assert graph.find(type="AddmmBackward0")[0].freed is False
    assert later.find(type="AddmmBackward0")[0].freed is True
    assert "has freed what" in later.notes[-1]


def test_saved_tensors(net) -> None:
    weight = net.head.weight
    x = torch.randn(3, 4)
    hidden = nn.functional.linear(x, weight)
    loss = (hidden.sigmoid() * torch.full((3, 2), 2.0)).sum()
    graph = backprobe.graph(loss, model=net)
    multiply, sigmoid = graph.find(type="MulBackward0")[0], graph.find(type="SigmoidBackward0")[0]
    assert [(s.name, s.role, s.bytes, s.made) for s in multiply.saved] == [("other", "constant", 24, None)]
    assert [(s.name, s.role, s.made) for s in sigmoid.saved] == [("result", "result", sigmoid.index)]
    product = next(n for n in graph if n.name in ("MmBackward0", "AddmmBackward0"))
    kept = {s.name: s for s in product.saved}
    assert (kept["self"].role, kept["self"].meta.shape) == ("constant", (3, 4))
    assert graph.saved_bytes() == 24 + 24 + 48
    squared = nn.functional.linear(x, weight).square() @ weight
    kept = [s for n in backprobe.graph(squared.sum(), model=net) for s in n.saved]
    assert any(s.role == "parameter" and s.owner == "head.weight" for s in kept)


def test_a_modified_saved_tensor_is_reported() -> None:
    x = torch.ones(3, requires_grad=True)
    y = x * 1
    loss = y.exp()
    with torch.no_grad():
        loss.mul_(2)
    (saved,) = backprobe.graph(loss.sum()).find(type="ExpBackward0")[0].saved
    assert saved.changed and saved.name == "result"


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.mask = torch.ones(2)
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


def test_custom_functions() -> None:
    x = torch.ones(3, requires_grad=True)
    with backprobe.graph.recording() as recording:
        loss = Scale.apply(x, 2.0).sum()  # <-- apply
    graph = recording.graph({"loss": loss}, tensors={"x": x})
    node = graph.find(kind="function")[0]
    assert node.name == "ScaleBackward" and node.site.line == line_of("apply")
    assert [(s.name, s.role) for s in node.saved] == [("saved[0]", "leaf"), ("ctx.mask", "constant")]
    assert graph.tensors["x"] == (node.edges[0][0], 0) and graph[node.edges[0][0]].kind == "accumulate"
    loss.backward()
    assert backprobe.graph(loss).find(kind="function")[0].freed is True


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_are_read_without_running_them(net, reentrant) -> None:
    calls = []

    def run(x):
        calls.append(1)
        return net(x)

    loss = checkpoint(run, torch.randn(3, 4, requires_grad=True), use_reentrant=reentrant).sum()
    graph = backprobe.graph(loss, model=net)
    assert calls == [1]
    if reentrant:
        assert [n.name for n in graph.find(kind="checkpoint")] == ["CheckpointFunctionBackward"]
    else:
        hidden = [s for n in graph for s in n.saved if s.role == "hidden"]
        assert hidden and all("checkpoint" in s.hook for s in hidden)


def test_a_graph_of_gradients(net) -> None:
    with backprobe.graph.recording(net) as recording:
        loss = net(torch.randn(3, 4)).square().mean()
        grads = torch.autograd.grad(loss, list(net.parameters()), create_graph=True)  # <-- grad
        penalty = sum(g.square().sum() for g in grads)
    graph = recording.graph(penalty)
    made = [n for n in graph if n.site and n.site.line == line_of("grad")]
    assert len(made) > 10 and all(n.op == "grad" for n in made)
    assert graph.find(module="blocks.1.up", type="AddmmBackward0")
    with backprobe.trace(net):
        loss = net(torch.randn(3, 4)).square().mean()
        grads = torch.autograd.grad(loss, list(net.parameters()), create_graph=True)  # <-- traced
        graph = backprobe.graph(sum(g.square().sum() for g in grads))
    assert [n for n in graph if n.site and n.site.line == line_of("traced")]


@pytest.mark.usefixtures("fresh_dynamo")
def test_compiled_regions(net) -> None:
    compiled = torch.compile(net, backend="aot_eager")
    with backprobe.graph.recording(net), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about hooks on all modules
        loss = compiled(torch.randn(3, 4)).sum()
    graph = backprobe.graph(loss, model=net)
    (node,) = graph.find(kind="compiled")
    inside = graph.inside(node.index)
    assert any(op.target == "aten.mm.default" for op in inside)
    assert {op.module for op in inside} >= {"blocks.0.up", "head"}
    ours = str(Path(backprobe.__file__).parent)
    assert not any(op.site and op.site.file.startswith(ours) for op in inside)
    assert "compiled regions" in graph.notes[-1]
    eager = backprobe.graph(net(torch.randn(3, 4)).sum(), model=net)
    difference = eager.compare(graph)
    assert [n.name for n in difference.added] == ["CompiledFunctionBackward"]
    assert "- outside of modules:" in str(difference) and not any(n.parameter for n in difference.removed)


def test_several_roots_and_what_reaches_what(net) -> None:
    x = torch.randn(3, 4)
    with backprobe.graph.recording(net) as recording:
        hidden = net.blocks[0](x)
        early, late = hidden.square().mean(), net.head(hidden).sum()
    graph = recording.graph({"early": early, "late": late})
    assert graph.reached_by("head.weight") == ["late"]
    assert graph.reached_by("blocks.0.up.bias") == ["early", "late"]
    assert not any(name.startswith(("head", "blocks.1")) for name in graph.reached("early"))
    assert set(graph.reached("late")) == set(graph.parameters)
    edge = backprobe.graph([get_gradient_edge(early), late.grad_fn])
    assert [r.name for r in edge.roots] == ["root0", "root1"]
    assert edge.roots[0].meta.shape == () and len(edge) == len(graph)
    leaf = backprobe.graph(net.head.weight, model=net)
    assert len(leaf) == 1 and leaf[0].parameter == "head.weight"


def test_places(net) -> None:
    x = torch.randn(3, 4)
    with backprobe.graph.recording(net) as recording:
        hidden = net.blocks[0](x)
        loss = net.head(net.blocks[1](net.blocks[0](hidden))).sum()
    graph = recording.graph(loss, tensors={"hidden": hidden})
    assert graph.at("loss") == [0] and graph.at(graph[3]) == [3] and graph.at(-1) == [len(graph) - 1]
    assert graph[graph.at("hidden")[0]].name == "AddBackward0"
    twice = graph.at("blocks.0")
    second = graph.at("blocks.0:2")
    assert set(second) < set(twice) and graph.at("blocks") == graph.at(["blocks.0", "blocks.1"])
    assert graph.at("*.norm.bias") == sorted(graph.parameters[f"blocks.{k}.norm.bias"] for k in (0, 1))
    assert graph.path("head", "blocks.0.up.weight")[-1].parameter == "blocks.0.up.weight"
    assert graph.path("blocks.0.up.weight", "head") == []
    part = graph.module("blocks.1")
    assert {n.module for n in part if n.module} == {"blocks.1", "blocks.1.up", "blocks.1.norm"}
    assert len(part.parameters) == 4 and len(part.roots) == 1 and part.roots[0].name == "out"
    with pytest.raises(BackprobeError, match=r"no root, tensor, parameter.* fits 'haed.weight'; names are like 'head"):
        graph.at("haed.weight")
    with pytest.raises(BackprobeError, match=r"a Tensor is no place in a graph.*tensors="):
        graph.at(hidden)
    with pytest.raises(BackprobeError, match=r"there is no node 10000"):
        graph.at(10_000)
    with pytest.raises(BackprobeError, match=r"no module that made nodes fits 'blocks.2'"):
        graph.module("blocks.2")


def test_tied_weights_and_several_models(net) -> None:
    net.tied = nn.Linear(4, 2)
    net.tied.weight = net.head.weight
    other = nn.Linear(2, 1)
    graph = backprobe.graph(other(net(torch.randn(3, 4))).sum(), model={"G": net, "D": other})
    leaf = graph.leaves[graph.parameters["G.tied.weight"]]
    assert (leaf.name, leaf.aliases) == ("G.head.weight", ("G.tied.weight",))
    assert "D.weight" in graph.parameters


def test_wrong_use(net) -> None:
    with pytest.raises(BackprobeError, match=r"the root 'loss' \(float32\[3\]\) has no graph: it does not require"):
        backprobe.graph(torch.ones(3))
    with pytest.raises(BackprobeError, match="the root 'loss' is a float: give a tensor"):
        backprobe.graph(1.0)
    with pytest.raises(BackprobeError, match="no roots"):
        backprobe.graph([])
    loss = net(torch.randn(3, 4)).sum()
    with pytest.raises(BackprobeError, match="model is a str"):
        backprobe.graph(loss, model="net")
    with pytest.raises(BackprobeError, match="the tensor 'other' is not in the graph"):
        backprobe.graph(loss, tensors={"other": torch.ones(1, requires_grad=True)})
    with pytest.raises(BackprobeError, match="the recording has not been entered"):
        backprobe.graph(loss, recording=backprobe.graph.recording(net))
    with pytest.raises(BackprobeError, match="recording is a int"):
        backprobe.graph(loss, recording=3)
    recording = backprobe.graph.recording(net)
    with recording:
        pass
    with pytest.raises(BackprobeError, match="entered already"), recording:
        pass


def test_gradients_hooks_and_random_state_are_those_without_us(net) -> None:
    x = torch.randn(3, 4)
    unpacked = []

    def step(watch: bool):
        torch.manual_seed(1)
        net.zero_grad()
        seen = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: unpacked.append(1) or t):
            if watch:
                with backprobe.graph.recording(net) as recording:
                    loss = nn.functional.dropout(net(x), 0.5).square().mean()
                before = len(unpacked)
                recording.graph(loss)
                assert len(unpacked) == before  # no hook of the user's is run
            else:
                loss = nn.functional.dropout(net(x), 0.5).square().mean()
        loss.register_hook(lambda g: seen.append(g.clone()))
        loss.backward()
        return [p.grad.clone() for p in net.parameters() if p.grad is not None], torch.get_rng_state(), seen

    plain, state, seen = step(False)
    watched, its_state, its_seen = step(True)
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True)) and torch.equal(state, its_state)
    assert len(seen) == len(its_seen) == 1


def test_nothing_stays_attached(net) -> None:
    module = torch.nn.modules.module
    before = (dict(module._global_forward_hooks), dict(module._global_forward_pre_hooks))
    with pytest.raises(ZeroDivisionError), backprobe.graph.recording(net):
        net(torch.randn(3, 4))
        1 / 0  # noqa: B018
    assert (dict(module._global_forward_hooks), dict(module._global_forward_pre_hooks)) == before
    assert torch._C._len_torch_function_stack() == 0
    loss = net(torch.randn(3, 4)).sum()
    backprobe.graph(loss)
    assert loss.grad_fn.metadata == {}


def test_a_recording_is_bounded_and_says_what_it_has_lost(net) -> None:
    x = torch.randn(3, 4)
    with backprobe.graph.recording(net, limit=1000) as recording:
        first = net(x).sum()
        for _ in range(100):
            last = net(x).sum()
        assert len(recording.log.ends) <= 1100 and len(recording.modules.trail) <= 1100
    graph = recording.graph(first)
    assert "nodes were made outside of the recording" in graph.notes[0]
    assert all(not n.seen for n in graph if n.kind != "accumulate")
    assert recording.graph(last).find(module="blocks.2", type="ReluBackward0")


def test_nodes_of_another_thread_have_no_line(net) -> None:
    made = []
    with backprobe.graph.recording(net) as recording:
        worker = threading.Thread(target=lambda: made.append(net(torch.randn(3, 4)).sum()))
        worker.start()
        worker.join()
    graph = recording.graph(made[0])
    assert graph.calls == () and all(n.site is None for n in graph)


def test_symbolic_and_nested_sizes() -> None:
    parts = [torch.randn(2, 3), torch.randn(4, 3)]
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=True)
    graph = backprobe.graph((nested * 2).sin().values().sum())
    assert graph.find(type="SinBackward0")[0].inputs[0].shape[1] == -1
    sparse = torch.eye(3).to_sparse().requires_grad_()
    assert backprobe.graph(torch.sparse.mm(sparse, torch.ones(3, 2)).sum())
    meta = torch.ones(3, device="meta", requires_grad=True)
    assert backprobe.graph((meta * meta).sum()).saved_bytes() == 12


def test_a_graph_is_read_where_there_is_no_torch(net, tmp_path) -> None:
    with backprobe.graph.recording(net) as recording:
        loss = net(torch.randn(3, 4)).sum()
    graph = recording.graph(loss)
    copy = pickle.loads(pickle.dumps(graph))
    assert list(copy) == list(graph) and copy.text() == graph.text()
    (tmp_path / "graph.pickle").write_bytes(pickle.dumps(graph))
    read = (
        "import pickle, sys\n"
        f"graph = pickle.load(open({str(tmp_path / 'graph.pickle')!r}, 'rb'))\n"
        "assert graph.path('loss', 'head.weight') and graph.svg() and graph.text() and graph.to_json()\n"
        "assert graph.compare(graph.module('blocks.0')) and graph.dominators() and graph.to_networkx()\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


DEEP_CHAIN_SCRIPT = """
import sys, torch, backprobe
def chain(n, x):
    y = x
    for _ in range(n):
        y = y * 1.0
    return y
x = torch.ones(1, requires_grad=True)
"""
WAYS = {
    "root dropped": "y = chain(150_000, x); g = backprobe.graph(y); del y",
    "after a backward": "y = chain(150_000, x); g = backprobe.graph(y); y.backward(); del y; g[3]",
    "read twice": "y = chain(150_000, x); backprobe.graph(y); backprobe.graph([y]); del y",
    "a middle that outlives its root": "y = chain(150_000, x); backprobe.graph(y.sum()); z = y; del y; del z",
    "a middle, traced": (
        "y = chain(150_000, x)\nwith backprobe.trace():\n    y.sum().backward(retain_graph=True)\ndel y"
    ),
    "at exit": "y = chain(150_000, x); g = backprobe.graph(y)",
    "two roots": "h = chain(100_000, x); a, b = h.sin(), h.cos(); g = backprobe.graph([a, b]); del h, a; del b",
    "root with more on top": "y = chain(150_000, x); backprobe.graph(y); z = y.sin(); del y; del z",
    "a shortcut past a long way": (
        "s = chain(100_000, x); t = chain(100_000, x); y = s + (t + s.sin()); g = backprobe.graph(y); del s, t; del y"
    ),
}


@pytest.mark.parametrize("how", sample_cases(WAYS))
def test_a_deep_graph_is_freed_without_overflowing_the_stack(how) -> None:
    script = DEEP_CHAIN_SCRIPT + WAYS[how] + "\nprint('alive')\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


def test_a_deep_graph_lives_no_longer_than_without_us() -> None:
    x = torch.ones(1, requires_grad=True)
    held = torch.ones(1000)
    y = x
    for _ in range(12_000):
        y = y * 1.0
    z = (y * held).sum()
    count = sys.getrefcount(held)
    graph = backprobe.graph(z)
    assert len(graph) > 12_000
    freed = []

    class Canary:
        def __del__(self) -> None:
            freed.append(1)

    y.grad_fn.metadata["canary"] = Canary()
    del y
    assert not freed
    del z
    assert freed and sys.getrefcount(held) <= count
