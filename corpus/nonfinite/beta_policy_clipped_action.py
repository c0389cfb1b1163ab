"""Policy with a Beta distribution: the simulator returns the clipped action, exactly 1 now and then, whose density is zero.

Report: https://github.com/pytorch/pytorch/issues/65811 (the same edge in rlworkgroup/garage pull 2129)
"""
import torch
from torch import nn
from torch.distributions import Beta

EXPECT = {
    "class": "edge-of-domain", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT",
    "set": "second", "written": "2026-11-22",
}


class Simulator:
    def __init__(self):
        self.noise, self.t = torch.Generator().manual_seed(4), 0

    def step(self, action):
        self.t += 1
        wind = 0.05 * torch.randn(action.shape, generator=self.noise)
        if self.t >= 30:
            wind = wind + 0.4  # a gust
        taken = (0.3 + 0.4 * action + wind).clamp(1e-3, 1.0)
        return taken, -(taken - 0.6).square().sum(1)


torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4), nn.Softplus())
opt = torch.optim.Adam(policy.parameters(), 3e-3)
sim = Simulator()
for update in range(60):
    obs = torch.randn(16, 4)
    alpha, beta = (policy(obs) + 1).chunk(2, 1)
    dist = Beta(alpha, beta)
    taken, reward = sim.step(dist.sample())
    advantage = reward - reward.mean()
    loss = -(dist.log_prob(taken).sum(1) * advantage).mean()  # CULPRIT
    opt.zero_grad()
    loss.backward()
    opt.step()
    if policy[0].weight.isnan().any():
        print("reproduced at", update)
        break
