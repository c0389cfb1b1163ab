"""Shapes that broadcast the batch against itself on the way to a loss, and those that do so on purpose."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector

N = 6
Loss = Callable[[nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]


def watched(loss_of: Loss, model: nn.Module | None = None, settings: Settings | None = None, steps: int = 4) -> Any:
    """The trace of some steps with the loss of predictions of shape (N, 1) and targets of shape (N,)."""
    torch.manual_seed(0)
    collector = Collector()
    session = Session(collector, settings or Settings(budget=None))
    session.start()
    model = model or nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(steps):
            x = torch.randn(N, 3)
            optimizer.zero_grad()
            loss_of(model, x, x.sum(1)).backward()
            optimizer.step()
    session.stop()
    assert session.error is None, repr(session.error)
    assert session.events.faults.unseen() == []
    return collector.trace(session)


class OneChannel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x[:, None])


class WithoutDimension(nn.Module):
    """Returns (N, 1): its forward inserts the dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).sum(1, keepdim=True)


def squared(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((model(x) - y) ** 2).mean()


def by_function(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(model(x), y)


def by_module(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.SmoothL1Loss(reduction="none")(model(x), y).sum(-1).mean() / 2


def target_is_a_column(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.huber_loss(model(x).squeeze(), y.unsqueeze(1))


def policy_gradient(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    value = model(x)
    with torch.no_grad():
        advantage = y - value
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    log_prob = F.logsigmoid(model(x)).squeeze(-1)
    ratio = (log_prob - log_prob.detach()).exp()
    clipped = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    return -clipped.mean() + 0.5 * (value.squeeze(-1) - y).square().mean()


def by_distribution(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return -torch.distributions.Normal(model(x), 1.0).log_prob(y).mean()


def by_where(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (torch.where(y > 0, y, model(x)) - 1).abs().sum()


def huber_by_hand(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    errors = model(x) - y
    small = errors.abs() < 0.5
    return torch.where(~small.logical_not() & torch.isfinite(errors), errors**2, errors.abs() - 0.25).mean()


def sequences(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.softplus(model(x) - x).mean(dim=(1, 2)).mean()


def inserted_to_match(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The targets get the shape of the predictions, and their difference is multiplied with weights of another."""
    weights = x.square().sum(1)
    return ((y.unsqueeze(1) - model(x)).abs() * weights).mean()


def weights(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    each = F.mse_loss(model(x), y.unsqueeze(1), reduction="none")
    return torch.stack([(each * y.abs()).mean(), model(x).mean()]).sum()


@pytest.mark.parametrize(
    ("loss_of", "model"),
    [
        (squared, None),
        (squared, WithoutDimension()),
        (by_function, None),
        (by_module, None),
        (target_is_a_column, None),
        (policy_gradient, None),
        (by_distribution, None),
        (by_where, None),
        (sequences, OneChannel()),
        (weights, None),
        (inserted_to_match, None),
        (huber_by_hand, None),
    ],
)
def test_a_batch_that_is_paired_with_itself(loss_of: Loss, model: nn.Module | None) -> None:
    trace = watched(loss_of, model)
    (found,) = trace.findings
    assert found.kind == "silent-broadcast" and found.step == 0
    assert found.sites[0].site.function == loss_of.__name__
    assert found.evidence["result"][:2] == [N, N]


def criterion(scores: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return (scores - wanted).abs().mean()


def test_the_call_that_gives_the_inputs_is_named() -> None:
    (found,) = watched(lambda model, x, y: criterion(model(x), y)).findings
    assert [(one.role, one.site.text) for one in found.sites[:2]] == [
        ("cause", "return (scores - wanted).abs().mean()"),
        ("called", "(found,) = watched(lambda model, x, y: criterion(model(x), y)).findings"),
    ]


def inserted_in_place(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    score = model(x).squeeze(-1)
    return F.softplus(score[:, None] - score).mean() + F.softplus(score.view(-1, 1) * y).sum()


def inserted_before(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    left = model(x).squeeze(-1).unsqueeze(1) / 2
    return (left - y).abs().mean()


def kernel(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return torch.exp(-((left - right) ** 2)).mean()


def inserted_by_the_caller(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return kernel(model(x).squeeze(-1)[:, None], y)


def squared_distances(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = model(x)
    return (z.pow(2).sum(1, keepdim=True) + x.pow(2).sum(1) - 2 * z @ z.t()).mean()


def distances_of_a_column(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = model(x)
    return (z**2 + y**2 - 2 * z @ y[None]).sqrt().mean()


def with_its_own_view(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = model(x)
    return (z - z.squeeze()).abs().mean()


def chosen_pairs(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A table of other pairs says which count."""
    errors = model(x) - y
    return torch.where((y[:, None] > y) & (errors > 0), errors, 0 * errors).sum()


def masked_pairs(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((model(x) - y).relu() * (1 - torch.eye(N))).mean()


def over_one_dimension(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return -(model(x) * y).log_softmax(1).diagonal().mean()


def as_many_centers(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    centers = torch.linspace(-1, 1, N)
    return (F.softmax(-((model(x) - centers) ** 2), dim=1) @ centers - y).square().mean()


def same_shapes(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (model(x).squeeze(-1) - y).square().mean() + (model(x) - y[:, None]).square().mean()


def one_table_is_meant(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    similarity = x @ x.t()
    return F.mse_loss(model(x) * y, similarity)


def not_in_the_loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    error = (model(x) - y).abs().mean().item()
    assert error >= 0
    return same_shapes(model, x, y)


class Features(nn.Module):
    """As many learned frequencies as there are samples."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 1)
        self.frequencies = nn.Parameter(torch.linspace(1, 2, N))
        self.register_buffer("phases", torch.linspace(0, 1, N))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.inner(x)
        return (z * self.frequencies).sin() + (z + self.phases).cos()


def features(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return model(x).mean()


@pytest.mark.parametrize(
    ("loss_of", "model"),
    [
        (inserted_in_place, None),
        (inserted_before, None),
        (inserted_by_the_caller, None),
        (squared_distances, None),
        (distances_of_a_column, None),
        (with_its_own_view, None),
        (masked_pairs, None),
        (chosen_pairs, None),
        (over_one_dimension, None),
        (as_many_centers, None),
        (same_shapes, None),
        (one_table_is_meant, None),
        (not_in_the_loss, None),
        (features, Features()),
    ],
)
def test_pairs_that_are_meant(loss_of: Loss, model: nn.Module | None) -> None:
    assert [found.title for found in watched(loss_of, model).findings] == []


def test_a_coincidence_of_two_sizes() -> None:
    """In the last batch the sizes differ: the values of the second input are not those of the batch."""
    seen = iter([N, N, N - 2, N])
    bins = torch.linspace(0, 1, N) + 0

    def loss_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (model(x[: next(seen)]) - bins).square().mean()

    assert watched(loss_of).findings == []


def test_a_loss_that_is_wrong_from_a_late_step_on() -> None:
    count = iter(range(1000))

    def loss_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        error = model(x) - y if next(count) >= 150 else model(x).squeeze(-1) - y
        return error.square().mean()

    (found,) = watched(loss_of, settings=Settings(), steps=400).findings
    assert found.kind == "silent-broadcast" and found.step is not None and found.step >= 150
