"""Bearing faults from vibration windows: a network trained on the first test bench is carried over to a second one.

The second bench has other sensors: the amplitudes differ and there is an offset.
Report: https://github.com/Lightning-AI/pytorch-lightning/issues/20986
"""
import logging
import warnings

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "left-in-evaluation-mode",
    "line": ("cause", "HERE"),
    "framework": "lightning",
    "plain": "The transfer learns slowly and ends well below the accuracy of the first bench.",
    "set": "twentysixth",
    "written": "2026-11-29",
}

KINDS = 4
WINDOW = 64


def make_windows(count, scale, offset, seed):
    rng = np.random.default_rng(seed)
    time = np.arange(WINDOW)
    kinds = rng.integers(0, KINDS, count)
    pitch = np.array([0.10, 0.16, 0.22, 0.28])[kinds][:, None]
    waves = np.sin(2 * np.pi * pitch * time + rng.uniform(0, 6.3, (count, 1)))
    waves = waves + rng.normal(0, 1.0, (count, WINDOW))
    windows = torch.tensor(scale * waves + offset, dtype=torch.float32).unsqueeze(1)
    return TensorDataset(windows, torch.from_numpy(kinds))


class BearingNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(1, 16, 9), nn.BatchNorm1d(16), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(16, 32, 5), nn.BatchNorm1d(32), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
        )
        self.head = nn.Linear(32, KINDS)

    def forward(self, windows):
        return self.head(self.layers(windows))


@torch.no_grad()
def accuracy(net, data):
    net.eval()  # HERE
    windows, kinds = data.tensors
    return (net(windows).argmax(1) == kinds).float().mean().item()


def first_bench(net, epochs=5):
    data = make_windows(1500, 1.0, 0.0, seed=1)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for epoch in range(epochs):
        net.train()
        for windows, kinds in DataLoader(data, batch_size=50, shuffle=True):
            loss = nn.functional.cross_entropy(net(windows), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"first bench: accuracy {accuracy(net, make_windows(600, 1.0, 0.0, seed=2)):.3f}")


class Transfer(L.LightningModule):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.losses = []

    def training_step(self, batch, number):
        windows, kinds = batch
        loss = nn.functional.cross_entropy(self.net(windows), kinds)
        self.losses.append(loss.item())
        return loss

    def on_train_epoch_end(self):
        print(f"second bench: epoch {self.current_epoch}  loss {np.mean(self.losses):.3f}", flush=True)
        self.losses.clear()

    def configure_optimizers(self):
        return torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.5)


def main():
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    L.seed_everything(0, verbose=False)
    net = BearingNet()
    first_bench(net)
    other = make_windows(600, 0.05, 2.0, seed=4)
    print(f"second bench, before: accuracy {accuracy(net, other):.3f}")
    loader = DataLoader(make_windows(600, 0.05, 2.0, seed=3), batch_size=40, shuffle=True)
    trainer = L.Trainer(max_epochs=6, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Transfer(net), loader)  # HERE
    print(f"second bench, after: accuracy {accuracy(net, other):.3f}")


if __name__ == "__main__":
    main()
