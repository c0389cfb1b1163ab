"""REINFORCE: the memory of an episode is cleared when the game is over; an episode that ends by the time limit leaves its log-probabilities for the next.

Report: https://github.com/sweetice/Deep-reinforcement-learning-with-pytorch/issues/37 (which lists have to be emptied; also pytorch/examples issue 151)
"""
import torch
from torch import nn

EXPECT = {
    "class": "second-backward", "kind": "second-backward", "bridge_marker": "REUSED",
    "set": "third", "written": "2026-11-22",
}


class Pole:
    def reset(self, seed):
        self.g, self.t, self.state = torch.Generator().manual_seed(seed), 0, torch.zeros(3)
        return self.state

    def step(self, action):
        self.t += 1
        self.state = self.state + 0.1 * (2 * action - 1) * torch.ones(3) + 0.03 * torch.randn(3, generator=self.g)
        return self.state, 1.0, bool(self.state.abs().max() > 0.8)


class Memory:
    def __init__(self):
        self.clear()

    def clear(self):
        self.log_probs, self.rewards = [], []


def finish_episode(opt, memory, gamma=0.98):
    ret, returns = 0.0, []
    for reward in reversed(memory.rewards):
        ret = reward + gamma * ret
        returns.insert(0, ret)
    returns = torch.tensor(returns)
    loss = -(torch.stack(memory.log_probs) * (returns - returns.mean())).sum()  # REUSED
    opt.zero_grad()
    loss.backward()
    opt.step()


torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
opt = torch.optim.Adam(policy.parameters(), 1e-2)
env, memory, max_steps = Pole(), Memory(), 100
for episode in range(150):
    obs, done = env.reset(episode), False
    while not done and env.t < max_steps:
        dist = torch.distributions.Categorical(logits=policy(obs))
        action = dist.sample()
        memory.log_probs.append(dist.log_prob(action))
        obs, reward, done = env.step(action.float())
        memory.rewards.append(reward)
    finish_episode(opt, memory)
    if done:
        memory.clear()
