"""Helpers for tests of capture: models with all kinds of outputs, and an independent way to get their values."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass

import torch
from torch import nn

Pair = namedtuple("Pair", "left right")


@dataclass
class Both:
    value: torch.Tensor
    more: dict[str, object]


class Function(nn.Module):
    """A module that calls a function on its input."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


class Nested(nn.Module):
    """Every kind of nesting, on the way to one loss."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.tuple = Function(lambda x: (x * 2, [x + 1, None]))
        self.dict = Function(lambda x, y: {"sum": x + y, "inner": {"k": x * y}})
        self.pair = Function(lambda x: Pair(x.sin(), x.cos()))
        self.data = Function(lambda x: Both(x.tanh(), {"z": x.exp(), "label": "text"}))

    def forward(self, x):
        first, (second, _) = self.tuple(self.a(x))
        d = self.dict(first, y=second)
        p = self.pair(d["sum"])
        out = self.data(self.b(p.left) * d["inner"]["k"] + self.a(p.right))
        return out.value + out.more["z"]


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(3, 2, 3, padding=1)
        self.bn1, self.bn2 = nn.BatchNorm2d(3), nn.BatchNorm2d(2)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x
        return self.relu(y)


class Parts(nn.Module):
    """A module with a node of three outputs: one is used twice, one once, and one never."""

    def __init__(self) -> None:
        super().__init__()
        self.split, self.up, self.read = Function(lambda x: x.chunk(3, -1)), nn.Linear(4, 6), nn.Linear(2, 1)

    def forward(self, x):
        a, b, _ = self.split(self.up(x))
        return self.read(a * b + a)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.cell, self.out = nn.LSTM(4, 3), nn.GRUCell(3, 3), nn.Linear(3, 1)

    def forward(self, x):
        y, (h, c) = self.lstm(x[:, None])
        state = h[0] + c[0]
        for step in y:
            state = self.cell(step, state)
        return self.out(state)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attend = nn.LayerNorm(4), nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        x = self.norm(x)[None]
        y, weights = self.attend(x, x, x)
        return y.sum() * weights.square().sum()


def vector() -> torch.Tensor:
    return torch.randn(5, 4, dtype=torch.float64)


MODELS = {
    "mlp": lambda: (nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)), vector()),
    "in place": lambda: (
        nn.Sequential(nn.Linear(4, 6), Function(lambda x: x.mul_(1.5)), nn.ReLU(inplace=True), nn.Linear(6, 1)),
        vector(),
    ),
    "in place on a view": lambda: (
        nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (2, 3)), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(6, 1)),
        vector(),
    ),
    "in place twice on a view": lambda: (
        nn.Sequential(
            nn.Linear(4, 6),
            Function(lambda x: x.t()),
            Function(lambda x: x.mul_(x.detach().cos() + 2)),
            nn.Identity(),
            nn.LeakyReLU(0.3, inplace=True),
            Function(lambda x: x.t()),
            nn.Linear(6, 2),
        ),
        vector(),
    ),
    "a part written": lambda: (
        nn.Sequential(nn.Linear(4, 6), Function(lambda x: [x, x[:, :3].mul_(3.0)][0]), nn.Linear(6, 1)),
        vector(),
    ),
    "nested": lambda: (Nested(), vector()),
    "residual": lambda: (Residual(), torch.randn(2, 2, 5, 5, dtype=torch.float64)),
    "parts": lambda: (Parts(), vector()),
    "recurrent": lambda: (Recurrent(), vector()),
    "attention": lambda: (Attention(), vector()),
}


def model_of(case: str):
    torch.manual_seed(0)
    model, x = MODELS[case]()
    return model.double(), x


def oracle(model: nn.Module, x: torch.Tensor, name: str):
    """Value and gradient of one tensor another way: a zero that requires grad is added to it as it comes."""
    path, _, suffix = name.partition("/")
    path, _, number = path.partition(":")
    module = model.get_submodule(path)
    probe: dict[str, torch.Tensor] = {}
    calls = 0

    def put(value, keys):
        if not keys:
            probe["value"] = value.detach().clone()
            probe["zero"] = torch.zeros_like(value, requires_grad=True)
            return value + probe["zero"]
        key, rest = keys[0], keys[1:]
        if isinstance(value, dict):
            return {k: put(v, rest) if k == key else v for k, v in value.items()}
        if isinstance(value, Pair):
            return value._replace(**{key: put(getattr(value, key), rest)})
        if isinstance(value, Both):
            setattr(value, key, put(getattr(value, key), rest))
            return value
        return type(value)(put(v, rest) if str(i) == key else v for i, v in enumerate(value))

    def hook(module, args, output):
        nonlocal calls
        calls += 1
        return put(output, suffix.split("/") if suffix else []) if calls == int(number or 1) else None

    with module.register_forward_hook(hook):
        out = model(x)
    (grad,) = torch.autograd.grad(out.square().sum(), probe["zero"], allow_unused=True)
    return probe["value"], grad
