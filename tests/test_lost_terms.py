"""Terms of a loss that have no graph, by mistake and on purpose."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector

Loss = Callable[[Any, torch.Tensor], torch.Tensor]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 2)
        self.frozen = nn.Linear(2, 1).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> Any:
        hidden = self.body(x).tanh()
        return self.head(hidden), hidden


def watched(loss_of: Loss, settings: Settings | None = None, steps: int = 4) -> Any:
    """The trace of some steps with a loss of a model and a batch; another optimizer trains another model."""
    torch.manual_seed(0)
    collector = Collector()
    session = Session(collector, settings or Settings(budget=None))
    session.start()
    model = Model()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(steps):
            x = torch.randn(16, 4)
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()
    session.stop()
    assert session.error is None, repr(session.error)
    assert session.events.faults.unseen() == []
    return collector.trace(session)


def main_loss(model: Any, x: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(x)[0], (x[:, 0] > 0).long())


def by_item(model: Any, x: torch.Tensor) -> torch.Tensor:
    penalty = model(x)[1].abs().mean().item()  # cut
    return main_loss(model, x) + 0.1 * penalty


def by_item_where_it_is_added(model: Any, x: torch.Tensor) -> torch.Tensor:
    penalty = model(x)[1].abs().mean()
    return main_loss(model, x) + 0.1 * penalty.item()  # cut


def by_float_where_it_is_added(model: Any, x: torch.Tensor) -> torch.Tensor:
    penalty = model(x)[1].abs().mean()
    loss = main_loss(model, x)
    loss -= float(penalty) / 10  # cut
    return loss


def by_sum_of_items(model: Any, x: torch.Tensor) -> torch.Tensor:
    penalty = 0.0
    for p in model.parameters():
        penalty += p.pow(2).sum().item()  # cut
    return main_loss(model, x) + 1e-3 * penalty


def by_item_and_tensor(model: Any, x: torch.Tensor) -> torch.Tensor:
    parts = [row.sum().item() for row in model(x)[1][:3]]  # cut
    penalty = torch.tensor(parts).mean()
    return main_loss(model, x) + 0.5 * penalty


def by_data(model: Any, x: torch.Tensor) -> torch.Tensor:
    penalty = torch.zeros(())
    for p in model.parameters():
        penalty = penalty + p.data.norm()  # cut
    return (main_loss(model, x) + 1e-3 * penalty) / 2


def by_detach(model: Any, x: torch.Tensor) -> torch.Tensor:
    hidden = model(x)[1].detach()  # cut
    loss = main_loss(model, x)
    loss += hidden.square().mean()
    return loss


def by_numpy(model: Any, x: torch.Tensor) -> torch.Tensor:
    hidden = model(x)[1].detach().numpy()  # cut
    penalty = torch.from_numpy(np.abs(hidden)).mean()
    return main_loss(model, x) + penalty


def by_no_grad(model: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():  # cut
        score = model.frozen(model(x)[0]).mean()
    return main_loss(model, x) - 0.1 * score


@torch.no_grad()  # cut
def generate(model: Any, x: torch.Tensor) -> torch.Tensor:
    return model(x)[0].softmax(1)


def by_decorator_and_stack(model: Any, x: torch.Tensor) -> torch.Tensor:
    score = model.frozen(generate(model, x)).mean()
    return torch.stack([main_loss(model, x), score]).sum()


def by_difference_in_accumulation(model: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():  # cut
        entropy = torch.distributions.Categorical(logits=model(x)[0]).entropy().mean()
    loss = main_loss(model, x) - 0.1 * entropy
    return loss / 4


def by_gradient_penalty(model: Any, x: torch.Tensor) -> torch.Tensor:
    mixed = (0.5 * x).requires_grad_()
    (slope,) = torch.autograd.grad(model(mixed)[0].sum(), mixed, retain_graph=True)  # cut
    return main_loss(model, x) + 10.0 * (slope.norm(dim=1) - 1).square().mean()


def by_forces(model: Any, x: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_()
    energy = model(x)[1].square().mean(1)
    forces = -torch.autograd.grad(energy.sum(), x, retain_graph=True)[0]  # cut
    return main_loss(model, x.detach()) + F.mse_loss(energy, x.detach().sum(1)) + F.mse_loss(forces, x.detach().sin())


def by_threshold(model: Any, x: torch.Tensor) -> torch.Tensor:
    hard = (model(x)[1] > 0.1).float().requires_grad_()  # cut
    return main_loss(model, x) + 0.5 * (1 - hard[:, :3]).mean()


def by_rounding(model: Any, x: torch.Tensor) -> torch.Tensor:
    counts = model(x)[1].detach().round()  # cut
    counts.requires_grad = True
    return main_loss(model, x) + 0.1 * counts.abs().mean()


def by_masked_values(model: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():  # cut
        hidden = model(x)[1]
        score = ((hidden > 0).float() * model.body(x)).mean()
    return main_loss(model, x) + score


def by_mask_of_the_graph(model: Any, x: torch.Tensor) -> torch.Tensor:
    hidden = model(x)[1]
    mask = (hidden > 0).float()
    with torch.no_grad():  # cut
        score = (mask * hidden).mean()
    return main_loss(model, x) + score


MISTAKES = [
    by_masked_values,
    by_mask_of_the_graph,
    by_threshold,
    by_rounding,
    by_gradient_penalty,
    by_forces,
    by_difference_in_accumulation,
    by_item,
    by_item_where_it_is_added,
    by_float_where_it_is_added,
    by_sum_of_items,
    by_item_and_tensor,
    by_data,
    by_detach,
    by_numpy,
    by_no_grad,
    by_decorator_and_stack,
]


@pytest.mark.parametrize("loss_of", MISTAKES)
def test_terms_without_a_graph(loss_of: Loss) -> None:
    trace = watched(loss_of)
    (found,) = trace.findings
    assert found.kind == "loss-term-without-graph" and found.step == 0
    assert found.sites[0].role == "cut" and found.sites[0].site.text.endswith("# cut")
    term = found.sites[-1]
    assert term.role == "term" and any(sign in term.site.text for sign in ("+", "-", "stack"))


def straight_through(model: Any, x: torch.Tensor) -> torch.Tensor:
    logits, _ = model(x)
    soft = logits.softmax(1)
    hard = soft + (F.one_hot(soft.argmax(1), 2) - soft).detach()
    value = main_loss(model, x)
    return value + (hard.sum() - value).detach() + model.frozen(hard).mean()


def written_out(model: Any, x: torch.Tensor) -> torch.Tensor:
    loss, other = main_loss(model, x), model(x)[1].mean()
    return loss + other.detach() + 0.1 * float(other)


def codebook_without_gradient(model: Any, x: torch.Tensor) -> torch.Tensor:
    """A moving average trains the codebook: the first term has the value of the second, and no graph."""
    _, z = model(x)
    codes = z.detach().round()
    first = F.mse_loss(codes, z.detach())
    second = F.mse_loss(codes.detach(), z)
    return main_loss(model, x) + first + 0.25 * second


def weights_by_value(model: Any, x: torch.Tensor) -> torch.Tensor:
    first, second = main_loss(model, x), model(x)[1].square().mean()
    scale = first.detach() / second.detach()
    with torch.no_grad():
        adaptive = 0.5 + second.sigmoid()
    return first + scale * second + adaptive * model(x)[0].square().mean()


def temporal_difference(model: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        target = x[:, 0] + 0.9 * model(x + 1)[0].max(1).values
    value = model(x)[0].gather(1, (x[:, :1] > 0).long()).squeeze(1)
    return (target - value).square().mean() + (target.mean() - value.mean()) ** 2


def greedy_baseline(model: Any, x: torch.Tensor) -> torch.Tensor:
    log_prob = model(x)[0].log_softmax(1)[:, 0]
    reward = model(x)[0].detach()[:, 1]
    with torch.no_grad():
        baseline = model(x)[0][:, 1]
    return -((reward - baseline + x[:, 0]) * log_prob).mean() + 0.01 * model(x)[1].square().mean()


def improvement(model: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        before = main_loss(model, x + 0.1)
    return main_loss(model, x) - before


def teacher(model: Any, x: torch.Tensor) -> torch.Tensor:
    """The terms of a divergence: that of the teacher has no gradient, and no parameter that is trained."""
    p = model.frozen(x[:, :2]).sigmoid()
    q = model(x)[0][:, :1].sigmoid()
    return (p * p.log()).mean() - (p * q.log()).mean()


def of_value_zero(model: Any, x: torch.Tensor) -> torch.Tensor:
    loss = main_loss(model, x)
    return loss - loss.item() + 2.0 * model(x)[1].abs().mean()


def chosen_by_a_number(model: Any, x: torch.Tensor) -> torch.Tensor:
    penalty = model(x)[1].abs().mean()
    return main_loss(model, x) + (0.5 if penalty.item() > 0.1 else 0.25)


def logged_only(model: Any, x: torch.Tensor) -> torch.Tensor:
    loss = main_loss(model, x)
    running = 0.9 * loss.item() + 0.1
    smooth = torch.tensor(0.1)
    floor = 0.25
    assert running
    return loss + smooth + floor


def other_model(model: Any, x: torch.Tensor) -> torch.Tensor:
    """A score that no optimizer of this step trains."""
    critic = nn.Linear(2, 1)
    with torch.no_grad():
        real = critic(x[:, :2]).mean()
    return real - critic(model(x)[0]).mean()


def penalty_to_an_old_policy(model: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        before = model(x + 0.1)[0].log_softmax(1)[:, 0].mean()
    after = model(x)[0].log_softmax(1)[:, 0].mean()
    return main_loss(model, x) + 0.5 * (before - after)


def flooding(model: Any, x: torch.Tensor) -> torch.Tensor:
    return (main_loss(model, x) - 0.1).abs() + 0.1


def gradient_penalty(model: Any, x: torch.Tensor) -> torch.Tensor:
    mixed = (0.5 * x).requires_grad_()
    (slope,) = torch.autograd.grad(model(mixed)[0].sum(), mixed, create_graph=True)
    return main_loss(model, x) + 10.0 * (slope.norm(dim=1) - 1).square().mean()


def adversarial_input(model: Any, x: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(main_loss(model, x), x)
    return main_loss(model, x.detach()) + main_loss(model, x.detach() + 0.1 * slope.sign())


def weight_by_gradient_norms(model: Any, x: torch.Tensor) -> torch.Tensor:
    first, second = main_loss(model, x), model(x)[1].square().mean()
    of_first, of_second = (
        torch.autograd.grad(one, model.body.weight, retain_graph=True)[0].norm() for one in (first, second)
    )
    return first + (of_first / (of_second + 1e-4)).clamp(0, 10) * second


def slope_of_the_target(model: Any, x: torch.Tensor) -> torch.Tensor:
    """The gradient of a function of the data, which no optimizer trains."""
    y = x.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(y.sin().sum(), y)
    return main_loss(model, x) + (model(x)[0] - wanted[:, :2]).square().mean() + wanted.square().mean()


def backward_in_two_parts(model: Any, x: torch.Tensor) -> torch.Tensor:
    """The gradient of what was cut is passed on by hand."""
    hidden = model(x)[1]
    cut = hidden.detach().requires_grad_()
    (main_loss(model, x) + 0.1 * cut.square().mean()).backward()
    assert cut.grad is not None
    hidden.backward(cut.grad)
    return main_loss(model, x)


def sensitivity(model: Any, x: torch.Tensor) -> torch.Tensor:
    """The gradient of what was cut is asked for, and only looked at."""
    cut = model(x)[1].detach().requires_grad_()
    (slope,) = torch.autograd.grad(main_loss(model, x) + cut.square().sum(), cut)
    assert slope.norm() > 0
    return main_loss(model, x)


def head_on_cut_features(model: Any, x: torch.Tensor) -> torch.Tensor:
    """A probe learns on features that it must not change."""
    cut = model(x)[1].detach().requires_grad_()
    return main_loss(model, x) + F.cross_entropy(model.head(cut), (x[:, 1] > 0).long())


def accuracy(model: Any, x: torch.Tensor) -> torch.Tensor:
    """A number from a comparison that weighs a term."""
    right = (model(x)[0].argmax(1) == (x[:, 0] > 0)).float().mean()
    return main_loss(model, x) + (1 - right) * model(x)[1].square().mean()


MEANT = [
    of_value_zero,
    chosen_by_a_number,
    backward_in_two_parts,
    sensitivity,
    head_on_cut_features,
    accuracy,
    gradient_penalty,
    adversarial_input,
    weight_by_gradient_norms,
    slope_of_the_target,
    straight_through,
    written_out,
    codebook_without_gradient,
    weights_by_value,
    temporal_difference,
    greedy_baseline,
    improvement,
    teacher,
    logged_only,
    other_model,
    flooding,
    penalty_to_an_old_policy,
]


@pytest.mark.parametrize("loss_of", MEANT)
def test_terms_that_are_meant(loss_of: Loss) -> None:
    found = watched(loss_of).findings
    assert [one.title for one in found if one.kind == "loss-term-without-graph"] == []


def test_a_term_that_loses_its_graph_later() -> None:
    count = iter(range(1000))

    def loss_of(model: Any, x: torch.Tensor) -> torch.Tensor:
        penalty = model(x)[1].square().mean()
        if next(count) >= 150:
            penalty = penalty.detach()
        return main_loss(model, x) + penalty

    found = [one for one in watched(loss_of, Settings(), 400).findings if one.severity != "info"]
    assert [one.kind for one in found] == ["loss-term-without-graph"]
    assert found[0].step is not None and found[0].step >= 150
