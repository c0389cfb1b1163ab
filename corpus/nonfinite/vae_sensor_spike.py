"""Variational autoencoder of sensor rows whose standard deviation is a softplus: one reading is a spike, the deviation underflows to zero and its logarithm is infinite."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 414,
    "set": "late", "written": "2026-11-22",
}


class VAE(nn.Module):
    def __init__(self, width=12, latent=3):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 32), nn.ReLU(), nn.Linear(32, width))

    def forward(self, x):
        mean, raw = self.encoder(x).chunk(2, 1)
        std = nn.functional.softplus(raw)
        return self.decoder(mean + std * torch.randn_like(std)), mean, std


def divergence(mean, std):
    return (0.5 * (mean.square() + std.square() - 1) - std.log()).sum(1).mean()  # CULPRIT


torch.manual_seed(0)
g = torch.Generator().manual_seed(1)
rows = torch.randn(12000, 4, generator=g) @ torch.randn(4, 12, generator=g) / 2
rows[5167, 7] = 32767.0  # full scale
loader = DataLoader(TensorDataset(rows), batch_size=16, shuffle=True, generator=g)
model = VAE()
opt = torch.optim.Adam(model.parameters(), 1e-3)
for step, (x,) in enumerate(loader):
    recon, mean, std = model(x)
    kl = divergence(mean, std)
    loss = nn.functional.smooth_l1_loss(recon, x) + min(1.0, step / 500) * 0.05 * kl
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4), round(kl.item(), 4))
