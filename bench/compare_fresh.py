"""The second set of cases of bench/compare.py, written after the first one passed and before any run on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from compare_cases import FAULTS, Case, benign, compiled, convnet, fault, mlp, square, train, transformer
from torch import nn
from torch.nn import functional as F

# A block as Llama has it: RMSNorm, rotary positions, a gated MLP, a cache.


class Rms(nn.Module):
    def __init__(self, dim: int, bad: str) -> None:
        super().__init__()
        self.weight, self.bad = nn.Parameter(torch.ones(dim)), bad

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        eps = 1e-6 if self.bad != "rms_eps" else 1e-4
        mean = wide.pow(2).mean(-1, keepdim=True)
        if self.bad == "rms_unbiased":
            mean = wide.var(-1, keepdim=True)  # [rms_unbiased]
        scale = torch.rsqrt(mean + eps)  # [rms_eps] [rms_unbiased] [kernel_rsqrt_rough]
        return self.weight * (wide * scale).to(x.dtype)


def rotate(x: torch.Tensor, bad: str) -> torch.Tensor:
    one, two = x.chunk(2, -1)
    return torch.cat((-two if bad != "rope_sign" else two, one), -1)  # [rope_sign]


class Llama(nn.Module):
    def __init__(self, bad: str = "", dim: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.bad, self.heads = bad, heads
        self.token, self.norm1, self.norm2 = nn.Embedding(30, dim), Rms(dim, bad), Rms(dim, "")
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.gate, self.up, self.down = nn.Linear(dim, 40), nn.Linear(dim, 40), nn.Linear(40, dim)
        self.head = nn.Linear(dim, 30, bias=False)

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        n, t, d = x.shape
        size = d // self.heads
        q, k, v = (one(x).view(n, t, self.heads, size).transpose(1, 2) for one in (self.q, self.k, self.v))
        base = 10000.0 if self.bad != "rope_base" else 500000.0
        freq = base ** (-torch.arange(0, size, 2) / size)  # [rope_base]
        angle = torch.outer(torch.arange(t).float(), freq)
        angle = torch.cat((angle, angle), -1).to(x.dtype)
        q = q * angle.cos() + rotate(q, self.bad) * angle.sin()
        k = k * angle.cos() + rotate(k, "") * angle.sin()
        if self.bad == "head_scaled":
            k = torch.cat((k[:, :1] * 1.01, k[:, 1:]), 1)  # [head_scaled]
        scores = q @ k.transpose(-2, -1) / math.sqrt(size)
        mask = torch.full((t, t), float("-inf"), dtype=x.dtype).triu(1)
        weights = (scores + mask).softmax(-1)
        y = weights @ v
        return self.o(y.transpose(1, 2).reshape(n, t, d))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.token(ids)
        x = x + self.attend(self.norm1(x))
        h = self.norm2(x)
        gate = F.silu(self.gate(h)) if self.bad != "silu_relu" else F.relu(self.gate(h))  # [silu_relu]
        return self.head(x + self.down(gate * self.up(h)))


def llama(bad: str, dtype: torch.dtype = torch.float32, **settings: Any) -> None:
    torch.manual_seed(0)
    model = Llama(bad).to(dtype)
    ids = torch.randint(1, 30, (3, 7))
    target = ids.clone()
    target[:, -2:] = 0
    skip = 0 if bad != "padding_counted" else -100

    def loss(out: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out.flatten(0, 1).float(), target.flatten(), ignore_index=skip)  # [padding_counted]

    train(model, lambda: ids, loss, **settings)


def of_llama(name: str, *ops: str, module: str | None = None, dtype: torch.dtype = torch.float32) -> None:
    label = name if dtype is torch.float32 else f"{name}_bf16"
    FAULTS.append(Case(label, lambda bad: llama(name if bad else "", dtype), ops, module))


of_llama("rms_eps", "add", module="norm1")
of_llama("rms_eps", "add", module="norm1", dtype=torch.bfloat16)
of_llama("rms_unbiased", "pow", "mean", "var", "add", module="norm1")
of_llama("rope_sign", "neg", "cat")
of_llama("rope_base", "pow")
of_llama("head_scaled", "mul", "cat", "slice", dtype=torch.bfloat16)
of_llama("head_scaled", "mul", "cat", "slice")
of_llama("silu_relu", "silu", "relu")
of_llama("padding_counted", "nll_loss_forward")


@fault("add", "mul", "copy_", "lift_fresh", "_to_copy", "div", "rsqrt", "scalar_tensor", "full")
def eps_in_half(bad: bool) -> None:
    """An eps that is nothing in half precision."""

    def wrap(h: torch.Tensor) -> torch.Tensor:
        h = h * 1e-4
        eps = torch.tensor(1e-8).half().float() if bad else torch.tensor(1e-8)  # [eps_in_half]
        return h * torch.rsqrt(h.square().mean(-1, keepdim=True) + eps)  # [eps_in_half]

    mlp(wrap)


class Lstm(nn.Module):
    def __init__(self, bad: str) -> None:
        super().__init__()
        self.bad, self.inp, self.rec, self.head = bad, nn.Linear(5, 32), nn.Linear(8, 32), nn.Linear(8, 2)
        self.kept: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = x.new_zeros(x.shape[0], 8)
        if self.bad == "state_kept" and self.kept is not None:
            h = self.kept
        for t in range(x.shape[1]):
            gates = self.inp(x[:, t]) + self.rec(h)  # [state_kept]
            i, f, g, o = gates.chunk(4, -1) if self.bad != "gates_swapped" else self.swapped(gates)  # [gates_swapped]
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)  # [gates_swapped]
            h = torch.sigmoid(o) * torch.tanh(c)
            if self.bad == "cell_clamped":
                h = h.clamp(max=0.05)  # [cell_clamped]
        self.kept = h.detach()
        return self.head(h)

    def swapped(self, gates: torch.Tensor) -> Any:
        f, i, g, o = gates.chunk(4, -1)
        return i, f, g, o


def lstm(bad: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 6, 5)
    train(Lstm(bad), lambda: x, square)


for _name, _ops in (
    ("state_kept", ("addmm", "t")),
    ("gates_swapped", ("sigmoid", "mul")),
    ("cell_clamped", ("clamp",)),
):
    FAULTS.append(Case(_name, lambda bad, name=_name: lstm(name if bad else ""), _ops))  # type: ignore[misc]


class Grouped(nn.Module):
    def __init__(self, bad: str) -> None:
        super().__init__()
        self.bad = bad
        self.a, self.norm = nn.Conv2d(3, 8, 3), nn.GroupNorm(2 if bad != "groups" else 4, 8)
        self.b = nn.Conv2d(8, 8, 3, padding=1 if bad != "dilated" else 2, dilation=1 if bad != "dilated" else 2)
        self.head = nn.Linear(8 * 36, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.silu(self.norm(self.a(x)))  # [groups]
        h = self.b(h)  # [dilated]
        channels = (0, 2, 3, 1) if self.bad == "flatten_permuted" else None
        flat = h.flatten(1) if channels is None else h.permute(channels).flatten(1)  # [flatten_permuted]
        return self.head(flat)


def of_grouped(name: str, *ops: str, module: str | None = None) -> None:
    def run(bad: bool) -> None:
        torch.manual_seed(0)
        x = torch.randn(4, 3, 8, 8)
        train(Grouped(name if bad else ""), lambda: x, square)

    FAULTS.append(Case(name, run, ops, module))


of_grouped("groups", "native_group_norm", module="norm")
of_grouped("dilated", "convolution", module="b")
of_grouped("flatten_permuted", "permute", "view", "clone", "_unsafe_view")


class Softplus(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bad: bool) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.bad = bad
        return F.softplus(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        return grad * (torch.sigmoid(x) if not ctx.bad else torch.sigmoid(-x)), None  # [backward_sign]


@fault("neg", "sigmoid")
def backward_sign(bad: bool) -> None:
    mlp(lambda h: Softplus.apply(h, bad))


@fault("embedding_dense_backward")
def padding_gradient(bad: bool) -> None:
    torch.manual_seed(0)
    ids = torch.randint(0, 3, (4, 5))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.head = nn.Embedding(3, 6, padding_idx=0 if bad else None), nn.Linear(6, 2)
            torch.nn.init.constant_(self.token.weight, 0.3)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.token(ids).mean(1))  # [padding_gradient]

    train(Net(), lambda: ids, square)


@fault("mul_", "mul", "clamp", "div", "add", "reciprocal")
def clipped_lower(bad: bool) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3)), torch.randn(5, 6) * 5
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        (model(x).square().sum() * 10).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0 if not bad else 0.1)  # [clipped_lower]
        optimizer.step()


@fault("detach", "mul")
def target_attached(bad: bool) -> None:
    def loss(out: torch.Tensor) -> torch.Tensor:
        target = out[:, :1] if bad else out[:, :1].detach()  # [target_attached]
        return (out[:, 1:] - 2 * target).square().mean()

    mlp(torch.tanh, loss)


_library = torch.library.Library("backprobe_bench", "FRAGMENT")
_library.define("triple(Tensor x, bool fast) -> Tensor")


def _triple(x: torch.Tensor, fast: bool) -> torch.Tensor:
    if not fast:
        return x * 3
    flat = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())  # as a kernel that does not look at strides
    return (flat[: x.numel()] * 3).view(x.shape)


_library.impl("triple", _triple, "CPU")


@fault("backprobe_bench::triple")
def strides_ignored(bad: bool) -> None:
    def wrap(h: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            more = torch.ops.backprobe_bench.triple(h.detach()[:, :5].t(), bad)  # [strides_ignored]
        return h[:, :5] + more.t().repeat(1, 1)[:, :5]

    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 10), nn.Linear(5, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(wrap(self.a(x)))

    x = torch.randn(5, 6)
    train(Net(), lambda: x, square)


# Kernels of torch's own that are wrong, as those of another machine may be.


def with_kernel(name: str, kernel: Callable[..., Any], run: Callable[[], None]) -> None:
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl(name, kernel, "CPU", allow_override=True)
        run()


@fault("rsqrt", module="norm2")
def kernel_rsqrt_rough(bad: bool) -> None:
    """Run with an ``rsqrt`` kernel that is right to only five digits in one of its calls, if `bad`."""
    calls = [0]

    def rough(x: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return x.sqrt().reciprocal() * (1.0 if calls[0] != 2 or not bad else 1 + 2e-5)

    with_kernel("rsqrt", rough, lambda: llama("kernel"))


@fault("tanh")
def kernel_tanh_strided(bad: bool) -> None:
    """Run with a ``tanh`` kernel that ignores the strides of a transposed tensor, if `bad`."""

    def strided(x: torch.Tensor) -> torch.Tensor:
        if bad and not x.is_contiguous():
            x = torch.as_strided(x, x.shape, x.contiguous().stride())
        return torch.sigmoid(x * 2) * 2 - 1

    with_kernel("tanh", strided, lambda: mlp(lambda h: h.t().tanh().t()))  # [kernel_tanh_strided]


@fault("mm")
def kernel_mm_sums_in_half(bad: bool) -> None:
    """A product of float32 that is summed in bfloat16."""

    def rough(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if bad:
            x, y = x.bfloat16().float(), y.bfloat16().float()
        return (x[:, :, None] * y).sum(1)

    weight = torch.linspace(-1, 1, 100).view(10, 10)
    with_kernel("mm", rough, lambda: mlp(lambda h: h @ weight))  # [kernel_mm_sums_in_half]


# Benign pairs


class Encoder(nn.Module):
    def __init__(self, weights: bool = False) -> None:
        super().__init__()
        self.attn, self.norm = nn.MultiheadAttention(16, 2, batch_first=True), nn.LayerNorm(16)
        self.head, self.weights = nn.Linear(16, 4), weights

    def forward(self, x: torch.Tensor, hidden: torch.Tensor | None = None) -> torch.Tensor:
        y, _ = self.attn(x, x, x, key_padding_mask=hidden, need_weights=self.weights)
        return self.head(self.norm(x + y))


@benign
def attention_weights_asked(bad: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 6, 16)
    train(Encoder(bad), lambda: x, square)


@benign
def keys_padded(bad: bool) -> None:
    torch.manual_seed(0)
    model, x = Encoder(), torch.randn(3, 6, 16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    given = F.pad(x, (0, 0, 0, 3), value=1.0) if bad else x
    hidden = torch.arange(given.shape[1]).expand(3, -1) >= 6
    for _ in range(2):
        optimizer.zero_grad()
        square(model(given, hidden)[:, :6]).backward()
        optimizer.step()


@benign
def transformer_batch_split(bad: bool) -> None:
    from compare_cases import Transformer

    torch.manual_seed(0)
    model, ids = Transformer(""), torch.randint(0, 50, (4, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        for part in ids.split(1) if bad else (ids,):
            (F.cross_entropy(model(part).flatten(0, 1), part.flatten()) / (4 if bad else 1)).backward()
        optimizer.step()


@benign
def sdpa_or_by_hand(bad: bool) -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(8, 24), torch.randn(2, 4, 6, 8)

    def loss(out: torch.Tensor) -> torch.Tensor:
        q, k, v = out.chunk(3, -1)
        mask = torch.ones(6, 6, dtype=torch.bool).tril()
        if not bad:
            return square(F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
        scores = (q @ k.mT) * 8**-0.5
        return square(scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v)

    train(model, lambda: x, loss)


def wide(make: Callable[[Any], Any], dtype: torch.dtype = torch.float32) -> None:
    transformer("", dtype, make)


@benign
def foreach_bf16(bad: bool) -> None:
    wide(lambda m: torch.optim.Adam(m.parameters(), foreach=bad), torch.bfloat16)


@benign
def foreach_rmsprop(bad: bool) -> None:
    mlp(torch.tanh, make=lambda m: torch.optim.RMSprop(m.parameters(), foreach=bad, momentum=0.5))


@benign
def clip_foreach(bad: bool) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3)), torch.randn(5, 6) * 5
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        (model(x).square().sum() * 10).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=bad)
        optimizer.step()


@benign
def aot_eager_convnet(bad: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 8, 8)
    compiled(bad, lambda: nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten()), x)


@benign
def aot_eager_lstm(bad: bool) -> None:
    torch.manual_seed(0)
    compiled(bad, lambda: Lstm(""), torch.randn(4, 6, 5))


@benign
def inductor_mlp(bad: bool) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, x = nn.Sequential(nn.Linear(6, 9), nn.LayerNorm(9), nn.GELU(), nn.Linear(9, 3)), torch.randn(4, 6)
    train(torch.compile(model) if bad else model, lambda: x, square)  # type: ignore[arg-type]


@benign
def threads_convnet(bad: bool) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3 if bad else 1)
    try:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 16, 3), nn.Flatten())
        x = torch.randn(8, 3, 20, 20)
        train(model, lambda: x, square)
    finally:
        torch.set_num_threads(before)


@benign
def channels_last_bf16(bad: bool) -> None:
    def setup(model: nn.Module) -> None:
        model.bfloat16()
        if bad:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        forward = model.forward
        model.forward = lambda x: forward(x.bfloat16())  # type: ignore[method-assign, assignment]

    convnet("", setup=setup)


@benign
def conv_or_linear(bad: bool) -> None:
    torch.manual_seed(0)
    weight, x = torch.nn.Parameter(torch.randn(6, 4) / 2), torch.randn(2, 4, 5, 5)
    optimizer = torch.optim.Adam([weight], lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        out = torch.einsum("oc,nchw->nohw", weight, x) if bad else F.conv2d(x, weight[:, :, None, None])
        square(out).backward()
        optimizer.step()


@benign
def variance_by_moments(bad: bool) -> None:
    def by_moments(h: torch.Tensor) -> torch.Tensor:
        return h * (h.square().mean(-1, keepdim=True) - h.mean(-1, keepdim=True).square() + 1e-5).rsqrt()

    mlp(by_moments if bad else lambda h: h * (h.var(-1, keepdim=True, correction=0) + 1e-5).rsqrt())


@benign
def entropy_by_hand(bad: bool) -> None:
    y = torch.tensor([0, 2, 1, 1, 0])
    mlp(torch.tanh, lambda out: -out.log_softmax(-1)[range(5), y].mean() if bad else F.cross_entropy(out, y))


@benign
def added_in_another_order(bad: bool) -> None:
    mlp(lambda h: (h + h.sin()) + h.cos() if bad else h + (h.sin() + h.cos()))


@benign
def checkpointed_dropout(bad: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    def inner(h: torch.Tensor) -> torch.Tensor:
        return F.dropout(h.tanh(), 0.2) * h

    mlp(lambda h: checkpoint(inner, h, use_reentrant=True) if bad else inner(h))  # type: ignore[no-any-return]


@benign
def llama_bf16(bad: bool) -> None:
    llama("", torch.bfloat16 if bad else torch.float32)


@benign
def zeroed_or_none(bad: bool) -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(4, 3), torch.randn(5, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(2):
        optimizer.zero_grad(set_to_none=bad)
        square(model(x)).backward()
        optimizer.step()
