"""Location of the first op with a NaN or Inf, from the autograd graph alone."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import backprobe
from backprobe.observe.backward.nonfinite_origin import nonfinite_origin
from backprobe.torch_internals.walk import Plans, walk

NAN, INF = float("nan"), float("inf")


class Log(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.log()

    @staticmethod
    def backward(ctx, grad):
        return grad / ctx.saved_tensors[0]


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def nan(*shape):
    return torch.full(shape, NAN)


def minus_max(scores):
    return scores - scores.max(1, keepdim=True).values


def told(loss):
    """Name of the node, how, whether that is certain."""
    graph = walk([loss.grad_fn], Plans())
    found = nonfinite_origin(graph, [0])
    return (graph.plan.names[found.node].removesuffix("Backward0"), found.how, found.sure) if found else None


@pytest.mark.parametrize(
    "loss, where",
    [
        (lambda y: y.log().mean(), ("Log", "made", True)),
        (lambda y: (y / torch.zeros(3)).mean(), ("Div", "made", True)),  # what was divided is computed again
        (lambda y: ((y / 4).masked_fill(torch.ones(5, 3).bool(), -INF)).softmax(1).sum(), ("Softmax", "made", True)),
        (lambda y: (minus_max((y / 4).masked_fill(torch.ones(5, 3).bool(), -INF))).exp().sum(), ("Sub", "made", False)),
        (lambda y: ((y.half() + 1) * 1e6).float().sum(), ("Mul", "made", False)),
        (lambda y: (y.log() - 1).view(-1).exp().sum(), ("Log", "made", True)),
        (lambda y: (y.relu() / y.relu()).exp().sum(), ("Div", "made", True)),
        (lambda y: (y - 9).sqrt().sum(), ("Sqrt", "made", True)),
        (lambda y: ((y - 9) ** 0.5).sum(), ("Pow", "made", True)),
        (lambda y: (y / (y * 0).norm()).sum(), ("Div", "made", True)),
        (lambda y: (y * 1e9).exp().sum(), ("Exp", "made", True)),
        (lambda y: y[:, :1].std(1).sum(), ("Std", "made", True)),
        (lambda y: y.masked_fill(torch.ones(5, 3).bool(), -INF).softmax(1).sum(), ("Softmax", "made", True)),
        (lambda y: -(F.one_hot(torch.zeros(5).long(), 3) * (1e4 * y).softmax(1).log()).sum(), ("Log", "made", True)),
        (lambda y: (y.view(-1) + nan(15)).tanh().sum(), ("Add", "outside", False)),
        (lambda y: (y * nan(5, 3)).mean(), ("Mul", "outside", True)),
        (lambda y: F.mse_loss(y, nan(5, 3)), ("MseLoss", "outside", True)),
        (lambda y: (y + nan(5, 3)).mean(), ("Add", "outside", False)),  # no node saves the addend
        (lambda y: Log.apply(y).sum(), ("LogBackward", "made", False)),  # nor this result
        (lambda y: (y.log() + y.log().view(5, 3) + y.log()[:, :]).sum(), ("Log", "made", True)),
    ],
)
def test_the_first_op_that_made_or_received_a_nonfinite_value(loss, where):
    with pytest.warns(UserWarning) if where[0] == "Std" else torch.enable_grad():
        made = loss(net()(torch.randn(5, 4)))
    assert not made.isfinite()
    assert told(made) == where


def test_a_nonfinite_value_from_the_data_or_a_weight():
    model = net()
    assert told(model(nan(5, 4)).sum()) == ("Addmm", "outside", True)
    with torch.no_grad():
        model[0].weight[0, 0] = INF
    assert told(model(torch.ones(5, 4)).sum()) == ("torch::autograd::AccumulateGrad", "leaf", True)


def test_an_intended_mask_is_not_the_origin():
    y = net()(torch.randn(5, 4))
    weights = y.masked_fill(torch.eye(5, 3).bool(), -INF).softmax(1)
    assert told((weights * 3).sum() * (weights.sum() - 5).abs().neg().log1p().mul(0).sub(1).log()) == (
        "Log",
        "made",
        True,
    )


def test_the_search_runs_no_hook_and_changes_nothing():
    """A checkpoint would recompute, a user's hook would run."""
    ran = []

    def unpack(x):
        ran.append(x)
        return x

    model = net()
    with saved_tensors_hooks(lambda x: x, unpack):
        hooked = model(torch.randn(5, 4))
    inner = checkpoint(model, torch.randn(5, 4), use_reentrant=False)
    loss = (hooked + inner).log().sum()
    numbers = torch.randn((), requires_grad=True).exp().grad_fn._sequence_nr()
    state = torch.get_rng_state()
    assert told(loss) == ("Log", "made", True)
    assert not ran
    assert torch.equal(state, torch.get_rng_state())
    assert torch.randn((), requires_grad=True).exp().grad_fn._sequence_nr() == numbers + 1  # no node was made
    loss.backward()
    assert len(ran) > 2
    assert told(loss) is None or told(loss)[2] is False  # what is freed is not read


def test_overwritten_and_freed_values_are_not_read():
    x = net()(torch.randn(5, 4))
    y = x.exp()
    loss = (y * y).sub(1e9).log().sum()
    with torch.no_grad():
        y.fill_(NAN)
    assert told(loss) == ("Log", "made", True)

    x = net()(torch.randn(5, 4))
    loss = (x * x).sub(1e9).log().sum()
    x.untyped_storage().resize_(0)
    assert told(loss) == ("Log", "made", True)


def test_half_precision_and_autocast():
    y = net()(torch.randn(5, 4))
    with torch.autocast("cpu", torch.bfloat16):
        loss = (y.half() * 1e3 * 1e3).sum()
    assert not loss.isfinite()
    assert told(loss)[0] in ("Mul", "Sum")


def scripted(function):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*torch.jit")
        return torch.jit.script(function)


def score(x: torch.Tensor) -> torch.Tensor:
    return (x / (x - x)).abs().mean()


def test_the_origin_in_an_unobserved_forward_is_found_from_the_graph():
    """In a step long after the first; the run continues, and reports it once."""
    model, unseen = net(), scripted(score)
    with backprobe.trace(model) as trace:
        for step in range(8):
            y = model(torch.randn(5, 4))
            (unseen(y) if step == 6 else y.square().mean()).backward()
            model.zero_grad()
    (found,) = trace.findings
    assert (found.kind, found.node, found.step, found.confidence) == ("nonfinite-forward", "DivBackward0", 6, "certain")
    assert "its other holds 15 zeros" in found.title


def test_slowly_growing_gradients_do_not_hide_the_overflow():
    x = torch.ones(3, requires_grad=True)
    with backprobe.trace() as trace:
        for step in range(60):
            y = (x * 10.0**step).sum() if step < 35 else x.sub(1).sqrt().sum()
            y.backward()
            x.grad = None
    assert ("nonfinite-backward", 35) in [(f.kind, f.step) for f in trace.findings]
