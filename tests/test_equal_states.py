"""Bootstrapped targets that are computed from the same states as the prediction, and those that only look like it."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import backprobe

Tensor = torch.Tensor
WIDTH, ROWS = 5, 12


class Net(nn.Module):
    def __init__(self, out: int = 3) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(WIDTH, 8), nn.Linear(8, out)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.body(x * 0.5)))


class Learner:
    def __init__(self, out: int = 3) -> None:
        self.net = Net(out)
        self.target = copy.deepcopy(self.net)

    def loss(self, states: Tensor, following: Tensor, rewards: Tensor, done: Tensor) -> Tensor:
        raise NotImplementedError


class Dqn(Learner):
    def loss(self, states: Tensor, following: Tensor, rewards: Tensor, done: Tensor) -> Tensor:
        values = self.net(states)[:, 0]
        with torch.no_grad():
            goal = rewards + 0.9 * (1 - done) * self.target(following).amax(1)
        return F.smooth_l1_loss(values, goal)


class DoubleDqn(Learner):
    def loss(self, states: Tensor, following: Tensor, rewards: Tensor, done: Tensor) -> Tensor:
        values = self.net(states).gather(1, torch.zeros(len(states), 1, dtype=torch.long)).squeeze(1)
        best = self.net(following).argmax(1, keepdim=True)
        goal = torch.where(
            done > 0, rewards, rewards + 0.9 * self.target(following).gather(1, best).squeeze(1).detach()
        )
        return ((values - goal) ** 2).mean()


class ActorCritic(Learner):
    def loss(self, states: Tensor, following: Tensor, rewards: Tensor, done: Tensor) -> Tensor:
        advantage = (rewards + 0.9 * (1 - done) * self.net(following)[:, 0]).detach() - self.net(states)[:, 0]
        return advantage.square().mean()


class MeanTeacher(Learner):
    def loss(self, states: Tensor, following: Tensor, rewards: Tensor, done: Tensor) -> Tensor:
        with torch.no_grad():
            goal = self.target(following).softmax(1)
        return F.mse_loss(self.net(states).softmax(1), goal)


class SelfDistilled(Learner):
    def loss(self, states: Tensor, following: Tensor, rewards: Tensor, done: Tensor) -> Tensor:
        with torch.no_grad():
            goal = 0.5 * rewards[:, None] + 0.5 * self.target(states.clone())
        return F.mse_loss(self.net(states), goal)


Batch = tuple[Tensor, Tensor]


def references() -> Batch:
    view = np.random.rand(ROWS, WIDTH).astype(np.float32)
    return torch.tensor(view), torch.tensor(view)


def stacked() -> Batch:
    rows = [torch.rand(WIDTH) for _ in range(ROWS)]
    return torch.stack(rows), torch.stack(rows)


def different() -> Batch:
    return torch.rand(ROWS, WIDTH), torch.rand(ROWS, WIDTH)


def mostly_equal() -> Batch:
    states = torch.rand(ROWS, WIDTH)
    following = torch.stack([*states[:-1], torch.rand(WIDTH)])
    return states, following


def constant() -> Batch:
    return torch.ones(ROWS, WIDTH), torch.ones(ROWS, WIDTH)


def one_tensor() -> Batch:
    states = torch.rand(ROWS, WIDTH)
    return states, states


def found_in(learner: Learner, batch: Callable[[], Batch], done: float = 0.0) -> list[backprobe.Finding]:
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(learner.net.parameters(), lr=1e-3)
    with backprobe.trace(learner.net) as trace:
        for _ in range(8):
            states, following = batch()
            loss = learner.loss(states, following, torch.rand(ROWS), torch.full((ROWS,), done))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return [one for one in trace.findings if one.kind == "next-states-equal"]


@pytest.mark.parametrize("batch", [references, stacked])
@pytest.mark.parametrize("learner", [Dqn, DoubleDqn, ActorCritic])
def test_equal_batches(learner: type[Learner], batch: Callable[[], Batch]) -> None:
    (found,) = found_in(learner(), batch)
    assert (found.severity, found.confidence) == ("warning", "likely")
    assert found.evidence["rows"] == ROWS and found.evidence["steps"] > 1
    texts = [(site.role, site.site.text) for site in found.sites]
    assert texts[0][0] == "made" and "return torch." in texts[0][1]
    called = [text for role, text in texts if role == "called"]
    assert "following" in called[0] and "states" in called[-1]


@pytest.mark.parametrize(
    ("learner", "batch"),
    [
        (Dqn, different),
        (Dqn, mostly_equal),
        (Dqn, constant),
        (Dqn, one_tensor),
        (MeanTeacher, stacked),
        (MeanTeacher, one_tensor),
        (SelfDistilled, one_tensor),
    ],
)
def test_other_batches(learner: type[Learner], batch: Callable[[], Batch]) -> None:
    assert found_in(learner(), batch) == []


def test_episodes_of_one_action_have_no_next_state() -> None:
    assert found_in(Dqn(), stacked, done=1.0) == []
