"""Grain size of powders from scattering curves, with averaged weights over the last epochs.

What looks suspicious: at epoch 8 the learning rate goes up again and the loss gets rougher, the averaged network has
no gradients and its weights change in jumps, and its BatchNorm statistics are reset and filled once at the end. It is
right: that is stochastic weight averaging, and update_bn gathers the statistics for the averaged weights.
Question of that kind: https://github.com/fadel/pytorch_ema/issues/13
"""
import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "none",
    "plain": "The averaged network is at least as good as the last one.",
    "set": "twentysixth",
    "written": "2026-11-29",
}

ANGLES = 50
EPOCHS, AVERAGE_FROM = 14, 8


def make_curves(count, seed):
    rng = np.random.default_rng(seed)
    size = rng.uniform(1.0, 4.0, count)
    angle = np.linspace(0.2, 3.0, ANGLES)
    phase = angle[None] * size[:, None]
    curve = (3 * (np.sin(phase) - phase * np.cos(phase)) / phase ** 3) ** 2
    curve = np.log(curve + 1e-3) + rng.normal(0, 0.3, (count, ANGLES))
    return TensorDataset(torch.tensor(curve, dtype=torch.float32), torch.tensor(size, dtype=torch.float32))


class SizeNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(ANGLES, width), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Linear(width, 1),
        )

    def forward(self, curves):
        return self.layers(curves).squeeze(-1)


@torch.no_grad()
def error(model, data):
    model.eval()
    curves, size = data.tensors
    return (model(curves) - size).pow(2).mean().sqrt().item()


def main():
    torch.manual_seed(6)
    train, test = make_curves(3000, seed=1), make_curves(800, seed=2)
    loader = DataLoader(train, batch_size=64, shuffle=True, drop_last=True)
    model = SizeNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=AVERAGE_FROM)
    averaged = AveragedModel(model)
    flat = SWALR(optimizer, swa_lr=0.005, anneal_epochs=2)
    for epoch in range(EPOCHS):
        model.train()
        total = 0.0
        for curves, size in loader:
            loss = nn.functional.mse_loss(model(curves), size)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        if epoch >= AVERAGE_FROM:
            averaged.update_parameters(model)
            flat.step()
        else:
            schedule.step()
        print(f"epoch {epoch}  loss {total / len(loader):.4f}  error {error(model, test):.4f}  "
              f"rate {optimizer.param_groups[0]['lr']:.4f}", flush=True)
    update_bn(loader, averaged)
    print(f"last network {error(model, test):.4f}  averaged network {error(averaged, test):.4f}")


if __name__ == "__main__":
    main()
