"""Trains a small GAN on the 8x8 digits with Lightning manual optimization; the discriminator is also updated with the
generator's gradients, which are still in its .grad when its own loss is backpropagated, so it cannot learn to tell
real from fake (its accuracy stays near chance / the mended copy, which clears them first, separates far better).

Report: https://github.com/Lightning-AI/pytorch-lightning/issues/591 (each optimizer is only zeroed after its own step,
so gradients left by the generator's backward are added to the discriminator's and GAN training is broken)
"""
import logging
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F
import lightning as L
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "framework": "lightning", "kind": "foreign-gradient", "line": ("backward", "CAUSE"),
    "what": "The discriminator's gradients are not cleared before its own backward, so every discriminator step also applies the gradients of the generator loss; call opt_d.zero_grad() before manual_backward(d_loss).",
    "set": "twentysecond", "written": "2026-11-28",
}

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")


class DigitGAN(L.LightningModule):
    def __init__(self, latent_dim=16, lr=2e-3):
        super().__init__()
        self.automatic_optimization = False
        self.latent_dim, self.lr = latent_dim, lr
        self.generator = nn.Sequential(
            nn.Linear(latent_dim, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 64), nn.Tanh())
        self.discriminator = nn.Sequential(
            nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
        self.acc = []

    def training_step(self, batch, batch_idx):
        opt_g, opt_d = self.optimizers()
        real, = batch
        z = torch.randn(real.size(0), self.latent_dim)
        ones, zeros = torch.ones(real.size(0), 1), torch.zeros(real.size(0), 1)

        fake = self.generator(z)
        g_loss = F.binary_cross_entropy_with_logits(self.discriminator(fake), ones)
        self.manual_backward(g_loss)
        opt_g.step()
        opt_g.zero_grad()

        real_logit = self.discriminator(real)
        fake_logit = self.discriminator(fake.detach())
        d_loss = (F.binary_cross_entropy_with_logits(real_logit, ones)
                  + F.binary_cross_entropy_with_logits(fake_logit, zeros)) / 2
        self.manual_backward(d_loss)  # CAUSE
        opt_d.step()
        opt_d.zero_grad()  # OTHER

        self.acc.append(((real_logit > 0).float().mean() + (fake_logit <= 0).float().mean()).item() / 2)
        if self.global_step % 60 == 0:
            print(f"step {self.global_step:4d} g {g_loss.item():.3f} d {d_loss.item():.3f} "
                  f"D acc {sum(self.acc[-30:]) / len(self.acc[-30:]):.3f}")

    def configure_optimizers(self):
        return (torch.optim.Adam(self.generator.parameters(), lr=self.lr, betas=(0.5, 0.999)),
                torch.optim.Adam(self.discriminator.parameters(), lr=self.lr, betas=(0.5, 0.999)))


def main():
    L.seed_everything(7, verbose=False)
    x = torch.tensor(load_digits().data, dtype=torch.float32) / 8 - 1
    loader = DataLoader(TensorDataset(x), batch_size=64, shuffle=True, drop_last=True)
    model = DigitGAN()
    trainer = L.Trainer(max_epochs=6, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, loader)
    with torch.no_grad():
        fake = model.generator(torch.randn(512, 16))
    print(f"D accuracy over the last 60 batches {sum(model.acc[-60:]) / 60:.3f}, "
          f"pixel mean gap {(fake.mean(0) - x.mean(0)).abs().mean():.3f}")


if __name__ == "__main__":
    main()
