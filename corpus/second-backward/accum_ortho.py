"""Gradient accumulation over 3 micro batches, orthogonality penalty switched on later."""
import time
import torch
from torch import nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "late-second", "kind": "second-backward", "bridge_marker": "CULPRIT", "step": 90,
    "set": "late_longer", "written": "2026-11-25",
}

ACCUM, MICRO = 3, 80
PENALTY_START = 90


class DeepMLP(nn.Module):
    def __init__(self, width=384, depth=3):
        super().__init__()
        self.inp = nn.Linear(64, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.out = nn.Linear(width, 10)

    def forward(self, x):
        x = F.gelu(self.inp(x))
        for layer in self.hidden:
            x = x + F.gelu(layer(x))
        return self.out(x)


def ortho_penalty(model):
    total = 0.0
    for layer in model.hidden:
        w = layer.weight[:128]
        total = total + ((w @ w.t() - torch.eye(len(w))) ** 2).mean()
    return total


class Loop:
    def __init__(self):
        torch.manual_seed(11)
        d = load_digits()
        self.x = torch.tensor(d.data, dtype=torch.float32) / 16.0
        self.y = torch.tensor(d.target)
        self.model = DeepMLP()
        self.opt = torch.optim.Adam(self.model.parameters(), lr=3e-4)
        self.updates = 0

    def micro_batches(self):
        for _ in range(ACCUM):
            i = torch.randint(0, len(self.x), (MICRO,))
            yield self.x[i], self.y[i]

    def update(self):
        self.opt.zero_grad(set_to_none=True)
        penalty = None
        if self.updates >= PENALTY_START:
            penalty = 0.5 * ortho_penalty(self.model)
        running = 0.0
        for xb, yb in self.micro_batches():
            loss = F.cross_entropy(self.model(xb), yb)
            if penalty is not None:
                loss = loss + penalty  # CULPRIT
            (loss / ACCUM).backward()
            running += loss.item() / ACCUM
        self.opt.step()
        self.updates += 1
        return running


loop, t0 = Loop(), time.time()
for _ in range(380):
    value = loop.update()
    if loop.updates % 50 == 0:
        print(f"update {loop.updates} loss {value:.4f} {(time.time() - t0) / loop.updates * 1e3:.1f} ms/update")
