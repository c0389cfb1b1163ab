"""WGAN weight clipping through .data runs after the critic's forward and before its backward."""

import torch
from torch import nn

EXPECT = {"kind": "silent-mutation", "line": ("mutated", "MUTATES")}


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(3, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))  # SAVES


def clip_weights(net, c=0.01):
    for p in net.parameters():
        p.data.clamp_(-c, c)  # MUTATES


def main():
    torch.manual_seed(0)
    critic, gen = Critic(), nn.Linear(2, 3)
    opt = torch.optim.RMSprop(critic.parameters(), lr=5e-3)
    for _ in range(3):
        fake = gen(torch.randn(16, 2)).detach()
        loss = critic(fake).mean() - critic(torch.randn(16, 3)).mean()
        opt.zero_grad()
        clip_weights(critic)
        loss.backward()
        opt.step()


main()
