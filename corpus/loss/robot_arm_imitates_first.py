"""An arm first imitates a teacher and then improves by its own trials. The second phase begins after 200 steps, and its advantage
keeps the graph of the critic."""
import torch
import torch.nn as nn
from torch.distributions import Normal

EXPECT = {
    "class": "advantage with a graph",
    "kind": "advantage-not-detached",
    "line": ["cause", "cause"],
    "what": "In the second phase the advantage is a difference of rewards and values with a graph; it should be detached.",
    "symptom": "no error; the critic's values are off in the second phase",
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(6)
torch.set_num_threads(1)


class Arm(nn.Module):
    def __init__(self):
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(3, 32), nn.ELU(), nn.Linear(32, 2))
        self.critic = nn.Sequential(nn.Linear(3, 32), nn.ELU(), nn.Linear(32, 1))
        self.log_std = nn.Parameter(torch.full((2,), -1.0))

    def act(self, goal):
        return Normal(self.policy(goal), self.log_std.exp())


def reward_of(goal, action):
    return -(goal[:, :2] - action).abs().sum(1) - 0.1 * goal[:, 2] ** 2


def imitation(arm, goal):
    teacher = goal[:, :2] + 0.3 * torch.randn(len(goal), 2)
    values = arm.critic(goal).squeeze(1)
    return -arm.act(goal).log_prob(teacher).mean() + (values - reward_of(goal, teacher)).square().mean()


def own_trials(arm, goal):
    tries = arm.act(goal)
    action = tries.sample()
    values, reward = arm.critic(goal).squeeze(1), reward_of(goal, action)
    advantage = reward - values
    surrogate = tries.log_prob(action).sum(1).mul(advantage).mean()  # <-- cause
    return nn.functional.mse_loss(values, reward) - surrogate


arm = Arm()
optimizer = torch.optim.Adam(arm.parameters(), lr=3e-3)
for step in range(500):
    goal = torch.randn(64, 3)
    loss = imitation(arm, goal) if step < 200 else own_trials(arm, goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 99:
        print(f"step {step}  loss {loss.item():.4f}")
