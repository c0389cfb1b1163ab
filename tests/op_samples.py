"""Samples of operators, from torch's operator database and hand-written, and the behaviour of torch on them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from backprobe.ops import OpInfo, info

NAN, INF = math.nan, math.inf
#: Values at the poles, edges and kinks of functions; values that overflow an exponential; values near the largest.
SPECIAL, OVERFLOWS_EXP, LARGEST = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0), (200.0, -200.0), (1e38, -1e38)
#: Samples of each entry of the database.
SAMPLES = 4


class Sample(NamedTuple):
    """A call of an operator.

    :ivar label: the entry of the database, or ``by hand``.
    :ivar function: takes the arguments as one tree.
    """

    label: str
    function: Callable[[Any], Any]
    arguments: Any

    def __call__(self, arguments: Any = None) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(1)
            return self.function(self.arguments if arguments is None else arguments)


class Dispatched(TorchDispatchMode):
    """Names of the operators that reach the dispatcher below autograd, and those that moved torch's generator."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.drew: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = torch.get_rng_state()
        out = func(*args, **(kwargs or {}))
        self.names.append(func.name())
        if not torch.equal(before, torch.get_rng_state()):
            self.drew.append(func.name())
        return out


def tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def floats(tree: Any) -> list[torch.Tensor]:
    """The tensors of a tree that hold floating-point numbers and are not sparse."""
    return [t for t in tensors(tree) if t.is_floating_point() and t.layout is torch.strided]


def refilled(tree: Any, values: tuple[float, ...], seed: int = 0, dtype: torch.dtype | None = None) -> Any:
    """Copy `tree` with each floating-point element drawn from `values`."""
    generator = torch.Generator().manual_seed(seed)

    def fill(leaf: Any) -> Any:
        if not (isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.layout is torch.strided):
            return leaf
        at = torch.randint(len(values), leaf.shape, generator=generator)
        made = torch.tensor(values, dtype=torch.float64)[at].to(dtype or leaf.dtype)
        return made.requires_grad_(leaf.requires_grad)

    return tree_map(fill, tree)


def gradients(sample: Sample, arguments: Any = None) -> tuple[list[torch.Tensor], list[torch.Tensor | None]] | None:
    """The floating-point results of a call and the gradients of its inputs; ``None`` if it has no derivative."""
    given = sample.arguments if arguments is None else arguments
    leaves = [t for t in floats(given) if t.requires_grad and t.is_leaf]
    out = [t for t in floats(sample(given)) if t.requires_grad]
    if not leaves or not out:
        return None
    generator = torch.Generator().manual_seed(2)
    cotangents = [torch.randn(t.shape, generator=generator, dtype=t.dtype) for t in out]
    return out, list(torch.autograd.grad(out, leaves, cotangents, allow_unused=True))


def is_finite(found: Any) -> bool:
    return all(t is None or bool(t.isfinite().all()) for t in found)


#: Entries of the database that another operator shares its name with, and that one.
NAMESAKES = {"nn.functional.unfold": "Tensor.unfold, which is a view"}


@cache
def _entries() -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for op in op_db:
        if torch.float32 in op.dtypes and op.name not in NAMESAKES and not op.name.startswith("jiterator"):
            found.setdefault(info(op.name).name, []).append(op)
    return found


def label_of(op: Any) -> str:
    return f"{op.name}/{op.variant_test_name}" if op.variant_test_name else op.name


def samples_of_entry(op: Any) -> tuple[Sample, ...]:
    """The first samples of one entry of the database that have elements."""
    label = label_of(op)
    if label not in _SAMPLES:
        _SAMPLES[label] = tuple(_made(op))
    return _SAMPLES[label]


#: By the label of an entry. Torch's descriptions of operators cannot be hashed.
_SAMPLES: dict[str, tuple[Sample, ...]] = {}


def _made(op: Any) -> list[Sample]:
    found: list[Sample] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd):
            function = op.op

            def call(tree: Any, function: Any = function) -> Any:
                return function(tree[0], *tree[1], **tree[2])

            made = Sample(label_of(op), call, (sample.input, sample.args, sample.kwargs))
            if all(t.numel() for t in tensors(made.arguments)):
                found.append(made)
            if len(found) == SAMPLES:
                break
    return found


def leaf(*shape: int, low: float = 0.1) -> torch.Tensor:
    return (torch.rand(*shape, generator=torch.Generator().manual_seed(3)) + low).requires_grad_()


def _assigned(x: torch.Tensor, row: torch.Tensor | float = 2.0) -> torch.Tensor:
    y = x.clone()
    y[0] = row
    return y


def _by_hand(function: Callable[..., Any], *given: Any) -> Sample:
    return Sample("by hand", lambda tree: function(*tree), given)


