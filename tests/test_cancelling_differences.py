"""Losses that compare a value with itself, with a graph on both sides, and those that only look like it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical, Normal, kl_divergence

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import CancellingDifference

Loss = Callable[[Any, torch.Tensor], torch.Tensor]


class Policy(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(dropout))
        self.pi, self.other, self.v = nn.Linear(16, 4), nn.Linear(16, 4), nn.Linear(16, 1)
        self.scale = nn.Parameter(torch.zeros(4))
        self.kept: dict[str, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pi(self.body(x))

    def log_prob(self, x: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return Categorical(logits=self(x)).log_prob(actions)


def watched(loss_of: Loss, steps: int = 5, model: nn.Module | None = None) -> Any:
    """Return the trace of some steps of Adam, each with a new batch."""
    torch.manual_seed(0)
    model = Policy() if model is None else model
    collector = Collector()
    session = Session(collector, Settings(budget=None))
    session.start()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, torch.randn(32, 6)).backward()
        optimizer.step()
    session.stop()
    assert session.error is None, repr(session.error)
    assert session.events.faults.unseen() == []
    return collector.trace(session)


def surrogate(model: Any, x: torch.Tensor, ratio: torch.Tensor) -> torch.Tensor:
    """Return a loss of ratios of probabilities, and of the value of each state."""
    advantages = x.sum(1)
    policy = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
    return F.mse_loss(model.v(model.body(x)).squeeze(-1), x.sum(1)) - policy


def again(model: Any, x: torch.Tensor) -> torch.Tensor:
    logp = Categorical(logits=model(x)).log_prob(x.argmax(1) % 4)
    old_logp = Categorical(logits=model(x)).log_prob(x.argmax(1) % 4)  # cause
    return surrogate(model, x, torch.exp(logp - old_logp))  # compares


def old_first(model: Any, x: torch.Tensor) -> torch.Tensor:
    old_logp = model.log_prob(x, x.argmax(1) % 4)  # cause
    logp = model.log_prob(x, x.argmax(1) % 4)
    ratio = (logp - old_logp).exp()  # compares
    return surrogate(model, x, ratio)


def unnamed(model: Any, x: torch.Tensor) -> torch.Tensor:
    a = model.log_prob(x, x.argmax(1) % 4)
    b = model.log_prob(x, x.argmax(1) % 4)  # cause
    return surrogate(model, x, torch.exp(torch.sub(a, b)))  # compares


def given(logp: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    return torch.exp(logp - reference)  # compares


def in_a_function(model: Any, x: torch.Tensor) -> torch.Tensor:
    logp = model.log_prob(x, x.argmax(1) % 4)
    kept = model.log_prob(x, x.argmax(1) % 4)  # cause
    return surrogate(model, x, given(logp, kept))


def from_a_dictionary(model: Any, x: torch.Tensor) -> torch.Tensor:
    actions = x.argmax(1) % 4
    model.kept["old"] = Categorical(logits=model(x)).log_prob(actions)  # cause
    logp = Categorical(logits=model(x)).log_prob(actions)
    return surrogate(model, x, torch.exp(logp - model.kept["old"]))  # compares


def same_tensor(model: Any, x: torch.Tensor) -> torch.Tensor:
    logp = model.log_prob(x, x.argmax(1) % 4)
    old_logp = logp  # cause
    return surrogate(model, x, torch.exp(logp - old_logp))  # compares


def cloned(model: Any, x: torch.Tensor) -> torch.Tensor:
    logp = model.log_prob(x, x.argmax(1) % 4)
    old_logp = logp.clone()  # cause
    log_ratio = (logp - old_logp).clamp(-20, 20)  # compares
    return surrogate(model, x, log_ratio.exp())


def same_distribution(model: Any, x: torch.Tensor) -> torch.Tensor:
    policy = Categorical(logits=model(x))
    logp = policy.log_prob(x.argmax(1) % 4)
    old_logp = policy.log_prob(x.argmax(1) % 4)  # cause
    return surrogate(model, x, torch.exp(logp - old_logp))  # compares


def made_row_by_row(model: Any, x: torch.Tensor) -> torch.Tensor:
    actions = x.argmax(1) % 4
    kept = [model.log_prob(x[i : i + 1], actions[i : i + 1])[0] for i in range(len(x))]  # cause
    logp = model.log_prob(x, actions)
    return surrogate(model, x, torch.exp(logp - torch.stack(kept)))  # compares


def quotient(model: Any, x: torch.Tensor) -> torch.Tensor:
    p, p_old = model(x).softmax(1), model(x).softmax(1)  # cause
    return surrogate(model, x, (p / p_old)[:, 0])  # compares


def divergence_to_itself(model: Any, x: torch.Tensor) -> torch.Tensor:
    logp = F.log_softmax(model(x), dim=-1)
    target = F.softmax(model(x), dim=-1)  # cause
    kl = F.kl_div(logp, target, reduction="batchmean")  # compares
    return F.cross_entropy(model.other(model.body(x)), x.argmax(1) % 4) + kl


def divergence_of_logarithms(model: Any, x: torch.Tensor) -> torch.Tensor:
    logp = F.log_softmax(model(x), dim=-1)
    ref_logp = F.log_softmax(model(x), dim=-1)  # cause
    kl = F.kl_div(logp, ref_logp, log_target=True, reduction="batchmean")  # compares
    return F.cross_entropy(model.other(model.body(x)), x.argmax(1) % 4) + kl


def divergence_of_distributions(model: Any, x: torch.Tensor) -> torch.Tensor:
    policy, before = Categorical(logits=model(x)), Categorical(logits=model(x))  # cause
    return surrogate(model, x, x[:, 0]) + kl_divergence(policy, before).mean()  # compares


def divergence_of_normal_distributions(model: Any, x: torch.Tensor) -> torch.Tensor:
    policy = Normal(model(x), model.scale.exp())
    reference = Normal(model(x), model.scale.exp())  # cause
    return surrogate(model, x, x[:, 0]) + kl_divergence(policy, reference).mean()  # compares


def consistency(model: Any, x: torch.Tensor) -> torch.Tensor:
    student = model(x)
    teacher = model(x)  # cause
    return F.cross_entropy(student, x.argmax(1) % 4) + F.mse_loss(student, teacher)  # compares


CANCEL = [
    *(again, old_first, unnamed, in_a_function, from_a_dictionary, same_tensor, cloned, same_distribution, quotient),
    *(divergence_to_itself, divergence_of_logarithms, divergence_of_distributions, consistency),
    divergence_of_normal_distributions,
    made_row_by_row,
]


@pytest.mark.parametrize("loss_of", CANCEL, ids=lambda one: one.__name__)
def test_a_term_whose_gradient_cancels(loss_of: Loss) -> None:
    trace = watched(loss_of)
    found = next(one for one in trace.findings if one.kind == "gradient-cancels")
    marks = [(one.site.text or "").partition("# ")[2] for one in found.sites]
    assert marks == ["cause", "compares"] and (found.step, found.evidence["steps"]) == (0, 3)


@pytest.mark.parametrize("loss_of", [again, same_tensor, quotient, divergence_to_itself], ids=lambda one: one.__name__)
def test_the_gradient_is_zero_indeed(loss_of: Loss) -> None:
    torch.manual_seed(0)
    model = Policy()
    found = torch.autograd.grad(loss_of(model, torch.randn(32, 6)), [*model.pi.parameters()])
    assert all(one.abs().max() < 1e-7 for one in found)


# Healthy


def without_graph(model: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        old_logp = model.log_prob(x, x.argmax(1) % 4)
    return surrogate(model, x, torch.exp(model.log_prob(x, x.argmax(1) % 4) - old_logp))


def on_policy(model: Any, x: torch.Tensor) -> torch.Tensor:
    logp = model.log_prob(x, x.argmax(1) % 4)
    return surrogate(model, x, torch.exp(logp - logp.detach()))


def attached_at_first(model: Any, x: torch.Tensor) -> torch.Tensor:
    """The old side is the new one in the first epoch of a batch, and stored in the second."""
    logp = model.log_prob(x, x.argmax(1) % 4)
    losses = []
    for old in (logp, model.kept.get("old", logp.detach() + 0.1)):
        losses.append(surrogate(model, x, torch.exp(logp - old)))
    model.kept["old"] = logp.detach()
    return sum(losses)


def r_drop(model: Any, x: torch.Tensor) -> torch.Tensor:
    one, other = F.log_softmax(model(x), 1), F.log_softmax(model(x), 1)
    kl = F.kl_div(one, other, log_target=True, reduction="batchmean")
    return F.nll_loss(one, x.argmax(1) % 4) + kl + F.kl_div(other, one.exp(), reduction="batchmean")


def augmented(model: Any, x: torch.Tensor) -> torch.Tensor:
    clean, noisy = model(x), model(x + 0.1 * torch.randn_like(x))
    return F.cross_entropy(clean, x.argmax(1) % 4) + F.mse_loss(clean, noisy)


def to_initial_weights(model: Any, x: torch.Tensor) -> torch.Tensor:
    if "start" not in model.kept:
        model.kept["start"] = model.pi.weight.detach().clone()
    return F.cross_entropy(model(x), x.argmax(1) % 4) + (model.pi.weight - model.kept["start"]).square().sum()


def squared_row_by_row(model: Any, x: torch.Tensor) -> torch.Tensor:
    """The same values, but no argument of an exponential."""
    kept = torch.stack([model.log_prob(x[i : i + 1], x[i : i + 1].argmax(1) % 4)[0] for i in range(len(x))])
    logp = model.log_prob(x, x.argmax(1) % 4)
    return surrogate(model, x, torch.exp(logp)) + (logp - kept).square().mean()


def row_by_row_without_graph(model: Any, x: torch.Tensor) -> torch.Tensor:
    actions = x.argmax(1) % 4
    kept = [model.log_prob(x[i : i + 1], actions[i : i + 1])[0].detach() for i in range(len(x))]
    return surrogate(model, x, torch.exp(model.log_prob(x, actions) - torch.stack(kept)))


def two_heads(model: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        model.other.weight.copy_(model.pi.weight)
        model.other.bias.copy_(model.pi.bias)
    h = model.body(x)
    return F.cross_entropy(model.pi(h), x.argmax(1) % 4) + F.mse_loss(model.pi(h), model.other(h))


def centred(model: Any, x: torch.Tensor) -> torch.Tensor:
    h = model(x)
    return F.cross_entropy(h - h.mean(1, keepdim=True) + h / h.norm(), x.argmax(1) % 4)


def common_scale(model: Any, x: torch.Tensor) -> torch.Tensor:
    """Two normal distributions of different states share a scale."""
    one, other = Normal(model(x), model.scale.exp()), Normal(model(x + 1), model.scale.exp())
    quotient = one.scale / other.scale
    by_hand = (quotient.square() + ((one.loc - other.loc) / other.scale).square()).mean() - quotient.log().mean()
    return F.cross_entropy(one.loc, x.argmax(1) % 4) + kl_divergence(one, other).mean() + by_hand


def zeros_at_first(model: Any, x: torch.Tensor) -> torch.Tensor:
    """A head that begins with zeros gives equal values for different states."""
    nn.init.zeros_(model.other.weight)
    one, other = model.other(model.body(x)), model.other(model.body(x.flip(0)))
    return F.cross_entropy(model(x), x.argmax(1) % 4) + F.mse_loss(one, other) + (one - other).square().mean()


def temporal(model: Any, x: torch.Tensor) -> torch.Tensor:
    now, then = (model.v(model.body(one)).squeeze(-1) for one in (x, x.roll(1, 0)))
    return (x.sum(1) + 0.9 * then - now).square().mean() + 0.01 * (then - now).square().mean()


def only_measured(model: Any, x: torch.Tensor) -> torch.Tensor:
    one, other = model(x), model(x)
    model.kept["drift"] = (one - other).abs().mean().detach()
    return F.cross_entropy(one, x.argmax(1) % 4)


def copied_reference(model: Any, x: torch.Tensor) -> torch.Tensor:
    reference = copy.deepcopy(model)
    return F.cross_entropy(model(x), x.argmax(1) % 4) + F.mse_loss(model(x), reference(x))


def tied(model: Any, x: torch.Tensor) -> torch.Tensor:
    one, other = model.pi.weight, model.pi.weight
    return F.cross_entropy(model(x), x.argmax(1) % 4) + F.mse_loss(one * 2, other * 2)


def turned(model: Any, x: torch.Tensor) -> torch.Tensor:
    """The first of four rotations turns nothing."""
    grid = x.reshape(8, 4, 6)[:, :, None].expand(8, 4, 4, 6)
    loss = F.cross_entropy(model(x), x.argmax(1) % 4)
    for k in range(4):
        loss = loss + (model(torch.rot90(grid, k, (1, 2))) - torch.rot90(model(grid), k, (1, 2))).square().mean()
    return loss + (model(grid) - model(grid + 0.1)).square().mean()


def more_noise_later(model: Any, x: torch.Tensor) -> torch.Tensor:
    """The noise of the second pass begins at zero and grows."""
    model.kept["noise"] = model.kept.get("noise", torch.tensor(-0.06)) + 0.02
    noisy = x + model.kept["noise"].clamp(min=0) * torch.randn_like(x)
    return F.cross_entropy(model(x), x.argmax(1) % 4) + F.mse_loss(model(x), model(noisy))


def one_row_of_each(model: Any, x: torch.Tensor) -> torch.Tensor:
    """Distances of all pairs of a batch of one."""
    z = model.body(x[:1])
    return F.cross_entropy(model.pi(z), x[:1].argmax(1) % 4) + (z[:, None] - z[None]).square().sum()


HEALTHY = [
    *(without_graph, on_policy, attached_at_first, augmented, to_initial_weights, two_heads, centred, common_scale),
    *(zeros_at_first, temporal, only_measured, copied_reference, tied, one_row_of_each, turned),
    *(squared_row_by_row, row_by_row_without_graph),
]


@pytest.mark.parametrize("loss_of", HEALTHY, ids=lambda one: one.__name__)
def test_terms_that_only_look_alike(loss_of: Loss) -> None:
    assert watched(loss_of).facts.of(CancellingDifference) == ()


def test_two_passes_that_differ_later() -> None:
    assert len(watched(more_noise_later, steps=3).facts.of(CancellingDifference)) == 1
    assert watched(more_noise_later, steps=34).facts.of(CancellingDifference) == ()


def test_two_passes_with_dropout() -> None:
    assert watched(r_drop, model=Policy(0.1)).facts.of(CancellingDifference) == ()


def test_two_passes_without_dropout() -> None:
    assert len(watched(r_drop, model=Policy(0.0)).facts.of(CancellingDifference)) == 2


def test_equal_in_the_first_two_steps_only() -> None:
    assert watched(again, steps=2).facts.of(CancellingDifference) == ()


def test_steps_without_an_update() -> None:
    """A scaler skips the optimizer, or the batch is one of several that are accumulated."""
    collector = Collector()
    session = Session(collector, Settings(budget=None))
    session.start()
    torch.manual_seed(0)
    model = Policy()
    frozen = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    for _ in range(5):
        again(model, torch.randn(32, 6)).backward()
        frozen.step()
    session.stop()
    assert session.error is None
    assert collector.trace(session).facts.of(CancellingDifference) == ()
