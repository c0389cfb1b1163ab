"""Common ways to compile a model: each has the same bits and the same compilations as without backprobe, no findings if
nothing is wrong, and a report of what was not observed."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from compiling import dynamo, reset_dynamo
from ranked import run_ranks
from torch import nn

import backprobe

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("fresh_dynamo")]
STEPS = 6
COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
#: Inductor makes C++ of a graph.
with_compiler = [
    pytest.mark.skipif(COMPILER is None, reason="Inductor needs a C++ compiler, and there is none on this machine"),
    pytest.mark.slow,
]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(4, 8), nn.Linear(8, 1)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.drop(x))


Step = Callable[[torch.Tensor], None]


def plain(run: Callable[..., Any], net: Net, optimizer: Any, update: Callable[[], Any] | None = None) -> Step:
    """A step of training: `run` is the model as it is called, `update` the optimizer's step."""

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        (run(x) - x.sum(-1, keepdim=True)).square().mean().backward()
        (update or optimizer.step)()

    return step


def layers_alone(net: Net, optimizer: Any) -> Step:
    for block in net.blocks:
        block.compile(backend="aot_eager")
    return plain(net, net, optimizer)


def layers_that_torch_compile_gave(net: Net, optimizer: Any) -> Step:
    for i, block in enumerate(net.blocks):
        net.blocks[i] = torch.compile(block, backend="aot_eager")
    return plain(net, net, optimizer)


def any_shape(net: Net, optimizer: Any) -> Step:
    return plain(torch.compile(net, backend="aot_eager", dynamic=True), net, optimizer)


def shapes_as_they_come(net: Net, optimizer: Any) -> Step:
    return plain(torch.compile(net, backend="aot_eager"), net, optimizer)


def marked_shape(net: Net, optimizer: Any) -> Step:
    run = torch.compile(net, backend="aot_eager")

    def marked(x: torch.Tensor) -> Any:
        dynamo.mark_dynamic(x, 0)
        return run(x)

    return plain(marked, net, optimizer)


def optimizer_too(net: Net, optimizer: Any) -> Step:
    run = torch.compile(net, backend="aot_eager")
    return plain(run, net, optimizer, torch.compile(lambda: optimizer.step(), backend="aot_eager", fullgraph=False))


def only_optimizer(net: Net, optimizer: Any) -> Step:
    return plain(net, net, optimizer, torch.compile(optimizer.step, backend="aot_eager"))


def checkpointed(net: Net, optimizer: Any) -> Step:
    from torch.utils.checkpoint import checkpoint

    for block in net.blocks:
        block.forward = lambda x, inner=block.forward: checkpoint(inner, x, use_reentrant=False)
    return plain(torch.compile(net, backend="aot_eager"), net, optimizer)


def in_a_checkpoint(net: Net, optimizer: Any) -> Step:
    from torch.utils.checkpoint import checkpoint

    for block in net.blocks:
        compiled = torch.compile(block.forward, backend="aot_eager")
        block.forward = lambda x, inner=compiled: checkpoint(inner, x, use_reentrant=False)
    return plain(net, net, optimizer)


