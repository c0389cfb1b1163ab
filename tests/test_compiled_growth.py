"""Gradients inside a compiled region: their norms against those that autograd gives outside of it, and what is made of
them. Whole scripts are in ``test_compiled_corpus``."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from compiling import dynamo, reset_dynamo
from handmade import call, leaf, run, traced
from torch import nn

import backprobe
from backprobe.findings.relations.expanded_regions import Opened, opened
from backprobe.observe.trackers import compiled_norms as kept
from backprobe.records import RegionRun
from backprobe.torch_internals import compiled_norms
from backprobe.torch_internals.compiled_norms import owned_bytes

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("fresh_dynamo")]


class Layer(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.inner, self.factor = nn.Linear(6, 6, bias=False), factor
        self.bend = torch.tanh if factor < 2 else torch.relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bend(self.inner(x)) + x * 0.1
        return x * self.factor


class Net(nn.Module):
    def __init__(self, factor: float, drop: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.head = nn.ModuleList(Layer(factor) for _ in range(8)), nn.Linear(6, 1)
        self.drop = nn.Dropout(drop) if drop else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(self.drop(x))


Compile = Callable[[Net], Any]


def whole(net: Net) -> Any:
    return torch.compile(net, backend="aot_eager")


def halves(net: Net) -> Any:
    """Compile each half of the layers: two regions, one after the other, and the rest in Python."""
    parts = [nn.Sequential(*net.layers[:4]), nn.Sequential(*net.layers[4:])]
    first, second = (torch.compile(part, backend="aot_eager") for part in parts)
    return lambda x: net.head(net.drop(second(first(x))))


def each(net: Net) -> Any:
    """Compile each layer: all layers share one graph."""
    for layer in net.layers:
        layer.compile(backend="aot_eager")
    return net


def trained(
    net: Net, compiles: Compile | None, steps: int = 5, scale: float = 1.0, watch: bool = True, **how: Any
) -> Any:
    torch.manual_seed(1)
    forward = compiles(net) if compiles else net
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6 if net.layers[0].factor < 2 else 1e-30)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=scale != 1.0)

    def train() -> None:
        for _ in range(steps):
            loss = forward(torch.randn(4, 6)).square().mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    if not watch:
        train()
        return None
    with backprobe.trace(net, budget=None, **how) as trace:
        train()
    return trace


def norms_at_layers(net: Net) -> list[float]:
    """By autograd alone, at what each layer's weight gave in the first step, from the first layer on."""
    torch.manual_seed(1)
    x, made = torch.randn(4, 6), []
    for layer in net.layers:
        made.append(layer.inner(x))
        x = (layer.bend(made[-1]) + x * 0.1) * layer.factor
    return [float(g.norm()) for g in torch.autograd.grad(net.head(x).square().mean(), made)]


@pytest.mark.parametrize("scale", [1.0, 1024.0])
@pytest.mark.parametrize("compiles", [whole, halves, each])
def test_norms_inside_are_those_of_autograd(compiles: Compile, scale: float) -> None:
    expected = norms_at_layers(Net(1.3))
    trace = trained(Net(1.3), compiles, 1, scale)
    regions = trace.facts.of(RegionRun)
    assert len(regions) == {whole: 1, halves: 2, each: 8}[compiles] and all(one.sure for one in regions)
    (seen,) = trace.backwards
    whole_call = opened(seen, regions)
    mm = [run for run in whole_call.nodes if run.name == "MmBackward0"]
    mm.sort(key=lambda run: run.node.seq)
    assert [run.grad_outputs[0].norm for run in mm] == pytest.approx(expected, rel=1e-5)
    assert [run.module for run in mm][:4] == [f"layers.{i}.inner" for i in range(4)] or compiles is halves
    assert len({run.node.seq for run in mm}) == 8
    # From the loss all parameters are reached, through regions and from one to the next.
    reached, stack = set(), [seen.roots[0].node]
    while stack:
        i = stack.pop()
        if i not in reached:
            reached.add(i)
            stack += [edge[0] for edge in whole_call.nodes[i].node.edges if edge is not None]
    names = {str(whole_call.nodes[i].parameter).removeprefix("model.") for i in reached} - {"None"}
    assert names == {name for name, _ in Net(1.3).named_parameters()}


@pytest.mark.parametrize("compiles", [whole, each])
@pytest.mark.parametrize(("factor", "kind"), [(12.0, "exploding-gradient"), (0.1, "vanishing-gradient"), (1.3, None)])
def test_the_same_is_found_as_without_compiling(factor: float, kind: str | None, compiles: Compile) -> None:
    alone, found = (trained(Net(factor), how).findings for how in (None, compiles))
    told = [
        [(f.kind, f.module, f.parameters, f.sites[0].site, f.evidence.get("op")) for f in some]
        for some in (alone, found)
    ]
    assert told[0] == told[1] and [one[0] for one in told[1]] == ([kind] if kind else [])


