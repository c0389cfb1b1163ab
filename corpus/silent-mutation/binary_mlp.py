"""Binarized network in the style of BinaryNet.pytorch: real weights live in `p.org`, binary ones in `p.data`.

Source: https://github.com/itayhubara/BinaryNet.pytorch/issues/19 (order asked about: jiecaoyu/XNOR-Net-PyTorch#49)
"""
import torch
from torch import nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "b", "kind": "silent-mutation", "mutating_marker": "MUTATES", "plain": {"outcome": "silent"},
    "set": "twelfth", "written": "2026-11-25",
}


class BinarizeLinear(nn.Linear):
    def forward(self, x):
        if not hasattr(self.weight, "org"):
            self.weight.org = self.weight.data.clone()
        self.weight.data = self.weight.org.sign()
        return F.linear(x, self.weight, self.bias) / self.in_features ** 0.5


class BinaryMLP(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.fc1, self.bn1 = BinarizeLinear(64, hidden), nn.BatchNorm1d(hidden)
        self.fc2, self.bn2 = BinarizeLinear(hidden, hidden), nn.BatchNorm1d(hidden)
        self.fc3 = BinarizeLinear(hidden, 10)

    def forward(self, x):
        x = F.hardtanh(self.bn1(self.fc1(x)))
        x = F.hardtanh(self.bn2(self.fc2(x)))
        return self.fc3(x)


def restore(model):
    for p in model.parameters():
        if hasattr(p, "org"):
            p.data.copy_(p.org)  # MUTATES


def clip_and_store(model):
    for p in model.parameters():
        if hasattr(p, "org"):
            p.org.copy_(p.data.clamp_(-1, 1))


def run_epoch(model, x, y, opt, batch=64):
    total = 0.0
    for idx in torch.randperm(len(x)).split(batch):
        if len(idx) < 2:
            continue
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        restore(model)
        loss.backward()
        opt.step()
        clip_and_store(model)
        total += loss.item() * len(idx)
    return total / len(x)


def main():
    torch.manual_seed(0)
    data = load_digits()
    x = torch.tensor(data.data, dtype=torch.float32) / 8 - 1
    y = torch.tensor(data.target)
    x, y = x[:1024], y[:1024]
    model = BinaryMLP()
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(5):
        print(f"epoch {epoch} loss {run_epoch(model, x, y, opt):.4f}")


if __name__ == "__main__":
    main()
