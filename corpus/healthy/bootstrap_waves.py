"""Features of vibration waves without labels: an online network predicts a slowly moving target network (BYOL), with Lightning.

What looks suspicious: half of the weights never get a gradient and are in no optimizer, weights change outside the optimizer in
every step, and the loss falls fast as in a collapse (asked in https://github.com/yaox12/BYOL-PyTorch/issues/14). It is
right: the target follows the online network by a moving average, buffers with it, and the nearest-neighbour accuracy goes up.
"""
import copy
import logging
import warnings

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
import lightning as L
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "framework": "lightning",
    "kind": None,
    "set": "twentythird",
    "written": "2026-11-28",
}

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")
POINTS = 64


def waves(n, seed):
    """Eight kinds of machine vibration: pairs of frequencies; random phase, strength and noise."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 8, size=n)
    t = np.arange(POINTS)
    low, high = 0.35 + 0.09 * (kind % 4), 1.2 + 0.3 * (kind // 4)
    x = np.stack([np.sin(low[:, None] * t + rng.uniform(0, 6.28, size=(n, 1))),
                  0.7 * np.sin(high[:, None] * t + rng.uniform(0, 6.28, size=(n, 1)))]).sum(axis=0)
    x = rng.uniform(0.6, 1.4, size=(n, 1)) * x + 0.9 * rng.normal(size=(n, POINTS))
    return torch.tensor(x[:, None], dtype=torch.float32), torch.tensor(kind)


def mlp(a, b, c):
    return nn.Sequential(nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(), nn.Linear(b, c))


def view(x):
    shift = int(torch.randint(0, POINTS, (1,)))
    scale = 0.7 + 0.6 * torch.rand(len(x), 1, 1)
    return torch.roll(x, shift, dims=2) * scale + 0.3 * torch.randn_like(x)


class Bootstrap(L.LightningModule):
    def __init__(self, total, width=32, out=32):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv1d(1, width, 9, padding=4), nn.BatchNorm1d(width), nn.ReLU(), nn.MaxPool1d(2),
                                     nn.Conv1d(width, width, 5, padding=2), nn.BatchNorm1d(width), nn.ReLU(), nn.AdaptiveAvgPool1d(1),
                                     nn.Flatten())
        self.projector = mlp(width, 64, out)
        self.predictor = mlp(out, 64, out)
        self.target = copy.deepcopy(nn.Sequential(self.encoder, self.projector)).requires_grad_(False)
        self.total = total

    def training_step(self, batch, _):
        a, b = view(batch[0]), view(batch[0])
        pa, pb = (self.predictor(self.projector(self.encoder(v))) for v in (a, b))
        with torch.no_grad():
            za, zb = self.target(a), self.target(b)
        loss = 2 - F.cosine_similarity(pa, zb).mean() - F.cosine_similarity(pb, za).mean()
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    @torch.no_grad()
    def on_train_batch_end(self, *_):
        keep = 1 - 0.03 * (1 - self.global_step / self.total)
        online = nn.Sequential(self.encoder, self.projector)
        for slow, fast in zip(self.target.parameters(), online.parameters()):
            slow.lerp_(fast, 1 - keep)
        for slow, fast in zip(self.target.buffers(), online.buffers()):
            slow.copy_(fast)

    def configure_optimizers(self):
        online = [p for p in self.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(online, lr=2e-3, weight_decay=1e-3)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.total),
                                                         "interval": "step"}}


class Neighbours(L.Callback):
    def __init__(self, bank, held):
        self.bank, self.held = bank, held

    @torch.no_grad()
    def on_train_epoch_end(self, trainer, module):
        module.eval()
        features = [F.normalize(module.encoder(x), dim=1) for x, _ in (self.bank, self.held)]
        module.train()
        near = (features[1] @ features[0].T).topk(5, dim=1).indices
        hit = (self.bank[1][near].mode(dim=1).values == self.held[1]).float().mean()
        print(f"epoch {trainer.current_epoch + 1:2d}  loss {trainer.callback_metrics['loss']:.4f}  nearest-neighbour accuracy {hit:.3f}")


def main():
    L.seed_everything(4, verbose=False)
    torch.set_num_threads(1)
    bank, held = waves(2000, seed=1), waves(500, seed=2)
    loader = DataLoader(TensorDataset(bank[0]), batch_size=100, shuffle=True)
    epochs = 12
    trainer = L.Trainer(max_epochs=epochs, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False, callbacks=[Neighbours(bank, held)])
    trainer.fit(Bootstrap(total=epochs * len(loader)), loader)


if __name__ == "__main__":
    main()
