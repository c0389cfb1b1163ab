"""Trains a VQ-VAE on the digits; the codebook loss is computed after the straight-through line, so its gradient goes to the
encoder (pushing it away from the codes) and the codebook never moves from its initial values (codebook change exactly 0,
3 codes used and test error 0.083; mended: 30 codes and 0.014).

Report: https://github.com/andylolu2/jax-vqvae-gpt/issues/2 (the codebook/commitment term is computed after patching the
straight-through gradient onto the embeddings, so the embeddings are not pulled to the inputs)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "framework": "plain", "kind": "none-grad", "line": ("cut", "CAUSE"),
    "what": "The quantized vectors are replaced by the straight-through version before the codebook loss is computed, so the codebook gets no gradient and never trains; compute the losses first.",
    "set": "twentysecond", "written": "2026-11-28",
}


class VectorQuantizer(nn.Module):
    def __init__(self, n_codes, dim, beta=0.25):
        super().__init__()
        self.beta = beta
        self.codebook = nn.Embedding(n_codes, dim)
        nn.init.uniform_(self.codebook.weight, -1.0 / n_codes, 1.0 / n_codes)

    def forward(self, z):
        flat = z.reshape(-1, z.size(-1))
        idx = torch.cdist(flat, self.codebook.weight).argmin(dim=1)
        q = self.codebook(idx).view_as(z)
        q = z + (q - z).detach()  # CAUSE
        codebook_loss = F.mse_loss(q, z.detach())  # OTHER
        commit_loss = F.mse_loss(q.detach(), z)
        return q, codebook_loss + self.beta * commit_loss, idx


class VQVAE(nn.Module):
    def __init__(self, dim=8, n_codes=32):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 32, 3, stride=2, padding=1), nn.ReLU(),
                                     nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, dim, 1))
        self.vq = VectorQuantizer(n_codes, dim)
        self.decoder = nn.Sequential(nn.Conv2d(dim, 32, 3, padding=1), nn.ReLU(),
                                     nn.ConvTranspose2d(32, 16, 2, stride=2), nn.ReLU(), nn.Conv2d(16, 1, 3, padding=1))

    def forward(self, x):
        z = self.encoder(x).permute(0, 2, 3, 1)
        q, vq_loss, idx = self.vq(z)
        return self.decoder(q.permute(0, 3, 1, 2)), vq_loss, idx


torch.manual_seed(3)
images = torch.tensor(load_digits().images, dtype=torch.float32).unsqueeze(1) / 16
train_x, test_x = images[:1500], images[1500:]
model = VQVAE()
start = model.vq.codebook.weight.detach().clone()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)

for step in range(300):
    x = train_x[torch.randint(len(train_x), (64,))]
    recon, vq_loss, idx = model(x)
    recon_loss = F.mse_loss(recon, x)
    loss = recon_loss + vq_loss
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    if step % 50 == 0 or step == 299:
        print(f"step {step:3d} recon {recon_loss.item():.4f} vq {vq_loss.item():.4f} codes used {idx.unique().numel()}")

with torch.no_grad():
    recon, _, idx = model(test_x)
print(f"test recon {F.mse_loss(recon, test_x).item():.4f}, codes used {idx.unique().numel()}, "
      f"codebook change {(model.vq.codebook.weight - start).abs().max().item():.5f}")
