"""A second set of fresh runs for bench/monitor.py, never used for tuning: text, digits and scikit-learn's small tables.

Each was written with no knowledge of the alarms or their bounds. The runs that diverge have the fault that their
comment names; its healthy twin is often further down.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from monitor_runs import IMAGES, LABELS, TEXT, Change, Run, adam, sgd
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

Data = Callable[[torch.Generator], tuple[Tensor, Tensor]]


def table(load: Callable[..., tuple[object, object]]) -> tuple[Tensor, Tensor]:
    """Columns of mean 0 and deviation 1, and the targets as they are."""
    x, y = (torch.tensor(part) for part in load(return_X_y=True))
    x = x.float()
    return (x - x.mean(0)) / x.std(0), y


CANCER, DIABETES, WINES = table(load_breast_cancer), table(load_diabetes), table(load_wine)


def samples(x: Tensor, y: Tensor, size: int = 32) -> Data:
    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        at = torch.randint(len(x), (size,), generator=generator)
        return x[at], y[at]

    return draw


def lines(size: int, length: int) -> Data:
    """Pieces of text, and the same one character on."""

    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        at = torch.randint(len(TEXT) - length - 1, (size, 1), generator=generator) + torch.arange(length + 1)
        return TEXT[at][:, :-1], TEXT[at][:, 1:]

    return draw


def lengthening(size: int, first: int, every: int, most: int) -> Data:
    """Pieces of text that become longer by a character every so many batches."""
    seen = 0

    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        nonlocal seen
        seen += 1
        return lines(size, min(first + seen // every, most))(generator)

    return draw


def batches(x: Tensor, y: Tensor, sizes: Callable[[int], int]) -> Data:
    """Batches whose size depends on how many there were."""
    seen = 0

    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        nonlocal seen
        seen += 1
        return samples(x, y, sizes(seen - 1))(generator)

    return draw


# Models


class Recurrent(nn.Module):
    """A language model of characters around a recurrent layer."""

    def __init__(self, make: Callable[..., nn.Module], width: int = 32, **more: object) -> None:
        super().__init__()
        self.token, self.rnn = nn.Embedding(128, width), make(width, width, batch_first=True, **more)
        self.head = nn.Linear(width, 128)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(self.token(x))[0])


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out, self.heads, self.causal = nn.Linear(width, width), heads, causal

    def forward(self, x: Tensor) -> Tensor:
        parts = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        h = F.scaled_dot_product_attention(*parts, is_causal=self.causal)
        return self.out(h.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, width: int, post: bool = False, causal: bool = True) -> None:
        super().__init__()
        self.attention, self.post = SelfAttention(width, 2, causal), post
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        if self.post:
            x = self.first(x + self.attention(x))
            return self.second(x + self.mlp(x))
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class Writer(nn.Module):
    """A transformer over characters. `tied` uses the embedding as the head, too."""

    def __init__(self, width: int = 32, layers: int = 2, tied: float = 0.0, **more: object) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(128, width), nn.Embedding(64, width)
        self.layers = nn.ModuleList(Layer(width, **more) for _ in range(layers))  # type: ignore[arg-type]
        self.norm = nn.LayerNorm(width)
        self.tied = bool(tied)
        nn.init.normal_(self.token.weight, std=tied or 0.2)
        nn.init.normal_(self.place.weight, std=0.2)
        self.head = nn.Identity() if tied else nn.Linear(width, 128)

    def forward(self, x: Tensor) -> Tensor:
        h = self.token(x) + self.place(torch.arange(x.shape[1]))
        for layer in self.layers:
            h = layer(h)
        h = self.norm(h)
        return h @ self.token.weight.T if self.tied else self.head(h)


class Patches(nn.Module):
    """A small vision transformer with dropout."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.patch, self.place = nn.Conv2d(1, width, 2, 2), nn.Parameter(torch.randn(16, width) * 0.02)
        self.layers = nn.ModuleList(Layer(width, causal=False) for _ in range(2))
        self.drop, self.norm, self.head = nn.Dropout(0.1), nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = self.drop(self.patch(x.view(-1, 1, 8, 8)).flatten(2).transpose(1, 2) + self.place)
        for layer in self.layers:
            h = self.drop(layer(h))
        return self.head(self.norm(h).mean(1))


class Gaussian(nn.Module):
    """A mean and a logarithm of a variance for each sample."""

    def __init__(self, inside: int, lowest: float = -math.inf) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inside, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.mean, self.log_variance, self.lowest = nn.Linear(32, 1), nn.Linear(32, 1), lowest

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.body(x)
        return self.mean(h)[:, 0], self.log_variance(h)[:, 0].clamp(min=self.lowest)


