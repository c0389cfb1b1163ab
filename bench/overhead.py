"""Benchmark of the overhead as ratios to the plain step: rounds interleaved in one process, medians, quartiles.

python bench/overhead.py [--models gpt,rnn] [--rounds 15] [--threads 1,2] [--only trace]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from models import MODELS, Step

from backprobe.observe.schedule.budget import Budget
from backprobe.observe.session import Session, Settings

#: Seconds of plain steps that are measured together.
BLOCK = 0.3


@contextlib.contextmanager
def plain() -> Iterator[None]:
    yield


class Nobody:
    """A sink that keeps nothing."""

    def backward(self, recorded: object) -> None: ...
    def step(self, step: object, session: object) -> None: ...


class Repeats(Budget):
    """Pays for all steps, and for the backward alone where that may be (Note [Steps that repeat])."""

    @property
    def next_is_backward_only(self) -> bool:
        return self.can_record_backward_only and self.full_record_cost is not None


@contextlib.contextmanager
def watched(session: Session) -> Iterator[None]:
    session.resume()
    try:
        yield
    finally:
        session.pause()


@contextlib.contextmanager
def debug_mode() -> Iterator[None]:
    from torch.utils._debug_mode import DebugMode

    with DebugMode():
        yield


@contextlib.contextmanager
def norm_hooks() -> Iterator[None]:
    """Full backward hooks on every module that print-debugging people write: a norm read at once."""
    seen: list[float] = []

    def hook(module: torch.nn.Module, grad_input: object, grad_output: tuple[torch.Tensor, ...]) -> None:
        seen.extend(g.norm().item() for g in grad_output if g is not None)

    handle = torch.nn.modules.module.register_module_full_backward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


Contestants = dict[str, Callable[[], contextlib.AbstractContextManager[object]]]


def contestants() -> Contestants:
    """Create one session for each level, to measure steps in the middle of a run.

    A session lasts for the whole benchmark, and is attached in its own steps only.
    """
    trace, watch, explain = (Session(Nobody(), Settings(level)) for level in ("nodes", "minimal", "full"))
    backward = Session(Nobody(), Settings(budget=1e9))
    backward.budget.__class__ = Repeats
    return {
        "plain": plain,
        "nodes": lambda: watched(trace),
        "backward alone": lambda: watched(backward),
        "minimal": lambda: watched(watch),
        "full": lambda: watched(explain),
        "detect_anomaly": lambda: torch.autograd.detect_anomaly(check_nan=True),
        "DebugMode": debug_mode,
        "full hooks + norm": norm_hooks,
    }


def measure(step: Step, names: list[str], rounds: int, warm: int = 4) -> dict[str, list[float]]:
    """Seconds of one step, by contestant, one sample of each a round: the mean of the steps of ``BLOCK`` seconds, after
    one that is not counted, which gets the caches and the memory back that the contestant before has left."""
    times: dict[str, list[float]] = {name: [] for name in names}
    tools, steps = contestants(), 1
    for at in range(rounds + warm):
        for name in names:
            with tools[name]():
                step()
                begin = time.perf_counter()
                for _ in range(steps):
                    step()
                seconds = (time.perf_counter() - begin) / steps
            if at >= warm:
                times[name].append(seconds)
            elif name == "plain":
                steps = max(1, round(BLOCK / seconds))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--only", default=",".join(contestants()))
    options = parser.parse_args()
    import warnings

    warnings.filterwarnings("ignore", message="Anomaly Detection has been enabled")
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    names = ["plain", *(n for n in options.only.split(",") if n != "plain")]
    for threads in (int(t) for t in options.threads.split(",")):
        torch.set_num_threads(threads)
        for model in options.models.split(","):
            torch.manual_seed(0)
            times = measure(MODELS[model](), names, options.rounds)
            base = statistics.median(times["plain"])
            print(f"{model}, {threads} thread(s): plain step {base * 1e3:.1f} ms")
            for name in names[1:]:
                ratios = [t / p for t, p in zip(times[name], times["plain"], strict=True)]
                low, middle, high = statistics.quantiles(ratios, n=4)
                print(f"  {name:18s} {middle:5.2f}  ({low:.2f} to {high:.2f})", flush=True)


if __name__ == "__main__":
    main()
