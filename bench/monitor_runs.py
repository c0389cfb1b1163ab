"""Small trainings on text and digits for bench/monitor.py: some diverge, some do not."""

from __future__ import annotations

import pydoc_data.topics
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

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
    """A training run: healthy, or with a planted fault.

    :ivar model: makes it. :ivar optimizer: makes that of the model.
    :ivar change: plants the fault: called before each step with the step, the model, the optimizer, inputs and targets;
        returns the inputs and targets to use.
    :ivar layer: a glob of the names that the fault was planted in; empty for a healthy run.
    :ivar onset: the step at which it comes, where nothing can precede it: the rule counts from there on.
    :ivar data: draws inputs and targets, where they are neither text nor digits. :ivar loss: of outputs and targets,
        where it is not the cross-entropy. :ivar kind: the alarm that is to come, where the run does not diverge.
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
    data: Callable[[torch.Generator], tuple[torch.Tensor, torch.Tensor]] | None = None
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None
    kind: str = ""


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
    if run.data is not None:
        return run.data(generator)
    if run.name.startswith("text"):
        at = torch.randint(len(TEXT) - 33, (8, 1), generator=generator) + torch.arange(33)
        return TEXT[at][:, :-1], TEXT[at][:, 1:]
    at = torch.randint(len(LABELS), (32,), generator=generator)
    return IMAGES[at], LABELS[at]
