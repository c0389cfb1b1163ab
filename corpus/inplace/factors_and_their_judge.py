"""FactorVAE on small pictures: after a warm-up a judge estimates the total correlation of the code; the autoencoder takes its step before the judge's loss, whose graph still runs through the encoder, is differentiated.

Report: https://github.com/1Konny/FactorVAE/issues/15 (modified by an inplace operation when calling D_tc_loss.backward(): "the optimizer of the VAE performs a step before")
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "dies-late", "kind": "inplace", "mutating_marker": "MUTATES", "step": 40,
    "set": "eleventh", "written": "2026-11-23",
}


class FactorVAE(nn.Module):
    def __init__(self, pixels=64, code=6, width=96):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(pixels, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2 * code))
        self.decoder = nn.Sequential(nn.Linear(code, width), nn.ReLU(), nn.Linear(width, pixels))

    def forward(self, x):
        mean, logvar = self.encoder(x).chunk(2, -1)
        z = mean + torch.exp(0.5 * logvar) * torch.randn_like(mean)
        return self.decoder(z), mean, logvar, z


def judge(code=6, width=64):
    return nn.Sequential(nn.Linear(code, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, 2))


def permute_dims(z):
    return torch.stack([column[torch.randperm(len(z))] for column in z.unbind(1)], 1)


def sprites(count=64):
    """A bright square somewhere in an 8 by 8 picture."""
    where = torch.randint(0, 6, (count, 2))
    picture = torch.zeros(count, 8, 8)
    for i, (r, c) in enumerate(where.tolist()):
        picture[i, r : r + 3, c : c + 3] = 1
    return picture.flatten(1)


class Solver:
    def __init__(self, gamma=6.4, warm_up=40):
        self.vae, self.judge = FactorVAE(), judge()
        self.optim_vae = torch.optim.Adam(self.vae.parameters(), lr=1e-3)
        self.optim_judge = torch.optim.Adam(self.judge.parameters(), lr=1e-4)
        self.gamma, self.warm_up = gamma, warm_up

    def train_step(self, step):
        x = sprites()
        recon, mean, logvar, z = self.vae(x)
        vae_loss = F.binary_cross_entropy_with_logits(recon, x, reduction="sum") / len(x)
        vae_loss = vae_loss - 0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).sum(1).mean()
        with_judge = step >= self.warm_up
        if with_judge:
            d_z = self.judge(z)
            vae_loss = vae_loss + self.gamma * (d_z[:, 0] - d_z[:, 1]).mean()
        self.optim_vae.zero_grad()
        vae_loss.backward(retain_graph=with_judge)
        self.optim_vae.step()  # MUTATES
        if with_judge:
            z_perm = permute_dims(self.vae(sprites())[3].detach())
            zeros, ones = torch.zeros(len(x), dtype=torch.long), torch.ones(len(x), dtype=torch.long)
            judge_loss = 0.5 * (F.cross_entropy(d_z, zeros) + F.cross_entropy(self.judge(z_perm), ones))
            self.optim_judge.zero_grad()
            judge_loss.backward()
            self.optim_judge.step()
        return vae_loss.item()


torch.manual_seed(0)
solver = Solver()
for step in range(80):
    loss = solver.train_step(step)
    if step % 10 == 0 or step == 39:
        print(f"step {step} vae loss {loss:.3f}")
