"""How long before the loss an alarm comes, on small runs that diverge, and how often on runs that do not.

python bench/monitor.py [--half design|judge|all] [--only NAME,...] [--steps 2000] [--threads 1]

A row for each run: the step of the first alarm and the layer it names, the step at which the rule of OLMo-core fires
(mean + 6 standard deviations over 128 steps, on the loss or the norm of all gradients; a loss that is not finite fires
too), and whether the alarm came 100 steps before (at it, where nothing can precede) and named the planted layer. Bounds
were chosen on the half "design"; "judge" was written before that and not looked at.
"""

from __future__ import annotations

import argparse
import math
import pydoc_data.topics
import time
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from statistics import fmean, pstdev

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from backprobe.findings.levels import alarms
from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.collect import Collector

WINDOW, SIGMA, AHEAD = 128, 6.0, 100
TEXT = torch.tensor([min(ord(c), 127) for c in "".join(pydoc_data.topics.topics.values())])
IMAGES, LABELS = (torch.tensor(part) for part in load_digits(return_X_y=True))
IMAGES = IMAGES.float() / 16


class Attention(nn.Module):
    def __init__(self, width: int, qk_norm: bool) -> None:
        super().__init__()
        self.qkv, self.out, self.qk_norm = nn.Linear(width, 3 * width), nn.Linear(width, width), qk_norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        if self.qk_norm:
            q, k = F.normalize(q, dim=-1) * 4, F.normalize(k, dim=-1) * 4
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, qk_norm: bool) -> None:
        super().__init__()
        self.norm1, self.norm2, self.attention = nn.LayerNorm(width), nn.LayerNorm(width), Attention(width, qk_norm)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, width: int = 32, layers: int = 2, qk_norm: bool = False) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(128, width), nn.Embedding(32, width)
        self.blocks = nn.ModuleList(Block(width, qk_norm) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 128)
        nn.init.normal_(self.token.weight, std=0.3)
        nn.init.normal_(self.position.weight, std=0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.token(x) + self.position(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


class Residual(nn.Module):
    """An MLP whose layers add up, with no norm."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.inside, self.head = nn.Linear(64, width), nn.Linear(width, 10)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.inside(x)
        for layer in self.layers:
            h = h + F.relu(layer(h))
        return self.head(h)


def mlp(activation: type[nn.Module] = nn.ReLU, depth: int = 3) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Linear(64, 64), activation()]
    for _ in range(depth - 2):
        layers += [nn.Linear(64, 64), activation()]
    return nn.Sequential(*layers, nn.Linear(64, 10))


def convnet() -> nn.Sequential:
    shape = nn.Unflatten(1, (1, 8, 8))
    return nn.Sequential(
        *(shape, nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(72, 10)),
    )


Change = Callable[..., tuple[torch.Tensor, torch.Tensor]]


@dataclass
class Run:
    """One training.

    :ivar model: makes it. :ivar optimizer: makes that of the model.
    :ivar change: is told the step, the model, the optimizer, inputs and targets before each step, and gives the last
        two, as the fault has them.
    :ivar layer: a glob of the names that the fault was planted in; empty for a healthy run.
    :ivar onset: the step at which it comes, where nothing can precede it: the rule counts from there on.
    """

    name: str
    half: str
    model: Callable[[], nn.Module]
    optimizer: Callable[[nn.Module], Optimizer]
    layer: str = ""
    onset: int | None = None
    change: Change | None = None
    dtype: torch.dtype | None = None
    clip: float | None = None
    scaler: bool = False


def adam(rate: float, **more: object) -> Callable[[nn.Module], Optimizer]:
    return lambda model: torch.optim.AdamW(model.parameters(), rate, **more)  # type: ignore[arg-type]


def sgd(rate: float, momentum: float = 0.9) -> Callable[[nn.Module], Optimizer]:
    return lambda model: torch.optim.SGD(model.parameters(), rate, momentum=momentum)


def faster(glob: str, rate: float, times: float) -> Callable[[nn.Module], Optimizer]:
    """Adam, with a higher rate for some."""

    def make(model: nn.Module) -> Optimizer:
        groups = [{"params": [p], "lr": rate * (times if fnmatch(n, glob) else 1)} for n, p in model.named_parameters()]
        return torch.optim.AdamW(groups, rate)

    return make


def large(make: Callable[[], nn.Module], path: str, std: float) -> Callable[[], nn.Module]:
    """A model of which one layer begins too large."""

    def made() -> nn.Module:
        model = make()
        nn.init.normal_(model.get_parameter(path), std=std)
        return model

    return made


def growing(path: str, by: float) -> Change:
    """Decay with the wrong sign: a weight grows by a factor each step."""

    def change(step: int, model: nn.Module, optimizer: object, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            model.get_parameter(path).mul_(by)
        return x, y

    return change


def rising(by: float) -> Change:
    """A schedule that never ends its warm-up."""

    def change(step: int, model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        for group in optimizer.param_groups:
            group["lr"] *= by
        return x, y

    return change


def burst(at: int, length: int, what: str) -> Change:
    """Bad data from a step on, for some."""

    def change(step: int, model: nn.Module, optimizer: object, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if at <= step < at + length:
            return (x, torch.randint(10, y.shape)) if what == "labels" else (x * 100, y)
        return x, y

    return change


DIVERGING = [
    Run("text: rate far too high", "design", GPT, adam(0.1), "*"),
    Run("digits: the rate rises too far", "design", Residual, sgd(0.02), "*", change=rising(1.004)),
    Run(
        "text: queries and keys run away",
        "design",
        GPT,
        faster("blocks.0.attention.qkv.*", 1e-3, 60),
        "blocks.0.attention*",
    ),
    Run("digits: one layer begins too large", "design", large(mlp, "2.weight", 3.0), adam(3e-2), "[234]*"),
    Run("digits: labels go wrong", "design", mlp, adam(3e-3), "*", 1000, burst(1000, 100, "labels")),
    Run("text: a weight grows", "design", GPT, adam(1e-3), "blocks.1*", change=growing("blocks.1.up.weight", 1.005)),
    Run("text: no warm-up", "judge", lambda: GPT(layers=3), adam(0.03), "*"),
    Run("digits: a bad batch", "judge", Residual, adam(1e-3), "*", 900, burst(900, 20, "inputs")),
    Run("text: the rate never stops rising", "judge", GPT, adam(1e-4), "*", change=rising(1.006)),
    Run("digits: second moment too slow", "judge", Residual, adam(0.05, betas=(0.9, 0.99999)), "*"),
    Run("text: embeddings run away", "judge", GPT, faster("token.*", 1e-3, 200), "token*"),
    Run(
        "digits: half precision, a layer grows",
        "judge",
        Residual,
        adam(1e-3),
        "layers.2*",
        change=growing("layers.2.weight", 1.004),
        dtype=torch.bfloat16,
    ),
    Run(
        "text: keys grow in the second block",
        "judge",
        lambda: GPT(width=48),
        faster("blocks.1.attention.qkv.*", 1e-3, 60),
        "blocks.1.attention*",
    ),
]
HEALTHY = [
    Run("digits mlp relu", "design", mlp, adam(1e-3)),
    Run("digits mlp tanh", "design", lambda: mlp(nn.Tanh), adam(3e-3)),
    Run("digits mlp gelu", "judge", lambda: mlp(nn.GELU), adam(3e-3)),
    Run("digits mlp sigmoid", "judge", lambda: mlp(nn.Sigmoid), adam(3e-3)),
    Run("digits mlp sgd", "design", mlp, sgd(0.05)),
    Run("digits mlp deep sgd", "judge", lambda: mlp(depth=6), sgd(0.02)),
    Run("digits residual adam", "design", Residual, adam(1e-3)),
    Run("digits residual sgd clipped", "judge", Residual, sgd(0.05), clip=1.0),
    Run("digits convnet adam", "design", convnet, adam(3e-3)),
    Run("digits convnet sgd", "judge", convnet, sgd(0.1)),
    Run("digits mlp bf16", "design", mlp, adam(1e-3), dtype=torch.bfloat16),
    Run("digits residual bf16", "judge", Residual, adam(1e-3), dtype=torch.bfloat16),
    Run("digits mlp rmsprop", "judge", mlp, lambda m: torch.optim.RMSprop(m.parameters(), 1e-3)),
    Run("digits mlp scaler", "design", mlp, sgd(0.05), scaler=True),
    Run("text gpt 1e-3", "design", GPT, adam(1e-3)),
    Run("text gpt 3e-3 clipped", "judge", GPT, adam(3e-3), clip=1.0),
    Run("text gpt qk norm", "design", lambda: GPT(qk_norm=True), adam(3e-3)),
    Run("text gpt 3 layers", "judge", lambda: GPT(layers=3), adam(1e-3)),
    Run("text gpt decay", "design", GPT, adam(2e-3, weight_decay=0.1)),
    Run("text gpt beta2 0.95", "judge", GPT, adam(3e-3, betas=(0.9, 0.95))),
]


def batch(run: Run, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    if run.name.startswith("text"):
        at = torch.randint(len(TEXT) - 33, (8, 1), generator=generator) + torch.arange(33)
        return TEXT[at][:, :-1], TEXT[at][:, 1:]
    at = torch.randint(len(LABELS), (32,), generator=generator)
    return IMAGES[at], LABELS[at]


def train(run: Run, steps: int) -> tuple[list[float], list[float], Collector, Session]:
    """Losses, gradient norms, and what was measured. Ends where the loss is not finite."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    collector = Collector()
    session = Session(collector, Settings("watch", statistics=10))
    session.start()
    model = run.model()
    optimizer = run.optimizer(model)
    scaler = torch.amp.GradScaler("cpu", enabled=run.scaler)  # type: ignore[attr-defined]
    losses, norms = [], []
    for step in range(steps):
        x, y = batch(run, generator)
        if run.change is not None:
            x, y = run.change(step, model, optimizer, x, y)
        with torch.autocast("cpu", run.dtype or torch.bfloat16, enabled=run.dtype is not None):
            out = model(x)
        loss = F.cross_entropy(out.float().flatten(0, -2), y.flatten())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), run.clip or math.inf)))
        losses.append(loss.item())
        scaler.step(optimizer)
        scaler.update()
        if not math.isfinite(losses[-1]):
            break
    session.stop()
    if session.error is not None:
        raise session.error
    return losses, norms, collector, session


