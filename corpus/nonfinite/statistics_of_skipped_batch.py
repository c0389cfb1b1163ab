"""Network with batch norm and a guard that skips batches whose loss is not finite: the one bad batch has already gone into the running statistics, which are used when the norms are frozen for the last epochs.

Report: https://github.com/pytorch/pytorch/issues/88474 (a skipped step still destroys running mean and variance, seen only where they are used)
"""
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 70,
    "set": "seventh", "written": "2026-11-22",
}


class Recordings(Dataset):
    def __init__(self, n=1600):
        g = torch.Generator().manual_seed(1)
        self.labels = torch.randint(0, 3, (n,), generator=g)
        time = torch.arange(24.0)
        self.signals = torch.sin(time * (0.3 + 0.3 * self.labels[:, None])) + 0.3 * torch.randn(n, 24, generator=g)
        self.signals[70 * 16 + 5] = 2.5  # the sensor was unplugged

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        signal = self.signals[index]
        centred = signal - signal.mean()
        return centred / centred.abs().max(), self.labels[index]  # CULPRIT


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, width, 5), nn.BatchNorm1d(width), nn.ReLU(), nn.Conv1d(width, width, 5, stride=2), nn.BatchNorm1d(width), nn.ReLU()
        )
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        return self.head(self.body(x[:, None]).mean(2))


def freeze_norms(net):
    for module in net.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.eval()


torch.manual_seed(0)
net, loader = Net(), DataLoader(Recordings(), batch_size=16)
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
step = skipped = 0
for epoch in range(2):
    net.train()
    if epoch == 1:
        freeze_norms(net)
    for signal, label in loader:
        loss = nn.functional.cross_entropy(net(signal), label)
        if epoch == 0 and not math.isfinite(loss.item()):
            skipped += 1
        else:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if step % 20 == 0:
            print(step, loss.item(), "skipped", skipped)
        step += 1
