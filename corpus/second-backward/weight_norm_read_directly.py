"""Vocoder with weight norm: the adversarial phase applies the last layer through its weight attribute, which only a forward of the layer computes anew.

Report: https://github.com/facebookresearch/higher/issues/14 (weight is a tensor with a graph that forward leaves behind)
"""
import warnings

import torch
from torch import nn

EXPECT = {
    "class": "second-backward", "kind": "second-backward", "bridge_marker": "REUSED",
    "set": "third", "written": "2026-11-22",
}
warnings.simplefilter("ignore")


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.utils.weight_norm(nn.Linear(6, 24))
        self.post = nn.utils.weight_norm(nn.Linear(24, 8))

    def forward(self, mel, gain=None):
        h = nn.functional.leaky_relu(self.pre(mel), 0.1)
        if gain is None:
            return self.post(h).tanh()
        weight = self.post.weight * gain[:, None]  # REUSED
        return nn.functional.linear(h, weight, self.post.bias).tanh()


torch.manual_seed(0)
generator = Generator()
critic = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
opt = torch.optim.AdamW(generator.parameters(), 2e-3)
opt_d = torch.optim.AdamW(critic.parameters(), 2e-3)
for step in range(60):
    mel, wave = torch.randn(8, 6), torch.randn(8, 8).tanh()
    if step < 32:
        loss = nn.functional.l1_loss(generator(mel), wave)
    else:
        fake = generator(mel, gain=torch.linspace(0.9, 1.1, 8))
        d_loss = (critic(wave) - 1).square().mean() + critic(fake.detach()).square().mean()
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()
        loss = nn.functional.l1_loss(fake, wave) + 0.1 * (critic(fake) - 1).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
