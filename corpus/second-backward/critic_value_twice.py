"""Actor and critic: from some episode on the values of the last episode are kept as a baseline, and the critic's next loss goes through their graph again."""
import torch
from torch import nn

EXPECT = {
    "class": "late-second-backward", "kind": "second-backward", "bridge_marker": "REUSED", "step": 231,
    "set": "late_again", "written": "2026-11-22",
}

torch.manual_seed(0)
policy, value = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3)), nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
opt = torch.optim.Adam([*policy.parameters(), *value.parameters()], 3e-3)
baseline = None
for episode in range(260):
    states = torch.randn(10, 4)
    chosen = torch.distributions.Categorical(logits=policy(states))
    actions = chosen.sample()
    returns = (actions == states[:, :3].argmax(1)).float()
    v = value(states)[:, 0]
    expected = v
    if episode > 230:
        expected = 0.5 * v + 0.5 * baseline  # REUSED
    baseline = v.mean()
    loss = (returns - expected).square().mean() - (chosen.log_prob(actions) * (returns - v).detach()).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if episode % 50 == 0:
        print(episode, round(returns.mean().item(), 3))
