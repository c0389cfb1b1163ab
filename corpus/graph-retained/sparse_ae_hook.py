"""Sparse autoencoder with callbacks; unit activity tracked through a forward hook."""
import time
import torch
from torch import nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "late-retained", "kind": "graph-retained", "holding_marker": "CULPRIT", "step": 80,
    "set": "late_longer", "written": "2026-11-25",
}


class SparseAE(nn.Module):
    def __init__(self, hid=1280):
        super().__init__()
        self.enc = nn.Linear(64, hid)
        self.mid = nn.Linear(hid, 256)
        self.dec = nn.Sequential(nn.ReLU(), nn.Linear(256, 384), nn.ReLU(), nn.Linear(384, 64))

    def forward(self, x):
        return self.dec(self.mid(F.softplus(self.enc(x))))


class Callback:
    def on_step_begin(self, trainer, step): ...
    def on_step_end(self, trainer, step, loss): ...


class ActivityTracker(Callback):
    def __init__(self, begin):
        self.begin, self.usage, self.handle = begin, None, None

    def hook(self, module, inputs, output):
        active = torch.sigmoid(8.0 * output).mean(dim=0)
        self.usage = active if self.usage is None else 0.99 * self.usage + 0.01 * active  # CULPRIT

    def on_step_begin(self, trainer, step):
        if step == self.begin:
            self.handle = trainer.model.enc.register_forward_hook(self.hook)


class Printer(Callback):
    def __init__(self):
        self.t0 = time.time()

    def on_step_end(self, trainer, step, loss):
        if step % 50 == 49:
            print(f"{step} {loss:.5f} {(time.time() - self.t0) / (step + 1) * 1e3:.1f} ms/step")


class Trainer:
    def __init__(self, model, data, callbacks):
        self.model, self.data, self.callbacks = model, data, callbacks
        self.opt = torch.optim.Adam(model.parameters(), lr=5e-4)

    def fit(self, steps, bs):
        for step in range(steps):
            for cb in self.callbacks:
                cb.on_step_begin(self, step)
            x = self.data[torch.randint(0, len(self.data), (bs,))]
            loss = F.mse_loss(self.model(x + 0.1 * torch.randn_like(x)), x)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            for cb in self.callbacks:
                cb.on_step_end(self, step, loss.item())


if __name__ == "__main__":
    torch.manual_seed(13)
    data = torch.tensor(load_digits().data, dtype=torch.float32) / 16.0
    tracker = ActivityTracker(begin=80)
    Trainer(SparseAE(), data, [tracker, Printer()]).fit(steps=400, bs=224)
    print("rarely used units:", int((tracker.usage < 0.2).sum()))