def test_a_call_is_not_taken_for_one_that_was_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an optimizer, steps end between forward and backward, and records of calls are freed all the time."""
    counts: list[int] = []
    look = kept.RegionNorms.measure

    def counted(norms: Any, running: Any, recorded: Any, calls: Any) -> None:
        counts.append(len(calls))
        look(norms, running, recorded, calls)

    monkeypatch.setattr(kept.RegionNorms, "measure", counted)
    net = nn.Linear(3, 3)
    forward = torch.compile(net, backend="aot_eager")
    with backprobe.trace(net, level="full", budget=None):
        for _ in range(200):
            net.zero_grad()
            forward(torch.ones(4, 3)).sum().backward()
    assert counts == [1] * 200


def test_calls_with_closed_regions_are_not_compared_with_others() -> None:
    region = run("CompiledFunctionBackward", 1)
    calls = [call(region, leaf("w"), index=0), call(region, leaf("w"), index=1), call(leaf("w"), index=2)]
    inside = RegionRun(0, 0, (run("MmBackward0", index=0),), ((0, 0),))
    assert [one.index for one in Opened(traced(*calls, seen=(inside,))).comparable()] == [0, 2]
    assert [one.index for one in Opened(traced(*calls)).comparable()] == [0, 1, 2]  # nothing to compare with


def test_a_region_with_random_numbers_gives_a_likely_finding() -> None:
    (found,) = trained(Net(0.1, 0.5), whole).findings
    assert (found.kind, found.confidence) == ("vanishing-gradient", "likely")


def test_nothing_changes_and_nothing_is_compiled_again() -> None:
    """Weights, random numbers, and what Dynamo counts."""
    left = []
    for watch in (True, False):
        reset_dynamo()
        net = Net(0.1, 0.5)
        trained(net, whole, 10, watch=watch)
        counted = {name: dict(dynamo.utils.counters[name]) for name in ("frames", "stats", "graph_break")}
        left.append(([p.detach().clone() for p in net.parameters()], torch.get_rng_state(), counted))
    (weights, state, counted), (others, alone, expected) = left
    assert all(map(torch.equal, weights, others)) and torch.equal(state, alone)
    assert counted == expected


def test_norms_are_measured_only_in_the_first_and_last_inspected_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """In steps that get a close look, the first and the last of them, and nowhere else."""
    looks: list[int] = []
    again = kept.private.norms_inside
    monkeypatch.setattr(kept.private, "norms_inside", lambda *given: looks.append(1) or again(*given))
    trace = trained(Net(1.3), whole, 20)
    assert [one.backward for one in trace.facts.of(RegionRun)] == [0, 1, 2] and len(looks) == 3
    monkeypatch.setattr(kept, "MAX_LAST_CALLS", 1)
    monkeypatch.setattr(kept, "MAX_FIRST_CALLS", 1)
    trace = trained(Net(1.3), whole, 20)
    assert [one.backward for one in trace.facts.of(RegionRun)] == [0, 2]


@pytest.mark.parametrize("limit", ["memory", "nodes"])
def test_a_region_that_is_too_large_is_reported(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if limit == "memory":
        monkeypatch.setattr(compiled_norms, "free_memory", lambda args: 10_000.0)
    else:
        monkeypatch.setattr(kept, "MAX_REGION_NODES", 10)
    trace = trained(Net(0.1), whole)
    (said,) = [one for one in trace.coverage.unseen if "not run again" in one.what]
    assert said.count == 3 and not trace.facts.of(RegionRun) and not trace.findings


def test_what_is_not_what_the_region_gave_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    again = kept.private.norms_inside

    def other(*given: Any) -> Any:
        inner = again(*given)
        inner.leaves = {k: 10 * norm for k, norm in inner.leaves.items()}
        return inner

    monkeypatch.setattr(kept.private, "norms_inside", other)
    assert not trained(Net(0.1), whole).facts.of(RegionRun)


def test_a_region_in_place_of_its_node() -> None:
    """By hand: the loss, a region of two nodes, and what went in."""
    outer = call(
        run("MeanBackward0", 1),
        run("CompiledFunctionBackward", 2, 3, came=(2.0,), gave=(5.0, 7.0)),
        leaf("a"),
        run("MulBackward0", 4),
        leaf("b"),
    )
    inner = call(run("AddBackward0", 1, None, came=(2.0,)), run("ExpBackward0", -2, came=(3.0,)))
    nodes = tuple(inner.nodes)
    found = opened(outer, [RegionRun(outer.index, 1, nodes, ((0, 0),))])
    assert [one.name for one in found.nodes[:5]] == [one.name for one in outer.nodes]
    edges = {one.name: one.node.edges for one in found.nodes}
    assert edges["CompiledFunctionBackward"] == ((5, 0),) and not found.nodes[1].grad_inputs
    assert edges["AddBackward0"] == ((6, 0), None) and edges["ExpBackward0"] == ((3, 0),)
    assert [one.grad_outputs[0].norm for one in found.nodes[5:]] == [2.0, 3.0]
    order = ["MeanBackward0", "CompiledFunctionBackward", "AddBackward0", "ExpBackward0", "MulBackward0"]
    seqs = {one.name: one.node.seq for one in found.nodes}
    assert all(seqs[a] > seqs[b] for a, b in pairwise(order))
    assert outer.nodes[1].node.edges == ((2, 0), (3, 0))


def test_the_size_of_a_tensor_inside_a_transform() -> None:
    """A tensor inside vmap has no accessible storage; its size is computed, so the region can still run again."""
    taken = []

    def of_each(row: torch.Tensor) -> torch.Tensor:
        taken.append(owned_bytes(row))
        return row.sum()

    torch.vmap(of_each)(torch.zeros(3, 4))
    assert taken == [4 * 4] and owned_bytes(torch.zeros(3, 4)) == 3 * 4 * 4
