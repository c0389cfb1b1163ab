"""VQ autoencoder of the scikit-learn digits with revival of unused codes.

Story: the codebook is trained by its own loss term; codes that nobody used for a while are
re-seeded with encoder outputs of the present batch, inside forward, as many public VQ
implementations do (lucidrains/vector-quantize-pytorch `expire_codes_`, see its issues #13 and
#49).  In this one the codebook is a parameter whose distances also feed a usage loss, and the
run dies with the well known inplace error (the family of pytorch/pytorch#39141) at the first
batch that has a dead code.
"""
import torch
from torch import nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "x", "kind": "inplace", "mutating_marker": "MUT", "plain": {"outcome": "error", "error": "one of the variables needed for gradient computation has been modified by an inplace operation"},
    "set": "fourteenth", "written": "2026-11-26",
}


class Quantizer(nn.Module):
    def __init__(self, codes=64, dim=12, decay=0.97, threshold=0.01):
        super().__init__()
        self.codebook = nn.Parameter(torch.randn(codes, dim))
        self.register_buffer("usage", torch.ones(codes))
        self.decay, self.threshold = decay, threshold

    @torch.no_grad()
    def track_usage(self, index):
        counts = torch.bincount(index, minlength=len(self.usage)).clamp(max=1).float()
        self.usage.mul_(self.decay).add_(counts, alpha=1 - self.decay)

    @torch.no_grad()
    def revive(self, z):
        dead = self.usage < self.threshold
        if dead.any():
            pick = torch.randint(len(z), (int(dead.sum()),))
            self.codebook[dead] = z[pick]  # MUT
            self.usage[dead] = 1.0

    def forward(self, z):
        distance = z.pow(2).sum(1, keepdim=True) - 2 * z @ self.codebook.t() + self.codebook.pow(2).sum(1)
        index = distance.argmin(1)
        q = self.codebook[index]
        soft = F.softmax(-distance, dim=1).mean(0)
        usage_loss = (soft * (soft + 1e-8).log()).sum()
        if self.training:
            self.track_usage(index)
            self.revive(z.detach())
        vq_loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
        return z + (q - z).detach(), vq_loss + 0.05 * usage_loss


class Autoencoder(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, dim, 3, 2, 1))
        self.quantizer = Quantizer(dim=dim)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(dim, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1)
        )

    def forward(self, images):
        z = self.encoder(images)
        b, d, h, w = z.shape
        q, vq_loss = self.quantizer(z.permute(0, 2, 3, 1).reshape(-1, d))
        q = q.view(b, h, w, d).permute(0, 3, 1, 2)
        return self.decoder(q), vq_loss


def batches(images, size, steps, seed=0):
    g = torch.Generator().manual_seed(seed)
    for step in range(steps):
        yield step, images[torch.randint(len(images), (size,), generator=g)]


def main():
    torch.manual_seed(0)
    images = torch.tensor(load_digits().images, dtype=torch.float32).unsqueeze(1) / 16
    model = Autoencoder().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step, batch in batches(images, 64, 500):
        recon, vq_loss = model(batch)
        loss = F.mse_loss(recon, batch) + vq_loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"{step:4d} loss {loss.item():.4f} min usage {model.quantizer.usage.min():.3f}")


if __name__ == "__main__":
    main()
