"""A small trainer class for the wine data. The training step clips right after zero_grad, before the backward gives
any gradients, so that outlier batches push the weights around as if there were no clipping."""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_wine
from torch import nn

EXPECT = {
    "class": "clipping before the backward",
    "kind": "clipping-without-effect",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(1)
torch.set_num_threads(1)


class Trainer:
    def __init__(self, model, lr=0.02, max_norm=0.5):
        self.model, self.max_norm = model, max_norm
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

    def prepare(self):
        self.optimizer.zero_grad()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)  # <-- cause

    def train_step(self, x, y):
        self.prepare()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()


data = load_wine()
features = torch.tensor(data.data, dtype=torch.float32)
features = (features - features.mean(0)) / features.std(0)
target = torch.tensor(data.target)

trainer = Trainer(nn.Sequential(nn.Linear(13, 32), nn.Tanh(), nn.Linear(32, 3)))
for step in range(60):
    rows = torch.randint(0, len(features), (32,))
    batch = features[rows] * (40.0 if step % 12 == 11 else 1.0)  # a sensor that is read in other units
    loss = trainer.train_step(batch, target[rows])
    if step % 10 == 0:
        print(f"step {step}  loss {loss:.3f}")
