"""Water level in a harbour from wind, pressure and the hour, with a cosine rate that begins anew.

Looks suspicious: at steps 60, 180 and 420 the rate leaps from nearly zero to its full value, and the loss rises again for a
while. That is what CosineAnnealingWarmRestarts is for (T_0=60, T_mult=2): it is stepped once a batch, as its period is counted in
batches, every rise is mended within the cycle, and the error at the end of each cycle is lower than at the end of the one before.
The public reports that wonder at it: https://github.com/Lightning-AI/pytorch-lightning/issues/3205
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": None,
    "plain": "a loss that falls, with slight rises after the restarts, and ends low",
    "set": "twentyfourth",
    "written": "2026-11-28",
}


def levels(n, seed):
    rng = np.random.default_rng(seed)
    moon, sun = rng.uniform(0, 2 * np.pi, n), rng.uniform(0, 2 * np.pi, n)
    wind, pressure = rng.normal(size=n), rng.normal(size=n)
    level = 1.4 * np.cos(moon) + 0.5 * np.cos(sun) + 0.3 * np.cos(moon) * np.cos(sun)
    level += 0.35 * np.tanh(wind) * np.sin(moon) - 0.25 * pressure + rng.normal(0, 0.03, n)
    x = np.stack([np.cos(moon), np.sin(moon), np.cos(sun), np.sin(sun), wind, pressure], 1)
    return TensorDataset(torch.tensor(x, dtype=torch.float32), torch.tensor(level[:, None], dtype=torch.float32))


def network():
    return nn.Sequential(nn.Linear(6, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))


class Cycles:
    def __init__(self, optimizer, first, factor):
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=first, T_mult=factor,
                                                                             eta_min=1e-5)
        self.optimizer, self.count = optimizer, 0

    def step(self):
        before = self.rate()
        self.schedule.step()
        if self.rate() > before:
            self.count += 1
            return True
        return False

    def rate(self):
        return self.optimizer.param_groups[0]["lr"]


@torch.no_grad()
def error(model, rows):
    x, y = rows.tensors
    return (model(x) - y).pow(2).mean().sqrt().item()


def main():
    torch.manual_seed(20)
    torch.set_num_threads(1)
    train, held_out = levels(3840, 1), levels(800, 2)
    loader = DataLoader(train, batch_size=64, shuffle=True)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, nesterov=True)
    cycles, criterion = Cycles(optimizer, first=60, factor=2), nn.MSELoss()
    step, recent = 0, []
    for _ in range(15):
        for x, y in loader:
            rate = cycles.rate()
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recent.append(loss.item())
            step += 1
            if cycles.step():
                print(f"cycle {cycles.count} ends at step {step}: held-out error {error(model, held_out):.4f}")
            if step % 30 == 0:
                print(f"step {step}: rate {rate:.5f}  loss {sum(recent) / len(recent):.5f}")
                recent = []
    print(f"held-out error {error(model, held_out):.4f}")


if __name__ == "__main__":
    main()
