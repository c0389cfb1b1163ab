"""The four training steps of the overhead benchmarks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

Step = Callable[[], None]
#: What compiles the models; ``None``: they are not.
COMPILER: str | None = None


def compiled(model: nn.Module) -> nn.Module:
    """`model`, compiled where that is asked for."""
    if COMPILER is not None:
        model.compile(backend=COMPILER)
    return model


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, vocabulary: int = 96, layers: int = 6, width: int = 384, context: int = 128) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, 6) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


class Residual(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.skip = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.skip(x))


def resnet18() -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    inside = 64
    for outside, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Residual(inside, outside, stride), Residual(outside, outside, 1)]
        inside = outside
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class RNN(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.inside, self.again, self.out = nn.Linear(8, width), nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(x.shape[1], 32)
        for frame in x:
            h = torch.tanh(self.inside(frame) + self.again(h))
        return self.out(h)


def _trainer(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Step:
    optimizer = torch.optim.SGD(compiled(model).parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def gpt() -> Step:
    model, x = GPT(), torch.randint(0, 96, (4, 129))
    return _trainer(model, lambda: F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten()))


def convnet() -> Step:
    model, x, y = resnet18(), torch.randn(8, 3, 64, 64), torch.randint(0, 10, (8,))
    return _trainer(model, lambda: F.cross_entropy(model(x), y))


def mlp() -> Step:
    layers = [m for _ in range(50) for m in (nn.Linear(256, 256), nn.ReLU())]
    model, x, y = nn.Sequential(*layers, nn.Linear(256, 10)), torch.randn(64, 256), torch.randint(0, 10, (64,))
    return _trainer(model, lambda: F.cross_entropy(model(x), y))


def rnn() -> Step:
    model, x = RNN(), torch.randn(500, 16, 8)
    return _trainer(model, lambda: model(x).square().mean())


MODELS: dict[str, Callable[[], Step]] = {"gpt": gpt, "convnet": convnet, "mlp": mlp, "rnn": rnn}