class Temperature(nn.Module):
    def __init__(self, most: float) -> None:
        super().__init__()
        self.log_scale, self.most = nn.Parameter(torch.tensor(2.0)), most

    def forward(self, x: Tensor) -> Tensor:
        return x * self.log_scale.clamp(max=self.most).exp()


class Pairs(nn.Module):
    """The upper half of a digit is to find its lower half among the batch's."""

    def __init__(self, most: float = math.inf) -> None:
        super().__init__()
        self.upper, self.lower = (nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 16)) for _ in range(2))
        self.temperature = Temperature(most)

    def forward(self, x: Tensor) -> Tensor:
        a, b = F.normalize(self.upper(x[:, :32]), dim=1), F.normalize(self.lower(x[:, 32:]), dim=1)
        return self.temperature(a @ b.T)


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return -gradient


class Adversaries(nn.Module):
    """A generator of digits and a critic of Wasserstein's distance, in one step."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 64), nn.Sigmoid())
        self.critic = nn.Sequential(nn.Linear(64, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        fake = Reversed.apply(self.generator(torch.randn(len(x), 8)))
        return self.critic(x), self.critic(fake)


class Coder(nn.Module):
    """A variational autoencoder of digits."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(64, 48), nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 64))
        self.mean, self.log_variance = nn.Linear(48, 6), nn.Linear(48, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        h = F.relu(self.encoder(x))
        mean, log_variance = self.mean(h), self.log_variance(h)
        return self.decoder(mean + torch.randn_like(mean) * (log_variance / 2).exp()), mean, log_variance, x


class Experts(nn.Module):
    """Four experts, of which a router takes the best for each sample."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.inside, self.router = nn.Linear(64, width), nn.Linear(width, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)) for _ in range(4)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = F.relu(self.inside(x))
        gates = self.router(h).softmax(-1)
        best, which = gates.max(-1)
        outs = torch.stack([expert(h) for expert in self.experts], 1)
        h = h + best[:, None] * outs[torch.arange(len(h)), which]
        share = F.one_hot(which, 4).float().mean(0)
        return self.head(h), 4 * (share * gates.mean(0)).sum()


class ResNet(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                *(nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1, bias=False)),
                *(nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1, bias=False)),
            )
            for _ in range(2)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x.view(-1, 1, 8, 8))
        for block in self.blocks:
            h = h + block(h)
        return self.head(F.relu(h).mean((2, 3)))


class Pretrained(nn.Module):
    """A backbone and a new head."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            *(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU())
        )
        self.head = nn.Linear(96, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.backbone(x))


class Values(nn.Module):
    """Values of ten actions in the states before and after."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = (
            nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()),
            nn.Linear(64, 10),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.head(self.body(x)), self.head(self.body(x.roll(1, 0)))


class Convolutions(nn.Module):
    """Causal, depthwise, gated: a language model without attention."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.token = nn.Embedding(128, width)
        self.mixers = nn.ModuleList(nn.Conv1d(width, width, 5, groups=width) for _ in range(2))
        self.gates = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(2))
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.head = nn.Linear(width, 128)

    def forward(self, x: Tensor) -> Tensor:
        h = self.token(x)
        for mixer, gate, norm in zip(self.mixers, self.gates, self.norms, strict=True):
            mixed = mixer(F.pad(norm(h).transpose(1, 2), (4, 0))).transpose(1, 2)
            h = h + F.glu(gate(mixed), -1)
        return self.head(h)


class Words(nn.Module):
    """Counts of pieces of text, as a bag: which of eight parts of the text they come from."""

    def __init__(self) -> None:
        super().__init__()
        self.bag, self.hidden, self.head = nn.EmbeddingBag(128, 24), nn.Linear(24, 24), nn.Linear(24, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.hidden(self.bag(x))))


def deep(activation: type[nn.Module], depth: int, width: int = 48) -> nn.Sequential:
    parts: list[nn.Module] = [nn.Linear(64, width), activation()]
    for _ in range(depth - 2):
        parts += [nn.Linear(width, width), activation()]
    return nn.Sequential(*parts, nn.Linear(width, 10))


def regressor(inside: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inside, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 1), nn.Flatten(0)
    )


# Losses


