"""Proximal policy optimisation for the repair of water pipes. The values are computed anew in each mini-batch, which is right for
the loss of the critic; the advantage is made of the same values, and keeps their graph."""
import torch
import torch.nn as nn
from torch.distributions import Bernoulli

EXPECT = {
    "class": "advantage with a graph",
    "kind": "advantage-not-detached",
    "line": ["cause", "cause"],
    "what": "The advantage in the surrogate has a graph to the critic; it should be detached.",
    "symptom": "no error; the values of the critic are off",
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(9)
torch.set_num_threads(1)
PIPES = 6


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(PIPES, 32), nn.ReLU())
        self.repair, self.worth = nn.Linear(32, PIPES), nn.Linear(32, 1)

    def forward(self, age):
        hidden = self.trunk(age)
        return Bernoulli(logits=self.repair(hidden)), self.worth(hidden)[:, 0]


def simulate(network, days=48):
    age, seen = torch.rand(PIPES), []
    with torch.no_grad():
        for _ in range(days):
            policy, _ = network(age[None])
            chosen = policy.sample()[0]
            broken = (torch.rand(PIPES) < 0.3 * age).float()
            reward = -(0.2 * chosen).sum() - (broken * (1 - chosen)).sum()
            seen.append((age, chosen, policy.log_prob(chosen).sum(), reward))
            age = torch.where(chosen > 0, torch.zeros(PIPES), (age + 0.1).clamp(max=1))
    ages, actions, logs, rewards = map(torch.stack, zip(*seen))
    returns, total = torch.zeros(days), torch.tensor(0.0)
    for day in reversed(range(days)):
        total = returns[day] = rewards[day] + 0.9 * total
    return ages, actions, logs, returns


network = Network()
optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
for round in range(40):
    ages, actions, old, returns = simulate(network)
    for rows in torch.randperm(48).split(16):
        policy, worth = network(ages[rows])
        advantage = returns[rows] - worth
        scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        ratio = (policy.log_prob(actions[rows]).sum(-1) - old[rows]).exp()
        plain, clipped = ratio * scaled, ratio.clamp(0.8, 1.2) * scaled  # <-- cause
        loss = -torch.minimum(plain, clipped).mean() + 0.5 * (returns[rows] - worth).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    if round % 10 == 9:
        print(f"round {round}  return {returns.mean().item():.3f}  value {worth.mean().item():.3f}")
