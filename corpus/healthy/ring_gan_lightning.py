"""Lightning GAN on points of a noisy ring with manual optimization: the discriminator and generator take turns, and the mean radius of the generated points approaches the ring's 1.5.
Report: none (healthy: the fake batch is detached for the discriminator, both optimizers are cleared before their own backward)
"""
import logging
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {"framework": "lightning", "kind": None, "set": "twentyfirst", "written": "2026-11-27"}
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def mlp(n_in, n_out, width=64):
    return nn.Sequential(nn.Linear(n_in, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, n_out))


class RingGAN(L.LightningModule):
    def __init__(self, z_dim=8):
        super().__init__()
        self.automatic_optimization = False
        self.z_dim = z_dim
        self.gen, self.disc = mlp(z_dim, 2), mlp(2, 1)

    def sample(self, n):
        return self.gen(torch.randn(n, self.z_dim))

    def training_step(self, batch, batch_idx):
        (real,) = batch
        opt_g, opt_d = self.optimizers()
        fake = self.sample(len(real))

        opt_d.zero_grad()
        loss_d = F.softplus(-self.disc(real)).mean() + F.softplus(self.disc(fake.detach())).mean()
        self.manual_backward(loss_d)
        opt_d.step()

        self.toggle_optimizer(opt_g)
        opt_g.zero_grad()
        loss_g = F.softplus(-self.disc(fake)).mean()
        self.manual_backward(loss_g)
        opt_g.step()
        self.untoggle_optimizer(opt_g)
        if batch_idx == 0:
            with torch.no_grad():
                r = self.sample(500).norm(dim=1)
            print(f"epoch {self.current_epoch} d {loss_d.item():.3f} g {loss_g.item():.3f} radius {r.mean().item():.3f} +- {r.std().item():.3f}")

    def configure_optimizers(self):
        return (torch.optim.Adam(self.gen.parameters(), lr=2e-3, betas=(0.5, 0.9)),
                torch.optim.Adam(self.disc.parameters(), lr=2e-3, betas=(0.5, 0.9)))


if __name__ == "__main__":
    L.seed_everything(0, verbose=False)
    angle = 2 * torch.pi * torch.rand(2560)
    ring = torch.stack([angle.cos(), angle.sin()], dim=1) * 1.5 + 0.05 * torch.randn(2560, 2)
    trainer = L.Trainer(max_epochs=9, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(RingGAN(), DataLoader(TensorDataset(ring), batch_size=128, shuffle=True))
