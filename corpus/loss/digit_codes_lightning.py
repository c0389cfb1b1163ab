"""Digits as Bernoulli pixels: the cross-entropy is a mean over pixels, and the divergence comes from torch.distributions."""
import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "posterior-collapsed",
    "line": ("cause", "HERE"),
    "plain": "every reconstruction is the same mean digit",
    "set": "classes",
    "written": "2026-11-28",
}


class Codes(lightning.LightningModule):
    def __init__(self, pixels=64, width=64, codes=6):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(pixels, width), nn.ReLU())
        self.to_mean, self.to_scale = nn.Linear(width, codes), nn.Linear(width, codes)
        self.decoder = nn.Sequential(nn.Linear(codes, width), nn.ReLU(), nn.Linear(width, pixels))

    def training_step(self, batch, index):
        (x,) = batch
        hidden = self.body(x)
        posterior = Normal(self.to_mean(hidden), nn.functional.softplus(self.to_scale(hidden)) + 1e-4)
        logits = self.decoder(posterior.rsample())
        match = nn.functional.binary_cross_entropy_with_logits(logits, x)  # HERE
        divergence = kl_divergence(posterior, Normal(0.0, 1.0)).sum(-1).mean()
        self.spread = logits.std(0).mean().item()
        return match + divergence

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def main():
    lightning.seed_everything(3, verbose=False)
    x = torch.tensor(load_digits().data / 16.0, dtype=torch.float32)
    loader = DataLoader(TensorDataset(x), batch_size=64, shuffle=True)
    model = Codes()
    trainer = lightning.Trainer(
        max_epochs=14, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, loader)
    print(f"spread of reconstructions {model.spread:.3f}")


if __name__ == "__main__":
    main()
