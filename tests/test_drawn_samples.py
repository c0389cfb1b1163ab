"""Samples that carry no gradient to the distribution that the loss trains, and those that need none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.distributions import Independent, LogNormal, Normal, kl_divergence
from torch.nn import functional as F

import backprobe
from backprobe.records import SampleWithoutGradient

Tensor = torch.Tensor
ELEMENTS, CODES = 12, 3


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean, self.logvar = nn.Linear(ELEMENTS, CODES), nn.Linear(ELEMENTS, CODES)
        self.decoder, self.critic = nn.Linear(CODES, ELEMENTS), nn.Linear(ELEMENTS + CODES, 1)
        self.scale = nn.Parameter(torch.zeros(CODES))

    def forward(self, x: Tensor) -> Normal:
        return Normal(self.mean(x), (0.5 * self.logvar(x)).exp())

    def error(self, z: Tensor, x: Tensor) -> Tensor:
        return F.mse_loss(self.decoder(z), x)


def prior(like: Tensor) -> Normal:
    return Normal(torch.zeros_like(like), torch.ones_like(like))


def by_hand(mean: Tensor, logvar: Tensor) -> Tensor:
    return -0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).sum(1).mean()


def divergence_of_torch(model: Model, x: Tensor) -> Tensor:
    posterior = model(x)
    z = posterior.sample()  # draws
    return model.error(z, x) + kl_divergence(posterior, prior(z)).mean()


def divergence_first(model: Model, x: Tensor) -> Tensor:
    posterior = model(x)
    divergence = kl_divergence(posterior, Normal(0.0, 1.0)).mean()
    return divergence + model.error(posterior.sample((2,)).mean(0), x)  # draws


def divergence_by_hand(model: Model, x: Tensor) -> Tensor:
    mean, logvar = model.mean(x), model.logvar(x)
    z = Normal(mean, (0.5 * logvar).exp()).sample()  # draws
    return model.error(z, x) + by_hand(mean, logvar)


class Raised:
    """The weight of a divergence, which begins at zero."""

    step = 0


def divergence_from_zero(model: Model, x: Tensor) -> Tensor:
    mean, logvar = model.mean(x), model.logvar(x)
    z = Normal(mean, (0.5 * logvar).exp()).sample()  # draws
    Raised.step += 1
    return model.error(z, x) + 0.1 * (Raised.step - 1) * by_hand(mean, logvar)


def halves_of_one_layer(model: Model, x: Tensor) -> Tensor:
    mean, logvar = torch.cat([model.mean(x), model.logvar(x)], 1).chunk(2, 1)
    z = Normal(mean, (0.5 * logvar).exp()).sample()  # draws
    return model.error(z, x) + by_hand(mean, logvar)


def independent(model: Model, x: Tensor) -> Tensor:
    posterior = Independent(model(x), 1)
    z = posterior.sample()  # draws
    return model.error(z.relu() + 1, x) + kl_divergence(posterior, Independent(prior(z), 1)).mean()


def transformed_with_entropy(model: Model, x: Tensor) -> Tensor:
    rates = LogNormal(model.mean(x), model.scale.exp())
    z = rates.sample()  # draws
    return model.error(z, x) - 0.1 * rates.entropy().mean()


def function_of_torch(model: Model, x: Tensor) -> Tensor:
    mean, logvar = model.mean(x), model.logvar(x)
    z = torch.normal(mean, (0.5 * logvar).exp())  # draws
    return model.error(z, x) + by_hand(mean, logvar)


def weights_of_a_layer(model: Model, x: Tensor) -> Tensor:
    posterior = Normal(model.scale, 0.1)
    error = F.mse_loss(x[:, :CODES] * posterior.sample(), x[:, :CODES] * 2)  # draws
    return error + kl_divergence(posterior, Normal(0.0, 1.0)).sum() + 0 * model.critic.bias.sum()


def reparameterised(model: Model, x: Tensor) -> Tensor:
    posterior = model(x)
    return model.error(posterior.rsample(), x) + kl_divergence(posterior, Normal(0.0, 1.0)).mean()


def score_function(model: Model, x: Tensor) -> Tensor:
    policy = model(x)
    z = policy.sample()
    value = model.critic(torch.cat([x, z], 1)).squeeze(1)
    gain = -(z - x[:, :CODES]).square().sum(1)
    loss = -(policy.log_prob(z).sum(1) * (gain - value).detach()).mean() + F.mse_loss(value, gain)
    return loss + kl_divergence(policy, Normal(0.0, 1.0)).mean() - 0.01 * policy.entropy().mean()


def score_by_hand(model: Model, x: Tensor) -> Tensor:
    mean = model.mean(x)
    policy = Normal(mean, 1.0)
    z = policy.sample()
    reward = -model.error(z, x)
    return (
        ((z - mean).square().sum(1) * reward.detach()).mean() - reward + kl_divergence(policy, Normal(0.0, 1.0)).mean()
    )


def forecast_fed_with_samples(model: Model, x: Tensor) -> Tensor:
    first = model(x)
    loss = -first.log_prob(x[:, :CODES]).mean() - 0.01 * first.entropy().mean()
    return loss - model(model.decoder(first.sample())).log_prob(x[:, CODES : 2 * CODES]).mean()


def regressed_mean(model: Model, x: Tensor) -> Tensor:
    first = model(x)
    fitted = F.mse_loss(first.mean, x[:, :CODES]) + kl_divergence(first, Normal(0.0, 1.0)).mean()
    return fitted + model.error(first.sample(), x)


def second_sample_for_another_part(model: Model, x: Tensor) -> Tensor:
    return reparameterised(model, x) + model.critic(torch.cat([x, model(x).sample()], 1)).square().mean()


def one_posterior_drawn_from_twice(model: Model, x: Tensor) -> Tensor:
    posterior = model(x)
    loss = model.error(posterior.rsample(), x) + kl_divergence(posterior, Normal(0.0, 1.0)).mean()
    return loss + model.critic(torch.cat([x, posterior.sample()], 1)).square().mean()


def target_without_graph(model: Model, x: Tensor) -> Tensor:
    policy = model(x)
    with torch.no_grad():
        z = policy.sample()
    return model.error(z, x) + kl_divergence(policy, Normal(0.0, 1.0)).mean()


def target_that_is_detached(model: Model, x: Tensor) -> Tensor:
    policy = model(x)
    target = model.decoder(policy.sample()).detach()
    return F.mse_loss(model.decoder(x[:, :CODES]), target) + kl_divergence(policy, Normal(0.0, 1.0)).mean()


def critic_alone(model: Model, x: Tensor) -> Tensor:
    return model.critic(torch.cat([x, model(x).sample()], 1)).square().mean()


def sample_for_the_log(model: Model, x: Tensor) -> Tensor:
    posterior = model(x)
    model.error(posterior.sample(), x).item()
    return reparameterised(model, x) + 0 * kl_divergence(posterior, Normal(0.0, 1.0)).mean()


def straight_through(model: Model, x: Tensor) -> Tensor:
    posterior = model(x)
    z = posterior.sample() + posterior.mean - posterior.mean.detach()
    return model.error(z, x) + kl_divergence(posterior, Normal(0.0, 1.0)).mean()


WRONG = [
    divergence_of_torch,
    divergence_first,
    divergence_by_hand,
    divergence_from_zero,
    halves_of_one_layer,
    independent,
    transformed_with_entropy,
    function_of_torch,
    weights_of_a_layer,
]
RIGHT = [
    reparameterised,
    score_function,
    score_by_hand,
    forecast_fed_with_samples,
    regressed_mean,
    second_sample_for_another_part,
    one_posterior_drawn_from_twice,
    target_without_graph,
    target_that_is_detached,
    critic_alone,
    sample_for_the_log,
    straight_through,
]


def observed(
    loss_of: Callable[[Model, Tensor], Tensor], trained: Callable[[Model], nn.Module] = lambda model: model
) -> tuple[SampleWithoutGradient, ...]:
    """Return the records of three steps that train a part of a model."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.Adam(trained(model).parameters(), lr=1e-3)
    with backprobe.trace(model) as watch:
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(model, torch.randn(8, ELEMENTS)).backward()
            optimizer.step()
    return watch.facts.of(SampleWithoutGradient)


@pytest.mark.parametrize("loss_of", WRONG, ids=lambda loss: loss.__name__)
def test_the_line_that_draws_is_recorded(loss_of: Callable[[Model, Tensor], Tensor]) -> None:
    (seen,) = observed(loss_of)
    assert seen.site.text.endswith("# draws") and seen.site.function == loss_of.__name__
    assert seen.failed is not None and "backward()" in seen.failed.text
    assert seen.how == ("torch.normal" if loss_of is function_of_torch else "sample")
    assert seen.parameters and not any(name.startswith(("decoder", "critic")) for name in seen.parameters)


@pytest.mark.parametrize("loss_of", RIGHT, ids=lambda loss: loss.__name__)
def test_samples_that_need_no_gradient(loss_of: Callable[[Model, Tensor], Tensor]) -> None:
    assert observed(loss_of) == ()


def test_a_distribution_that_no_optimizer_trains_needs_none() -> None:
    assert observed(divergence_of_torch, lambda model: model.decoder) == ()
