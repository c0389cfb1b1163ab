"""An actor and a critic choose between slot machines; the loss of the actor has the values of the critic in it."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

EXPECT = {"kind": "advantage-not-detached", "line": ("cause", "POLICY")}


class Player(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 24), nn.Tanh())
        self.actor, self.critic = nn.Linear(24, 5), nn.Linear(24, 1)

    def forward(self, luck):
        hidden = self.body(luck)
        return Categorical(logits=self.actor(hidden)), self.critic(hidden).squeeze(-1)


def loss_of(policy, value, action, reward):
    advantage = reward - value
    actor = -(policy.log_prob(action) * advantage).mean()  # POLICY
    return actor + 0.5 * F.smooth_l1_loss(value, reward)


def main():
    torch.manual_seed(0)
    player = Player()
    optimizer = torch.optim.Adam(player.parameters(), lr=3e-3)
    for step in range(40):
        luck = torch.rand(32, 5)
        policy, value = player(luck)
        action = policy.sample()
        reward = luck.gather(1, action[:, None]).squeeze(1)
        optimizer.zero_grad()
        loss_of(policy, value, action, reward).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
