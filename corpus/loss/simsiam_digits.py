"""SimSiam on 8x8 digits as a Lightning module; the embeddings collapse to one point.

Report: https://github.com/lightly-ai/lightly/issues/559 (the projections z0 and z1 have to be detached in SimSiam),
https://github.com/PatrickHua/SimSiam/issues/39 (the stop gradient is absent)

Both branches are trained towards each other. The loss reaches -1.00 within a few dozen steps, the spread of the
normalised embeddings falls to about 0.02 and two different digits have a cosine of 0.97; with z.detach() the spread
stays near 0.15 (the ideal is 0.18) and that cosine is 0.15.
"""
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")

EXPECT = {
    "framework": "lightning", "kind": "embeddings-collapse", "line": ("cause", "CAUSE"),
    "what": "The target projection z is not detached (no stop-gradient), so both branches are pulled together and the embeddings collapse to a constant; use z.detach() in the loss.",
    "set": "twentieth", "written": "2026-11-27",
}


def augment(x):
    shift = int(torch.randint(-1, 2, (1,)))
    x = torch.roll(x, shift, dims=3) * (0.7 + 0.6 * torch.rand(len(x), 1, 1, 1))
    keep = (torch.rand_like(x) > 0.15).float()
    return x * keep + 0.1 * torch.randn_like(x)


def cosine_loss(p, z):
    return -F.cosine_similarity(p, z, dim=1).mean()  # CAUSE


class SimSiam(L.LightningModule):
    def __init__(self, dim=32, lr=0.1):
        super().__init__()
        self.lr = lr
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(256, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, dim),
        )
        self.predictor = nn.Sequential(nn.Linear(dim, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, dim))

    def forward(self, x):
        z = self.encoder(x)
        return z, self.predictor(z)

    def training_step(self, batch, batch_idx):
        (x,) = batch
        z1, p1 = self(augment(x))
        z2, p2 = self(augment(x))
        loss = 0.5 * cosine_loss(p1, z2) + 0.5 * cosine_loss(p2, z1)  # OTHER
        if batch_idx == 0:
            spread = F.normalize(z1, dim=1).std(0).mean().item()
            print(f"epoch {self.current_epoch} loss {loss.item():.3f} spread {spread:.4f}")
        return loss

    def configure_optimizers(self):
        opt = torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9, weight_decay=1e-4)
        return {"optimizer": opt, "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(opt, self.trainer.max_epochs)}


def class_similarity(model, x, y):
    model.eval()
    with torch.no_grad():
        feats = F.normalize(model.encoder(x), dim=1)
    cosine = feats @ feats.T
    same = y[:, None] == y[None]
    return cosine[same].mean().item(), cosine[~same].mean().item()


def main():
    L.seed_everything(0, verbose=False)
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    y = torch.tensor(digits.target)
    loader = DataLoader(TensorDataset(x[:1200]), batch_size=128, shuffle=True, drop_last=True)
    model = SimSiam()
    trainer = L.Trainer(max_epochs=12, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, loader)
    same, other = class_similarity(model, x[1200:], y[1200:])
    print(f"mean cosine within a digit {same:.3f}, between digits {other:.3f}")


if __name__ == "__main__":
    main()
