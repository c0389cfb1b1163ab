"""Losses that are put together from the wrong parts, in graphs of real models; and look-alikes that are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Bernoulli, Categorical

import backprobe

Loss = Callable[[Any, Any], Any]


def found_in(loss: Loss, steps: int = 1) -> list[Any]:
    """Return the findings of a classifier of five classes that is trained with `loss` of its scores and targets."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with backprobe.trace(model) as trace:
        for _ in range(steps):
            x = torch.randn(16, 6)
            optimizer.zero_grad()
            loss(model(x), x[:, :5].argmax(dim=1)).backward()
            optimizer.step()
    return list(trace.findings)


def binary(targets: Any) -> Any:
    return F.one_hot(targets, 5).float()


TWICE: dict[str, Loss] = {
    "label smoothing and weights": lambda x, y: F.cross_entropy(
        x.softmax(1), y, weight=torch.ones(5), label_smoothing=0.1
    ),
    "soft targets": lambda x, y: F.cross_entropy(x.softmax(1), binary(y)),
    "modules": lambda x, y: nn.CrossEntropyLoss(reduction="sum")(nn.Softmax(dim=1)(x), y),
    "by hand": lambda x, y: -F.log_softmax(F.softmax(x, 1), 1).gather(1, y[:, None]).mean(),
    "views, an index and a cast": lambda x, y: F.cross_entropy(
        x.softmax(1)[None].squeeze(0).view(4, 4, 5)[1:].reshape(-1, 5).double(), y[4:]
    ),
    "two dimensions": lambda x, y: F.cross_entropy(x.softmax(1).view(2, 8, 5).transpose(1, 2), y.view(2, 8)),
    "a distribution": lambda x, y: -Categorical(logits=x.softmax(1)).log_prob(y).mean(),
    "sigmoid": lambda x, y: F.binary_cross_entropy_with_logits(x.sigmoid(), binary(y), pos_weight=torch.ones(5)),
    "sigmoid twice": lambda x, y: F.binary_cross_entropy(x.sigmoid().flatten().sigmoid(), binary(y).flatten()),
    "sigmoid of many labels": lambda x, y: F.multilabel_soft_margin_loss(x.sigmoid(), binary(y)),
    "sigmoid of classes": lambda x, y: F.cross_entropy(x.sigmoid(), y),
    "a focal loss": lambda x, y: ((1 - x.softmax(1)) ** 2 * -x.softmax(1).log_softmax(1) * binary(y)).sum(1).mean(),
}

WITHOUT_LOGARITHM: dict[str, Loss] = {
    "kl_div": lambda x, y: F.kl_div(x.softmax(1), binary(y), reduction="batchmean"),
    "kl_div of two that learn": lambda x, y: F.kl_div(x.softmax(1), x.flip(0).softmax(1), reduction="sum"),
    "kl_div of logarithms": lambda x, y: F.kl_div(
        x.softmax(1), x.flip(0).log_softmax(1), log_target=True, reduction="sum"
    ),
    "a module": lambda x, y: nn.KLDivLoss(reduction="none")(x.sigmoid().view(8, 10), binary(y).view(8, 10)).mean(),
    "nll_loss": lambda x, y: F.nll_loss(x.softmax(1), y),
    "nll_loss of pixels": lambda x, y: F.nll_loss(x.view(2, 8, 5).transpose(1, 2).softmax(1), y.view(2, 8)),
    "ctc_loss": lambda x, y: F.ctc_loss(
        x[:, None].softmax(2), torch.tensor([[1, 2]]), torch.tensor([16]), torch.tensor([2])
    ),
}

RIGHT: dict[str, Loss] = {
    "kl_div of logarithms": lambda x, y: F.kl_div(x.log_softmax(1), x.flip(0).softmax(1), reduction="batchmean"),
    "kl_div of two logarithms": lambda x, y: F.kl_div(
        x.log_softmax(1), x.flip(0).log_softmax(1), log_target=True, reduction="sum"
    ),
    "a mean probability": lambda x, y: -x.softmax(1).gather(1, y[:, None]).mean(),
    "cross_entropy": lambda x, y: F.cross_entropy(x, y),
    "log_softmax twice": lambda x, y: F.cross_entropy(F.log_softmax(x, 1), y),
    "a temperature": lambda x, y: F.cross_entropy(x.softmax(1) / 0.05, y),
    "a mixture": lambda x, y: F.nll_loss((0.5 * x.softmax(1) + 0.5 * x.flip(0).softmax(1) + 1e-8).log(), y),
    "distillation": lambda x, y: F.kl_div(x.log_softmax(1), (x.detach() / 2).softmax(1), reduction="batchmean"),
    "targets with a graph": lambda x, y: F.binary_cross_entropy_with_logits(x, x.flip(0).sigmoid()),
    "mutual learning": lambda x, y: -(x.flip(0).softmax(1) * x.log_softmax(1)).sum(1).mean(),
    "binary_cross_entropy": lambda x, y: F.binary_cross_entropy(x.sigmoid(), binary(y)),
    "softmax and binary_cross_entropy": lambda x, y: F.binary_cross_entropy(x.softmax(1), binary(y)),
    "distributions": lambda x, y: (
        -(Categorical(probs=x.softmax(1)).log_prob(y).mean() + Bernoulli(probs=x.sigmoid()).log_prob(binary(y)).mean())
    ),
    "a focal loss": lambda x, y: ((1 - x.softmax(1)) ** 2 * -x.log_softmax(1) * binary(y)).sum(1).mean(),
    "attention over classes": lambda x, y: F.cross_entropy(x.softmax(1) @ torch.randn(5, 5), y),
    "relu before the mean": lambda x, y: F.cross_entropy(x.relu().view(16, 5, 1).expand(16, 5, 3).mean(2), y),
    "a positive regression": lambda x, y: F.mse_loss(x.relu(), binary(y)),
}