_aten = torch.ops.aten
#: Operators that the database has not, by name; of those that it has only in other forms, these too.
BY_HAND: dict[str, Callable[[], Sample]] = {
    "_unsafe_view": lambda: _by_hand(lambda x: _aten._unsafe_view(x, (6,)), leaf(2, 3)),
    "_reshape_alias": lambda: _by_hand(lambda x: _aten._reshape_alias(x, (6,), (1,)), leaf(2, 3)),
    "alias": lambda: _by_hand(_aten.alias, leaf(2, 3)),
    "detach": lambda: _by_hand(torch.detach, leaf(2, 3)),
    "requires_grad": lambda: _by_hand(lambda x: x.detach().requires_grad_(), leaf(2, 3)),
    "lift_fresh": lambda: _by_hand(_aten.lift_fresh, leaf(2, 3)),
    "view_as_real": lambda: _by_hand(torch.view_as_real, torch.complex(leaf(2, 3), leaf(2, 3)).detach()),
    "index": lambda: _by_hand(lambda x: x[torch.tensor([0, 1])], leaf(2, 3)),
    "setitem": lambda: _by_hand(_assigned, leaf(2, 3)),
    "copy_slices": lambda: _by_hand(_assigned, leaf(2, 3), leaf(3)),
    "fill_diagonal": lambda: _by_hand(lambda x: x.clone().fill_diagonal_(1.0), leaf(3, 3)),
    "pow": lambda: _by_hand(lambda x: x**0.5, leaf(2, 3)),
    "sum": lambda: _by_hand(torch.sum, leaf(6)),
    "nansum": lambda: _by_hand(torch.nansum, leaf(6)),
    "mean": lambda: _by_hand(torch.mean, leaf(6)),
    "nanmean": lambda: _by_hand(torch.nanmean, leaf(6)),
    "dot": lambda: _by_hand(torch.dot, leaf(6), leaf(6)),
    "addcmul": lambda: _by_hand(torch.addcmul, leaf(6), leaf(6), leaf(6)),
    "addmm": lambda: _by_hand(torch.addmm, leaf(2, 2), leaf(2, 3), leaf(3, 2)),
    "addmv": lambda: _by_hand(torch.addmv, leaf(2), leaf(2, 3), leaf(3)),
    "addbmm": lambda: _by_hand(torch.addbmm, leaf(2, 2), leaf(1, 2, 3), leaf(1, 3, 2)),
    "baddbmm": lambda: _by_hand(torch.baddbmm, leaf(1, 2, 2), leaf(1, 2, 3), leaf(1, 3, 2)),
    "linear": lambda: _by_hand(F.linear, leaf(2, 3), leaf(2, 3), leaf(2)),
    "cumprod": lambda: _by_hand(lambda x: x.cumprod(0), leaf(64)),
    "clamp": lambda: _by_hand(lambda x: x.clamp(-1.0, 1.0), leaf(2, 3)),
    "clamp_min": lambda: _by_hand(lambda x: x.clamp_min(-1.0), leaf(2, 3)),
    "clamp_max": lambda: _by_hand(lambda x: x.clamp_max(1.0), leaf(2, 3)),
    "binary_cross_entropy": lambda: _by_hand(
        lambda x, y: F.binary_cross_entropy(x.clamp(0.0, 1.0), y.clamp(0.0, 1.0)), leaf(2, 3), leaf(2, 3)
    ),
    "attribute": lambda: _by_hand(lambda x: x.T, leaf(2, 3)),
    "copy": lambda: _by_hand(_aten.copy, leaf(2, 3), leaf(2, 3)),
    "reflection_pad1d": lambda: _by_hand(lambda x: F.pad(x, (1, 1), "reflect"), leaf(2, 3)),
    "reflection_pad2d": lambda: _by_hand(lambda x: F.pad(x, (1, 1, 1, 1), "reflect"), leaf(1, 3, 3)),
    "reflection_pad3d": lambda: _by_hand(lambda x: F.pad(x, (1, 1, 1, 1, 1, 1), "reflect"), leaf(1, 1, 3, 3, 3)),
    "replication_pad1d": lambda: _by_hand(lambda x: F.pad(x, (1, 1), "replicate"), leaf(2, 3)),
    "replication_pad2d": lambda: _by_hand(lambda x: F.pad(x, (1, 1, 1, 1), "replicate"), leaf(1, 3, 3)),
    "replication_pad3d": lambda: _by_hand(lambda x: F.pad(x, (1, 1, 1, 1, 1, 1), "replicate"), leaf(1, 1, 3, 3, 3)),
    "upsample_nearest1d": lambda: _by_hand(lambda x: F.interpolate(x, scale_factor=2), leaf(1, 2, 3)),
    "upsample_nearest2d": lambda: _by_hand(lambda x: F.interpolate(x, scale_factor=2), leaf(1, 2, 3, 3)),
    "upsample_nearest3d": lambda: _by_hand(lambda x: F.interpolate(x, scale_factor=2), leaf(1, 2, 3, 3, 3)),
    "upsample_bilinear2d": lambda: _by_hand(
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), leaf(1, 2, 3, 3)
    ),
    "convolution": lambda: _by_hand(F.conv2d, leaf(1, 1, 4, 4), leaf(3, 1, 1, 3), leaf(3)),
    "foreach_div": lambda: _by_hand(lambda x, y: torch._foreach_div([x], [y]), leaf(2, 3), leaf(2, 3)),
    "foreach_sqrt": lambda: _by_hand(lambda x: torch._foreach_sqrt([x]), leaf(2, 3)),
    "euclidean_dist": lambda: _by_hand(_aten._euclidean_dist, leaf(2, 3), leaf(4, 3)),
    "nll_loss": lambda: _by_hand(F.nll_loss, leaf(2, 3), torch.tensor([0, 2])),
    "rsub": lambda: _by_hand(lambda x: torch.rsub(x, 1.0), leaf(2, 3)),
    "lerp": lambda: _by_hand(lambda x, y: torch.lerp(x, y, 0.3), leaf(2, 3), leaf(2, 3)),
    "special_xlog1py": lambda: _by_hand(torch.special.xlog1py, leaf(2, 3), leaf(2, 3)),
    "tensor": lambda: _by_hand(lambda x: torch.tensor([1.5, 2.0]), leaf(1)),
    "randperm": lambda: _by_hand(lambda x: torch.randperm(9).float(), leaf(1)),
    "rand": lambda: _by_hand(lambda x: torch.rand(9), leaf(1)),
    "randn": lambda: _by_hand(lambda x: torch.randn(9), leaf(1)),
    "randint": lambda: _by_hand(lambda x: torch.randint(99, (9,)).float(), leaf(1)),
    "normal": lambda: _by_hand(lambda x: (x * 1).normal_(), leaf(2, 3)),
    "uniform": lambda: _by_hand(lambda x: (x * 1).uniform_(), leaf(2, 3)),
    "random": lambda: _by_hand(lambda x: (x * 1).random_(), leaf(2, 3)),
    "exponential": lambda: _by_hand(lambda x: (x * 1).exponential_(), leaf(2, 3)),
    "geometric": lambda: _by_hand(lambda x: (x * 1).geometric_(0.5), leaf(2, 3)),
    "cauchy": lambda: _by_hand(lambda x: (x * 1).cauchy_(), leaf(2, 3)),
    "bernoulli": lambda: _by_hand(lambda x: x.clamp(0.1, 0.9).bernoulli(), leaf(5, 5)),
    "multinomial": lambda: _by_hand(lambda x: torch.multinomial(x, 9, replacement=True).float(), leaf(9)),
    "poisson": lambda: _by_hand(lambda x: torch.poisson(x * 9), leaf(5, 5)),
    "binomial": lambda: _by_hand(lambda x: torch.binomial(x * 0 + 99, x.clamp(0.2, 0.8)), leaf(5, 5)),
    "standard_gamma": lambda: _by_hand(torch._standard_gamma, leaf(2, 3)),
    "sample_dirichlet": lambda: _by_hand(torch._sample_dirichlet, leaf(2, 3)),
    "dropout": lambda: _by_hand(F.dropout, leaf(5, 5)),
    "dropout1d": lambda: _by_hand(F.dropout1d, leaf(9, 9, 2)),
    "alpha_dropout": lambda: _by_hand(lambda x: F.alpha_dropout(x, training=True), leaf(5, 5)),
    "feature_alpha_dropout": lambda: _by_hand(lambda x: F.feature_alpha_dropout(x, training=True), leaf(9, 9, 2)),
    "fractional_max_pool2d": lambda: _by_hand(
        lambda x: F.fractional_max_pool2d(x, 2, output_ratio=0.4), leaf(1, 1, 9, 9)
    ),
    "fractional_max_pool3d": lambda: _by_hand(
        lambda x: F.fractional_max_pool3d(x, 2, output_ratio=0.4), leaf(1, 1, 9, 9, 9)
    ),
    "gumbel_softmax": lambda: _by_hand(F.gumbel_softmax, leaf(2, 3)),
    "rrelu": lambda: _by_hand(lambda x: F.rrelu(-x, training=True), leaf(5, 5)),
    "scaled_dot_product_attention": lambda: _by_hand(
        lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5), leaf(1, 4, 8)
    ),
    **{
        name: (lambda kind=kind, how=how: _recurrent(kind, **how))
        for name, kind, how in (
            ("lstm", torch.nn.LSTM, {}),
            ("gru", torch.nn.GRU, {}),
            ("rnn_tanh", torch.nn.RNN, {}),
            ("rnn_relu", torch.nn.RNN, {"nonlinearity": "relu"}),
        )
    },
}


def _recurrent(kind: Any, **how: Any) -> Sample:
    torch.manual_seed(0)
    module = kind(3, 4, num_layers=2, dropout=0.5, **how)
    return _by_hand(lambda x: module(x)[0], leaf(5, 2, 3))


@cache
def samples_of(row: OpInfo) -> tuple[Sample, ...]:
    """All samples of the operator of a row."""
    found = [sample for op in _entries().get(row.name, ()) for sample in samples_of_entry(op)]
    if row.name in BY_HAND:
        found.insert(0, BY_HAND[row.name]())
    return tuple(found)


def entries() -> Iterator[tuple[Any, OpInfo]]:
    """All entries of the database that compute with float32, each with its row."""
    for ops in _entries().values():
        for op in ops:
            yield op, info(op.name)
