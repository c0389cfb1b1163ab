"""Healthy: codebook by running means with smoothed cluster sizes, dead entries replaced by samples, straight-through estimator, commitment loss.

Report it resembles: https://github.com/google-deepmind/sonnet/issues/248 (how the cluster sizes are smoothed; dead codes as in lucidrains/vector-quantize-pytorch pull 4)
"""
import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "fourth", "written": "2026-11-22"}


class Codebook(nn.Module):
    def __init__(self, size=16, dim=4):
        super().__init__()
        self.register_buffer("embed", torch.randn(size, dim))
        self.register_buffer("cluster_size", torch.zeros(size))
        self.register_buffer("embed_avg", self.embed.clone())

    @torch.no_grad()
    def update(self, x, onehot):
        self.cluster_size.mul_(0.95).add_(onehot.sum(0), alpha=0.05)
        self.embed_avg.mul_(0.95).add_(onehot.t() @ x, alpha=0.05)
        n = self.cluster_size.sum()
        smoothed = (self.cluster_size + 1e-5) / (n + len(self.embed) * 1e-5) * n
        self.embed.copy_(self.embed_avg / smoothed[:, None])
        dead = self.cluster_size < 0.05
        if dead.any():
            chosen = x[torch.randint(0, len(x), (int(dead.sum()),))]
            self.embed[dead], self.embed_avg[dead], self.cluster_size[dead] = chosen, chosen, 1.0

    def forward(self, x):
        index = (x.detach()[:, None] - self.embed).square().sum(-1).argmin(1)
        quantized = self.embed[index].clone()
        if self.training:
            self.update(x, nn.functional.one_hot(index, len(self.embed)).float())
        return x + (quantized - x).detach(), (x - quantized).square().mean(), index


torch.manual_seed(0)
encoder, book, decoder = nn.Linear(6, 4), Codebook(), nn.Linear(4, 6)
opt = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 3e-3)
for step in range(150):
    x = torch.randn(32, 2) @ torch.ones(2, 6).tril()
    z, commitment, index = book(encoder(x))
    loss = nn.functional.mse_loss(decoder(z), x) + 0.25 * commitment
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item(), len(index.unique()))
