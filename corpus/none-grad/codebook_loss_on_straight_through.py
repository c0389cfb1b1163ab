"""VQ action model: the codebook loss is taken on the straight-through output, so the codebook never moves.

Report: https://github.com/showlab/Olaf-World/issues/8
"""
import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {
    "class": "cut", "kind": "none-grad", "parameters": ["codebook.weight"], "cut_marker": "CUT",
    "set": "first", "written": "2026-11-22",
}


class VQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec, self.codebook = nn.Linear(8, 4), nn.Linear(4, 8), nn.Embedding(16, 4)

    def quantize(self, z):
        index = torch.cdist(z, self.codebook.weight).argmin(1)
        code = self.codebook(index)
        return z + (code - z).detach()  # CUT

    def forward(self, x):
        z = self.enc(x)
        zq = self.quantize(z)
        recon = F.mse_loss(self.dec(zq), x)
        return recon + F.mse_loss(zq, z.detach()) + 0.25 * F.mse_loss(z, zq.detach())


torch.manual_seed(0)
vq = VQ()
opt = torch.optim.Adam(vq.parameters(), 1e-3)
for step in range(25):
    loss = vq(torch.randn(32, 8))
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", vq.codebook.weight.grad is None)
