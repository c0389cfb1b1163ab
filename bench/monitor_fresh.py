"""Thirty-four small trainings: 12 that diverge, 8 that are sick, 14 that are healthy."""

from __future__ import annotations

import math
from collections.abc import Callable
from fnmatch import fnmatch

import torch
from monitor_runs import GPT, IMAGES, LABELS, TEXT, Change, Residual, Run, adam, faster, growing, large, mlp, sgd
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

# ---------------------------------------------------------------- data


def table(load, scaled: bool = True):
    x, y = (torch.tensor(part) for part in load(return_X_y=True))
    x = x.float()
    return ((x - x.mean(0)) / x.std(0) if scaled else x), y


WINE_X, WINE_Y = table(load_wine)
CANCER_X, CANCER_Y = table(load_breast_cancer)
CANCER_RAW, _ = table(load_breast_cancer, scaled=False)
DIABETES_X, DIABETES_Y = table(load_diabetes)
DIABETES_Y = ((DIABETES_Y - DIABETES_Y.mean()) / DIABETES_Y.std()).float()


def rows(x: Tensor, y: Tensor, size: int):
    """Random rows of a table."""

    def data(g: torch.Generator):
        at = torch.randint(len(x), (size,), generator=g)
        return x[at], y[at]

    return data


def text(size: int = 8, length: int = 32):
    def data(g: torch.Generator):
        at = torch.randint(len(TEXT) - length - 1, (size, 1), generator=g) + torch.arange(length + 1)
        return TEXT[at][:, :-1], TEXT[at][:, 1:]

    return data


def halves(size: int = 32, length: int = 12):
    """Pairs of pieces of text that follow each other."""

    def data(g: torch.Generator):
        at = torch.randint(len(TEXT) - 2 * length, (size, 1), generator=g) + torch.arange(2 * length)
        return TEXT[at], torch.arange(size)

    return data


def pixels(size: int = 32):
    """Images that are to be given back."""

    def data(g: torch.Generator):
        x = IMAGES[torch.randint(len(IMAGES), (size,), generator=g)]
        return x, x

    return data


def noised(size: int = 64):
    """Images with noise, and how much; the noise is to be told."""

    def data(g: torch.Generator):
        x = IMAGES[torch.randint(len(IMAGES), (size,), generator=g)] * 2 - 1
        t = torch.rand(size, 1, generator=g)
        noise = torch.randn(x.shape, generator=g)
        return torch.cat([x * torch.cos(t * math.pi / 2) + noise * torch.sin(t * math.pi / 2), t], 1), noise

    return data


