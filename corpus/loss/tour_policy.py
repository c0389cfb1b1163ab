"""Actor-critic that picks the nearest of eight depots; the critic is pulled away from the returns by the policy loss.

Report: https://github.com/astariul/encode-attend-navigate-pytorch/issues/2 (the critic values are not detached in the policy loss, so the critic gets gradients from the policy loss as well as from its own)

Effect: the critic's values stay far too high during the run (bias of about half the entropy), with a detached advantage the bias is near 0.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

EXPECT = {
    "framework": "plain", "kind": "advantage-not-detached", "line": ("cause", "OTHER"),
    "what": "The advantage is not detached, so the policy loss also trains the critic and pushes its values up; use (returns - values).detach() in the policy loss.",
    "set": "eighteenth", "written": "2026-11-27",
}


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, me, depots):
        pairs = torch.cat([me[:, None].expand_as(depots), depots], -1)
        return Categorical(logits=self.score(pairs).squeeze(-1))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 + 16, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, me, depots):
        return self.net(torch.cat([me, depots.flatten(1)], 1)).squeeze(1)


class Agent:
    def __init__(self, lr=2e-3):
        self.actor, self.critic = Actor(), Critic()
        params = list(self.actor.parameters()) + list(self.critic.parameters())
        self.optimizer = torch.optim.Adam(params, lr=lr)

    def update(self, me, depots):
        dist = self.actor(me, depots)
        choice = dist.sample()
        picked = depots[torch.arange(len(me)), choice]
        returns = -(me - picked).norm(dim=1)
        values = self.critic(me, depots)

        advantage = returns - values  # CAUSE
        policy_loss = -(advantage * dist.log_prob(choice)).mean()  # OTHER
        value_loss = F.mse_loss(values, returns)
        loss = policy_loss + value_loss

        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return returns.mean().item(), (values - returns).mean().item(), value_loss.item()


def main():
    torch.manual_seed(0)
    agent = Agent()
    for it in range(300):
        me = torch.rand(128, 2)
        depots = torch.rand(128, 8, 2)
        ret, bias, vloss = agent.update(me, depots)
        if (it + 1) % 50 == 0:
            print(f"iteration {it + 1} mean return {ret:.3f} value bias {bias:+.3f} value loss {vloss:.4f}")


if __name__ == "__main__":
    main()
