"""Readings of needles in Lightning: each epoch adds 0.4 to the weight of the divergence, and nothing stops it."""
import lightning
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "posterior-collapsed",
    "line": ("cause", "HERE"),
    "plain": "the codes tell needles apart after epoch 3, and at the end all reconstructions are the mean needle",
    "set": "ledger",
    "written": "2026-11-29",
}
POINTS = 40


def needles(n, seed):
    generator = torch.Generator().manual_seed(seed)
    angle = torch.rand(n, 1, generator=generator) * torch.pi
    ticks = torch.linspace(0, torch.pi, POINTS)
    return torch.exp(-((ticks - angle) ** 2) / 0.3) + 0.05 * torch.randn(n, POINTS, generator=generator)


class Needles(lightning.LightningModule):
    def __init__(self, width=64, codes=5):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(POINTS, width), nn.ReLU())
        self.to_mean, self.to_scale = nn.Linear(width, codes), nn.Linear(width, codes)
        self.decoder = nn.Sequential(nn.Linear(codes, width), nn.ReLU(), nn.Linear(width, POINTS))
        self.beta = 0.0

    def training_step(self, batch, index):
        (x,) = batch
        hidden = self.body(x)
        posterior = Normal(self.to_mean(hidden), nn.functional.softplus(self.to_scale(hidden)) + 1e-4)
        out = self.decoder(posterior.rsample())
        match = (out - x).pow(2).sum(-1).mean()
        divergence = kl_divergence(posterior, Normal(0.0, 1.0)).sum(-1).mean()
        self.spread = out.std(0).mean().item()
        return match + self.beta * divergence

    def on_train_epoch_end(self):
        self.beta += 0.4  # HERE
        if self.current_epoch % 6 == 2:
            print(f"epoch {self.current_epoch + 1} beta {self.beta:.1f} spread of reconstructions {self.spread:.3f}")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def main():
    lightning.seed_everything(3, verbose=False)
    loader = DataLoader(TensorDataset(needles(1600, 0)), batch_size=32, shuffle=True)
    trainer = lightning.Trainer(
        max_epochs=30, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Needles(), loader)


if __name__ == "__main__":
    main()
