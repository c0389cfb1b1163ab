"""Losses that nothing divides by the number of accumulated batches, and losses of which the sum is right or meant."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import backprobe
from backprobe.observe.backward.accumulating_libraries import BackwardCaller
from backprobe.observe.trackers import undivided_losses

Tensor = torch.Tensor
#: Batches of a step, samples of a batch, and classes.
COUNT, SAMPLES, CLASSES = 3, 8, 4
accumulation_steps = COUNT


def cross_entropy(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out, y)


def smoothed(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out, y, label_smoothing=0.1)


def weighted(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out, y, weight=torch.tensor([1.0, 2, 1, 1]))


def squares(out: Tensor, y: Tensor) -> Tensor:
    return (out - F.one_hot(y, CLASSES)).square().mean()


def sum_over_samples(out: Tensor, y: Tensor) -> Tensor:
    return F.kl_div(out.log_softmax(-1), F.one_hot(y, CLASSES).float(), reduction="batchmean")


def by_hand(out: Tensor, y: Tensor) -> Tensor:
    return -out.log_softmax(-1).gather(1, y[:, None]).sum() / len(y)


def over_a_mask(out: Tensor, y: Tensor) -> Tensor:
    mask = (y > 0).float()
    return (F.cross_entropy(out, y, reduction="none") * mask).sum() / mask.sum()


def of_labels(out: Tensor, y: Tensor) -> Tensor:
    labels = y.where(y > 0, -100)
    return F.cross_entropy(out, labels, reduction="sum") / (labels >= 0).sum()


def with_a_penalty(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out, y) + 0.01 * out.square().mean()


MEANS = [cross_entropy, smoothed, weighted, squares, sum_over_samples, by_hand, over_a_mask, of_labels, with_a_penalty]


def divided(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out, y) / COUNT


def multiplied(out: Tensor, y: Tensor) -> Tensor:
    return (1 / COUNT) * with_a_penalty(out, y)


def of_all_labels(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out, y, reduction="sum") / torch.tensor(COUNT * SAMPLES)


def of_all_elements(out: Tensor, y: Tensor) -> Tensor:
    return (out - F.one_hot(y, CLASSES)).square().sum() / (COUNT * out.numel())


def share_of_samples(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out, y) * len(y) / (COUNT * SAMPLES)


def summed(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out, y, reduction="sum")


def unknown(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out, y).exp()


RIGHT = [divided, multiplied, of_all_labels, of_all_elements, share_of_samples, summed, unknown]


def found_in(
    loss_of: Callable[[Tensor, Tensor], Tensor],
    before_step: Callable[[nn.Module], object] = lambda model: None,
    model: nn.Module | None = None,
) -> list[backprobe.Finding]:
    """The findings of a run that accumulates the gradients of `COUNT` batches in each step."""
    torch.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with backprobe.trace(model) as trace:
        for _ in range(6):
            for _ in range(COUNT):
                x = torch.randn(SAMPLES, 6)
                loss_of(model(x), x[:, :CLASSES].argmax(1)).backward()
            before_step(model)
            optimizer.step()
            optimizer.zero_grad()
    return [one for one in trace.findings if one.kind == "accumulation-not-averaged"]


@pytest.fixture
def by_trainer(monkeypatch) -> None:
    """Backward calls are taken for those of a Trainer that expects a division by the number of labels."""
    caller = BackwardCaller("transformers", float(COUNT * SAMPLES))
    monkeypatch.setattr(undivided_losses, "backward_caller", lambda frame: caller)


@pytest.mark.parametrize("loss_of", MEANS)
def test_means_of_a_trainer(loss_of: Callable[[Tensor, Tensor], Tensor], by_trainer) -> None:
    (found,) = found_in(loss_of)
    assert (found.evidence["by"], found.evidence["count"]) == ("transformers", COUNT)
    assert (found.sites[0].role, found.sites[0].site.function) == ("cause", loss_of.__name__)


@pytest.mark.parametrize("loss_of", RIGHT)
def test_losses_that_a_trainer_expects(loss_of: Callable[[Tensor, Tensor], Tensor], by_trainer) -> None:
    assert not found_in(loss_of)


@pytest.mark.parametrize("loss_of", MEANS + RIGHT)
def test_a_sum_that_nothing_was_to_divide(loss_of: Callable[[Tensor, Tensor], Tensor]) -> None:
    assert not found_in(loss_of)


def divide_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad.div_(COUNT)


def test_gradients_that_the_script_divides(by_trainer) -> None:
    assert not found_in(cross_entropy, before_step=divide_gradients)


def test_gradients_that_a_hook_divides(by_trainer) -> None:
    model = nn.Linear(6, CLASSES)
    for parameter in model.parameters():
        parameter.register_hook(lambda grad: grad / COUNT)
    assert not found_in(cross_entropy, model=model)


def test_clipping_does_not_divide(by_trainer) -> None:
    assert found_in(cross_entropy, before_step=lambda model: nn.utils.clip_grad_norm_(model.parameters(), 1.0))


@pytest.mark.parametrize(("given", "is_found"), [(COUNT, True), (1, False), (COUNT + 1, False)])
def test_an_accelerator_that_the_script_goes_around(given: int, is_found: bool, monkeypatch) -> None:
    monkeypatch.setattr(undivided_losses, "accelerate_count", lambda: given)
    found = found_in(squares)
    assert [one.evidence["by"] for one in found] == ["accelerate"] * is_found
    assert not is_found or (found[0].sites[0].site.text.endswith(".backward()"), found[0].sites[1].role) == (
        True,
        "made",
    )
    assert not found_in(divided)


def partly(out: Tensor, y: Tensor) -> Tensor:
    penalty = out.square().mean()
    return F.cross_entropy(out, y) / accumulation_steps + 0.1 * penalty


def by_another_number(out: Tensor, y: Tensor) -> Tensor:
    halves = COUNT
    return F.cross_entropy(out, y) / halves + 0.1 * out.square().mean()


def all_terms(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out, y) / accumulation_steps + 0.1 * out.square().mean() / accumulation_steps


def test_a_term_that_is_not_divided() -> None:
    (found,) = found_in(partly)
    assert [(one.role, one.site.text.split(" ")[0]) for one in found.sites[:2]] == [
        ("cause", "penalty"),
        ("term", "return"),
    ]


@pytest.mark.parametrize("loss_of", [by_another_number, all_terms])
def test_terms_that_are_divided_alike(loss_of: Callable[[Tensor, Tensor], Tensor]) -> None:
    assert not found_in(loss_of)


def test_two_losses_of_a_step(by_trainer) -> None:
    """A sum of two different losses is no sum over batches."""
    losses = [cross_entropy, squares, smoothed]

    def each(out: Tensor, y: Tensor) -> Tensor:
        losses.append(losses.pop(0))
        return losses[0](out, y)

    assert not found_in(each)


def test_a_step_of_one_call(by_trainer) -> None:
    model = nn.Linear(6, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with backprobe.trace(model) as trace:
        for _ in range(6):
            optimizer.zero_grad()
            squares(model(torch.randn(SAMPLES, 6)), torch.zeros(SAMPLES, dtype=torch.long)).backward()
            optimizer.step()
    assert not trace.findings
