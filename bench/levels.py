"""Benchmark of layer statistics at a cadence: blocks of steps with and without them alternate.

python bench/levels.py [--every 10] [--models gpt,mlp,convnet,rnn] [--seconds 20] [--threads 1]

A session at level ``minimal`` without a budget watches both blocks; in the second, which lasts from one measurement to
the next, it also measures statistics. The result is CPU time, over at least five pairs of blocks and as many as fit
into ``--seconds``.
"""

from __future__ import annotations

import argparse
import time

import torch
from budget import SHAPES

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector


def measure(name: str, every: int, seconds: float) -> str:
    torch.manual_seed(0)
    step = SHAPES[name]()
    for _ in range(3):
        step()
    took = [0.0, 0.0]
    sessions = [Session(Collector(), Settings("minimal", layer_stats=n)) for n in (0, every)]
    for session in sessions:
        session.start()
        for _ in range(3):
            step()
        session.pause()
    steps, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end or steps < 5 * every:
        for at, session in enumerate(sessions):
            session.resume()
            begin = time.process_time()
            for _ in range(every):
                step()
            took[at] += time.process_time() - begin
            session.pause()
        steps += every
    for session in sessions:
        session.stop()
        if session.error is not None:
            raise session.error
    return f"| {name} | {1e3 * took[0] / steps:.2f} ms | {took[1] / took[0]:.3f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--models", default="gpt,mlp,convnet,rnn,encoder")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print("| model | step | with statistics |\n| --- | --- | --- |", flush=True)
    for name in options.models.split(","):
        print(measure(name, options.every, options.seconds), flush=True)


if __name__ == "__main__":
    main()