@pytest.mark.parametrize("name", TWICE)
def test_probabilities_that_are_normalised_again(name: str) -> None:
    found = found_in(TWICE[name])
    assert [one.kind for one in found] == ["normalised-twice"]
    assert found[0].confidence == "certain"


def test_the_number_of_classes_and_the_least_loss() -> None:
    for name in ("label smoothing and weights", "two dimensions", "views, an index and a cast", "a distribution"):
        (found,) = found_in(TWICE[name])
        assert (found.evidence["classes"], round(found.evidence["least_loss"], 4)) == (5, 0.9048), name


def test_the_least_loss_is_that_of_certain_predictions() -> None:
    (found,) = found_in(TWICE["soft targets"])
    best = F.cross_entropy((1e4 * torch.eye(5)).softmax(1), torch.arange(5))
    assert abs(found.evidence["least_loss"] - float(best)) < 1e-6


@pytest.mark.parametrize("name", WITHOUT_LOGARITHM)
def test_probabilities_in_the_place_of_their_logarithms(name: str) -> None:
    found = [one for one in found_in(WITHOUT_LOGARITHM[name]) if one.kind == "logarithm-missing"]
    assert [(one.confidence, one.step) for one in found] == [("certain", 0)]
    text = found[0].sites[0].site.text
    assert "softmax(" in text or "sigmoid(" in text, found[0].sites


@pytest.mark.parametrize("name", RIGHT)
def test_right_losses_are_silent(name: str) -> None:
    assert [one.kind for one in found_in(RIGHT[name], 8)] == []


def test_relu_before_a_loss() -> None:
    (found,) = found_in(lambda x, y: F.cross_entropy(nn.ReLU(inplace=True)(x), y))
    assert (found.kind, found.confidence) == ("logits-never-negative", "likely")
    (found,) = found_in(lambda x, y: F.binary_cross_entropy(x.relu().sigmoid(), binary(y)))
    assert "no probability is below 0.5" in found.title


MINIMISED: dict[str, Loss] = {
    "gather": lambda x, y: x.log_softmax(1).gather(1, y[:, None]).mean(),
    "an index, and a quotient": lambda x, y: x.log_softmax(1)[torch.arange(16), y].sum() / 16,
    "a logarithm": lambda x, y: (x.softmax(1) + 1e-9).log().gather(1, y[:, None]).squeeze(1).mean(),
    "a distribution": lambda x, y: Categorical(logits=x).log_prob(y).mean(),
    "pairs": lambda x, y: (x @ x.t()).log_softmax(1).diagonal().mean(),
}

MEANT: dict[str, Loss] = {
    "a minus": lambda x, y: -x.log_softmax(1).gather(1, y[:, None]).mean(),
    "a policy gradient": lambda x, y: (Categorical(logits=x).log_prob(y) * torch.ones(16)).mean(),
    "an entropy bonus": lambda x, y: Categorical(logits=x).log_prob(y).mean() - Categorical(logits=x).entropy().mean(),
    "cross entropy that is maximised": lambda x, y: -F.cross_entropy(x, y),
    "all classes": lambda x, y: x.log_softmax(1).mean(),
}


@pytest.mark.parametrize("name", MINIMISED)
def test_a_likelihood_without_a_minus(name: str) -> None:
    found = found_in(MINIMISED[name], 10)
    assert [one.kind for one in found] == ["minimised-likelihood"]
    assert found[0].evidence["last"] < found[0].evidence["first"] < 0


@pytest.mark.parametrize("name", MEANT)
def test_likelihoods_in_other_losses(name: str) -> None:
    assert "minimised-likelihood" not in [one.kind for one in found_in(MEANT[name], 10)]


def trained_against(judge_learns: bool, steps: int = 10) -> list[str]:
    """Train something to make the class that a judge gives it unlikely, and the judge, or not."""
    torch.manual_seed(0)
    maker, judge = nn.Linear(4, 6), nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    makers, judges = torch.optim.SGD(maker.parameters(), lr=0.1), torch.optim.SGD(judge.parameters(), lr=0.01)
    fake = torch.ones(16, 1, dtype=torch.long)
    with backprobe.trace(nn.ModuleList([maker, judge])) as trace:
        for _ in range(steps):
            if judge_learns:
                loss = F.cross_entropy(judge(maker(torch.randn(16, 4)).detach()), fake[:, 0])
                judges.zero_grad()
                loss.backward()
                judges.step()
            makers.zero_grad()
            judge(maker(torch.randn(16, 4))).log_softmax(1).gather(1, fake).mean().backward()
            makers.step()
    return [one.kind for one in trace.findings]


@pytest.mark.parametrize("judge_learns", [True, False])
def test_a_generator_may_make_a_class_unlikely(judge_learns: bool) -> None:
    assert "minimised-likelihood" not in trained_against(judge_learns)
