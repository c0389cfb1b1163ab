"""Two large runs for the page's tests: `python big.py FOLDER` writes FOLDER/nodes and FOLDER/steps.

nodes: one real backward of 100,000 nodes in nested modules. steps: 10,000 steps of 500 parameters, numbers made up.
"""

import math
import random
import sys
import time
from pathlib import Path

import torch
from torch import nn

import backprobe
from backprobe.records import ParameterStat, Step
from backprobe.store.writer import Writer


class Cell(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate, self.mix = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(24):
            x = torch.tanh(self.mix(x)) * torch.sigmoid(self.gate(x)) + 0.5 * x
        return x


class Stack(nn.Module):
    def __init__(self, width: int, cells: int) -> None:
        super().__init__()
        self.cells = nn.ModuleList(Cell(width) for _ in range(cells))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for cell in self.cells:
            x = cell(x)
        return self.norm(x)


def nodes(folder: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(Stack(8, 8) for _ in range(58)), nn.Linear(8, 3))
    with backprobe.trace(model) as trace:
        model(torch.randn(4, 8)).square().mean().backward()
    print(len(trace.steps[0].backwards[0].nodes), "nodes")
    trace.save(folder)


def steps(folder: Path, count: int = 10_000, size: int = 500) -> None:
    draw = random.Random(0)
    names = [f"blocks.{i // 10}.{'attn' if i % 10 < 5 else 'mlp'}.p{i % 10}" for i in range(size)]
    writer = Writer(folder, {"script": "long.py", "started": time.time()})
    for i in range(count):
        decay = math.exp(-i / 4000)
        burst = 30.0 if 7000 <= i < 7020 else 1.0
        stats = tuple(
            ParameterStat(name, 1 + k, burst * decay * draw.uniform(0.5, 1.5) / (1 + k / 50), 0.001 * draw.random())
            for k, name in enumerate(names)
        )
        writer.step(Step(i, 0.01, 4 * decay + draw.uniform(0, 0.2), (), stats), 0, lambda: ())
    from backprobe.records import Facts

    writer.put({"steps": count, "backwards": count, "seconds": 100.0})
    writer.close(Facts(), [])


if __name__ == "__main__":
    where = Path(sys.argv[1])
    nodes(where / "nodes")
    steps(where / "steps")
