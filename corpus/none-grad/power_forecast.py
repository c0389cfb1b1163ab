"""Lightning forecaster of three load series with a TiDE-like residual MLP: the training loss never falls.
Report: https://github.com/sktime/pytorch-forecasting/pull/2208 (the multivariate prediction path does .clone().detach().requires_grad_(True), which makes new leaves, so the model cannot learn)
The loss is computed on detached leaves: backward runs without an error, but no parameter of the model gets a gradient
and the weights stay exactly at their initial values.
"""
import logging
import warnings

import lightning as L
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "framework": "lightning", "kind": "none-grad", "line": ("cut", "CAUSE"),
    "what": "the predictions are detached and made fresh leaves before the loss, so no gradient reaches the network and nothing is learned",
    "set": "twentyfirst", "written": "2026-11-27",
}
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
LOOKBACK, HORIZON, TARGETS = 36, 12, 3


class ResidualBlock(nn.Module):
    def __init__(self, n_in, hidden, n_out):
        super().__init__()
        self.dense = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU(), nn.Linear(hidden, n_out))
        self.skip = nn.Linear(n_in, n_out)
        self.norm = nn.LayerNorm(n_out)

    def forward(self, x):
        return self.norm(self.dense(x) + self.skip(x))


class Forecaster(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = ResidualBlock(LOOKBACK * TARGETS, 64, 32)
        self.decoder = nn.Linear(32, HORIZON * TARGETS)
        self.history = []

    def forward(self, x):
        out = self.decoder(self.encoder(x.flatten(1))).view(-1, HORIZON, TARGETS)
        prediction = list(out.unbind(-1))
        prediction = [p.clone().detach().requires_grad_(True) for p in prediction]  # CAUSE
        return prediction

    def training_step(self, batch, batch_idx):
        x, y = batch
        losses = [nn.functional.mse_loss(p, y[..., i]) for i, p in enumerate(self(x))]
        loss = torch.stack(losses).mean()
        self.history.append(loss.item())
        if self.global_step % 40 == 0:
            print(f"step {self.global_step} loss {loss.item():.4f}")
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3, weight_decay=0.0)


def make_series(n=2000):
    t = torch.arange(n, dtype=torch.float32)
    cols = [torch.sin(2 * torch.pi * t / p) + 0.4 * torch.sin(2 * torch.pi * t / 7 + k) for k, p in enumerate((24, 30, 17))]
    series = torch.stack(cols, dim=1) + 0.05 * torch.randn(n, TARGETS)
    windows = series.unfold(0, LOOKBACK + HORIZON, 1).transpose(1, 2)
    return TensorDataset(windows[:, :LOOKBACK].contiguous(), windows[:, LOOKBACK:].contiguous())


if __name__ == "__main__":
    L.seed_everything(1, verbose=False)
    loader = DataLoader(make_series(), batch_size=64, shuffle=True, drop_last=True)
    model = Forecaster()
    trainer = L.Trainer(max_epochs=6, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, loader)
    print(f"first ten {sum(model.history[:10]) / 10:.4f}, last ten {sum(model.history[-10:]) / 10:.4f}")
