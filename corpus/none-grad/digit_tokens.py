"""VQ-VAE on the 8x8 digits: the codebook stays at its initial values and the reconstructions stay poor.
Report: https://github.com/showlab/Olaf-World/issues/8 (codebook loss is computed on the straight-through output, so the codebook never receives gradients)
The codebook term is built from x + (q - x).detach(), which has no path to the embedding table: its gradient is None at every step,
while the reconstruction loss still falls a little through the decoder.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "framework": "plain", "kind": "none-grad", "line": ("loss", "CAUSE"),
    "what": "the codebook loss uses the straight-through output instead of the looked-up vectors, so the codebook gets no gradient and never moves",
    "set": "twentyfirst", "written": "2026-11-27",
}


class VectorQuantizer(nn.Module):
    def __init__(self, n_codes, dim):
        super().__init__()
        self.codebook = nn.Embedding(n_codes, dim)
        nn.init.uniform_(self.codebook.weight, -1.0 / n_codes, 1.0 / n_codes)

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        dist = torch.cdist(flat, self.codebook.weight)
        idx = dist.argmin(dim=1)
        z = self.codebook(idx).view_as(x)
        z_q = x + (z - x).detach()
        return z_q, z, idx  # OTHER


class DigitVQ(nn.Module):
    def __init__(self, n_codes=32, dim=8):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, dim))
        self.vq = VectorQuantizer(n_codes, dim)
        self.dec = nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, 16))

    def forward(self, patches):
        z_e = self.enc(patches)
        z_q, z, idx = self.vq(z_e)
        return self.dec(z_q), z_e, z_q, z, idx


def to_patches(images):
    p = images.unfold(1, 4, 4).unfold(2, 4, 4)
    return p.reshape(len(images), 4, 16)


torch.manual_seed(0)
data = to_patches(torch.tensor(load_digits().images, dtype=torch.float32) / 16.0)
model = DigitVQ()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
start = model.vq.codebook.weight.detach().clone()

for step in range(300):
    batch = data[torch.randint(0, len(data), (64,))]
    recon, z_e, z_q, z, idx = model(batch)
    recon_loss = F.mse_loss(recon, batch)
    codebook_loss = F.mse_loss(z_q, z_e.detach())  # CAUSE
    commit_loss = F.mse_loss(z_e, z.detach())
    loss = recon_loss + codebook_loss + 0.25 * commit_loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step:3d} recon {recon_loss.item():.4f} codes used {idx.unique().numel()}")

moved = (model.vq.codebook.weight - start).norm().item()
with torch.no_grad():
    final = F.mse_loss(model(data)[0], data).item()
print(f"final recon {final:.4f}, codebook moved by {moved:.3f}")
