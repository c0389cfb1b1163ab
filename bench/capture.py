"""Benchmark of capture against hand-written forward hooks: forward and backward, interleaved, one process.

python bench/capture.py [--models gpt,rnn] [--rounds 15] [--threads 1,2]

Ratios to the plain step, medians with quartiles. Tools installed beside backprobe (TorchLens, nnsight) join in.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from models import GPT, RNN, resnet18
from torch import nn
from torch.nn import functional as F

import backprobe as bp

#: A model, a call that gives the loss from its output.
Case = tuple[nn.Module, torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]


def gpt() -> Case:
    tokens = torch.randint(0, 96, (4, 129))
    return GPT(), tokens[:, :-1], lambda out: F.cross_entropy(out.flatten(0, 1), tokens[:, 1:].flatten())


def convnet() -> Case:
    labels = torch.randint(0, 10, (8,))
    return resnet18(), torch.randn(8, 3, 64, 64), lambda out: F.cross_entropy(out, labels)


def inplace() -> Case:
    """The same with ReLU in place: every captured input of one has to be copied to stay true."""
    _, x, loss = convnet()
    layers = [m for _ in range(8) for m in (nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True))]
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return model, x, lambda out: loss(out[:, :10])


def mlp() -> Case:
    labels = torch.randint(0, 10, (64,))
    layers = [m for _ in range(50) for m in (nn.Linear(256, 256), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(256, 10)), torch.randn(64, 256), lambda out: F.cross_entropy(out, labels)


def rnn() -> Case:
    return RNN(), torch.randn(500, 16, 8), lambda out: out.square().mean()


MODELS: dict[str, Callable[[], Case]] = {"gpt": gpt, "convnet": convnet, "inplace": inplace, "mlp": mlp, "rnn": rnn}


def plain(model: nn.Module, x: torch.Tensor, loss: Callable) -> None:
    loss(model(x)).backward()


def by_hooks(retain: bool) -> Callable:
    """As people write it: a dict, a hook on each module."""

    def step(model: nn.Module, x: torch.Tensor, loss: Callable) -> None:
        kept: dict[str, list[torch.Tensor]] = {}

        def keep(name: str) -> Callable:
            def hook(module: nn.Module, args: object, output: torch.Tensor) -> None:
                if retain:
                    output.retain_grad()
                kept.setdefault(name, []).append(output)

            return hook

        handles = [m.register_forward_hook(keep(name)) for name, m in model.named_modules()]
        loss(model(x)).backward()
        for handle in handles:
            handle.remove()

    return step


def by_capture(**options: object) -> Callable:
    def step(model: nn.Module, x: torch.Tensor, loss: Callable) -> None:
        with bp.capture(model, **options):
            loss(model(x)).backward()

    return step


def by_torchlens(model: nn.Module, x: torch.Tensor, loss: Callable) -> None:
    import torchlens

    log = getattr(torchlens, "log_forward_pass", None) or torchlens.trace
    log(model, x)


def by_nnsight(model: nn.Module, x: torch.Tensor, loss: Callable) -> None:
    import nnsight

    kept = []
    wrapped = nnsight.NNsight(model)
    with wrapped.trace(x):
        for _, module in wrapped.named_modules():
            kept.append(module.output.save())


def contestants() -> dict[str, Callable]:
    found = {
        "plain": plain,
        "hooks": by_hooks(False),
        "hooks, retain_grad": by_hooks(True),
        "capture, no grads": by_capture(grads=False),
        "capture": by_capture(),
        "capture, detached": by_capture(detach=True),
        "capture, lines": by_capture(lines=True),
    }
    if importlib.util.find_spec("torchlens"):
        found["torchlens (forward)"] = by_torchlens
    if importlib.util.find_spec("nnsight"):
        found["nnsight (forward)"] = by_nnsight
    return found


def measure(case: Case, rounds: int, warm: int = 3) -> dict[str, list[float]]:
    """Seconds of one step, by contestant, one sample of each a round. A contestant that raises is left out."""
    tools = contestants()
    times: dict[str, list[float]] = {name: [] for name in tools}
    for at in range(rounds + warm):
        for name, step in list(tools.items()):
            begin = time.perf_counter()
            try:
                step(*case)
            except Exception as error:
                print(f"  {name}: {type(error).__name__}: {str(error)[:100]}")
                del tools[name], times[name]
                continue
            seconds = time.perf_counter() - begin
            if at >= warm:
                times[name].append(seconds)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", default="1,2")
    options = parser.parse_args()
    for threads in (int(t) for t in options.threads.split(",")):
        torch.set_num_threads(threads)
        for model in options.models.split(","):
            torch.manual_seed(0)
            times = measure(MODELS[model](), options.rounds)
            base = statistics.median(times["plain"])
            print(f"{model}, {threads} thread(s): plain step {base * 1e3:.1f} ms")
            for name, some in times.items():
                if name != "plain":
                    ratios = [t / p for t, p in zip(some, times["plain"], strict=True)]
                    low, middle, high = statistics.quantiles(ratios, n=4)
                    print(f"  {name:20s} {middle:5.2f}  ({low:.2f} to {high:.2f})", flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
