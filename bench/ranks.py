"""Benchmark of the overhead in data-parallel ranks: blocks of plain and of watched steps alternate.

python bench/ranks.py [--budget 5%] [--models mlp,gpt] [--seconds 40] [--ranks 2]

backprobe watches every rank, and each rank writes its part of a run. "took" is the extra CPU time of the training
thread in the watched blocks, without the first steps and the one second that every run has; "said" is the overhead that
the session reports. On a machine that others use, some steps take several times as long as the rest, watched or not;
"by medians" leaves those out: it takes the median of the recorded steps, of the steps with listeners only, and of the
fast-path steps, subtracts the median of the plain steps from each, and multiplies it by the number of such steps. The
thread that detects waits runs in both kinds of blocks.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from models import GPT, Step
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from backprobe.observe.processes.identity import Identity
from backprobe.observe.processes.part import Part
from backprobe.observe.schedule import budget as budgets
from backprobe.observe.schedule.settings import budget_of
from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector


def mlp() -> Step:
    layers = [nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(12)]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(256, 10)))
    x, y = torch.randn(64, 256), torch.randint(0, 10, (64,))
    return _step(model, lambda: F.cross_entropy(model(x), y))


def gpt() -> Step:
    model = DistributedDataParallel(GPT(layers=3, width=192, context=64))
    tokens = torch.randint(0, 96, (4, 65))
    return _step(model, lambda: F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()))


def _step(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Step:
    # So little that nothing is learnt: gradients of what is known by heart are subnormal, and those are slow.
    optimizer = torch.optim.AdamW(model.parameters(), 1e-8)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


SHAPES: dict[str, Callable[[], Step]] = {"mlp": mlp, "gpt": gpt}


def work(rank: int, options: argparse.Namespace, name: str, folder: str) -> None:
    torch.set_num_threads(1)
    budgets.FREE_SECONDS = 0.0
    collector = Collector()
    session = Session(collector, Settings(budget=budget_of(options.budget, Settings())))
    part = Part(Path(folder), Identity(rank, rank, options.ranks))
    part.begin(session, collector)
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=options.ranks)
    torch.manual_seed(0)
    step = SHAPES[name]()
    for _ in range(3):
        step()
    session.start()
    for _ in range(8):
        step()
    budget = session.budget
    before = budget.steps, budget.recorded_steps, budget.spent, budget.script_seconds
    times: dict[str, list[float]] = {"plain": [], "recorded": [], "heard": [], "passed": []}
    go_on = torch.ones(1)
    end = time.perf_counter() + options.seconds
    while go_on:
        for watched in (0, 1):
            session.resume() if watched else session.pause()
            dist.barrier()
            for _ in range(options.block):
                so_far, begin = (budget.recorded_steps, budget.steps), time.thread_time()
                step()
                kind = "plain"
                if watched:
                    kind = (
                        "recorded"
                        if budget.recorded_steps > so_far[0]
                        else "heard"
                        if budget.steps > so_far[1]
                        else "passed"
                    )
                times[kind].append(time.thread_time() - begin)
        session.pause()
        go_on.fill_(time.perf_counter() < end)
        dist.broadcast(go_on, 0)
        session.resume()
    session.stop()
    part.over(False, (), ())
    if session.error is not None:
        raise session.error
    steps, recorded = budget.steps - before[0], budget.recorded_steps - before[1]
    said = 100 * (budget.spent - before[2]) / (budget.script_seconds - before[3])
    plain = times.pop("plain")
    middle, mean, watched = statistics.median(plain), statistics.fmean(plain), sum(map(len, times.values()))
    more = sum(len(each) * (statistics.median(each) - middle) for each in times.values() if each)
    took = 100 * (sum(map(sum, times.values())) / watched / mean - 1), 100 * more / watched / middle
    told = f"took {took[0]:5.1f} %, by medians {took[1]:5.1f} %   said {said:4.1f} %"
    print(
        f"{name:5s} rank {rank}  plain step {1e3 * middle:7.2f} ms   {told}   recorded {recorded} of {steps}",
        flush=True,
    )
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="5%")
    parser.add_argument("--models", default=",".join(SHAPES))
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--block", type=int, default=20, help="steps in a block")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in options.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(work, (options, name, folder), nprocs=options.ranks)


if __name__ == "__main__":
    main()
