"""Peak memory and kept objects over many watched steps: they must not grow.

python bench/memory.py [--steps 10000] [--budget none]
"""

from __future__ import annotations

import argparse
import gc
import resource
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

from backprobe.observe.schedule.settings import budget_of
from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.disk import DiskSink
from backprobe.observe.sinks.memory import Collector
from backprobe.store.writer import Writer


class Both:
    """The sinks of ``backprobe run``: one in memory and one on disk."""

    def __init__(self, folder: Path) -> None:
        self.collector, self.keep = Collector(), DiskSink(Writer(folder, {}, 32 << 20))

    def backward(self, recorded) -> None:
        self.collector.backward(recorded)
        self.keep.backward(recorded)

    def step(self, step, session) -> None:
        self.collector.step(step, session)
        self.keep.step(step, session)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--budget", default="none", help="such as 5%%")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = [m for _ in range(20) for m in (nn.Linear(64, 64), nn.ReLU())]
    model, x = nn.Sequential(*layers, nn.Linear(64, 1)), torch.randn(16, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    with tempfile.TemporaryDirectory() as folder:
        session = Session(sink := Both(Path(folder) / "run"), Settings(budget=budget_of(options.budget, Settings())))
        session.start()
        begin = time.perf_counter()
        for step in range(1, options.steps + 1):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            if step % (options.steps // 10) == 0:
                gc.collect()
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                size = sum(f.stat().st_size for f in (Path(folder) / "run").iterdir()) / 2**20
                rate = 1e3 * (time.perf_counter() - begin) / step
                print(
                    f"step {step:6d}: peak {peak:7.1f} MiB, {len(gc.get_objects()):7d} objects, disk {size:5.1f} MiB, "
                    f"{rate:.2f} ms a step",
                    flush=True,
                )
        session.stop()
        seen = session.budget
        print(
            f"{seen.recorded_steps} of {seen.steps} recorded, {seen.deferred_records} with deferred records, "
            f"{seen.steps_without_record} without a record"
        )
        sink.keep.writer.close(session.facts(), [])


if __name__ == "__main__":
    main()
