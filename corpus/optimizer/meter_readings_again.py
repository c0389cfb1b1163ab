"""Regression of hourly meter readings (tabular, heavy-tailed targets): every broken sensor reading throws the weights far off, although the norm is meant to be limited to 1.
Report: https://github.com/yandex-research/tabm/issues/20 (gradient clipping is applied before backward(), so it does nothing; confirmed as a bug)
The gradients are clipped right after zero_grad, when there are none; the real gradients go to the optimizer at full size
and the median error on clean data ends several times larger than with clipping after backward.
"""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "framework": "plain", "kind": "clipping-without-effect", "line": ("cause", "CAUSE"),
    "what": "clip_grad_norm_ is called before loss.backward(), so it clips nothing and the outliers' huge gradients reach the optimizer unclipped; move it between backward and step",
    "set": "twentyfirst", "written": "2026-11-27",
}

SEED, BATCH, LR, MAX_NORM = 3, 32, 0.02, 1.0


def make_table(n, generator, broken=0.02):
    x = torch.randn(n, 12, generator=generator)
    w = torch.linspace(-1.0, 1.0, 12)
    y = x @ w + torch.sin(2 * x[:, 0]) * x[:, 1] + 0.1 * torch.randn(n, generator=generator)
    bad = torch.rand(n, generator=generator) < broken
    y[bad] = y[bad] + 60.0 * torch.randn(int(bad.sum()), generator=generator)
    return x, y


class TabularNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(12, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, 1),
        )

    def forward(self, x):
        return self.body(x).squeeze(-1)


def evaluate(model, x, y):
    model.eval()
    with torch.no_grad():
        err = (model(x) - y).abs()
    model.train()
    return err.median().item()


def main():
    g = torch.Generator().manual_seed(SEED)
    torch.manual_seed(SEED)
    train = TensorDataset(*make_table(2400, g))
    xv, yv = make_table(600, g, broken=0.0)
    loader = DataLoader(train, batch_size=BATCH, shuffle=True, drop_last=True)
    model = TabularNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
    criterion = nn.MSELoss()

    step = 0
    for epoch in range(4):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)  # CAUSE
            loss.backward()  # OTHER
            optimizer.step()
            if step % 50 == 0:
                print(f"step {step:3d} loss {loss.item():9.3f} val median error {evaluate(model, xv, yv):.3f}")
            step += 1
    print(f"final val median error {evaluate(model, xv, yv):.3f}")


if __name__ == "__main__":
    main()
