"""Actor and critic share a trunk; the advantage is detached where it weights the log-probabilities, and the square of the same
difference, with its graph, trains the critic."""
import torch
import torch.nn as nn
from torch.distributions import Categorical

EXPECT = {
    "class": "healthy: advantage detached, critic trained beside",
    "kind": "none",
    "what": "The policy's loss has no graph to the critic's head.",
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(1)
torch.set_num_threads(1)
trunk, actor, critic = nn.Sequential(nn.Linear(8, 32), nn.ReLU()), nn.Linear(32, 4), nn.Linear(32, 1)
optimizer = torch.optim.Adam([*trunk.parameters(), *actor.parameters(), *critic.parameters()], lr=2e-3)
for step in range(200):
    offers = torch.rand(64, 8)
    hidden = trunk(offers)
    policy, value = Categorical(logits=actor(hidden)), critic(hidden).squeeze(-1)
    taken = policy.sample()
    gain = offers.gather(1, taken[:, None]).squeeze(1) - offers[:, 4:].mean(1)
    advantage = gain - value
    loss = advantage.square().mean() - (policy.log_prob(taken) * advantage.detach()).mean() - 0.01 * policy.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step}  gain {gain.mean().item():.3f}")
