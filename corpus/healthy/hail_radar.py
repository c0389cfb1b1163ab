"""Healthy: bad batches are rejected before the forward; a buffer holds a running scale."""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": None,
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


class RunningScale(nn.Module):
    def __init__(self, width, rate=0.05):
        super().__init__()
        self.rate = rate
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("var", torch.ones(width))
        self.register_buffer("rejected", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def observe(self, x):
        self.mean.lerp_(x.mean(0), self.rate)
        self.var.lerp_(x.var(0), self.rate)

    def forward(self, x):
        return (x - self.mean) / (self.var + 1e-5).sqrt()


class HailNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = RunningScale(8)
        self.net = nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.SiLU(),
                                 nn.Linear(64, 64), nn.BatchNorm1d(64), nn.SiLU(), nn.Linear(64, 1))

    def forward(self, x):
        return self.net(self.scale(x)).squeeze(1)


def sweep(n, gen, step=None):
    z = torch.randn(n, 8, generator=gen)
    size = torch.sin(z[:, 0]) * 2 + z[:, 1] * z[:, 2] + 0.5 * z[:, 3]
    x = 12.0 + 5.0 * z * torch.arange(1, 9)
    if step is not None and step % 37 == 36:
        x[step % n, step % 8] = float("nan") if step % 2 else float("inf")
    return x, size


def main():
    torch.manual_seed(90)
    gen = torch.Generator().manual_seed(91)
    model = HailNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 600)
    running, used = 0.0, 0
    for step in range(600):
        x, size = sweep(96, gen, step)
        if not torch.isfinite(x).all():
            model.scale.rejected += 1
            continue
        model.scale.observe(x)
        loss = F.smooth_l1_loss(model(x), size)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        running += loss.item()
        used += 1
        if used % 100 == 0:
            print(f"used {used} loss {running / 100:.4f} rejected {model.scale.rejected.item()}")
            running = 0.0
    model.eval()
    x, size = sweep(3000, gen)
    with torch.no_grad():
        err = F.mse_loss(model(x), size).item()
    print(f"final test mse {err:.4f} variance {size.var().item():.3f}")


if __name__ == "__main__":
    main()
