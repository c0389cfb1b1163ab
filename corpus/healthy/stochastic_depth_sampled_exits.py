"""Residual net with stochastic depth, early exits sampled per step and a rare auxiliary head.

Right because: a dropped block and an exit that is not sampled take no part in that step's
graph and get grad None, which the optimizer skips; the survival probability is corrected at
evaluation; the rotation head runs only every fifth step, on purpose.
"""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}


class Block(nn.Module):
    def __init__(self, d, survive):
        super().__init__()
        self.survive = survive
        self.norm = nn.LayerNorm(d)
        self.fc1, self.fc2 = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
        nn.init.zeros_(self.fc2.weight)
        nn.init.zeros_(self.fc2.bias)

    def forward(self, x):
        if self.training and random.random() > self.survive:
            return x
        y = self.fc2(F.gelu(self.fc1(self.norm(x))))
        return x + y / self.survive if self.training else x + y


class ExitNet(nn.Module):
    def __init__(self, d=64, depth=6, classes=10):
        super().__init__()
        self.stem = nn.Linear(64, d)
        self.blocks = nn.ModuleList(Block(d, 1.0 - 0.5 * i / (depth - 1)) for i in range(depth))
        self.exits = nn.ModuleDict({str(i): nn.Linear(d, classes) for i in (1, 3, 5)})
        self.rotation = nn.Linear(d, 4)

    def features(self, x):
        h = self.stem(x)
        for i, block in enumerate(self.blocks):
            h = block(h)
            yield i, h

    def forward(self, x, exits):
        last, out = max(exits), {}
        for i, h in self.features(x):
            if i in exits:
                out[i] = self.exits[str(i)](h)
            if i == last:
                break
        return out

    def rotations(self, x):
        *_, (_, h) = self.features(x)
        return self.rotation(h)


def rotated(x):
    k = int(torch.randint(0, 4, (1,)))
    img = torch.rot90(x.view(-1, 8, 8), k, (1, 2)).reshape(-1, 64)
    return img, torch.full((len(x),), k)


@torch.inference_mode()
def confident_exit_accuracy(net, x, y, threshold=0.9):
    net.eval()
    outs = net(x, {1, 3, 5})
    pred, open_ = torch.zeros_like(y), torch.ones(len(y), dtype=torch.bool)
    share = []
    for i in (1, 3, 5):
        conf, cls = outs[i].softmax(-1).max(-1)
        take = open_ & ((conf > threshold) | (i == 5))
        pred[take] = cls[take]
        share.append(round(take.float().mean().item(), 2))
        open_ &= ~take
    net.train()
    return (pred == y).float().mean().item(), share


def main():
    random.seed(0); torch.manual_seed(0)
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x, dtype=torch.float32) / 16 - 0.3, torch.tensor(y)
    net = ExitNet()
    opt = torch.optim.NAdam(net.parameters(), lr=1.5e-3)
    for step in range(600):
        idx = torch.randint(0, 1400, (64,))
        chosen = {1} if step % 4 == 0 else {1, 3} if step % 4 == 1 else {5}
        outs = net(x[idx], chosen)
        loss = sum(F.cross_entropy(o, y[idx], label_smoothing=0.05) for o in outs.values()) / len(outs)
        if step % 5 == 4:
            img, k = rotated(x[idx])
            loss = loss + 0.3 * F.cross_entropy(net.rotations(img), k)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 100 == 99:
            print(f"step {step} loss {loss.item():.3f} early-exit accuracy {confident_exit_accuracy(net, x[1400:], y[1400:])}")


if __name__ == "__main__":
    main()
