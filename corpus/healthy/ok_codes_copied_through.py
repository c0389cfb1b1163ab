"""Weather maps in a vector-quantised autoencoder: the gradient is copied past the choice of a code with detach, the codebook has no gradient at all and follows a running mean, and seldom used codes are put on new places. Healthy.

Report: https://github.com/liuzechun/Bi-Real-net/issues/18 (binary_weights_no_grad.detach() - cliped.detach() + cliped: asked what the detaches are for, they are meant)
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {"class": "healthy", "kind": "none", "set": "eleventh", "written": "2026-11-23"}


class Codebook(nn.Module):
    def __init__(self, codes=16, size=8, decay=0.95):
        super().__init__()
        self.register_buffer("code", torch.randn(codes, size))
        self.register_buffer("used", torch.ones(codes))
        self.register_buffer("total", self.code.clone())
        self.decay = decay

    @torch.no_grad()
    def follow(self, z, index):
        here = F.one_hot(index, len(self.code)).float()
        self.used.lerp_(here.sum(0), 1 - self.decay)
        self.total.lerp_(here.T @ z, 1 - self.decay)
        idle = self.used < 0.1
        self.used[idle], self.total[idle] = 1.0, z[torch.randint(0, len(z), (int(idle.sum()),))]
        self.code.copy_(self.total / self.used[:, None])

    def forward(self, z):
        flat = z.permute(0, 2, 3, 1).flatten(0, 2)
        index = torch.cdist(flat.detach(), self.code).argmin(1)
        code = self.code[index].view(*z.permute(0, 2, 3, 1).shape).permute(0, 3, 1, 2)
        commit = F.mse_loss(z, code)
        if self.training:
            self.follow(flat.detach(), index)
        return z + (code - z).detach(), commit


class MapCoder(nn.Module):
    def __init__(self, width=24, size=8):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(1, width, 4, 2, 1), nn.ReLU(inplace=True), nn.Conv2d(width, size, 4, 2, 1))
        self.codebook = Codebook(size=size)
        self.decode = nn.Sequential(nn.ConvTranspose2d(size, width, 4, 2, 1), nn.ReLU(inplace=True), nn.ConvTranspose2d(width, 1, 4, 2, 1))

    def forward(self, x):
        z, commit = self.codebook(self.encode(x))
        return self.decode(z), commit


def pressure_maps(count=16, size=16):
    grid = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij"), -1).float()
    centre = size * torch.rand(count, 1, 1, 2)
    return torch.exp(-(grid - centre).pow(2).sum(-1) / 20)[:, None]


torch.manual_seed(0)
model = MapCoder()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(100):
    x = pressure_maps()
    again, commit = model(x)
    loss = F.mse_loss(again, x) + 0.25 * commit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.5f} codes in use {int((model.codebook.used > 0.5).sum())}")
