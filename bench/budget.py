"""Benchmark of the overhead under a budget: blocks of plain and of watched steps alternate.

python bench/budget.py [--budget 5%] [--models gpt,rnn] [--seconds 40] [--threads 1] [--busy 8] [--compiled inductor]

"took" is the extra CPU time of the watched blocks, summed over all blocks; "said" is the overhead that the session
reports, without the first steps and the one second that every run has. "recorded" counts the steps whose nodes were
recorded. ``--compiled BACKEND`` compiles the models in watched steps that are not counted; the row ends with the number
of compilations during the measurement. ``--busy N`` runs N CPU-bound processes at the same time. The output is a
Markdown table, as in docs/runs.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import pairwise

import models
import torch
from cost import busy
from models import MODELS, Step
from torch import nn
from torch._dynamo.utils import counters

from backprobe.observe.schedule import budget as budgets
from backprobe.observe.schedule.settings import budget_of
from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector


def _step(model: nn.Module, *size: int, ids: int = 0) -> Step:
    # So little that nothing is learnt: gradients of what is known by heart are subnormal, and those are slow.
    optimizer = torch.optim.AdamW(models.compiled(model).parameters(), 1e-8)
    x = torch.randint(ids, size) if ids else torch.randn(*size)

    def step() -> None:
        out = model(x)
        loss = (out[0] if isinstance(out, tuple) else out).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def tiny() -> Step:
    return _step(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)), 8, 4)


def large() -> Step:
    return _step(nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)), 256, 1024)


def embedding() -> Step:
    return _step(nn.Sequential(nn.Embedding(20_000, 64), nn.Flatten(), nn.Linear(32 * 64, 10)), 64, 32, ids=20_000)


def encoder() -> Step:
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    return _step(nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), 8, 64, 128)


def gan() -> Step:
    """Two optimizers in turn, each of which ends a step."""

    def net(*sizes: int) -> nn.Module:
        layers = [m for a, b in pairwise(sizes) for m in (nn.Linear(a, b), nn.LeakyReLU(0.2))]
        return models.compiled(nn.Sequential(*layers[:-1]))

    maker, critic = net(32, 256, 256, 64), net(64, 256, 256, 1)
    of_maker, of_critic = (torch.optim.Adam(m.parameters(), 1e-8) for m in (maker, critic))
    real, noise = torch.randn(256, 64), torch.randn(256, 32)

    def step() -> None:
        fake = maker(noise)
        of_critic.zero_grad()
        (nn.functional.softplus(-critic(real)) + nn.functional.softplus(critic(fake.detach()))).mean().backward()
        of_critic.step()
        of_maker.zero_grad()
        nn.functional.softplus(-critic(fake)).mean().backward()
        of_maker.step()

    return step


SHAPES: dict[str, Callable[[], Step]] = {
    **MODELS,
    "large": large,
    "embedding": embedding,
    "encoder": encoder,
    "gan": gan,
    "tiny": tiny,
}


def measure(make: Callable[[], Step], share: float | None, seconds: float) -> str:
    torch.manual_seed(0)
    step = make()
    session = Session(Collector(), Settings(budget=share))
    if models.COMPILER is None:
        for _ in range(3):
            step()
        session.start()
    else:
        session.start()
        step()
    for _ in range(8):
        step()
    session.pause()
    for _ in range(3):
        begin = time.perf_counter()
        step()
    block = max(2, int(0.3 / (time.perf_counter() - begin)))
    session.resume()
    step()
    frames = counters["frames"]["total"]
    before = session.budget.spent, session.budget.script_seconds, session.budget.recorded_steps, session.budget.steps
    plain = watched = 0.0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        session.pause()
        begin = time.process_time()
        for _ in range(block):
            step()
        plain += time.process_time() - begin
        session.resume()
        begin = time.process_time()
        for _ in range(block):
            step()
        watched += time.process_time() - begin
    session.stop()
    if session.error is not None:
        raise session.error
    budget = session.budget
    said = (budget.spent - before[0]) / (budget.script_seconds - before[1])
    steps, recorded = budget.steps - before[3], budget.recorded_steps - before[2]
    took = 100 * (watched / plain - 1)
    again = counters["frames"]["total"] - frames
    row = f"{1e3 * plain / steps:.2f} ms | {took:.1f}% | {100 * said:.1f}% | {recorded} of {steps} |"
    return row + (f" {again} frames compiled meanwhile" if again else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="5%")
    parser.add_argument("--models", default=",".join(SHAPES))
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--compiled", metavar="BACKEND")
    options = parser.parse_args()
    models.COMPILER = options.compiled
    torch.set_num_threads(options.threads)
    budgets.FREE_SECONDS = 0.0
    share = budget_of(options.budget, Settings())
    print("| model | plain step | took | said | recorded |\n| --- | --- | --- | --- | --- |", flush=True)
    with busy(options.busy):
        for name in options.models.split(","):
            print(f"| {name} | {measure(SHAPES[name], share, options.seconds)}", flush=True)


if __name__ == "__main__":
    main()
