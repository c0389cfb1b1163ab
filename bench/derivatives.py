"""Benchmark of ``bp.vjp`` and batched products against ``torch.autograd.grad``: ratios, interleaved, one thread.

python bench/derivatives.py
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

import backprobe as bp


def block(width: int, heads: int) -> nn.Module:
    return nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)


def plain(depth: int, width: int) -> nn.Sequential:
    return nn.Sequential(*(part for _ in range(depth) for part in (nn.Linear(width, width), nn.Tanh())))


#: Model and the shape of its input.
MODELS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "3 layers of 32, batch 8": (plain(3, 32), (8, 32)),
    "6 layers of 128, batch 32": (plain(6, 128), (32, 128)),
    "100 layers of 64, batch 32": (plain(100, 64), (32, 64)),
    "2 transformer blocks of 64, 4 x 32 tokens": (nn.Sequential(block(64, 4), block(64, 4)), (4, 32, 64)),
}


def medians(calls: list[Callable[[], object]], rounds: int = 15, least: float = 0.02) -> list[float]:
    """Seconds of this thread for one call each, measured in turn: others may be busy on the machine."""
    counts = []
    for call in calls:
        call()
        begin = time.thread_time()
        call()
        counts.append(max(1, int(least / (time.thread_time() - begin))))
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, count, times in zip(calls, counts, found, strict=True):
            begin = time.thread_time()
            for _ in range(count):
                call()
            times.append((time.thread_time() - begin) / count)
    return [statistics.median(times) for times in found]


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"{len(gc.get_objects()):,} objects in the process")
    print(f"{'':42s} ms of torch       vjp  retain_grad    32 at once    captured")
    for name, (model, shape) in MODELS.items():
        x = torch.randn(shape, requires_grad=True)
        y = model(x)
        kept = x * 1
        kept.retain_grad()
        z = model(kept)
        acts = bp.capture(model, x)
        lines = bp.linearize(y, x), bp.linearize(acts.output, x)
        v, many = torch.randn_like(y), torch.randn(32, *y.shape)
        own, vjp, retained, batch, captured = medians(
            [
                lambda y=y, x=x, v=v: torch.autograd.grad(y, x, v, retain_graph=True),  # type: ignore[misc]
                lambda y=y, x=x, v=v: bp.vjp(y, x, v),  # type: ignore[misc]
                lambda y=z, x=kept, v=v: bp.vjp(y, x, v),  # type: ignore[misc]
                lambda line=lines[0], v=many: line.vjps(v),  # type: ignore[misc]
                lambda line=lines[1], v=many: line.vjps(v),  # type: ignore[misc]
            ]
        )
        ratios = [vjp / own, retained / own, batch / 32 / own, captured / 32 / own]
        print(f"{name:42s} {own * 1e3:7.3f}      {'      '.join(f'{ratio:7.2f}' for ratio in ratios)}")


if __name__ == "__main__":
    main()