def half_precision(net: Net, optimizer: Any) -> Step:
    run = torch.compile(net, backend="aot_eager")

    def cast(x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return run(x)

    return plain(cast, net, optimizer)


def whole_step(net: Net, optimizer: Any) -> Step:
    return torch.compile(plain(net, net, optimizer), backend="aot_eager")


def backward_too(net: Net, optimizer: Any) -> Step:
    step = plain(torch.compile(net, backend="aot_eager"), net, optimizer)

    def with_compiled_autograd(x: torch.Tensor) -> None:
        with dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
            step(x)

    return with_compiled_autograd


def inductor(**how: Any) -> Callable[[Net, Any], Step]:
    return lambda net, optimizer: plain(torch.compile(net, **how), net, optimizer)


FORMS = {
    "layers alone": layers_alone,
    "layers that torch.compile gave": layers_that_torch_compile_gave,
    "any shape": any_shape,
    "shapes as they come": shapes_as_they_come,
    "a marked shape": marked_shape,
    "the optimizer too": optimizer_too,
    "the optimizer alone": only_optimizer,
    "checkpoints inside": checkpointed,
    "inside checkpoints": in_a_checkpoint,
    "half precision": half_precision,
    "a whole step": whole_step,
    "the backward too": backward_too,
    "Inductor": inductor(),
    "reduce-overhead": inductor(mode="reduce-overhead"),
    "max-autotune": inductor(mode="max-autotune"),
}
SLOW = ("Inductor", "reduce-overhead", "max-autotune")
VARY = ("any shape", "shapes as they come", "a marked shape")
OPTIMIZERS = ("the optimizer too", "the optimizer alone", "a whole step")
#: The reported gaps, if they are not only the compiled regions.
UNSEEN = {
    "the optimizer too": ("compiled regions", "compiled steps of optimizers"),
    "the optimizer alone": ("compiled steps of optimizers",),
    "a whole step": ("compiled regions", "compiled steps of optimizers"),
    "the backward too": ("compiled backward calls",),
}
TABLE = [pytest.param(name, marks=with_compiler if name in SLOW else []) for name in FORMS]


def trained(form: str, watch: Callable[[Net], Any]) -> tuple[list[bytes], list[int], Any, Any]:
    """Bits of weights, gradients and random numbers; how many graphs there were after each step; how often
    they broke; what was watched."""
    reset_dynamo()
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    step = FORMS[form](net, optimizer)
    graphs = []
    with watch(net) as trace:
        for i in range(STEPS):
            step(torch.randn(5 + i % 3 if form in VARY else 5, 4))
            graphs.append(dynamo.utils.counters["stats"]["unique_graphs"])
    tensors = [*net.parameters(), *(p.grad for p in net.parameters() if p.grad is not None), torch.get_rng_state()]
    broken = {name: dynamo.utils.counters[name].total() for name in ("graph_break", "unimplemented")}
    return [t.detach().numpy().tobytes() for t in tensors], graphs, broken, trace


@pytest.mark.parametrize("form", TABLE)
def test_a_form_is_watched_and_is_as_without_us(form: str) -> None:
    bits, graphs, broken, _ = trained(form, lambda net: contextlib.nullcontext())
    same, more, also, trace = trained(form, lambda net: backprobe.trace(net, budget=None))
    assert same == bits
    assert (more, also) == (graphs, broken)
    assert [found.title for found in trace.findings if found.severity != "info"] == []
    assert not [one for one in trace.coverage.unseen if one.what == "internal error"]
    assert len(trace.steps) == STEPS
    assert trace.compiled
    unseen = {one.what: one.count for one in trace.coverage.unseen if one.what.startswith("compiled")}
    assert set(unseen) == set(UNSEEN.get(form, ("compiled regions",)))
    if form == "the backward too":
        assert unseen["compiled backward calls"] == STEPS
    else:
        assert len(list(trace.backwards)) == STEPS
    if form in OPTIMIZERS:
        assert unseen["compiled steps of optimizers"] == STEPS


#: Dynamo splits the graph at the buckets in which gradients are reduced.
RANKS = """
import hashlib, os, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch._dynamo.utils import counters
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.ModuleList(nn.Linear(256, 256) for _ in range(8)), nn.Linear(256, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(x)

net = Net()
wrapped = DistributedDataParallel(net, bucket_cap_mb=1.01)
run = torch.compile(wrapped, backend="aot_eager")
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
torch.manual_seed(1 + dist.get_rank())
for _ in range(5):
    x = torch.randn(8, 256)
    optimizer.zero_grad()
    (run(x) - x.mean(1, keepdim=True)).square().mean().backward()
    optimizer.step()
bits = b"".join(t.detach().numpy().tobytes() for p in net.parameters() for t in (p, p.grad))
graphs = counters["stats"]["unique_graphs"], counters["aot_autograd"]["total"]
print("LEFT", hashlib.sha256(bits).hexdigest(), *graphs, "broken", counters["graph_break"].total(), flush=True)
dist.destroy_process_group()
"""

LEFT = re.compile(r"^LEFT (\S+) (\d+) (\d+) broken (\d+)$", re.MULTILINE)


@pytest.mark.slow
def test_two_ranks_whose_graph_is_split_at_buckets(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(RANKS)
    jobs = {name: {"script": str(script), "watched": name == "watched"} for name in ("watched", "alone")}
    ended = run_ranks(tmp_path, jobs)
    assert ended["watched"].codes == ended["alone"].codes == [0, 0]
    left = {name: [LEFT.search(out) for out in one.out] for name, one in ended.items()}
    for watched, alone in zip(left["watched"], left["alone"], strict=True):
        assert watched.group(1, 2, 3) == alone.group(1, 2, 3)
        assert int(alone[3]) > int(alone[2]) == 1  # it was split
        assert int(watched[4]) <= int(alone[4])  # in the wrapper's own Python, some of which Dynamo leaves alone then
    assert [found["title"] for found in ended["watched"].findings if found["severity"] != "info"] == []
