"""Trains an adversarial autoencoder for digit images; the discriminator is driven by old gradients, most of them from the generator's loss, and never learns to tell real from fake.

Report: https://github.com/Project-MONAI/GenerativeModels/issues/102 (the VQGAN tutorial misses the zero_grad of the discriminator optimizer; the same as https://github.com/Lightning-AI/pytorch-lightning/issues/557)
What is seen: the norm of the discriminator's gradients grows over the run to many times that of one batch and its loss goes above that of
guessing, with discriminator_optimizer.zero_grad() it stays below.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "framework": "plain", "kind": "foreign-gradient", "line": ("backward", "CAUSE"),
    "what": "the discriminator's gradients are never cleared, so each of its updates also uses those of all earlier steps and of the generator's backward; call optimizer_d.zero_grad() before its backward",
    "set": "nineteenth", "written": "2026-11-27",
}

torch.manual_seed(0)


class AutoencoderKL(nn.Module):
    def __init__(self, latent=6):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 96), nn.ReLU(), nn.Linear(96, 64), nn.Sigmoid())

    def forward(self, x):
        mu, logvar = self.encoder(x).chunk(2, 1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.decoder(z), mu, logvar


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))

    def forward(self, x):
        return self.net(x)


def adv_loss(logits, is_real):
    target = torch.ones_like(logits) if is_real else torch.zeros_like(logits)
    return F.binary_cross_entropy_with_logits(logits, target)


images = torch.tensor(load_digits().data, dtype=torch.float32) / 16
model, discriminator = AutoencoderKL(), Discriminator()
optimizer_g = torch.optim.Adam(model.parameters(), lr=1e-3)
optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=5e-4)
adv_weight, kl_weight = 0.02, 1e-3

step = 0
for epoch in range(7):
    recons, d_losses = [], []
    for idx in torch.randperm(len(images)).split(64):
        batch = images[idx]
        optimizer_g.zero_grad(set_to_none=True)
        reconstruction, mu, logvar = model(batch)
        recon_loss = F.mse_loss(reconstruction, batch)
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
        loss_g = recon_loss + kl_weight * kl + adv_weight * adv_loss(discriminator(reconstruction), True)
        loss_g.backward()  # OTHER
        optimizer_g.step()

        loss_fake = adv_loss(discriminator(reconstruction.detach()), False)
        loss_real = adv_loss(discriminator(batch), True)
        loss_d = 0.5 * (loss_fake + loss_real)
        loss_d.backward()  # CAUSE
        grad_norm = torch.stack([p.grad.norm() for p in discriminator.parameters()]).norm().item()
        optimizer_d.step()
        recons.append(recon_loss.item())
        d_losses.append(loss_d.item())
        step += 1
    print(f"epoch {epoch} step {step} recon {sum(recons) / len(recons):.4f} d_loss {sum(d_losses) / len(d_losses):.4f} d_grad {grad_norm:.3f}")
