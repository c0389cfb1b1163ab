"""Invent perfume blends (points around a few recipes) with a small Wasserstein GAN in Lightning, manual optimisation.

What looks suspicious: the generator loss goes back through the critic and leaves gradients on its weights that no step ever
uses, the critic's weights are cut to a small range by hand after each step, the critic loss is negative, and the fake
blends are made with gradients in one place and without in the other. This is right: the critic's gradients are cleared
before its own backward, the cutting keeps it Lipschitz, and the critic loss is minus a distance.

Report: https://github.com/Lightning-AI/pytorch-lightning/issues/591
"""
import logging
import warnings

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": None,
    "plain": "the critic's distance shrinks and the blends come close to the recipes",
    "set": "twentyfifth",
    "written": "2026-11-28",
}

RECIPES = 5
CRITIC_STEPS = 4


def recipes():
    angle = 2 * np.pi * np.arange(RECIPES) / RECIPES
    return np.stack([1.5 * np.cos(angle), 1.5 * np.sin(angle)], axis=1)


def make_blends(n, seed):
    rng = np.random.default_rng(seed)
    which = rng.integers(0, RECIPES, size=n)
    return torch.tensor(recipes()[which] + 0.12 * rng.standard_normal((n, 2)), dtype=torch.float32)


def stack(inp, width, out):
    return nn.Sequential(nn.Linear(inp, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, out))


class BlendGAN(L.LightningModule):
    def __init__(self, noise=6):
        super().__init__()
        self.automatic_optimization = False
        self.noise = noise
        self.generator = stack(noise, 64, 2)
        self.critic = stack(2, 64, 1)
        self.distances = []

    def blend(self, n):
        return self.generator(torch.randn(n, self.noise, device=self.device))

    def training_step(self, batch, batch_idx):
        (real,) = batch
        make, judge = self.optimizers()

        with torch.no_grad():
            fake = self.blend(len(real))
        judge.zero_grad()
        critic_loss = self.critic(fake).mean() - self.critic(real).mean()
        self.manual_backward(critic_loss)
        judge.step()
        with torch.no_grad():
            for p in self.critic.parameters():
                p.clamp_(-0.15, 0.15)
        self.distances.append(-critic_loss.item())

        if batch_idx % CRITIC_STEPS == CRITIC_STEPS - 1:
            make.zero_grad()
            generator_loss = -self.critic(self.blend(len(real))).mean()
            self.manual_backward(generator_loss)
            make.step()

    def on_train_epoch_end(self):
        if self.current_epoch % 5 == 4 or self.current_epoch == 0:
            with torch.no_grad():
                points = self.blend(1000)
            gaps = torch.cdist(points, torch.tensor(recipes(), dtype=torch.float32))
            near = (gaps.min(dim=1).values < 0.5).float().mean().item()
            used = len(gaps[gaps.min(dim=1).values < 0.5].argmin(dim=1).unique())
            print(f"epoch {self.current_epoch + 1} distance {np.mean(self.distances):.4f} near a recipe {near:.3f} "
                  f"recipes met {used}")
        self.distances.clear()

    def configure_optimizers(self):
        return [torch.optim.RMSprop(self.generator.parameters(), lr=2e-3),
                torch.optim.RMSprop(self.critic.parameters(), lr=1e-3)]


def main():
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    L.seed_everything(8, verbose=False)
    loader = DataLoader(TensorDataset(make_blends(12800, 0)), batch_size=128, shuffle=True)
    trainer = L.Trainer(max_epochs=40, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(BlendGAN(), loader)


if __name__ == "__main__":
    main()
