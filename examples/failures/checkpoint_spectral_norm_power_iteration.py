"""SN-GAN block is checkpointed: spectral_norm runs its power iteration in forward and once more in recomputation."""

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.checkpoint import checkpoint

EXPECT = {"kind": "checkpoint-side-effect", "line": ("region", "REGION")}


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.deep = nn.Sequential(spectral_norm(nn.Linear(8, 8)), nn.LeakyReLU(0.2))
        self.last = nn.Linear(8, 1)

    def forward(self, x):
        h = self.first(x)
        h = checkpoint(self.deep, h, use_reentrant=False)  # REGION
        return self.last(h)


torch.manual_seed(0)
critic = Critic()
opt = torch.optim.Adam(critic.parameters(), lr=1e-4)
for i in range(3):
    real, fake = torch.randn(8, 4) + 1, torch.randn(8, 4)
    loss = critic(fake).mean() - critic(real).mean()
    opt.zero_grad()
    u_before = critic.deep[0].parametrizations.weight[0]._u.clone()
    loss.backward()
    u_after = critic.deep[0].parametrizations.weight[0]._u
    opt.step()
print({"reproduced": not torch.equal(u_before, u_after)})