def mse(out: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(out.float().squeeze(-1) if out.dim() > y.dim() else out.float(), y)


def bce(out: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(out.float().squeeze(-1), y.float())


# ---------------------------------------------------------------- changes


def schedule(factor: Callable[[int], float]) -> Change:
    """The rate of each group, times a factor of the step."""

    def change(step: int, model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor):
        for group in optimizer.param_groups:
            group["lr"] = group.setdefault("base", group["lr"]) * factor(step)
        return x, y

    return change


def warm(steps: int, total: int = 2000) -> Callable[[int], float]:
    return lambda s: min((s + 1) / steps, 0.5 * (1 + math.cos(math.pi * s / total)) + 0.02)


def one_cycle(s: int) -> float:
    if s < 600:
        return 0.04 + 0.96 * 0.5 * (1 - math.cos(math.pi * s / 600))
    return 0.5 * (1 + math.cos(math.pi * (s - 600) / 1400)) + 1e-4


def restarts(period: int, times: float = 1.0) -> Callable[[int], float]:
    return lambda s: times ** (s // period) * (0.5 * (1 + math.cos(math.pi * (s % period) / period)) + 0.001)


# ---------------------------------------------------------------- optimizers


class Lion(Optimizer):
    def __init__(self, params, lr: float, betas=(0.9, 0.99), weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * (m * b1 + p.grad * (1 - b1)).sign())
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


class Accumulating(torch.optim.AdamW):
    """Moves once every few calls, by the mean of the gradients since."""

    every = 4

    @torch.no_grad()
    def step(self, closure=None):
        self.calls = getattr(self, "calls", 0) + 1
        self.sums = getattr(self, "sums", {})
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.sums[p] = self.sums[p] + p.grad if p in self.sums else p.grad.clone()
        if self.calls % self.every == 0:
            for p, total in self.sums.items():
                p.grad = total / self.every
            self.sums = {}
            super().step()


def sgd_faster(glob: str, rate: float, times: float, momentum: float = 0.9):
    def make(model: nn.Module) -> Optimizer:
        groups = [{"params": [p], "lr": rate * (times if fnmatch(n, glob) else 1)} for n, p in model.named_parameters()]
        return torch.optim.SGD(groups, rate, momentum=momentum)

    return make


# ---------------------------------------------------------------- models


class RowGRU(nn.Module):
    """Reads a digit row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.classify = nn.GRU(8, 32, batch_first=True), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.gru(x.view(-1, 8, 8))[0][:, -1])


class PostNorm(nn.Module):
    """Layers whose norms come after the sum."""

    class Layer(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.fc1, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = self.ln1(x + self.proj(a.transpose(1, 2).flatten(2)))
            return self.ln2(x + self.fc2(F.relu(self.fc1(x))))

    def __init__(self, width: int = 32, depth: int = 10, length: int = 32) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(128, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(self.Layer(width) for _ in range(depth))
        self.lm_head = nn.Linear(width, 128)

    def forward(self, x: Tensor) -> Tensor:
        h = self.wte(x) + self.wpe.weight[: x.shape[1]]
        for layer in self.layers:
            h = layer(h)
        return self.lm_head(h)


class Autoencoder(nn.Module):
    def __init__(self, inner: int = 12, width: int = 48, act: type[nn.Module] = nn.ReLU) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, width), act(), nn.Linear(width, inner))
        self.decoder = nn.Sequential(nn.Linear(inner, width), act(), nn.Linear(width, 64))

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x))


class SoftmaxAttention(nn.Module):
    """By hand, one head."""

    def __init__(self, width: int, causal: bool = False, scale: float | None = None) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.value, self.mix = nn.Linear(width, width), nn.Linear(width, width)
        self.causal, self.scale = causal, scale or width**-0.5

    def weights(self, x: Tensor) -> Tensor:
        logits = self.query(x) @ self.key(x).transpose(-2, -1) * self.scale
        if self.causal:
            logits = logits.masked_fill(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1), -torch.inf)
        return logits.softmax(-1)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(self.weights(x).to(x.dtype) @ self.value(x))


class Table(nn.Module):
    """A plain MLP for tables."""

    def __init__(self, enter: int, leave: int, width: int = 32, act: Callable[[Tensor], Tensor] = F.relu) -> None:
        super().__init__()
        self.enter, self.middle, self.leave = nn.Linear(enter, width), nn.Linear(width, width), nn.Linear(width, leave)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.act(self.middle(self.act(self.enter(x)))))


class Skips(nn.Module):
    """Residual blocks of two linear layers."""

    def __init__(self, enter: int, leave: int, width: int = 48, depth: int = 4) -> None:
        super().__init__()
        self.stem, self.top = nn.Linear(enter, width), nn.Linear(width, leave)
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width)) for _ in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for stage in self.stages:
            h = h + stage(h) / 2
        return self.top(F.relu(h))


class TwoTowers(nn.Module):
    """Tells which piece of text follows which."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(128, width)
        self.left = nn.Sequential(nn.Flatten(), nn.Linear(12 * width, 64), nn.ReLU(), nn.Linear(64, 24))
        self.right = nn.Sequential(nn.Flatten(), nn.Linear(12 * width, 64), nn.ReLU(), nn.Linear(64, 24))

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.left(self.embedding(x[:, :12])), self.right(self.embedding(x[:, 12:]))
        return a @ b.T


def by_frequency() -> nn.Module:
    """The gradients of tokens are multiplied by how rare they are, with no bound."""
    model = TwoTowers()
    share = torch.bincount(TEXT, minlength=128).clamp_min(1) / len(TEXT)
    model.embedding.weight.register_hook(lambda grad: grad / share[:, None])
    return model


class TwoHeads(nn.Module):
    """A class and a number from one trunk."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
        self.sort, self.ink = nn.Linear(48, 10), nn.Sequential(nn.Linear(48, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x: Tensor) -> Tensor:
        h = self.trunk(x)
        return torch.cat([self.sort(h), self.ink(h)], 1)


class Unit(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1)


class Match(nn.Module):
    """Tells which lower half belongs to an upper one, by cosines over a temperature."""

    def __init__(self, norm: bool = True) -> None:
        super().__init__()
        self.upper = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 24), Unit())
        self.lower = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 24), Unit() if norm else nn.Identity())

    def forward(self, x: Tensor) -> Tensor:
        return self.upper(x[:, :32]) @ self.lower(x[:, 32:]).T / 0.05


def indices(size: int = 32):
    def data(g: torch.Generator):
        return IMAGES[torch.randint(len(IMAGES), (size,), generator=g)], torch.arange(size)

    return data


class Denoiser(nn.Module):
    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.first, self.mid, self.final = nn.Linear(65, width), nn.Linear(width, width), nn.Linear(width, 64)

    def forward(self, x: Tensor) -> Tensor:
        h = F.silu(self.first(x))
        return self.final(h + F.silu(self.mid(h)))


class GroupConv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c1, self.g1 = nn.Conv2d(1, 12, 3, padding=1), nn.GroupNorm(3, 12)
        self.c2, self.g2 = nn.Conv2d(12, 16, 3, stride=2, padding=1), nn.GroupNorm(4, 16)
        self.c3, self.fc = nn.Conv2d(16, 24, 3, padding=1), nn.Linear(24 * 4, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.g1(self.c1(x.view(-1, 1, 8, 8))))
        h = F.relu(self.g2(self.c2(h)))
        return self.fc(F.max_pool2d(F.relu(self.c3(h)), 2).flatten(1))


class Counter(nn.Module):
    """Which token is there most? One attention, read at a first place."""

    def __init__(self, width: int = 32, tokens: int = 6) -> None:
        super().__init__()
        self.tokens, self.place = nn.Embedding(tokens + 1, width), nn.Parameter(torch.randn(21, width) * 0.3)
        self.attention = SoftmaxAttention(width)
        self.norm, self.read = (
            nn.LayerNorm(width),
            nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, tokens)),
        )

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x) + self.place
        return self.read(self.norm(h + self.attention(h))[:, 0])


def most(size: int = 32, length: int = 20, tokens: int = 6):
    def data(g: torch.Generator):
        x = torch.randint(tokens, (size, length), generator=g)
        # each row has a first token that has nothing to do with the answer
        y = F.one_hot(x, tokens).sum(1).argmax(1)
        return torch.cat([torch.full((size, 1), tokens), x], 1), y

    return data


class Latch(nn.Module):
    """Keeps the first token over a long noise."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.emb, self.lstm, self.say = nn.Embedding(12, 12), nn.LSTM(12, width, batch_first=True), nn.Linear(width, 4)
        with torch.no_grad():
            self.lstm.bias_hh_l0[width : 2 * width] += 2

    def forward(self, x: Tensor) -> Tensor:
        return self.say(self.lstm(self.emb(x))[0][:, -1])


def latch(size: int = 32, length: int = 16):
    def data(g: torch.Generator):
        y = torch.randint(4, (size,), generator=g)
        return torch.cat([y[:, None], torch.randint(4, 12, (size, length), generator=g)], 1), y

    return data


class Copier(nn.Module):
    """Says the sequence again, after a mark."""

    def __init__(self, width: int = 32, length: int = 17, scale: float | None = None) -> None:
        super().__init__()
        self.what, self.where = nn.Embedding(11, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(SoftmaxAttention(width, causal=True, scale=scale) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.out = nn.Linear(width, 11)

    def forward(self, x: Tensor) -> Tensor:
        h = self.what(x) + self.where.weight[: x.shape[1]]
        for layer, norm in zip(self.layers, self.norms, strict=False):
            h = h + layer(norm(h))
        return self.out(self.norms[2](h))[:, 8:]


def copies(size: int = 32, length: int = 8):
    def data(g: torch.Generator):
        x = torch.randint(10, (size, length), generator=g)
        return torch.cat([x, torch.full((size, 1), 10), x[:, :-1]], 1), x

    return data


class PreNormMHA(nn.Module):
    """With torch's own attention."""

    def __init__(self, width: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(128, width), nn.Embedding(32, width)
        self.mha = nn.ModuleList(nn.MultiheadAttention(width, 4, batch_first=True) for _ in range(depth))
        self.ffn = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width)) for _ in range(depth)
        )
        self.na = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.nf = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.end = nn.Linear(width, 128)

    def forward(self, x: Tensor) -> Tensor:
        h = self.tok(x) + self.pos.weight[: x.shape[1]]
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        for mha, ffn, na, nf in zip(self.mha, self.ffn, self.na, self.nf, strict=True):
            n = na(h)
            h = h + mha(n, n, n, attn_mask=mask, need_weights=False)[0]
            h = h + ffn(nf(h))
        return self.end(h)


class Prototypes(nn.Module):
    """Each unit answers to images like one of the data."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.code, self.relu, self.read = nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10)
        with torch.no_grad():
            like = IMAGES[torch.randperm(len(IMAGES))[:width]] - IMAGES.mean(0)
            self.code.weight.copy_(F.normalize(like, dim=1) * 2)
            self.code.bias.fill_(-1.8)

    def forward(self, x: Tensor) -> Tensor:
        return self.read(self.relu(self.code(x - IMAGES.mean(0))))


class Adder(nn.Module):
    """Adds the marked numbers of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.sum = nn.GRU(2, 32, batch_first=True), nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.sum(self.gru(x)[0][:, -1])


def additions(g: torch.Generator):
    """The longest ones; the curriculum cuts them."""
    return torch.rand(32, 20, generator=g), torch.rand(32, 20, generator=g)


def curriculum(step: int, model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor):
    length = 8 + 3 * (step // 500)
    x, mark = x[:, :length], (y[:, :length] < 0.4).float()
    return torch.stack([x, mark], -1), (x * mark).sum(1)


# ---------------------------------------------------------------- more planted faults


def unscaled(at: int, length: int) -> Change:
    """Some batches for which the features were not standardised."""

    def change(step: int, model: nn.Module, optimizer: object, x: Tensor, y: Tensor):
        if at <= step < at + length:
            return x * CANCER_RAW.std(0) + CANCER_RAW.mean(0), y
        return x, y

    return change


def drifting(by: float) -> Change:
    """Features that are a little larger at each step."""

    def change(step: int, model: nn.Module, optimizer: object, x: Tensor, y: Tensor):
        return x * by**step, y

    return change


def hotter(by: float) -> Change:
    """The groups with a rate of their own get an ever higher one."""

    def change(step: int, model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor):
        base = min(group.setdefault("base", group["lr"]) for group in optimizer.param_groups)
        for group in optimizer.param_groups:
            if group["base"] > base:
                group["lr"] = group["base"] * by**step
        return x, y

    return change


def weighted(by: float) -> Change:
    """Packs class, number and the growing weight of the number's loss."""

    def change(step: int, model: nn.Module, optimizer: object, x: Tensor, y: Tensor):
        return x, torch.stack([y.float(), x.mean(1), torch.full_like(x[:, 0], by**step)], 1)

    return change


def two_losses(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out[:, :10], y[:, 0].long()) + y[0, 2] * F.mse_loss(out[:, 10], y[:, 1])


def sinking(path: str, by: float, units: int) -> Change:
    """A decay that takes a constant off most of a bias, each step."""

    def change(step: int, model: nn.Module, optimizer: object, x: Tensor, y: Tensor):
        with torch.no_grad():
            model.get_parameter(path)[:units].sub_(by)
        return x, y

    return change


def struck(at: int, path: str, times: float) -> Change:
    """A weight that a resumed run loads wrongly."""

    def change(step: int, model: nn.Module, optimizer: object, x: Tensor, y: Tensor):
        if step == at:
            with torch.no_grad():
                model.get_parameter(path).mul_(times)
        return x, y

    return change


def biased(make: Callable[[], nn.Module], path: str, value: float, units: int) -> Callable[[], nn.Module]:
    """A model of which most units of a layer begin far below zero."""

    def made() -> nn.Module:
        model = make()
        nn.init.constant_(model.get_parameter(path)[:units], value)
        return model

    return made


def fine_tuning(step: int, model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor):
    """At 1000: all but the last two layers are frozen, the rate goes down, the images are noisy."""
    if step >= 1000:
        if step == 1000:
            for name, p in model.named_parameters():
                p.requires_grad_(name.startswith(("leave", "middle")))
            for group in optimizer.param_groups:
                group["lr"] = 3e-4
        x = x + 0.3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(step))
    return x, y


class Offset(nn.Module):
    """Features with a common offset go into a hidden layer."""

    def __init__(self, offset: float) -> None:
        super().__init__()
        self.stem, self.hidden, self.out = nn.Linear(64, 32), nn.Linear(32, 32), nn.Linear(32, 10)
        self.offset, self.ln = offset, nn.LayerNorm(32)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.sigmoid(self.stem(x)) + self.offset
        return self.out(F.gelu(self.ln(self.hidden(h))))


class Half(nn.Module):
    """A model that is bf16 through and through."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 10))
        self.to(torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.to(torch.bfloat16))


class ConvAuto(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.LeakyReLU(), nn.Flatten(), nn.Linear(128, 10))
        self.expand = nn.Linear(10, 128)
        self.up = nn.ConvTranspose2d(8, 1, 4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = F.leaky_relu(self.expand(self.down(x.view(-1, 1, 8, 8))))
        return self.up(h.view(-1, 8, 4, 4)).flatten(1)


TAIL_Y = torch.exp(0.9 * DIABETES_Y + 0.2 * torch.randn(len(DIABETES_Y), generator=torch.Generator().manual_seed(5)))

# ---------------------------------------------------------------- the runs

RUNS = [
    Run("d01-gru-momentum", "diverging", RowGRU, sgd(0.3, 0.995), "*"),
    Run("d02-postnorm-nowarmup", "diverging", lambda: PostNorm(24, 8, 16), adam(1e-2), "*", data=text(8, 16)),
    Run(
        "d03-restarts",
        "diverging",
        Autoencoder,
        sgd(0.1),
        "*",
        data=pixels(),
        loss=mse,
        change=schedule(restarts(400, 4.0)),
    ),
    Run(
        "d04-unscaled-burst",
        "diverging",
        lambda: Table(30, 2),
        adam(2e-3),
        "*",
        1200,
        change=unscaled(1200, 30),
        data=rows(CANCER_X, CANCER_Y, 32),
    ),
    Run(
        "d05-bf16-logits",
        "diverging",
        Copier,
        faster("layers.1.[qk]*", 3e-3, 4),
        "layers.1*",
        change=hotter(1.005),
        dtype=torch.bfloat16,
        data=copies(),
    ),
    Run(
        "d06-drift",
        "diverging",
        lambda: Table(10, 1, act=F.elu),
        sgd(0.005),
        "*",
        change=drifting(1.003),
        data=rows(DIABETES_X, DIABETES_Y, 32),
        loss=mse,
    ),
    Run("d07-large-init", "diverging", large(lambda: Skips(64, 10), "stages.2.2.weight", 8.0), sgd(0.1), "stages.2.2*"),
    Run("d08-rare-tokens", "diverging", by_frequency, sgd(0.02), "embedding*", data=halves()),
    Run("d09-loss-weight", "diverging", TwoHeads, sgd(0.05), "ink*", change=weighted(1.006), loss=two_losses),
    Run(
        "d10-norm-removed",
        "diverging",
        lambda: Match(norm=False),
        sgd(0.1),
        "lower*",
        data=indices(),
        change=schedule(warm(500)),
    ),
    Run(
        "d11-rmsprop-eps",
        "diverging",
        lambda: Table(64, 10),
        lambda m: torch.optim.RMSprop(m.parameters(), 1e-2, alpha=0.999, eps=1e-20, momentum=0.9),
        "*",
    ),
    Run(
        "d12-decay-sign",
        "diverging",
        Denoiser,
        adam(1e-3),
        "mid*",
        change=growing("mid.weight", 1.015),
        data=noised(),
        loss=mse,
    ),
    Run("s01-dead-conv", "sick", biased(GroupConv, "c3.bias", -3.0, 23), sgd(0.02), "c3*", kind="dead-units"),
    Run(
        "s02-dying-decoder",
        "sick",
        lambda: Autoencoder(16, 64),
        adam(1e-3),
        "decoder.0*",
        change=sinking("decoder.0.bias", 0.03, 60),
        data=pixels(),
        loss=mse,
        kind="dead-units",
    ),
    Run(
        "s03-saturated-raw",
        "sick",
        lambda: Table(30, 1, act=torch.tanh),
        adam(1e-3),
        "enter*",
        data=rows(CANCER_RAW, CANCER_Y, 32),
        loss=bce,
        kind="saturated-units",
    ),
    Run(
        "s04-attention",
        "sick",
        large(large(Counter, "attention.query.weight", 4.0), "attention.key.weight", 4.0),
        adam(1e-3),
        "attention*",
        data=most(),
        kind="attention-collapse",
    ),
    Run("s05-rank", "sick", lambda: Offset(6.0), sgd_faster("hidden*", 0.05, 20), "hidden*", kind="rank-collapse"),
    Run(
        "s06-frozen-group",
        "sick",
        lambda: Autoencoder(act=nn.Tanh),
        faster("decoder.2*", 2e-3, 1e-6),
        "decoder.2*",
        data=pixels(),
        loss=mse,
        kind="update-too-small",
    ),
    Run("s07-bf16-weights", "sick", Half, adam(2e-5, weight_decay=0.0), "*", kind="update-too-small"),
    Run(
        "s08-spike",
        "sick",
        ConvAuto,
        adam(1e-3),
        "expand*",
        1300,
        change=struck(1300, "expand.weight", 25.0),
        data=pixels(),
        loss=mse,
        kind="loss-spike",
    ),
    Run("h01-one-cycle", "healthy", GroupConv, adam(0.01), change=schedule(one_cycle)),
    Run(
        "h02-restarts",
        "healthy",
        lambda: Autoencoder(act=nn.GELU),
        adam(3e-3),
        change=schedule(restarts(400)),
        data=pixels(),
        loss=mse,
    ),
    Run("h03-warmup", "healthy", PreNormMHA, adam(3e-3), change=schedule(warm(500)), clip=1.0, data=text(8, 24)),
    Run("h04-batch-2", "healthy", lambda: Skips(13, 3), sgd(2e-3), data=rows(WINE_X, WINE_Y, 2)),
    Run(
        "h05-long-tail-accumulation",
        "healthy",
        lambda: Table(10, 1, act=F.silu),
        lambda m: Accumulating(m.parameters(), 1e-3),
        data=rows(DIABETES_X, TAIL_Y, 16),
        loss=mse,
    ),
    Run("h06-fine-tuning", "healthy", lambda: Table(64, 10, 64), adam(1e-3, weight_decay=0.0), change=fine_tuning),
    Run("h07-sparse-relu", "healthy", Prototypes, adam(5e-4), data=rows(IMAGES, LABELS, 96)),
    Run("h08-latch-lstm", "healthy", Latch, adam(5e-3), clip=1.0, data=latch()),
    Run("h09-copy-sharp", "healthy", lambda: Copier(scale=0.6), adam(3e-3), change=schedule(warm(100)), data=copies()),
    Run(
        "h10-bce-lion",
        "healthy",
        lambda: Table(30, 1, act=torch.sigmoid),
        lambda m: Lion(m.parameters(), 3e-4),
        data=rows(CANCER_X, CANCER_Y, 32),
        loss=bce,
    ),
    Run("h11-overfit", "healthy", lambda: mlp(nn.GELU, 3), adam(1e-3), data=rows(IMAGES[:64], LABELS[:64], 32)),
    Run("h12-large-batch-sgd", "healthy", Residual, sgd(0.1, 0.0), data=rows(IMAGES, LABELS, 512)),
    Run(
        "h13-adafactor",
        "healthy",
        lambda: GPT(qk_norm=True),
        lambda m: torch.optim.Adafactor(m.parameters(), 0.02),
        data=text(),
    ),
    Run(
        "h14-curriculum",
        "healthy",
        Adder,
        adam(3e-3, weight_decay=0.0),
        change=curriculum,
        clip=1.0,
        data=additions,
        loss=mse,
    ),
]
