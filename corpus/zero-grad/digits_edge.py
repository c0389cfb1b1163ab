"""Digits classifier that is made ready for a 4 bit device.

Story: float training first, from step 250 on the weights go through a rounding function to
get used to the small integer grid.  Accuracy drops and does not come back; only the biases
still move.
Based on the well known question "gradient of torch.round is zero" (PyTorch forum, and the
straight through estimator discussions around quantisation aware training); written from
general knowledge of those reports.
"""
import argparse

import torch
from torch import nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "x", "kind": "zero-grad", "parameters": ["conv1.weight", "conv2.weight", "head.weight"], "cut_marker": "CUT", "plain": {"outcome": "silent"},
    "set": "fourteenth", "written": "2026-11-26",
}


def to_grid(weight, bits=4):
    top = 2 ** (bits - 1) - 1
    scale = weight.detach().abs().amax() / top
    levels = torch.round(weight / scale)  # CUT
    return levels * scale


class GridConv2d(nn.Conv2d):
    on_grid = False

    def forward(self, x):
        weight = to_grid(self.weight) if self.on_grid else self.weight
        return F.conv2d(x, weight, self.bias, self.stride, self.padding)


class GridLinear(nn.Linear):
    on_grid = False

    def forward(self, x):
        weight = to_grid(self.weight) if self.on_grid else self.weight
        return F.linear(x, weight, self.bias)


class EdgeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GridConv2d(1, 12, 3, padding=1)
        self.conv2 = GridConv2d(12, 24, 3, stride=2, padding=1)
        self.head = GridLinear(24 * 4 * 4, 10)

    def forward(self, x):
        x = F.leaky_relu(self.conv1(x))
        x = F.leaky_relu(self.conv2(x))
        return self.head(x.flatten(1))

    def use_grid(self, flag):
        for module in self.modules():
            if isinstance(module, (GridConv2d, GridLinear)):
                module.on_grid = flag


def loader(batch):
    data = load_digits()
    x = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 8 - 1
    y = torch.tensor(data.target)
    return DataLoader(TensorDataset(x, y), batch_size=batch, shuffle=True, drop_last=True)


def endless(dl):
    while True:
        yield from dl


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--grid-from", type=int, default=250)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args(argv)
    torch.manual_seed(0)
    model = EdgeNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    stream = endless(loader(args.batch))
    for step in range(args.steps):
        if step == args.grid_from:
            model.use_grid(True)
            print("weights on the 4 bit grid from here")
        x, y = next(stream)
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            acc = (logits.argmax(1) == y).float().mean().item()
            print(f"step {step:4d} loss {loss.item():.3f} acc {acc:.2f}")


if __name__ == "__main__":
    main()
