"""Benchmark of the overhead that a run reports against the CPU time that it really takes.

python bench/cost.py [--cases rnn,mlp] [--rounds 5] [--busy 8]

The same steps run plain and watched, in turn. "said" is what the report shows; "took" is the CPU time of the watched
steps less that of the plain ones: for the steps after the first three as a share of the plain ones, for the whole
script in seconds. ``--busy N`` runs N CPU-bound processes at the same time. The output is a Markdown table, as in
docs/runs.md.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from models import MODELS
from torch import nn

from backprobe.observe.schedule.cost import CostSummary
from backprobe.observe.session import Session
from backprobe.observe.sinks.memory import Collector

Script = Callable[[Callable[[], None]], None]
_clock = time.process_time


def of_model(name: str, steps: int) -> Script:
    def script(tick: Callable[[], None]) -> None:
        torch.manual_seed(0)
        step = MODELS[name]()
        for _ in range(steps):
            step()
            tick()

    return script


def loading(tick: Callable[[], None]) -> None:
    """A cheap step, and much work for its data."""
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(60):
        rows = [[float((i * j) % 7) for i in range(16)] for j in range(1500)]
        optimizer.zero_grad()
        model(torch.tensor(rows[:32])).square().mean().backward()
        optimizer.step()
        tick()


def tiny(tick: Callable[[], None]) -> None:
    """A step of a fraction of a millisecond: nearly all of it is calls."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    x = torch.ones(8, 4)
    for _ in range(300):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        tick()


def no_backward(tick: Callable[[], None]) -> None:
    """Inference."""
    model = nn.Sequential(*(m for _ in range(20) for m in (nn.Linear(64, 64), nn.ReLU())))
    with torch.no_grad():
        for _ in range(100):
            model(torch.ones(8, 64))
            tick()


SCRIPTS: dict[str, Script] = {
    "rnn": of_model("rnn", 14),
    "mlp": of_model("mlp", 30),
    "gpt": of_model("gpt", 14),
    "convnet": of_model("convnet", 14),
    "loading": loading,
    "tiny": tiny,
    "two steps": of_model("mlp", 2),
    "no backward": no_backward,
}


@dataclass
class Run:
    ticks: list[float]
    said: CostSummary | None = None

    def seconds(self, first: int) -> float:
        return self.ticks[-1] - self.ticks[first]


def run(script: Script, watched: bool) -> Run:
    session = Session(Collector()) if watched else None
    ticks = [_clock()]
    if session is not None:
        session.start()
    try:
        script(lambda: ticks.append(_clock()))
    finally:
        if session is not None:
            session.stop()
    return Run(ticks, session.cost.took if session is not None else None)


def middle(values: list[float]) -> float:
    return statistics.median(values)


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Others use the processors meanwhile."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def measure(name: str, rounds: int) -> str:
    script = SCRIPTS[name]
    run(script, False)
    run(script, True)
    pairs = [(run(script, False), run(script, True)) for _ in range(rounds)]
    took = middle([w.seconds(0) - p.seconds(0) for p, w in pairs])
    all_said = [w.said for _, w in pairs if w.said is not None]
    said = middle([t.first + t.watching for t in all_said])
    later = "| |"
    shares = [t.share for t in all_said if t.share is not None]
    if shares:
        plain = middle([p.seconds(3) for p, _ in pairs])
        share = (middle([w.seconds(3) for _, w in pairs]) - plain) / plain
        later = f"{100 * middle(shares):.0f}% | {100 * share:.0f}% |"
    return f"| {name} | {said:.3f} s | {took:.3f} s | {later}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(SCRIPTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| script | said | took | later steps: said | took |\n| --- | --- | --- | --- | --- |", flush=True)
    with busy(options.busy):
        for name in options.cases.split(","):
            print(measure(name, options.rounds), flush=True)


if __name__ == "__main__":
    main()
