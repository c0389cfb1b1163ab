"""Trains a GAN on a slanted cloud of points with Lightning and manual optimization; healthy.

The discriminator is frozen while the generator is updated and thawed again, the fake points are detached for the discriminator and
the generator's schedule is stepped by hand.
"""
import logging
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {"framework": "lightning", "kind": None, "set": "nineteenth", "written": "2026-11-27"}
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def mlp(i, o, width=64):
    return nn.Sequential(nn.Linear(i, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, o))


class CloudGAN(L.LightningModule):
    def __init__(self, z_dim=8):
        super().__init__()
        self.automatic_optimization = False
        self.generator, self.discriminator = mlp(z_dim, 2), mlp(2, 1)
        self.z_dim = z_dim

    def sample(self, n):
        return self.generator(torch.randn(n, self.z_dim))

    def training_step(self, batch, batch_idx):
        (real,) = batch
        opt_g, opt_d = self.optimizers()
        fake = self.sample(len(real)).detach()
        d_loss = F.softplus(-self.discriminator(real)).mean() + F.softplus(self.discriminator(fake)).mean()
        opt_d.zero_grad()
        self.manual_backward(d_loss)
        opt_d.step()

        self.discriminator.requires_grad_(False)
        g_loss = F.softplus(-self.discriminator(self.sample(len(real)))).mean()
        opt_g.zero_grad()
        self.manual_backward(g_loss)
        opt_g.step()
        self.discriminator.requires_grad_(True)
        self.lr_schedulers().step()
        self.log("g_loss", g_loss)
        self.log("d_loss", d_loss)

    def on_train_epoch_end(self):
        with torch.no_grad():
            cloud = self.sample(512)
        m = self.trainer.callback_metrics
        print(f"epoch {self.current_epoch} g {m['g_loss'].item():.3f} d {m['d_loss'].item():.3f} "
              f"mean {cloud.mean(0).tolist()} std {cloud.std(0).tolist()}")

    def configure_optimizers(self):
        opt_g = torch.optim.Adam(self.generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
        opt_d = torch.optim.Adam(self.discriminator.parameters(), lr=1e-3, betas=(0.5, 0.9))
        return [opt_g, opt_d], [torch.optim.lr_scheduler.LinearLR(opt_g, 1.0, 0.2, total_iters=160)]


def main():
    L.seed_everything(1, verbose=False)
    points = torch.randn(4096, 2) @ torch.tensor([[0.8, 0.5], [0.0, 0.4]]) + torch.tensor([1.0, -1.5])
    loader = DataLoader(TensorDataset(points), batch_size=128, shuffle=True)
    trainer = L.Trainer(max_epochs=6, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(CloudGAN(), loader)


if __name__ == "__main__":
    main()
