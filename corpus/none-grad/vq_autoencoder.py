"""Autoencoder on digits; the latent is vector-quantised after a plain warm-up."""
import time
import torch
from torch import nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "late-cut", "kind": "none-grad", "cut_marker": "CULPRIT", "step": 120,
    "set": "late_longer", "written": "2026-11-25",
}

torch.manual_seed(7)


class Quantizer(nn.Module):
    def __init__(self, n_codes, dim):
        super().__init__()
        self.codes = nn.Embedding(n_codes, dim)
        self.enabled = False

    def forward(self, z):
        if not self.enabled:
            return z, z.new_zeros(())
        flat = z.reshape(-1, self.codes.embedding_dim)
        idx = torch.cdist(flat, self.codes.weight).argmin(dim=1)
        q = self.codes(idx).view_as(z)
        vq_loss = F.mse_loss(q, z.detach())  # CULPRIT
        return q, vq_loss

    @torch.no_grad()
    def init_from(self, z):
        flat = z.reshape(-1, self.codes.embedding_dim)
        pick = torch.randperm(len(flat))[: self.codes.num_embeddings]
        self.codes.weight.copy_(flat[pick])


class VQAE(nn.Module):
    def __init__(self, hid=768):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(64, hid), nn.ReLU(), nn.Linear(hid, hid), nn.ReLU(), nn.Linear(hid, 64))
        self.quant = Quantizer(64, 8)
        self.dec = nn.Sequential(nn.Linear(64, hid), nn.ReLU(), nn.Linear(hid, hid), nn.ReLU(), nn.Linear(hid, 64), nn.Sigmoid())

    def forward(self, x):
        z = self.enc(x)
        q, vq = self.quant(z)
        return self.dec(q), vq


def train_one_epoch(model, opt, data, bs, log):
    perm = torch.randperm(len(data))
    for i in range(0, len(data) - bs + 1, bs):
        x = data[perm[i:i + bs]]
        recon, vq = model(x)
        loss = F.mse_loss(recon, x) + 0.25 * vq
        opt.zero_grad()
        loss.backward()
        opt.step()
        log.append(loss.item())


if __name__ == "__main__":
    data = torch.tensor(load_digits().data, dtype=torch.float32) / 16.0
    model, log = VQAE(), []
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    t0 = time.time()
    for epoch in range(33):                      # 12 steps per epoch
        if epoch == 10:
            with torch.no_grad():
                model.quant.init_from(model.enc(data[:512]))
            model.quant.enabled = True
        train_one_epoch(model, opt, data, 144, log)
        if epoch % 4 == 3:
            print(f"epoch {epoch} steps {len(log)} loss {log[-1]:.5f} {(time.time() - t0) / len(log) * 1e3:.1f} ms/step")
