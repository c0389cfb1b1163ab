"""Losses that compare parameters with their own memory, and those that only look like it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import ReferenceNotCopied

Loss = Callable[[Any, torch.Tensor], torch.Tensor]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 16), nn.Linear(16, 4)
        self.kept: Any = None
        self.first: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).tanh())


def observed(loss_of: Loss, steps: int = 8) -> Any:
    """Return the trace of some steps of Adam, each with a new batch."""
    torch.manual_seed(0)
    model, collector = Net(), Collector()
    session = Session(collector, Settings(budget=None))
    session.start()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        x = torch.randn(32, 6)
        (F.cross_entropy(model(x), x.argmax(1) % 4) + loss_of(model, x)).backward()
        optimizer.step()
    session.stop()
    assert session.error is None, repr(session.error)
    assert session.events.faults.unseen() == []
    return collector.trace(session)


def anchored(model: Any, x: torch.Tensor) -> torch.Tensor:
    if model.kept is None:
        model.kept = {name: p.data for name, p in model.named_parameters()}  # kept
    return sum(((p - model.kept[name]) ** 2).sum() for name, p in model.named_parameters())  # compares


def start_of(model: Any) -> list[torch.Tensor]:
    return [p.detach() for p in model.parameters()]  # kept


def proximal(model: Any, x: torch.Tensor) -> torch.Tensor:
    if model.kept is None:
        model.kept = start_of(model)
    total = torch.zeros(())
    for p, start in zip(model.parameters(), model.kept, strict=True):
        total = total + torch.norm(p - start)  # compares
    return total


def of_a_state_dict(model: Any, x: torch.Tensor) -> torch.Tensor:
    if model.kept is None:
        model.kept = model.state_dict()  # kept
    return F.mse_loss(model.head.weight, model.kept["head.weight"])  # compares


def squared_distance(p: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    difference = p - reference  # compares
    return (difference * difference).sum()


def in_a_function(model: Any, x: torch.Tensor) -> torch.Tensor:
    if model.kept is None:
        model.kept = [model.body.weight.data, model.head.weight.data]  # kept
    return squared_distance(model.body.weight, model.kept[0]) + squared_distance(model.head.weight, model.kept[1])


def of_parameters(model: Any, x: torch.Tensor) -> torch.Tensor:
    if model.first is None:
        model.first = dict(model.named_parameters())  # kept
    return sum((p - model.first[name]).square().sum() for name, p in model.named_parameters())  # compares


def flattened(model: Any, x: torch.Tensor) -> torch.Tensor:
    if model.kept is None:
        model.kept = [p.detach() for p in model.parameters()]  # kept
    parts = [p.view(-1) - q.view(-1) for p, q in zip(model.parameters(), model.kept, strict=True)]  # compares
    return torch.cat(parts).norm()


ALIASED = [anchored, proximal, of_a_state_dict, in_a_function, of_parameters, flattened]


@pytest.mark.parametrize("loss_of", ALIASED, ids=lambda one: one.__name__)
def test_a_term_that_compares_parameters_with_themselves(loss_of: Loss) -> None:
    (found,) = (one for one in observed(loss_of).findings if one.kind == "reference-not-copied")
    marks = [(one.site.text or "").partition("# ")[2] for one in found.sites]
    assert marks == ["kept", "compares"] and found.evidence["steps"] >= 3 and found.parameters


@pytest.mark.parametrize("loss_of", ALIASED, ids=lambda one: one.__name__)
def test_the_term_and_its_gradient_are_zero_indeed(loss_of: Loss) -> None:
    model = Net()
    loss = loss_of(model, torch.randn(4, 6))
    grads = torch.autograd.grad(loss, [model.head.weight], allow_unused=True)
    assert loss == 0 and all(one is None or not one.any() for one in grads)


# Healthy


def cloned(model: Any, x: torch.Tensor) -> torch.Tensor:
    if model.kept is None:
        model.kept = {name: p.data.clone() for name, p in model.named_parameters()}
    return sum(((p - model.kept[name]) ** 2).sum() for name, p in model.named_parameters())


def of_a_copy(model: Any, x: torch.Tensor) -> torch.Tensor:
    if model.kept is None:
        model.kept = (copy.deepcopy(model),)
    pairs = zip(model.parameters(), model.kept[0].parameters(), strict=True)
    return sum(F.mse_loss(p, q.detach()) for p, q in pairs)


def value_of_zero(model: Any, x: torch.Tensor) -> torch.Tensor:
    """The value is zero, the gradient is not."""
    return (model.head.weight - model.head.weight.detach()).sum() + (model.head.bias / model.head.bias.detach()).sum()


def straight_through(model: Any, x: torch.Tensor) -> torch.Tensor:
    weight = model.head.weight
    return F.linear(model.body(x), weight + (weight.sign() - weight).detach()).square().mean()


def standardised(model: Any, x: torch.Tensor) -> torch.Tensor:
    weight = model.body.weight
    return F.linear(x, weight - weight.mean(1, keepdim=True)).square().mean()


def all_pairs(model: Any, x: torch.Tensor) -> torch.Tensor:
    """Distances of each row to each other, and to itself."""
    rows = list(model.body.weight)
    return sum((one - other).square().sum() for one in rows[:3] for other in rows[:3])


def of_a_shared_layer(model: Any, x: torch.Tensor) -> torch.Tensor:
    """The teacher shares one of two layers with the student."""
    if model.kept is None:
        teacher = copy.deepcopy(model)
        teacher.body.weight = nn.Parameter(model.body.weight.data, requires_grad=False)
        model.kept = (teacher,)
    pairs = zip(model.parameters(), model.kept[0].parameters(), strict=True)
    return sum(((p - q) ** 2).sum() for p, q in pairs)


def first_inner_step(model: Any, x: torch.Tensor) -> torch.Tensor:
    """The weights of the inner loop begin with the parameters."""
    weight, total = model.head.weight, torch.zeros(())
    for _ in range(2):
        total = total + ((weight - model.head.weight.detach()) ** 2).sum()
        weight = weight - 0.1 * weight.tanh()
    return total


def only_measured(model: Any, x: torch.Tensor) -> torch.Tensor:
    _ = (model.head.weight - model.head.weight.data).norm().item()
    return model.head.weight.square().sum()


HEALTHY = [
    *(cloned, of_a_copy, value_of_zero, straight_through, standardised, all_pairs, of_a_shared_layer),
    *(first_inner_step, only_measured),
]


@pytest.mark.parametrize("loss_of", HEALTHY, ids=lambda one: one.__name__)
def test_terms_that_only_look_alike(loss_of: Loss) -> None:
    assert observed(loss_of).facts.of(ReferenceNotCopied) == ()


def test_two_steps_do_not_tell() -> None:
    assert observed(anchored, steps=2).facts.of(ReferenceNotCopied) == ()
