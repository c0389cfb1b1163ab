"""Losses with parts that have no gradient on purpose: a codebook that a moving average trains, an adaptive weight, a
baseline in a policy gradient, a straight-through estimator, and numbers that are only printed."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {"kind": None, "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(0)
torch.set_num_threads(1)


class Codebook(nn.Module):
    def __init__(self, n=12, dim=4):
        super().__init__()
        self.register_buffer("codes", torch.randn(n, dim))
        self.register_buffer("counts", torch.ones(n))

    def forward(self, z):
        index = torch.cdist(z, self.codes).argmin(1)
        chosen = self.codes[index]
        with torch.no_grad():
            hot = F.one_hot(index, len(self.codes)).float()
            self.counts.mul_(0.95).add_(0.05 * hot.sum(0))
            self.codes.lerp_((hot.t() @ z) / self.counts[:, None].clamp(min=1), 0.05)
        codebook = F.mse_loss(chosen, z.detach())
        commitment = F.mse_loss(chosen.detach(), z)
        return z + (chosen - z).detach(), codebook + 0.25 * commitment


encoder, book, decoder = nn.Linear(8, 4), Codebook(), nn.Linear(4, 8)
policy = nn.Linear(4, 3)
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters(), *policy.parameters()], lr=5e-3)
printed = 0.0
for step in range(200):
    x = torch.randn(32, 8)
    quantised, quantisation = book(encoder(x))
    reconstruction = F.mse_loss(decoder(quantised), x)
    choice = torch.distributions.Categorical(logits=policy(quantised.detach()))
    action = choice.sample()
    with torch.no_grad():
        greedy = choice.logits.argmax(1)
        advantage = (action == (x[:, 0] > 0).long()).float() - (greedy == (x[:, 0] > 0).long()).float()
    reinforce = -(advantage * choice.log_prob(action)).mean()
    with torch.no_grad():
        weight = reconstruction / (quantisation + 1e-6)
    loss = reconstruction + weight.clamp(max=2) * quantisation + 0.1 * reinforce
    printed = 0.9 * printed + 0.1 * reconstruction.item()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"reconstruction {printed:.4f}")
