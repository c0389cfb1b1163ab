"""Phasic training: policy phases and auxiliary phases take turns; a pretrained eye is frozen first, then thawed and trained.

Source: https://github.com/HorizonRobotics/alf/pull/1788 (gradients and several optimizers in an RL trainer)
Plain PyTorch 2.13: both losses fall.
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {"class": "healthy", "kind": "none", "plain": {"outcome": "ok"}, "set": "thirteenth", "written": "2026-11-25"}

PHASE, THAW, STEPS = 40, 240, 640


class Eye(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(3, 16, 5, padding=2), nn.SiLU(), nn.Conv1d(16, 16, 5, stride=2), nn.SiLU())

    def forward(self, x):
        return self.conv(x).mean(-1)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.eye, self.body = Eye(), nn.Sequential(nn.Linear(16, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh())
        self.actor, self.critic, self.aux = nn.Linear(48, 3), nn.Linear(48, 1), nn.Linear(48, 1)

    def policy(self, x):
        h = self.body(self.eye(x))
        return torch.distributions.Categorical(logits=self.actor(h)), self.critic(h.detach()).squeeze(1)

    def auxiliary(self, x):
        h = self.body(self.eye(x))
        return torch.distributions.Categorical(logits=self.actor(h)), self.aux(h).squeeze(1), self.critic(h.detach()).squeeze(1)


def world(count=48):
    t = torch.linspace(0, 4, 24)
    kind = torch.randint(3, (count,))
    phase = torch.rand(count, 1) * 6
    x = torch.stack([torch.sin((kind[:, None] + 1) * t + phase), torch.cos(t + phase), torch.randn(count, 24) * 0.3], 1)
    return x, kind


def main():
    torch.manual_seed(0)
    agent = Agent()
    agent.eye.requires_grad_(False)
    policy_opt = torch.optim.Adam([*agent.body.parameters(), *agent.actor.parameters(), *agent.critic.parameters()], lr=2e-3)
    aux_opt = torch.optim.Adam([*agent.body.parameters(), *agent.actor.parameters(), *agent.critic.parameters(), *agent.aux.parameters()], lr=1e-3)
    gained, remembered = 0.33, None
    for step in range(STEPS):
        if step == THAW:
            agent.eye.requires_grad_(True)
            policy_opt.add_param_group({"params": list(agent.eye.parameters()), "lr": 1e-3})
            aux_opt.add_param_group({"params": list(agent.eye.parameters()), "lr": 5e-4})
        x, kind = world()
        if step // PHASE % 2 == 0:
            policy, value = agent.policy(x)
            action = policy.sample()
            reward = (action == kind).float()
            gained = 0.98 * gained + 0.02 * reward.mean().item()
            advantage = (reward - value).detach()
            loss = -(policy.log_prob(action) * advantage).mean() - 0.01 * policy.entropy().mean() + F.mse_loss(value, reward)
            policy_opt.zero_grad()
            loss.backward()
            policy_opt.step()
            remembered = None
        else:
            if remembered is None:
                with torch.no_grad():
                    remembered = [(x, agent.policy(x)[0].logits.clone()) for x in (world()[0] for _ in range(4))]
            x, before = remembered[step % 4]
            power = x.square().mean((1, 2))
            policy, guess, value = agent.auxiliary(x)
            keep = F.kl_div(policy.logits, before, log_target=True, reduction="batchmean")
            loss = 0.1 * F.mse_loss(guess, power) + keep + 0.1 * F.mse_loss(value, before.softmax(1).amax(1))
            aux_opt.zero_grad()
            loss.backward()
            aux_opt.step()
        if step % 40 == 0:
            print(step, f"{loss.item():.4f}", f"{gained:.3f}", flush=True)


if __name__ == "__main__":
    main()
