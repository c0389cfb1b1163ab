"""Lightning with manual optimization: two optimizers in turn, a mean teacher, and accumulation."""

import copy
import logging
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": None,
    "set": "twentyninth",
    "written": "2026-11-29",
}

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)



class MeanTeacher(L.LightningModule):
    def __init__(self, pieces=2, decay=0.97):
        super().__init__()
        self.automatic_optimization = False
        self.pieces, self.decay = pieces, decay
        self.body = nn.Sequential(nn.Linear(64, 128), nn.LayerNorm(128), nn.GELU(), nn.Linear(128, 64), nn.GELU())
        self.head = nn.Linear(64, 10)
        self.teacher = copy.deepcopy(nn.Sequential(self.body, self.head)).requires_grad_(False)
        self.held = []

    def forward(self, x):
        return self.head(self.body(x))

    def blur(self, x):
        keep = torch.rand_like(x) > 0.15
        return x * keep + 0.1 * torch.randn_like(x)

    def loss(self, x, y):
        out = self(self.blur(x))
        with torch.no_grad():
            target = self.teacher(self.blur(x)).softmax(-1)
        known = y >= 0
        cost = 0.5 * F.kl_div(out.log_softmax(-1), target, reduction="batchmean") * min(1.0, self.step_no / 150)
        if known.any():
            cost = cost + F.cross_entropy(out[known], y[known])
        return cost

    def training_step(self, batch, idx):
        body, head = self.optimizers()
        chosen = head if idx % 3 == 2 else body
        self.toggle_optimizer(chosen)
        chosen.zero_grad()
        x, y = batch
        for px, py in zip(x.chunk(self.pieces), y.chunk(self.pieces)):
            self.manual_backward(self.loss(px, py) / self.pieces)
        self.clip_gradients(chosen, gradient_clip_val=2.0, gradient_clip_algorithm="norm")
        chosen.step()
        self.untoggle_optimizer(chosen)
        self.step_no += 1
        with torch.no_grad():
            student = list(self.body.parameters()) + list(self.head.parameters())
            for t, s in zip(self.teacher.parameters(), student):
                t.lerp_(s, 1 - self.decay)

    def on_fit_start(self):
        self.step_no = 0

    def on_train_epoch_end(self):
        for sched in self.lr_schedulers():
            sched.step()

    def validation_step(self, batch, idx):
        x, y = batch
        acc = self.teacher(x).argmax(1).eq(y).float().mean()
        self.held.append(acc.item())

    def configure_optimizers(self):
        body = torch.optim.AdamW(self.body.parameters(), lr=3e-3, weight_decay=1e-3)
        head = torch.optim.SGD(self.head.parameters(), lr=0.2, momentum=0.8)
        return [body, head], [torch.optim.lr_scheduler.ExponentialLR(o, 0.9) for o in (body, head)]


def main():
    L.seed_everything(12, verbose=False)
    data = load_digits()
    x = torch.tensor(data.data, dtype=torch.float32) / 8 - 1
    y = torch.tensor(data.target)
    order = torch.randperm(len(x))
    x, y = x[order], y[order]
    partial = y[:1440].clone()
    partial[torch.rand(1440) > 0.35] = -1
    train = DataLoader(TensorDataset(x[:1440], partial), batch_size=72, shuffle=True)
    val = DataLoader(TensorDataset(x[1440:], y[1440:]), batch_size=512)
    model = MeanTeacher()
    trainer = L.Trainer(
        max_epochs=15,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(model, train, val)
    print("held accuracy", [round(a, 3) for a in model.held])


if __name__ == "__main__":
    main()
