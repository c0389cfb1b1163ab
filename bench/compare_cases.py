"""The first set of cases of bench/compare.py.

A case is a function that trains for two steps; its argument selects the first or the second run of the pair. The lines
that the tool may name end with a mark, ``# [name]``: the op that is wrong, or that only one of the runs has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

FAULTS: list[Case] = []
BENIGN: list[Case] = []


@dataclass(frozen=True)
class Case:
    name: str
    run: Callable[[bool], None]
    #: The ops that may be named, without overload; empty: any on a marked line.
    ops: tuple[str, ...] = ()
    module: str | None = None


def fault(*ops: str, module: str | None = None) -> Callable[[Callable[[bool], None]], Callable[[bool], None]]:
    def add(run: Callable[[bool], None]) -> Callable[[bool], None]:
        FAULTS.append(Case(run.__name__, run, ops, module))
        return run

    return add


def benign(run: Callable[[bool], None]) -> Callable[[bool], None]:
    BENIGN.append(Case(run.__name__, run))
    return run


def train(
    model: nn.Module, batch: Callable[[], Any], loss: Callable[[Any], Any], steps: int = 2, make: Any = None
) -> None:
    """Train `model` for two steps with a usual training loop."""
    optimizer = make(model) if make is not None else torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model(batch())).backward()
        optimizer.step()


def square(out: Any) -> Any:
    return out.float().square().mean()


# A small transformer whose parts can be wrong one at a time.


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int, bad: str) -> None:
        super().__init__()
        self.heads, self.bad = heads, bad
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, d = x.shape
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k, v = (one.view(n, t, self.heads, -1).transpose(1, 2) for one in (q, k, v))
        if self.bad == "wrong_transpose":
            scores = q.transpose(-2, -1) @ k if t == q.shape[-1] else q @ k.transpose(-2, -1)  # [wrong_transpose]
        else:
            scores = q @ k.transpose(-2, -1)  # [wrong_transpose]
        if self.bad != "missed_scale":
            scale = math.sqrt(d // self.heads if self.bad != "scale_by_dim" else d)
            scores = scores / scale  # [missed_scale] [scale_by_dim]
        mask = torch.ones(t, t, dtype=torch.bool).triu(1 if self.bad != "mask_off_by_one" else 2)  # [mask_off_by_one]
        if self.bad != "mask_missing":
            scores = scores.masked_fill(mask, float("-inf"))  # [mask_missing]
        weights = scores.softmax(-1 if self.bad != "softmax_dim" else -2)  # [softmax_dim]
        if self.bad == "value_detached":
            v = v.detach()  # [value_detached]
        y = weights @ (v if self.bad != "keys_for_values" else k)  # [keys_for_values]
        merge = self.bad != "heads_not_merged"
        y = y.transpose(1, 2).reshape(n, t, d) if merge else y.reshape(n, t, d)  # [heads_not_merged]
        return self.out(y)


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, bad: str) -> None:
        super().__init__()
        self.bad = bad
        self.ln1 = nn.LayerNorm(dim, eps=1e-5 if bad != "norm_eps" else 1e-3)
        self.attn = Attention(dim, heads, bad)
        self.ln2 = nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.attn(self.ln1(x))  # [norm_eps]
        if self.bad != "residual_missing":
            h = x + h  # [residual_missing]
        m = self.up(self.ln2(h))
        m = F.gelu(m) if self.bad != "gelu_tanh" else F.gelu(m, approximate="tanh")  # [gelu_tanh]
        return h + self.down(m) if self.bad != "residual_twice" else h + self.down(m) + h  # [residual_twice]


class Transformer(nn.Module):
    def __init__(self, bad: str = "", layers: int = 3, at: int = 1) -> None:
        super().__init__()
        self.bad = bad
        self.token, self.place = nn.Embedding(50, 32), nn.Embedding(16, 32)
        self.blocks = nn.ModuleList(Block(32, 4, bad if i == at else "") for i in range(layers))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 50)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.shape[1])
        if self.bad == "positions_shifted":
            places = (places + 1).clamp(max=15)  # [positions_shifted]
        x = self.token(ids) + self.place(places)  # [positions_shifted]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def transformer(bad: str, dtype: torch.dtype = torch.float32, make: Any = None) -> None:
    torch.manual_seed(0)
    model = Transformer(bad).to(dtype)
    ids = torch.randint(0, 50, (4, 8))

    def loss(out: torch.Tensor) -> torch.Tensor:
        shift = 0 if bad == "labels_not_shifted" else 1
        n = 8 - shift
        return F.cross_entropy(out[:, :n].flatten(0, 1).float(), ids[:, shift:].flatten())  # [labels_not_shifted]

    train(model, lambda: ids, loss, make=make)


def of_transformer(name: str, *ops: str, module: str | None = None, dtype: torch.dtype = torch.float32) -> None:
    label = name if dtype is torch.float32 else f"{name}_bf16"
    FAULTS.append(Case(label, lambda bad: transformer(name if bad else "", dtype), ops, module))


of_transformer("wrong_transpose", "transpose", "bmm", "expand", "_unsafe_view", "view", "clone", module="blocks.1.attn")
of_transformer("missed_scale", "div", module="blocks.1.attn")
of_transformer("scale_by_dim", "div", module="blocks.1.attn")
of_transformer("mask_off_by_one", "triu", module="blocks.1.attn")
of_transformer("mask_missing", "masked_fill", module="blocks.1.attn")
of_transformer("softmax_dim", "_softmax", module="blocks.1.attn")
of_transformer("value_detached", module=None)
of_transformer("keys_for_values", "bmm", "expand", "view", "clone", "_unsafe_view", module="blocks.1.attn")
of_transformer(
    "heads_not_merged", "transpose", "view", "clone", "_unsafe_view", "_reshape_alias", module="blocks.1.attn"
)
of_transformer("norm_eps", "native_layer_norm", module="blocks.1.ln1")
of_transformer("residual_missing", "add", module="blocks.1")
of_transformer("gelu_tanh", "gelu", module="blocks.1")
of_transformer("residual_twice", "add", module="blocks.1")
of_transformer("positions_shifted", "add", "clamp")
of_transformer("labels_not_shifted", "slice")
of_transformer("missed_scale", "div", module="blocks.1.attn", dtype=torch.bfloat16)
of_transformer("mask_off_by_one", "triu", module="blocks.1.attn", dtype=torch.bfloat16)
of_transformer("norm_eps", "native_layer_norm", module="blocks.1.ln1", dtype=torch.bfloat16)
of_transformer("gelu_tanh", "gelu", module="blocks.1", dtype=torch.bfloat16)


# Convnets


class Convnet(nn.Module):
    def __init__(self, bad: str) -> None:
        super().__init__()
        self.bad = bad
        self.a = nn.Conv2d(3, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8, momentum=0.1 if bad != "bn_momentum" else 0.9)
        self.b = nn.Conv2d(8, 8, 3, padding=1, dilation=1)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.bad == "bn_eval":
            self.bn.eval()
        h = F.relu(self.bn(self.a(x)))  # [bn_eval] [bn_momentum]
        h = F.leaky_relu(self.b(h), 0.01 if self.bad != "leaky_slope" else 0.2)  # [leaky_slope]
        h = F.max_pool2d(h, 2) if self.bad != "avg_for_max" else F.avg_pool2d(h, 2)  # [avg_for_max]
        if self.bad == "dropout_in_eval":
            self.drop.eval()
        h = self.drop(h.mean((2, 3)))  # [dropout_in_eval]
        return self.head(h)


def convnet(bad: str, make: Any = None, setup: Callable[[nn.Module], None] | None = None) -> None:
    torch.manual_seed(0)
    model = Convnet(bad)
    if setup is not None:
        setup(model)
    x, y = torch.randn(6, 3, 8, 8), torch.randint(0, 5, (6,))
    if bad == "input_scaled":
        x = x / 255  # [input_scaled]
    if bad == "channels_swapped":
        x = x.flip(1)  # [channels_swapped]
    some = 0.0 if bad != "smoothing" else 0.1
    train(model, lambda: x, lambda out: F.cross_entropy(out, y, label_smoothing=some), make=make)  # [smoothing]


def of_convnet(name: str, *ops: str, module: str | None = None) -> None:
    FAULTS.append(Case(name, lambda bad: convnet(name if bad else ""), ops, module))


of_convnet("bn_eval", "native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm", "add_", module="bn")
of_convnet("bn_momentum", "native_batch_norm", module="bn")
of_convnet("leaky_slope", "leaky_relu")
of_convnet("avg_for_max", "max_pool2d_with_indices", "avg_pool2d")
of_convnet("dropout_in_eval", "bernoulli_", "div_", "mul", "empty_like", "native_dropout", module="drop")
of_convnet("input_scaled", "div")
of_convnet("channels_swapped", "flip")
of_convnet("smoothing")


# Recurrent


class Cell(nn.Module):
    def __init__(self, bad: str) -> None:
        super().__init__()
        self.bad = bad
        self.inp, self.rec = nn.Linear(6, 12), nn.Linear(12, 12)
        self.head = nn.Linear(12, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.new_zeros(x.shape[0], 12)
        stale = h
        for t in range(x.shape[1]):
            old = stale if self.bad == "stale_state" and t == 3 else h
            new = torch.tanh(self.inp(x[:, t]) + self.rec(old))  # [stale_state]
            stale = h
            if self.bad == "state_detached" and t == 4:
                new = new.detach()  # [state_detached]
            h = new
        return self.head(h)


def recurrent(bad: str) -> None:
    torch.manual_seed(0)
    model = Cell(bad)
    x = torch.randn(5, 8, 6)
    train(model, lambda: x, square)


for _name, _ops in (("stale_state", ("addmm",)), ("state_detached", ())):
    FAULTS.append(Case(_name, lambda bad, name=_name: recurrent(name if bad else ""), _ops))  # type: ignore[misc]


class Gru(nn.Module):
    def __init__(self, bad: bool) -> None:
        super().__init__()
        self.gru, self.bad = nn.GRU(6, 8, batch_first=True), bad
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out, _ = self.gru(x)
        return self.head(out[:, -1] if not self.bad else out[:, 0])  # [last_for_first]


@fault("select")
def last_for_first(bad: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 7, 6)
    train(Gru(bad), lambda: x, square)


# Backwards


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bad: bool) -> torch.Tensor:
        ctx.bad = bad
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        return grad * (x * 2 if not ctx.bad else x), None  # [function_backward]


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, limit: float) -> torch.Tensor:
        ctx.limit = limit
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad.clamp(-ctx.limit, ctx.limit), None  # [gradient_clamped]


class Wrapped(nn.Module):
    def __init__(self, wrap: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.a, self.b, self.wrap = nn.Linear(6, 10), nn.Linear(10, 3), wrap

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.wrap(self.a(x)))


def mlp(wrap: Callable[[torch.Tensor], torch.Tensor], loss: Any = square, make: Any = None, setup: Any = None) -> None:
    torch.manual_seed(0)
    model = Wrapped(wrap)
    if setup is not None:
        setup(model)
    x = torch.randn(5, 6)
    train(model, lambda: x, loss, make=make)


@fault("mul")
def function_backward(bad: bool) -> None:
    mlp(lambda h: Scaled.apply(h, bad))


@fault("clamp")
def gradient_clamped(bad: bool) -> None:
    mlp(lambda h: Clipped.apply(h, 1e3 if not bad else 1e-3))


@fault("mul")
def hook_scales(bad: bool) -> None:
    def wrap(h: torch.Tensor) -> torch.Tensor:
        if bad:
            h.register_hook(lambda grad: grad * 0.5)  # [hook_scales]
        return h.tanh()

    mlp(wrap)


@fault(module="a.weight")
def layer_frozen(bad: bool) -> None:
    def setup(model: Any) -> None:
        model.a.weight.requires_grad_(not bad)

    mlp(torch.tanh, setup=setup)


@fault()
def weight_decay(bad: bool) -> None:
    mlp(torch.tanh, make=lambda m: torch.optim.AdamW(m.parameters(), lr=1e-3, weight_decay=0.01 if not bad else 0.1))


@fault("sum", "mean")
def sum_for_mean(bad: bool) -> None:
    mlp(torch.tanh, lambda out: out.square().mean() if not bad else out.square().sum())  # [sum_for_mean]


@fault("mul")
def straight_through(bad: bool) -> None:
    def wrap(h: torch.Tensor) -> torch.Tensor:
        rounded = h.round()
        return h + (rounded - h).detach() * (1.0 if not bad else 0.0)  # [straight_through]

    mlp(wrap)


@fault("lift_fresh", "mul")
def constant_tensor(bad: bool) -> None:
    mlp(lambda h: h * torch.tensor(0.5 if not bad else 0.51))  # [constant_tensor]


@fault("copy_", "slice", "select")
def cache_written_late(bad: bool) -> None:
    def wrap(h: torch.Tensor) -> torch.Tensor:
        cache = torch.zeros(5, 10)
        for i in range(5):
            cache[i] = h.detach()[i if not bad or i != 3 else 2]  # [cache_written_late]
        return h + cache

    mlp(wrap)


# Benign pairs


@benign
def nothing(bad: bool) -> None:
    transformer("")


@benign
def threads(bad: bool) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(4 if bad else 1)
    try:
        transformer("")
    finally:
        torch.set_num_threads(before)


@benign
def foreach(bad: bool) -> None:
    mlp(torch.tanh, make=lambda m: torch.optim.AdamW(m.parameters(), foreach=bad))


@benign
def foreach_sgd(bad: bool) -> None:
    transformer("", make=lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, foreach=bad))


@benign
def fused(bad: bool) -> None:
    mlp(torch.tanh, make=lambda m: torch.optim.AdamW(m.parameters(), fused=bad))


@benign
def channels_last(bad: bool) -> None:
    def setup(model: nn.Module) -> None:
        if bad:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    convnet("", setup=setup)


@benign
def transformer_bf16(bad: bool) -> None:
    transformer("", torch.bfloat16 if bad else torch.float32)


@benign
def transformer_f64(bad: bool) -> None:
    transformer("", torch.float64 if bad else torch.float32)


@benign
def autocast(bad: bool) -> None:
    # Around the forward only: weights cast once would be those of the step before in the next.
    def setup(model: nn.Module) -> None:
        forward = model.forward
        model.forward = torch.autocast("cpu", torch.bfloat16, enabled=bad)(forward)  # type: ignore[method-assign]

    convnet("", setup=setup)


class Sdpa(nn.Module):
    def __init__(self, bad: bool) -> None:
        super().__init__()
        self.bad, self.qkv, self.out = bad, nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, d = x.shape
        q, k, v = (one.view(n, t, 4, -1).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
        kind = torch.nn.attention.SDPBackend.MATH if self.bad else torch.nn.attention.SDPBackend.FLASH_ATTENTION
        with torch.nn.attention.sdpa_kernel(kind):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(n, t, d))


@benign
def sdpa_backends(bad: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 8, 16)
    train(Sdpa(bad), lambda: x, square)


def compiled(bad: bool, make: Callable[[], nn.Module], x: torch.Tensor) -> None:
    torch._dynamo.reset()
    model = make()
    train(torch.compile(model, backend="aot_eager") if bad else model, lambda: x, square)  # type: ignore[arg-type]


@benign
def aot_eager_mlp(bad: bool) -> None:
    torch.manual_seed(0)
    compiled(
        bad, lambda: nn.Sequential(nn.Linear(6, 9), nn.LayerNorm(9), nn.GELU(), nn.Linear(9, 3)), torch.randn(4, 6)
    )


@benign
def aot_eager_transformer(bad: bool) -> None:
    torch.manual_seed(0)
    compiled(bad, Transformer, torch.randint(0, 50, (2, 8)))


@benign
def batch_split(bad: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(8, 6)
    for _ in range(2):
        optimizer.zero_grad()
        for part in x.chunk(2) if bad else (x,):
            (square(model(part)) / (2 if bad else 1)).backward()
        optimizer.step()


@benign
def batch_padded(bad: bool) -> None:
    torch.manual_seed(0)
    model = Transformer("")
    ids = torch.randint(0, 50, (3, 8))
    given = F.pad(ids, (0, 4)) if bad else ids
    train(model, lambda: given, lambda out: F.cross_entropy(out[:, :7].flatten(0, 1), ids[:, 1:].flatten()))


@benign
def addmm_or_matmul(bad: bool) -> None:
    weight = torch.linspace(-1, 1, 100).view(10, 10)
    bias = torch.linspace(0, 1, 10)
    mlp(lambda h: h @ weight + bias if bad else torch.addmm(bias, h, weight))


@benign
def softmax_by_hand(bad: bool) -> None:
    def by_hand(h: torch.Tensor) -> torch.Tensor:
        e = (h - h.amax(-1, keepdim=True)).exp()
        return e / e.sum(-1, keepdim=True)

    mlp(by_hand if bad else lambda h: h.softmax(-1))


@benign
def norm_by_hand(bad: bool) -> None:
    def by_hand(h: torch.Tensor) -> torch.Tensor:
        off = h - h.mean(-1, keepdim=True)
        return off * (off.square().mean(-1, keepdim=True) + 1e-5).rsqrt()

    mlp(by_hand if bad else lambda h: F.layer_norm(h, (10,)))


@benign
def in_place(bad: bool) -> None:
    mlp(lambda h: h.mul(2).add_(1).relu_() if bad else (h * 2 + 1).relu())


@benign
def checkpointed(bad: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    def inner(h: torch.Tensor) -> torch.Tensor:
        return h.tanh().square() + h

    mlp(lambda h: checkpoint(inner, h, use_reentrant=False) if bad else inner(h))  # type: ignore[no-any-return]


@benign
def sum_in_parts(bad: bool) -> None:
    mlp(torch.tanh, lambda out: sum(part.square().sum() for part in out.chunk(5)) / 15 if bad else square(out))


@benign
def mask_value(bad: bool) -> None:
    mask = torch.ones(10, dtype=torch.bool).tril(4) if False else torch.arange(10) > 6
    mlp(lambda h: h.masked_fill(mask, -1e30 if bad else float("-inf")).softmax(-1))


@benign
def dropout(bad: bool) -> None:
    mlp(lambda h: F.dropout(h, 0.3) if not bad else F.dropout(h, p=0.3, training=True))
