"""Benchmark of reading, collapsing and drawing autograd graphs: time and memory by number of nodes.

python bench/graph.py [--sizes 1000,100000,1000000] [--layers 100] [--rounds 3]

Each size runs in a process of its own, so that its peak memory is its own. Where torchviz can be imported, it makes the
DOT text of the same graphs up to the size that it gets through.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from array import array
from collections.abc import Callable
from typing import Any

SHAPES = ("chain", "ladder", "wide")


def build(shape: str, nodes: int) -> Any:
    import torch

    x = torch.ones(4, requires_grad=True)
    if shape == "chain":
        y = x
        for _ in range(nodes):
            y = y * 1.5
        return y.sum()
    if shape == "ladder":
        y, z = x, x
        for _ in range(nodes // 2):
            y, z = y * z, y.sin()
        return (y + z).sum()
    return torch.stack([x * 1.5 for _ in range(nodes)]).sum()


def read(shape: str, nodes: int, rounds: int) -> None:
    """In a process of its own: seconds of a plain walk and of the snapshot, memory before and after, what is kept.

    Seconds are the process's own: on a shared machine the clock on the wall says more about the others."""
    import torch  # noqa: F401

    import backprobe

    seconds, walked, size, before, after, kept = [], [], 0, 0, 0, 0.0
    backprobe.graph(build("chain", 10))  # imports
    for _ in range(rounds):
        loss = build(shape, nodes)
        before = before or peak()
        begin = time.process_time()
        graph = backprobe.graph(loss)
        seconds.append(time.process_time() - begin)
        after, size = after or peak(), len(graph)
        kept = sum(len(c) * c.itemsize for c in vars(graph.columns).values() if isinstance(c, array)) / size
        begin = time.process_time()
        walk(loss.grad_fn)
        walked.append(time.process_time() - begin)
        del graph, loss
    print(json.dumps([size, statistics.median(seconds), statistics.median(walked), before, after, kept]))


def walk(root: Any) -> None:
    """The least that can be done in Python: every node once."""
    nodes, seen = [root], {root}
    for node in nodes:
        for child, _ in node.next_functions:
            if child is not None and child not in seen:
                seen.add(child)
                nodes.append(child)


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(function: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    times, value = [], None
    for _ in range(rounds):
        begin = time.perf_counter()
        value = function()
        times.append(time.perf_counter() - begin)
    return statistics.median(times), value


def draw(layers: int, rounds: int) -> None:
    import torch
    from models import GPT
    from torch.nn import functional as F

    import backprobe

    torch.manual_seed(0)
    model, x = GPT(layers=layers, width=96, context=32), torch.randint(0, 96, (2, 33))

    def forward() -> torch.Tensor:
        return F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())

    def record() -> Any:
        with backprobe.graph.recording(model) as recording:
            loss = forward()
        return recording, loss

    forward()
    plain, _ = timed(forward, rounds * 3)
    recorded, (recording, loss) = timed(record, rounds * 3)
    seconds, graph = timed(lambda: recording.graph(loss), rounds)
    print(
        f"GPT of {layers} layers, {len(graph):,} nodes: forward {plain * 1e3:.0f} ms, recorded {recorded * 1e3:.0f} ms"
    )
    print(f"  read {seconds * 1e3:.0f} ms")
    for name, function in (
        ("collapse", graph.collapse),
        ("collapse, nothing folded", lambda: graph.collapse(2, fold=False)),
        ("svg", graph.svg),
        ("svg, every block closed, not folded", lambda: graph.svg(2, fold=False)),
        ("text", graph.text),
        ("dominators", graph.dominators),
        ("compare with itself", lambda: graph.compare(graph)),
        ("json", graph.to_json),
    ):
        seconds, value = timed(function, rounds)
        extra = f", {len(value.boxes)} boxes" if hasattr(value, "boxes") else ""
        extra = f", {len(value):,} characters" if isinstance(value, str) else extra
        print(f"  {name}: {seconds * 1e3:.0f} ms{extra}")
    try:
        from torchviz import make_dot
    except ImportError:
        print("  torchviz: not installed, not run")
        return
    parameters = dict(model.named_parameters())
    try:
        seconds, value = timed(lambda: make_dot(loss, params=parameters), rounds)
        print(f"  torchviz.make_dot: {seconds * 1e3:.0f} ms, {len(value.body):,} lines of DOT, nothing collapsed")
    except RecursionError:
        print("  torchviz.make_dot: RecursionError")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,100000,1000000")
    parser.add_argument("--layers", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    if options.one:
        shape, nodes = options.one.split(",")
        read(shape, int(nodes), options.rounds)
        return
    for size in options.sizes.split(","):
        for shape in SHAPES:
            command = [sys.executable, __file__, "--one", f"{shape},{size}", "--rounds", str(options.rounds)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f"{shape:7s} {size:>9s} nodes: failed with {done.returncode}\n{done.stderr[-500:]}")
                continue
            n, seconds, walked, before, after, kept = json.loads(done.stdout)
            print(
                f"{shape:7s} {n:>9,} nodes: {seconds:7.3f} s, {n / seconds:9,.0f} nodes a second, "
                f"{seconds / n * 1e6:5.2f} us a node (bare walk {walked / n * 1e6:.2f}), "
                f"peak {before:,.0f} MiB before, {after:,.0f} MiB after, {kept:.0f} bytes a node kept",
                flush=True,
            )
    draw(options.layers, options.rounds)


if __name__ == "__main__":
    main()
