"""Healthy: GAN in Lightning with manual optimization; each optimizer is toggled on and off again, the generated points are drawn once and detached for the discriminator, which is frozen while the generator learns.

Report it resembles: https://github.com/Lightning-AI/tutorials/issues/306 (may the generated batch of the GAN example be used again, is it safe between toggle_optimizer and untoggle_optimizer)
"""
import logging
import warnings

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {"class": "healthy", "framework": "lightning", "kind": "none", "set": "ninth", "written": "2026-11-23"}
warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def mlp(inputs, outputs, width=32):
    return nn.Sequential(nn.Linear(inputs, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, outputs))


class PointGAN(L.LightningModule):
    def __init__(self, latent=6, every=2):
        super().__init__()
        self.automatic_optimization = False
        self.latent, self.every = latent, every
        self.generator, self.discriminator = mlp(latent, 2), mlp(2, 1)
        self.losses = {"g": 0.0, "d": 0.0}

    def training_step(self, batch, batch_idx):
        (real,) = batch
        opt_g, opt_d = self.optimizers()

        self.toggle_optimizer(opt_g)
        fake = self.generator(torch.randn(len(real), self.latent))
        if batch_idx % self.every == 0:
            loss_g = F.softplus(-self.discriminator(fake)).mean()
            opt_g.zero_grad()
            self.manual_backward(loss_g)
            opt_g.step()
            self.losses["g"] = loss_g.item()
        self.untoggle_optimizer(opt_g)

        self.toggle_optimizer(opt_d)
        loss_d = F.softplus(-self.discriminator(real)).mean() + F.softplus(self.discriminator(fake.detach())).mean()
        opt_d.zero_grad()
        self.manual_backward(loss_d)
        self.clip_gradients(opt_d, gradient_clip_val=1.0, gradient_clip_algorithm="norm")
        opt_d.step()
        self.untoggle_optimizer(opt_d)
        self.losses["d"] = loss_d.item()

    def on_train_epoch_end(self):
        print(self.current_epoch, self.losses)

    def configure_optimizers(self):
        return torch.optim.Adam(self.generator.parameters(), lr=1e-3, betas=(0.5, 0.9)), torch.optim.Adam(self.discriminator.parameters(), lr=1e-3, betas=(0.5, 0.9))


L.seed_everything(0, verbose=False)
angle = 6.2832 * torch.rand(1280)
ring = torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(1280, 2)
loader = DataLoader(TensorDataset(ring), batch_size=64, shuffle=True, drop_last=True)
trainer = L.Trainer(max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(PointGAN(), loader)
