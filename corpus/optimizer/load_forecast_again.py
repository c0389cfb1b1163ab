"""GRU forecaster for an hourly load curve with early stopping; the "best" weights are those of the last step.

Report: https://github.com/WenjieDu/PyPOTS/issues/667 (best_model_dict = model.state_dict() keeps getting updated,
it has to be deepcopy(model.state_dict()))

state_dict() hands out references, so the optimizer goes on writing into best_state. The line printed at the end shows
another validation loss than the best one seen (0.279 instead of 0.236), although these weights were just loaded.
"""
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "framework": "plain", "kind": "state-not-copied", "line": ("cause", "CAUSE"),
    "what": "best_state = model.state_dict() keeps references to the live weights, which later steps overwrite, so loading it at the end restores nothing; deepcopy (or clone) it.",
    "set": "twentieth", "written": "2026-11-27",
}

WINDOW, HORIZON = 24, 6


def load_curve(days, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(days * 24).float()
    curve = torch.sin(2 * math.pi * t / 24) + 0.4 * torch.sin(2 * math.pi * t / 168)
    return curve + 0.4 * torch.randn(len(t), generator=g)


def windows(series):
    chunks = series.unfold(0, WINDOW + HORIZON, 1)
    return chunks[:, :WINDOW, None], chunks[:, WINDOW:]


class Forecaster(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.gru = nn.GRU(1, hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, HORIZON))

    def forward(self, x):
        _, h = self.gru(x)
        return self.head(h[-1])


class Trainer:
    def __init__(self, model, lr=1e-2):
        self.model = model
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)
        self.loss_fn = nn.MSELoss()
        self.best_loss, self.best_state = float("inf"), None

    def evaluate(self, x, y):
        self.model.eval()
        with torch.no_grad():
            loss = self.loss_fn(self.model(x), y).item()
        self.model.train()
        return loss

    def fit(self, loader, val, max_steps=300, every=60):
        step = 0
        while step < max_steps:
            for x, y in loader:
                loss = self.loss_fn(self.model(x), y)
                self.opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.opt.step()
                step += 1
                if step % every == 0:
                    val_loss = self.evaluate(*val)
                    print(f"step {step} train {loss.item():.3f} val {val_loss:.3f}")
                    if val_loss < self.best_loss:
                        self.best_loss = val_loss
                        self.best_state = self.model.state_dict()  # CAUSE
                if step >= max_steps:
                    break
        self.model.load_state_dict(self.best_state)


torch.manual_seed(1)
x, y = windows(load_curve(6, seed=0))
val = windows(load_curve(20, seed=9))
trainer = Trainer(Forecaster())
trainer.fit(DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True), val)
print(f"best val loss seen {trainer.best_loss:.3f}, of the restored weights {trainer.evaluate(*val):.3f}")
