"""A LightningModule overrides backward(), which Lightning calls with the loss: it counts the calls, and is no gradient of a layer."""
import logging
import warnings

import lightning as L
import torch
from sklearn.datasets import make_moons
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "none", "framework": "lightning", "set": "ledger", "written": "2026-11-29",
    "what": "Lightning calls the method: it is a hook of the trainer",
}


class Moons(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 24), nn.SiLU(), nn.Linear(24, 2))
        self.calls = 0

    def training_step(self, batch, number):
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def backward(self, loss, *args, **kwargs):
        self.calls += 1
        loss.backward(*args, **kwargs)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main():
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    L.seed_everything(0, verbose=False)
    points, moons = make_moons(600, noise=0.1, random_state=0)
    data = TensorDataset(torch.tensor(points, dtype=torch.float32), torch.tensor(moons))
    model = Moons()
    trainer = L.Trainer(
        max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(data, batch_size=20, shuffle=True))
    print(model.calls, (model.net(data.tensors[0]).argmax(1) == data.tensors[1]).float().mean().item())


if __name__ == "__main__":
    main()
