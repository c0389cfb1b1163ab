"""ExponentialLR with a per-epoch gamma is stepped once per batch (40 times an epoch), so the learning rate is gone
after about two epochs and the fit stalls.

Report: well known, as in PyTorch forum threads on scheduler.step() in the batch loop with a per-epoch
gamma
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "learning-rate-zero",
    "line": ("stepped", "HERE"),
    "plain": "Validation r2 0.13, unchanged after about epoch 3; with one step per epoch 0.93.",
    "set": "twentyseventh",
    "written": "2026-11-29",
}


torch.manual_seed(0)
rng = np.random.default_rng(0)

COLUMNS = ["peak_temp", "ramp", "soak", "clay_iron", "moisture", "thickness", "glaze_si", "glaze_al"]


def firing_log(n=2400):
    x = rng.normal(size=(n, len(COLUMNS))).astype("float32")
    shrink = (1.2 * np.tanh(x[:, 0]) * x[:, 2]
              + np.sin(2.0 * x[:, 1]) * (x[:, 5] > 0)
              + 0.6 * np.abs(x[:, 3] - x[:, 4])
              + 0.5 * x[:, 6] * x[:, 7]
              + 0.1 * rng.normal(size=n))
    return torch.from_numpy(x), torch.from_numpy(shrink.astype("float32"))


class Residual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.f = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return x + self.f(x)


class KilnModel(nn.Module):
    def __init__(self, dim=48, depth=2):
        super().__init__()
        self.stem = nn.Linear(len(COLUMNS), dim)
        self.blocks = nn.Sequential(*[Residual(dim) for _ in range(depth)])
        self.out = nn.Linear(dim, 1)

    def forward(self, x):
        return self.out(self.blocks(self.stem(x))).squeeze(-1)


def train_epoch(model, loader, opt, sched, loss_fn):
    model.train()
    total = 0.0
    for xb, yb in loader:
        opt.zero_grad(set_to_none=True)
        loss = loss_fn(model(xb), yb)
        loss.backward()
        opt.step()
        sched.step()  # HERE
        total += loss.item()
    return total / len(loader)


def validate(model, x, y):
    model.eval()
    with torch.no_grad():
        res = y - model(x)
    return 1 - (res.pow(2).mean() / y.var()).item()


def main():
    x, y = firing_log()
    xtr, ytr, xte, yte = x[:2000], y[:2000], x[2000:], y[2000:]
    loader = DataLoader(TensorDataset(xtr, ytr), batch_size=50, shuffle=True)
    model = KilnModel()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.93)
    loss_fn = nn.MSELoss()
    for epoch in range(20):
        tr = train_epoch(model, loader, opt, sched, loss_fn)
        if epoch % 2 == 1:
            print(f"epoch {epoch + 1:2d}  train mse {tr:.3f}  val r2 {validate(model, xte, yte):.3f}")
    print("final r2", round(validate(model, xte, yte), 3))


if __name__ == "__main__":
    main()
