"""PPO update: 33 transitions in minibatches of 8, so the last has one element and its standard deviation is NaN.

Report: https://github.com/DLR-RM/stable-baselines3/issues/325
"""
import torch
from torch import nn

EXPECT = {
    "class": "born-without-gradient", "kind": "nonfinite-forward-poisons-backward", "source_marker": "BORN",
    "set": "first", "written": "2026-11-22",
}


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.pi, self.v = nn.Linear(4, 32), nn.Linear(32, 3), nn.Linear(32, 1)

    def forward(self, s):
        h = torch.tanh(self.body(s))
        return torch.distributions.Categorical(logits=self.pi(h)), self.v(h).squeeze(1)


torch.manual_seed(0)
ac = ActorCritic()
opt = torch.optim.Adam(ac.parameters(), 3e-4)
for update in range(6):
    n = 32 if update < 5 else 33  # an episode ended one step later
    with torch.no_grad():
        obs = torch.randn(n, 4)
        dist, value = ac(obs)
        act = dist.sample()
        old = dist.log_prob(act)
        ret = torch.randn(n)
        adv = ret - value
    for idx in torch.randperm(n).split(8):
        a = adv[idx]
        a = (a - a.mean()) / (a.std() + 1e-8)  # BORN
        dist, value = ac(obs[idx])
        ratio = (dist.log_prob(act[idx]) - old[idx]).exp()
        policy = -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
        loss = policy + 0.5 * (value - ret[idx]).square().mean() - 0.01 * dist.entropy().mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(ac.parameters(), 0.5)
        opt.step()
print("reproduced", ac.pi.weight.isnan().any().item())
