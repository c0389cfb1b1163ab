"""A VQ-VAE: a straight-through step, an averaged codebook in buffers, and a restart of idle codes."""

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "kind": None,
    "set": "twentyeighth",
    "written": "2026-11-29",
}



class Palette(nn.Module):
    def __init__(self, size=24, dim=6, decay=0.95):
        super().__init__()
        self.decay = decay
        self.register_buffer("colours", torch.randn(size, dim))
        self.register_buffer("usage", torch.ones(size))
        self.register_buffer("sums", self.colours.clone())

    @torch.no_grad()
    def follow(self, z, index):
        hot = F.one_hot(index, len(self.colours)).to(z.dtype)
        self.usage.mul_(self.decay).add_(hot.sum(0), alpha=1 - self.decay)
        self.sums.mul_(self.decay).add_(hot.t() @ z, alpha=1 - self.decay)
        self.colours.copy_(self.sums / self.usage.clamp_min(1e-3).unsqueeze(1))
        idle = self.usage < 0.3
        if idle.any():
            fresh = z[torch.randint(0, len(z), (int(idle.sum()),))]
            self.colours[idle] = fresh
            self.sums[idle] = fresh
            self.usage[idle] = 1.0

    def forward(self, z):
        with torch.no_grad():
            index = torch.cdist(z, self.colours).argmin(dim=1)
        picked = self.colours[index]
        commit = F.mse_loss(z, picked)
        if self.training:
            self.follow(z.detach(), index)
        return z + (picked - z).detach(), commit, index


class GlazeModel(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 2 * dim))
        self.palette = Palette(dim=dim)
        self.decode = nn.Sequential(nn.Linear(2 * dim, 64), nn.GELU(), nn.Linear(64, 20))
        self.dim = dim

    def forward(self, x):
        z = self.encode(x).view(-1, self.dim)
        q, commit, index = self.palette(z)
        return self.decode(q.view(len(x), -1)), commit, index


def firing(n, gen):
    base = torch.Generator().manual_seed(71)
    slip, ash = torch.randn(8, 20, generator=base), torch.randn(6, 20, generator=base)
    a = torch.randint(0, 8, (n,), generator=gen)
    b = torch.randint(0, 6, (n,), generator=gen)
    return slip[a] + 0.7 * ash[b] + 0.1 * torch.randn(n, 20, generator=gen)


@torch.no_grad()
def report(model, x):
    model.eval()
    out, _, index = model(x)
    model.train()
    share = torch.bincount(index, minlength=24).float() / len(index)
    entropy = -(share[share > 0] * share[share > 0].log()).sum()
    return F.mse_loss(out, x).item(), entropy.exp().item()


def main(steps=900):
    torch.manual_seed(70)
    gen = torch.Generator().manual_seed(72)
    held = firing(500, gen)
    model = GlazeModel()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98), weight_decay=0.0)
    print(f"variance of the readings {held.var().item():.3f}")
    for step in range(1, steps + 1):
        x = firing(128, gen)
        out, commit, _ = model(x)
        rebuilt = F.mse_loss(out, x)
        loss = rebuilt + 0.25 * commit
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 100 == 0:
            error, colours = report(model, held)
            print(f"step {step} rebuilt {rebuilt.item():.4f} commit {commit.item():.4f} held-out {error:.4f} colours in use {colours:.1f}")


if __name__ == "__main__":
    main()
