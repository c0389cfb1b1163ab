"""Power of a wind turbine from wind, direction and temperature, with a learning rate that restarts.

Looks suspicious: the loss jumps up twice in the middle of the training, the learning rate falls to nearly nothing and
leaps back, and the scheduler is stepped with fractions of an epoch. It is right: CosineAnnealingWarmRestarts takes
epoch + i / steps, the jumps come with the restarts, and the weights kept (cloned) are those of the end of a cycle.

Asked in public: https://github.com/wandb/senpai/pull/453
"""
import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": None,
    "plain": "The error jumps after each restart and ends lower at the end of each cycle.",
    "set": "twentyfourth",
    "written": "2026-11-28",
}

CYCLE, CYCLES = 5, 3


def make_turbine(n, rng):
    wind = rng.weibull(2.0, n) * 8
    direction = rng.uniform(0, 2 * np.pi, n)
    temp = rng.normal(10, 8, n)
    wake = 1 - 0.15 * np.exp(-((direction - 2.0) / 0.4) ** 2)
    power = np.clip((wind * wake / 12) ** 3, 0, 1) * (1 - 0.004 * (temp - 10)) * (wind < 25)
    x = np.stack([wind / 10 - 0.7, np.sin(direction), np.cos(direction), temp / 10 - 1], 1)
    return (torch.tensor(x, dtype=torch.float32),
            torch.tensor(power + rng.normal(0, 0.01, n), dtype=torch.float32))


class PowerNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                                 nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class Snapshots:
    def __init__(self):
        self.kept = []

    def take(self, net):
        self.kept.append({k: v.detach().clone() for k, v in net.state_dict().items()})

    @torch.no_grad()
    def predict(self, x):
        net, outs = PowerNet(), []
        for state in self.kept:
            net.load_state_dict(state)
            outs.append(net(x))
        return torch.stack(outs).mean(0)


def main():
    torch.manual_seed(17)
    rng = np.random.default_rng(17)
    x, y = make_turbine(3200, rng)
    xv, yv = make_turbine(800, rng)
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
    net, snaps = PowerNet(), Snapshots()
    opt = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9)
    schedule = CosineAnnealingWarmRestarts(opt, T_0=CYCLE, eta_min=1e-4)
    for epoch in range(CYCLE * CYCLES):
        total = 0.0
        for i, (xb, yb) in enumerate(loader):
            loss = nn.functional.mse_loss(net(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            schedule.step(epoch + (i + 1) / len(loader))
            total += loss.item() / len(loader)
        if (epoch + 1) % CYCLE == 0:
            snaps.take(net)
        with torch.no_grad():
            err = (net(xv) - yv).abs().mean().item()
        print(f"epoch {epoch}  loss {total:.5f}  error {err:.4f}  lr {opt.param_groups[0]['lr']:.4f}")
    print(f"error of the mean of {len(snaps.kept)} snapshots {(snaps.predict(xv) - yv).abs().mean():.4f}")


if __name__ == "__main__":
    main()
