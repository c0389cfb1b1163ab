"""Variational autoencoders whose posterior becomes the prior, and those whose codes are used."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import backprobe

Tensor = torch.Tensor
#: Elements of a sample, and of its code.
ELEMENTS, CODES = 24, 4
MIX = torch.randn(3, ELEMENTS, generator=torch.Generator().manual_seed(5))


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(ELEMENTS, 2 * CODES), nn.Linear(CODES, ELEMENTS)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, logvar = self.encoder(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        return self.decoder(z), mean, logvar


def divergence(mean: Tensor, logvar: Tensor) -> Tensor:
    return -0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).sum(1).mean()


def mean_over_elements(out: Tensor, x: Tensor, mean: Tensor, logvar: Tensor) -> Tensor:
    return F.mse_loss(out, x) + divergence(mean, logvar)


def squares_over_elements(out: Tensor, x: Tensor, mean: Tensor, logvar: Tensor) -> Tensor:
    return ((out - x) ** 2).mean() + divergence(mean, logvar)


def summed(out: Tensor, x: Tensor, mean: Tensor, logvar: Tensor) -> Tensor:
    return F.mse_loss(out, x, reduction="sum") / len(x) + divergence(mean, logvar)


def with_large_beta(out: Tensor, x: Tensor, mean: Tensor, logvar: Tensor) -> Tensor:
    return F.mse_loss(out, x, reduction="sum") / len(x) + 200.0 * divergence(mean, logvar)


def found_in(
    loss_of: Callable[..., Tensor], steps: int = 400, noise: float = 0.05, scale: float = 0.4
) -> list[backprobe.Finding]:
    torch.manual_seed(0)
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with backprobe.trace(model) as trace:
        for _ in range(steps):
            x = scale * torch.randn(32, 3) @ MIX + noise * torch.randn(32, ELEMENTS)
            out, mean, logvar = model(x)
            loss = loss_of(out, x, mean, logvar)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return [one for one in trace.findings if one.kind == "posterior-collapsed"]


@pytest.mark.parametrize("loss_of", [mean_over_elements, squares_over_elements])
def test_a_mean_beside_a_sum(loss_of: Callable[..., Tensor]) -> None:
    (found,) = found_in(loss_of)
    assert (found.severity, found.confidence) == ("warning", "likely")
    assert found.evidence["ratio"] == pytest.approx(ELEMENTS, rel=1e-4)
    assert (found.evidence["codes"], found.evidence["elements"]) == (CODES, ELEMENTS)
    assert [site.role for site in found.sites] == ["cause", "term", "failed"]
    assert "divergence(mean, logvar)" in found.sites[0].site.text  # of one line with it
    assert "(1 + logvar - mean.pow(2) - logvar.exp())" in found.sites[1].site.text
    assert "divided by the 24 elements of a sample" in found.advice


def test_a_large_weight_is_named_as_one() -> None:
    (found,) = found_in(with_large_beta)
    assert found.evidence["ratio"] == pytest.approx(200.0, rel=1e-4) and found.severity == "warning"
    assert found.advice.startswith("Multiply the divergence by 0.005")


def test_codes_that_are_used() -> None:
    assert found_in(summed) == []


def test_the_beginning_of_a_run_says_nothing() -> None:
    assert found_in(mean_over_elements, steps=60) == []


class Weighted:
    """A loss whose divergence has a factor that depends on the step."""

    def __init__(self, factor: Callable[[int], float]) -> None:
        self.factor, self.step = factor, -1

    def __call__(self, out: Tensor, x: Tensor, mean: Tensor, logvar: Tensor) -> Tensor:
        self.step += 1
        weight = self.factor(self.step)
        kl = divergence(mean, logvar)
        return F.mse_loss(out, x, reduction="sum") / len(x) + weight * kl


class Divided(Weighted):
    def __call__(self, out: Tensor, x: Tensor, mean: Tensor, logvar: Tensor) -> Tensor:
        self.step += 1
        error, kl = (out - x).square().sum(1).mean(), divergence(mean, logvar)
        return error + kl * self.step / 20


class OfMethod(Weighted):
    def weight(self) -> float:
        return self.step / 20

    def __call__(self, out: Tensor, x: Tensor, mean: Tensor, logvar: Tensor) -> Tensor:
        self.step += 1
        error, kl = (out - x).square().sum(1).mean(), divergence(mean, logvar)
        return error + self.weight() * kl


class RaisedByEpoch(Weighted):
    beta = 0.0

    def __call__(self, out: Tensor, x: Tensor, mean: Tensor, logvar: Tensor) -> Tensor:
        self.step += 1
        error, kl = ((out - x) ** 2).sum(1).mean(), divergence(mean, logvar)
        if self.step % 25 == 0:
            self.beta += 0.9
        return error + self.beta * kl


class OfDistributions(Weighted):
    def __call__(self, out: Tensor, x: Tensor, mean: Tensor, logvar: Tensor) -> Tensor:
        self.step += 1
        posterior = torch.distributions.Normal(mean, (0.5 * logvar).exp())
        kl = torch.distributions.kl_divergence(posterior, torch.distributions.Normal(0.0, 1.0)).sum(1)
        return (F.mse_loss(out, x, reduction="none").sum(1) + self.factor(self.step) * kl).mean()


def without_bound(step: int) -> float:
    return step / 20


@pytest.mark.parametrize(
    ("loss", "factor", "line", "computed"),
    [
        (Weighted, without_bound, "+ weight * kl", ""),
        (OfMethod, without_bound, "+ self.weight() * kl", "return self.step / 20"),
        (Divided, without_bound, "kl * self.step / 20", ""),
        (RaisedByEpoch, without_bound, "+ self.beta * kl", "self.beta += 0.9"),
        (OfDistributions, without_bound, "self.factor(self.step) * kl).mean()", ""),
    ],
)
def test_a_factor_that_grows_without_bound(
    loss: type[Weighted], factor: Callable[[int], float], line: str, computed: str
) -> None:
    (found,) = found_in(loss(factor), steps=500, noise=0.02)
    assert (found.severity, found.confidence) == ("warning", "likely")
    assert found.title.startswith("the factor of the divergence keeps growing, from ")
    texts = {site.role: site.site.text for site in found.sites}
    assert line in texts.get("multiplied", texts["cause"])
    assert computed in texts["cause"]
    assert found.evidence["divergence_before"] > 0.5 > 0.05 > found.evidence["divergence"]


def test_a_factor_that_grew_too_far() -> None:
    (found,) = found_in(Weighted(lambda step: min(20.0, step / 20)), steps=600, noise=0.02)
    assert found.title.startswith("the factor of the divergence grew too far, from 1 to 20:")


@pytest.mark.parametrize(
    "factor",
    [
        lambda step: min(1.0, step / 100),  # a warm-up that ends
        lambda step: min(1.0, step % 100 / 50),  # cyclical annealing
        lambda step: 3.0,  # a constant weight; not all codes are used
    ],
)
def test_factors_that_leave_the_codes_alone(factor: Callable[[int], float]) -> None:
    assert found_in(Weighted(factor), noise=0.02) == []


def test_a_collapse_before_the_factor_is_large_is_not_its_growth() -> None:
    (found,) = found_in(Weighted(lambda step: 0.9 if step < 50 else step / 100), noise=0.0, scale=0.02)
    assert found.severity == "info"
