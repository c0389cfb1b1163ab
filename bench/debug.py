"""Benchmark of the debugger: the time of one step, and the slowdown of a backward with breakpoints.

    python bench/debug.py [gpt convnet mlp rnn]
    python bench/debug.py --armed [gpt convnet mlp rnn]

``--armed`` prints the CPU time of a backward with a breakpoint that never stops, as a ratio to the plain backward
right after it: the median of nine rounds. On one thread of a busy machine (rnn, 3,010 nodes in 21 ms): a type 1.9, a
module or line 2.1, ``norm >`` and ``nonfinite`` 3.2.

The times are the least of five rounds: the spread of a long backward is larger than the cost of its steps.
``us a step`` is the extra time of a stepped backward over a plain one, ``us waiting`` its extra time over one that runs
through in the same thread.
"""

from __future__ import annotations

import io
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from typing import Any

import torch
from models import GPT, RNN, resnet18
from torch import nn
from torch.nn import functional as F

import backprobe


def losses() -> dict[str, Callable[[], torch.Tensor]]:
    gpt, tokens = GPT(), torch.randint(0, 96, (4, 129))
    net, x, y = resnet18(), torch.randn(8, 3, 64, 64), torch.randint(0, 10, (8,))
    mlp = nn.Sequential(*[m for _ in range(50) for m in (nn.Linear(256, 256), nn.ReLU())], nn.Linear(256, 10))
    rows, labels = torch.randn(64, 256), torch.randint(0, 10, (64,))
    rnn, frames = RNN(), torch.randn(500, 16, 8)
    return {
        "gpt": lambda: F.cross_entropy(gpt(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()),
        "convnet": lambda: F.cross_entropy(net(x), y),
        "mlp": lambda: F.cross_entropy(mlp(rows), labels),
        "rnn": lambda: rnn(frames).square().mean(),
    }


def timed(
    make: Callable[[], torch.Tensor], run: Callable[[torch.Tensor], Any], clock: Callable[[], float] = time.perf_counter
) -> tuple[float, Any]:
    loss = make()
    begin = clock()
    result = run(loss)
    return clock() - begin, result


def stepped(loss: torch.Tensor) -> tuple[int, float]:
    """Steps, and the seconds of setting up."""
    begin = time.perf_counter()
    dbg = backprobe.debug(loss)
    ready = time.perf_counter() - begin
    count = 1
    while dbg.step() is not None:
        count += 1
    return count, ready


#: Breakpoints that are never met, by what they cost: a name is looked up once, a gradient is measured at each node.
ARMED: dict[str, dict[str, Any]] = {
    "type": {"node": "NoSuch*"},
    "module": {"module": "no.such.module"},
    "line": {"line": "no_such.py:1"},
    "type if": {"node": "*Backward0", "when": "norm > 1e30"},
    "norm >": {"when": "norm > 1e30"},
    "nonfinite": {"when": "nonfinite"},
    "any if": {"when": "grads[0] is None and shape == (1, 2, 3)"},
}


def armed(names: list[str], rounds: int = 9) -> None:
    print("".join(f"{head:>12}" for head in ("model", "nodes", "plain ms", *ARMED)))
    for name, make in losses().items():
        if names and name not in names:
            continue
        plain: list[float] = []
        ratios: dict[str, list[float]] = {kind: [] for kind in ARMED}
        for _ in range(rounds):
            for kind, where in ARMED.items():
                said = redirect_stderr(io.StringIO())  # that it names no node
                with said, backprobe.breakpoint_backward(action=lambda stop: None, **where):
                    timed(make, lambda loss: loss.backward())  # what is seen once for all
                    taken = timed(make, lambda loss: loss.backward(), time.thread_time)[0]
                plain.append(timed(make, lambda loss: loss.backward(), time.thread_time)[0])
                ratios[kind].append(taken / plain[-1])
        count, _ = stepped(make())
        found = "".join(f"{statistics.median(some):>12.2f}" for some in ratios.values())
        print(f"{name:>12}{count:>12}{statistics.median(plain) * 1e3:>12.1f}{found}", flush=True)


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    if "--armed" in names:
        armed([name for name in names if name != "--armed"])
        return
    heads = ("model", "nodes", "plain ms", "stepped ms", "setup ms", "us a step", "finish ms", "us waiting")
    print("".join(f"{head:>12}" for head in heads))
    for name, make in losses().items():
        if names and name not in names:
            continue
        plain, through, setup, finish, nodes = [], [], [], [], 0
        for i in range(7):
            a, _ = timed(make, lambda loss: loss.backward())
            b, (nodes, ready) = timed(make, stepped)
            c, _ = timed(make, lambda loss: backprobe.debug(loss).finish())
            if i >= 2:
                plain.append(a), through.append(b), setup.append(ready), finish.append(c)
        p, t, s, f = (min(v) for v in (plain, through, setup, finish))
        step = (t - s - p) / nodes * 1e6
        print(
            f"{name:>12}{nodes:>12}"
            + "".join(f"{v:>12.1f}" for v in (p * 1e3, t * 1e3, s * 1e3, step, f * 1e3, (t - f) / nodes * 1e6))
        )


if __name__ == "__main__":
    main(sys.argv[1:])
