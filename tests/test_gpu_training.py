"""Training as people do it on an accelerator: watched and plain give the same bits, and healthy scripts stay silent."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from accelerator import DEVICE, needs_cuda, needs_device
from allocating import WANTED, Allocates
from torch import nn
from torch.utils.checkpoint import checkpoint

import backprobe

pytestmark = needs_device

STEPS = 8


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)).to(DEVICE)


def batch(step: int) -> torch.Tensor:
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(step)).to(DEVICE)


def train(step_of: Callable[[nn.Module, torch.optim.Optimizer, int], None], steps: int = STEPS) -> list[torch.Tensor]:
    """Train a small model; return its weights and last gradients."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for step in range(steps):
        step_of(net, optimizer, step)
    return [t.detach().clone() for p in net.parameters() for t in (p, p.grad) if t is not None]


def same_bits_and_silent(run: Callable[[], list[torch.Tensor]], **options: Any) -> backprobe.Trace:
    """Run plain and watched; assert equal bits, no findings, no internal error. Return the trace."""
    plain = run()
    with backprobe.trace(**options) as trace:
        watched = run()
    assert len(plain) == len(watched) and all(map(torch.equal, plain, watched))
    assert [u for u in trace.facts.unseen if u.what == "internal error"] == []
    assert list(trace.findings) == []
    return trace


def plain_step(net: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    optimizer.zero_grad()
    net(batch(step)).square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize("level", ["minimal", "nodes", "full"])
def test_plain_training(level: str) -> None:
    trace = same_bits_and_silent(lambda: train(plain_step), level=level)
    assert len(trace.steps) == STEPS


def test_the_default_budget_over_many_steps() -> None:
    same_bits_and_silent(lambda: train(plain_step, steps=200), budget=0.05)


def test_autocast_in_bfloat16() -> None:
    def step_of(net: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
        optimizer.zero_grad()
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = net(batch(step)).float().square().mean()
        loss.backward()
        optimizer.step()

    same_bits_and_silent(lambda: train(step_of))


def test_a_gradient_scaler_that_skips_a_step() -> None:
    """The first scale overflows in half precision: the scaler skips the step, which is no failure."""

    def run() -> list[torch.Tensor]:
        scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**40)

        def step_of(net: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
            optimizer.zero_grad()
            with torch.autocast(DEVICE, dtype=torch.bfloat16 if DEVICE == "cpu" else torch.float16):
                loss = net(batch(step)).float().square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

        return train(step_of, steps=40)

    same_bits_and_silent(run)


def test_checkpointed_blocks() -> None:
    def step_of(net: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
        optimizer.zero_grad()
        x = batch(step).requires_grad_()
        for layer in net.children():
            x = checkpoint(layer, x, use_reentrant=False)
        x.square().mean().backward()
        optimizer.step()

    same_bits_and_silent(lambda: train(step_of))


def test_batches_from_a_loader() -> None:
    def run() -> list[torch.Tensor]:
        data = torch.randn(64, 16, generator=torch.Generator().manual_seed(1))
        loader = torch.utils.data.DataLoader(data, batch_size=8, pin_memory=DEVICE == "cuda")
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
        for x in loader:
            optimizer.zero_grad()
            net(x.to(DEVICE, non_blocking=True)).square().mean().backward()
            optimizer.step()
        return [p.detach().clone() for p in net.parameters()]

    same_bits_and_silent(run)


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_training(mode: str) -> None:
    def run() -> list[torch.Tensor]:
        torch._dynamo.reset()
        net = model()
        options: dict[str, Any] = {"backend": "aot_eager"} if DEVICE == "cpu" else {"mode": mode}
        compiled = torch.compile(net, **options)
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
        for step in range(STEPS):
            optimizer.zero_grad()
            compiled(batch(step)).square().mean().backward()
            optimizer.step()
        return [p.detach().clone() for p in net.parameters()]

    same_bits_and_silent(run)


def test_sharded_parameters_on_one_rank(tmp_path: Any) -> None:
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

    backend = "nccl" if DEVICE == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:

        def run() -> list[torch.Tensor]:
            net = model()
            mesh = torch.distributed.init_device_mesh(DEVICE, (1,))
            for layer in net.children():
                if isinstance(layer, nn.Linear):
                    fully_shard(layer, mesh=mesh)
            fully_shard(net, mesh=mesh)
            optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
            for step in range(STEPS):
                plain_step(net, optimizer, step)
            return [p.to_local().detach().clone() if isinstance(p, DTensor) else p.detach() for p in net.parameters()]

        same_bits_and_silent(run)
    finally:
        dist.destroy_process_group()


def test_out_of_memory_in_a_backward_that_the_script_survives() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    caught = 0
    with backprobe.trace() as trace:
        for step in range(STEPS):
            optimizer.zero_grad()
            out = net(batch(step))
            try:
                (Allocates.apply(out) if step == 3 else out).square().mean().backward()
            except RuntimeError:  # torch.OutOfMemoryError on an accelerator
                caught += 1
            optimizer.step()
    assert caught == 1 and len(trace.steps) == STEPS
    assert [u for u in trace.facts.unseen if u.what == "internal error"] == []
    found = trace.findings[0]
    assert found.kind == "out-of-memory"
    # The step saved what its layers took, on the device; the last layer's output was the one that failed.
    assert found.evidence["wanted_bytes"] == WANTED and found.evidence["graph_bytes"] > 0
    assert found.evidence["parameter_bytes"] == sum(p.numel() * 4 for p in net.parameters())


@needs_cuda
def test_two_streams() -> None:
    def step_of(net: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
        optimizer.zero_grad()
        x = batch(step)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            other = net(x * 0.5)
        loss = net(x).square().mean()
        torch.cuda.current_stream().wait_stream(side)
        (loss + other.square().mean()).backward()
        optimizer.step()

    same_bits_and_silent(lambda: train(step_of))


@needs_cuda
def test_a_backward_on_a_stream_of_its_own() -> None:
    def step_of(net: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            plain_step(net, optimizer, step)
        torch.cuda.current_stream().wait_stream(side)

    same_bits_and_silent(lambda: train(step_of))


@needs_cuda
def test_a_captured_step_that_is_replayed() -> None:
    def run() -> list[torch.Tensor]:
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
        static = batch(0)

        def one() -> None:
            optimizer.zero_grad(set_to_none=False)
            net(static).square().mean().backward()
            optimizer.step()

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                one()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            one()
        for step in range(STEPS):
            static.copy_(batch(step))
            graph.replay()
        torch.cuda.synchronize()
        return [p.detach().clone() for p in net.parameters()]

    same_bits_and_silent(run)


@needs_cuda
def test_no_step_synchronizes() -> None:
    """Note [Nothing waits]: neither recorded nor unrecorded steps wait for the device, but for the batched fetch."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    batches = [batch(step) for step in range(300)]

    def one(step: int) -> None:
        optimizer.zero_grad()
        net(batches[step]).square().mean().backward()
        optimizer.step()

    with backprobe.trace(budget=0.05) as trace, contextlib.ExitStack() as stack:
        for step in range(50):
            one(step)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        stack.callback(torch.cuda.set_sync_debug_mode, "default")
        for step in range(50, 300):
            one(step)
    assert len(trace.steps) == 300
    assert [u for u in trace.facts.unseen if u.what == "internal error"] == []