def sigma_rule(*curves: list[float], begin: int = 0) -> int | None:
    """The first step from `begin` on at which one of `curves` is beyond mean + 6 standard deviations of the 128 steps
    before."""
    for step in range(begin, len(curves[0])):
        for curve in curves:
            window = curve[step - WINDOW : step] if step >= WINDOW else []
            if not math.isfinite(curve[step]) or (window and curve[step] > fmean(window) + SIGMA * pstdev(window)):
                return step
    return None


def judged(run: Run, steps: int) -> tuple[bool, bool]:
    """Tell of one run: whether an alarm came, and whether it came in time and named the layer."""
    begin = time.process_time()
    losses, norms, collector, session = train(run, steps)
    seconds = time.process_time() - begin
    fired = sigma_rule(losses, norms, begin=run.onset or 0)
    found = alarms(collector.trace(session).statistics)
    first = found[0] if found else None
    target = fired if fired is not None else len(losses)
    ahead = AHEAD if run.onset is None else -10  # at it: in the next look
    in_time = first is not None and (run.onset or 0) <= first.step <= target - ahead
    named = first is not None and fnmatch(first.name, run.layer)
    said = f"{first.step}: {first.kind}, {first.quantity} of {first.name}" if first else "-"
    verdict = ("yes" if in_time and named else "no") if run.layer else ("false alarm" if first else "quiet")
    rule = fired if fired is not None else "-"
    row = (run.name, len(losses), f"{losses[-1]:.3g}", said, rule, verdict, f"{seconds:.0f} s")
    print("|", " | ".join(map(str, row)), "|", flush=True)
    return first is not None, in_time and named


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=("design", "judge", "all"), default="all")
    parser.add_argument("--only", default="")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print("| run | steps | last loss | first alarm | 6 sigma | verdict | CPU |\n" + "| --- " * 7 + "|")
    for runs, what in ((DIVERGING, "in time and at the layer"), (HEALTHY, "false alarms")):
        mine = [run for run in runs if options.half in ("all", run.half)]
        mine = [run for run in mine if not options.only or any(word in run.name for word in options.only.split(","))]
        told = [judged(run, options.steps) for run in mine]
        count = sum(good for _, good in told) if runs is DIVERGING else sum(alarm for alarm, _ in told)
        print(f"{count} of {len(told)} {what}", flush=True)


if __name__ == "__main__":
    main()
