"""Prioritised replay: the new priorities are the errors as they come out of the loss, written into one tensor that grows a chain of graphs.

Report: https://github.com/Kaixhin/Rainbow/pull/33
"""
import torch
from torch import nn

EXPECT = {
    "class": "retention", "kind": "graph-retained", "holding_marker": "HOLDS",
    "set": "third", "written": "2026-11-22",
}


class PrioritisedReplay:
    def __init__(self, capacity, obs_dim):
        self.obs, self.next_obs = torch.zeros(capacity, obs_dim), torch.zeros(capacity, obs_dim)
        self.action, self.reward = torch.zeros(capacity, dtype=torch.long), torch.zeros(capacity)
        self.priority, self.size, self.capacity = torch.zeros(capacity), 0, capacity

    def append(self, obs, action, reward, next_obs):
        i = self.size % self.capacity
        self.obs[i], self.action[i], self.reward[i], self.next_obs[i] = obs, action, reward, next_obs
        with torch.no_grad():
            self.priority[i] = self.priority.max().clamp(min=1.0)
        self.size += 1

    def sample(self, n):
        p = self.priority[: min(self.size, self.capacity)].detach() ** 0.6
        idx = torch.multinomial(p, n)
        weights = (len(p) * p[idx] / p.sum()) ** -0.4
        return idx, self.obs[idx], self.action[idx], self.reward[idx], self.next_obs[idx], weights / weights.max()

    def update_priorities(self, idx, error):
        self.priority[idx] = error.abs() + 1e-5  # HOLDS


torch.manual_seed(0)
online, target = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3)), nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3))
target.load_state_dict(online.state_dict())
target.requires_grad_(False)
opt = torch.optim.Adam(online.parameters(), 1e-3)
memory, obs = PrioritisedReplay(200, 4), torch.randn(4)
for t in range(140):
    with torch.no_grad():
        action = online(obs).argmax() if torch.rand(()) > 0.2 else torch.randint(0, 3, ())
    next_obs = torch.randn(4)
    memory.append(obs, action, -obs[action].abs(), next_obs)
    obs = next_obs
    if t >= 40:  # learn_start
        idx, o, a, r, o2, w = memory.sample(16)
        q = online(o).gather(1, a[:, None])[:, 0]
        error = q - (r + 0.9 * target(o2).max(1).values)
        loss = (w * nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none")).mean()
        opt.zero_grad()
        loss.backward()
        memory.update_priorities(idx, error)
        opt.step()
    if t % 20 == 0:
        target.load_state_dict(online.state_dict())
print("reproduced", memory.priority.requires_grad)