def negative_likelihood(out: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
    mean, log_variance = out
    return ((y - mean) ** 2 * (-log_variance).exp() + log_variance).mean() / 2


def wasserstein(out: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
    real, fake = out
    return fake.mean() - real.mean()


def matching(out: Tensor, y: Tensor) -> Tensor:
    y = torch.arange(len(out))
    return (F.cross_entropy(out, y) + F.cross_entropy(out.T, y)) / 2


def summed(by: float) -> Callable[[Tensor, Tensor], Tensor]:
    """The sum over all targets, by a constant."""
    return lambda out, y: F.cross_entropy(out.flatten(0, -2), y.flatten(), reduction="sum") / by


def z_loss(weight: float) -> Callable[[Tensor, Tensor], Tensor]:
    def loss(out: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(out.flatten(0, -2), y.flatten()) + weight * (out.logsumexp(-1) ** 2).mean()

    return loss


def bound(out: tuple[Tensor, Tensor, Tensor, Tensor], y: Tensor) -> Tensor:
    again, mean, log_variance, x = out
    divergence = (mean**2 + log_variance.exp() - log_variance - 1).sum(1).mean() / 2
    return ((again - x) ** 2).sum(1).mean() * 4 + divergence


def balanced(out: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
    return F.cross_entropy(out[0], y) + 0.02 * out[1]


def bootstrapped(discount: float) -> Callable[[tuple[Tensor, Tensor], Tensor], Tensor]:
    """The error of temporal differences, for the action of the label. The value of the next state is the net's own."""

    def loss(out: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
        now, after = out
        target = y / 9 + discount * after.max(1).values.detach()
        return ((now.gather(1, y[:, None])[:, 0] - target) ** 2).mean()

    return loss


def huber(out: Tensor, y: Tensor) -> Tensor:
    return F.huber_loss(out, y, delta=20.0)


def smoothed(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out.flatten(0, -2), y.flatten(), label_smoothing=0.1)


# What changes


def clamped(path: str, most: float) -> Change:
    def change(step: int, model: nn.Module, optimizer: object, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            for parameter in model.get_submodule(path).parameters():
                parameter.clamp_(-most, most)
        return x, y

    return change


def rate(times: Callable[[int], float]) -> Change:
    def change(step: int, model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        for group in optimizer.param_groups:
            group["lr"] = group.setdefault("first", group["lr"]) * times(step)
        return x, y

    return change


def unfreezing(path: str, at: int) -> Change:
    """The backbone has no gradient at first."""

    def change(step: int, model: nn.Module, optimizer: object, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        model.get_submodule(path).requires_grad_(step >= at)
        return x, y

    return change


def validating(at: int) -> Change:
    """`model.eval()`, and no `model.train()` after it."""

    def change(step: int, model: nn.Module, optimizer: object, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if step == at:
            model.eval()
        return x, y

    return change


class Lion(torch.optim.Optimizer):
    def __init__(self, parameters: object, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})  # type: ignore[arg-type]

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                p.sub_(group["lr"] * (0.9 * mean + 0.1 * p.grad).sign())
                mean.mul_(0.99).add_(p.grad, alpha=0.01)


def lion(lr: float) -> Callable[[nn.Module], Optimizer]:
    return lambda model: Lion(model.parameters(), lr)


DIGITS = samples(IMAGES.flatten(1), LABELS)
BODIES = samples(DIABETES[0], DIABETES[1].float())
# A target without noise, that the net can hit.
EXACT = samples(DIABETES[0], torch.tanh(DIABETES[0][:, :3].sum(1)))


def parts(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    at = torch.randint(len(TEXT) - 64, (32, 1), generator=generator)
    return TEXT[at + torch.arange(64)], (at[:, 0] * 8 // len(TEXT))


def cosine(step: int) -> float:
    return 0.5 * (1 + math.cos(math.pi * min(step / 2000, 1)))


def warm(steps: int) -> Callable[[int], float]:
    return lambda step: min(1.0, (step + 1) / steps)


RUNS = [
    # Gradients through time are not clipped.
    Run(
        "e01-rnn-relu",
        "diverging",
        lambda: Recurrent(nn.RNN, nonlinearity="relu"),
        sgd(1.0, 0.5),
        "rnn*",
        data=lines(8, 48),
    ),
    # beta2 below beta1, at a rate that is otherwise right.
    Run("e02-beta2", "diverging", lambda: deep(nn.ReLU, 4), adam(1e-3, betas=(0.95, 0.5)), "*", data=DIGITS),
    # The variance goes to 0 on a target that can be hit.
    Run(
        "e03-log-variance",
        "diverging",
        lambda: Gaussian(10),
        sgd(0.001),
        "log_variance*",
        data=EXACT,
        loss=negative_likelihood,
    ),
    # The critic's weights are not clipped.
    Run("e04-critic", "diverging", Adversaries, sgd(0.001), "critic*", data=DIGITS, loss=wasserstein),
    # The loss is a sum over tokens, and the texts become longer.
    Run("e05-sum", "diverging", Writer, sgd(0.08), "*", data=lengthening(8, 4, 30, 60), loss=summed(32)),
    # From here on, gradients of 16 batches add up and are not divided.
    Run(
        "e06-accumulation",
        "diverging",
        lambda: deep(nn.ReLU, 5),
        sgd(0.05),
        "*",
        onset=800,
        data=batches(IMAGES.flatten(1), LABELS, lambda n: 32 if n < 800 else 512),
        loss=summed(32),
    ),
    # An embedding of deviation 1 that is the head, too.
    Run("e07-tied", "diverging", lambda: Writer(width=48, tied=1.0), sgd(0.14), "token*", data=lines(8, 24)),
    # The penalty of large logits has the wrong sign.
    Run("e08-z-loss", "diverging", Writer, adam(2e-3), "head*", data=lines(8, 24), loss=z_loss(-3e-3)),
    # The backbone is trained from here on, at the rate of the head.
    Run(
        "e09-unfreezing",
        "diverging",
        Pretrained,
        sgd(0.4),
        "backbone*",
        onset=600,
        change=unfreezing("backbone", 600),
        data=DIGITS,
    ),
    # Normalisation is by old averages after a validation.
    Run("e10-eval", "diverging", ResNet, sgd(0.03), "*", 400, change=validating(400), data=DIGITS),
    # No network of its own for the targets.
    Run("e11-values", "diverging", Values, sgd(0.003, 0.0), "*", data=DIGITS, loss=bootstrapped(0.99)),
    # Lion at the rate of Adam.
    Run("e12-lion", "diverging", lambda: Writer(layers=3), lion(3e-2), "*", data=lines(8, 24)),
    Run("k01-resnet-cosine", "healthy", ResNet, sgd(0.1), change=rate(cosine), data=DIGITS),
    Run("k02-vae", "healthy", Coder, adam(2e-3), data=DIGITS, loss=bound),
    Run("k03-gru-clipped", "healthy", lambda: Recurrent(nn.GRU), adam(3e-3), clip=1.0, data=lines(8, 32)),
    Run("k04-lstm-sgd-clipped", "healthy", lambda: Recurrent(nn.LSTM), sgd(1.0, 0.0), clip=0.5, data=lines(8, 32)),
    Run("k05-bag-of-characters", "healthy", Words, adam(5e-3), data=parts),
    Run("k06-pairs-bounded", "healthy", lambda: Pairs(math.log(100)), adam(1e-3), data=DIGITS, loss=matching),
    Run(
        "k07-critic-clipped",
        "healthy",
        Adversaries,
        lambda m: torch.optim.RMSprop(m.parameters(), 5e-4),
        change=clamped("critic", 0.1),
        data=DIGITS,
        loss=wasserstein,
    ),
    Run("k08-experts-balanced", "healthy", Experts, adam(2e-3), data=DIGITS, loss=balanced),
    Run("k09-huber-raw-target", "healthy", lambda: regressor(10), adam(3e-3), data=BODIES, loss=huber),
    Run(
        "k10-variance-bounded",
        "healthy",
        lambda: Gaussian(10, -4.0),
        adam(1e-3),
        data=EXACT,
        loss=negative_likelihood,
    ),
    Run(
        "k11-post-norm-warm-up",
        "healthy",
        lambda: Writer(layers=3, post=True),
        adam(2e-3),
        change=rate(warm(400)),
        data=lines(8, 24),
    ),
    Run("k12-vit-dropout", "healthy", Patches, adam(1e-3, weight_decay=0.05), data=DIGITS),
    Run("k13-convolutions-smoothed", "healthy", Convolutions, adam(3e-3), data=lines(8, 32), loss=smoothed),
    Run("k14-selu-deep", "healthy", lambda: deep(nn.SELU, 10), sgd(0.005), data=DIGITS),
    Run(
        "k15-logistic-separable",
        "healthy",
        lambda: nn.Linear(30, 2),
        sgd(0.5),
        data=samples(CANCER[0], CANCER[1]),
    ),
    Run(
        "k16-batch-doubles",
        "healthy",
        lambda: deep(nn.GELU, 4),
        sgd(0.05),
        data=batches(IMAGES.flatten(1), LABELS, lambda n: 16 << min(n // 500, 3)),
    ),
    Run(
        "k17-wine-steps",
        "healthy",
        lambda: nn.Sequential(nn.Linear(13, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3)),
        adam(1e-2),
        change=rate(lambda step: 0.1 ** (step // 700)),
        data=samples(*WINES),
    ),
]
