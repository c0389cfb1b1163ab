"""Behaviour cloning of a robot arm with a squashed Gaussian policy: the likelihood of a recorded action needs atanh, and the second half of the records holds actions that the operator drove against the limit of exactly one.

Report: https://github.com/rlworkgroup/garage/pull/2129 ("actions taken by an expert, then clipped into the action space": log_prob(1.0) is minus infinity; also https://github.com/rail-berkeley/hil-serl/issues/6, all NaN after one gradient update for actions close to 1)
"""
import torch
from torch import nn
from torch.distributions import Normal

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 60,
    "set": "eleventh", "written": "2026-11-23",
}


class SquashedGaussianPolicy(nn.Module):
    def __init__(self, observations=11, actions=4, width=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(observations, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.mean = nn.Linear(width, actions)
        self.log_std = nn.Linear(width, actions)

    def distribution(self, observation):
        features = self.trunk(observation)
        return Normal(self.mean(features), self.log_std(features).clamp(-4, 1).exp())

    def log_prob(self, observation, action):
        base = self.distribution(observation)
        raw = torch.atanh(action)  # CULPRIT
        correction = torch.log(1 - action.pow(2) + 1e-6)
        return (base.log_prob(raw) - correction).sum(-1)


class Recordings:
    """What operators did at the joystick, in the order in which it was recorded."""

    def __init__(self):
        self.skill = torch.randn(11, 4) / 11**0.5

    def batch(self, day, size=64):
        observation = torch.randn(size, 11)
        wish = observation @ self.skill + 0.1 * torch.randn(size, 4)
        if day == "training course":
            return observation, 0.9 * torch.tanh(wish)
        return observation, wish.clamp(-1.0, 1.0)  # the joystick ends here


def clone_behaviour(policy, recordings, steps=120):
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for step in range(steps):
        day = "training course" if step < 60 else "production"
        observation, action = recordings.batch(day)
        loss = -policy.log_prob(observation, action).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
        optimizer.step()
        if step % 20 == 0 or step in (59, 60, 61):
            print(f"step {step:3d} {day:16s} nll {loss.item():.3f}")


torch.manual_seed(3)
clone_behaviour(SquashedGaussianPolicy(), Recordings())
