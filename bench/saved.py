"""Benchmark of saved-tensor policies, as ratios to the plain step (forward and backward), and the bytes that they save.

python bench/saved.py [--models gpt,rnn] [--rounds 15] [--threads 1] [--only compressed]

Rounds interleaved in one process, medians with quartiles. MiB: what torch's ops have allocated when the forward is
over, without what was there before; and the gradient's relative error where it is not zero.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from capture import MODELS
from torch import nn

from backprobe import offload, saved_tensors
from backprobe.user_tools.saved_hooks.trial import checkpointed

Make = Callable[[], contextlib.AbstractContextManager[Any]]


def contestants(model: nn.Module) -> dict[str, Make]:
    graph = torch.autograd.graph
    return {
        "plain": contextlib.nullcontext,
        "torch: hooks that do nothing": lambda: graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: t),
        "hooks that do nothing": lambda: offload.hooks(lambda t: t, lambda t: t),
        "on_disk": offload.on_disk,
        "on_disk above 1 MiB": lambda: offload.on_disk(min_bytes=1 << 20),
        "compressed": offload.compressed,
        "compressed, zlib 1": lambda: offload.compressed(level=1),
        "compressed, bfloat16": lambda: offload.compressed(dtype=torch.bfloat16),
        "bfloat16 on disk": lambda: nested(offload.on_disk(), offload.compressed(dtype=torch.bfloat16)),
        "allow_mutation": offload.allow_mutation,
        "torch: allow_mutation": graph.allow_mutation_on_saved_tensors,
        "saved_tensors(model)": lambda: saved_tensors(model),
        "checkpoint of the children": lambda: checkpointed(model, lambda name, module: "." not in name),
    }


@contextlib.contextmanager
def nested(outer: Any, inner: Any) -> Any:
    with outer, inner:
        yield


def report(name: str, rounds: int, only: str | None) -> None:
    model, x, loss_of = MODELS[name]()

    def step() -> torch.Tensor:
        return loss_of(model(x))

    ways = {n: m for n, m in contestants(model).items() if only is None or n == "plain" or only in n}
    times: dict[str, list[float]] = {n: [] for n in ways}
    for number in range(rounds + 2):
        for n, make in ways.items():
            model.zero_grad(set_to_none=True)
            begin = time.perf_counter()
            with make():
                step().backward()
            if number >= 2:
                times[n].append(time.perf_counter() - begin)
    base = statistics.median(times["plain"])
    print(f"\n{name}: plain step {base * 1e3:.1f} ms, {torch.get_num_threads()} threads")
    for n, make in ways.items():
        ratios = [t / p for t, p in zip(times[n], times["plain"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        trial = offload.measure(make, model, step, rounds=1, name=n)
        error = "" if trial.identical else f"  error {trial.error:.1e}"
        kept, peak = (trial.tried.kept_bytes or 0) / 2**20, trial.tried.peak_bytes / 2**20
        print(f"  {n:30} {middle:6.2f} ({low:.2f} to {high:.2f})  kept {kept:7.2f} MiB  peak {peak:7.2f} MiB{error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gpt,convnet,mlp,rnn")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name in options.models.split(","):
        torch.manual_seed(0)
        report(name, options.rounds, options.only)


if __name__ == "__main__":
    main()
