"""Quantisation aware training of a small convnet: float warm-up, then fake quant after the stem."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "kind": "zero-grad",
    "line": ("cut", "HERE"),
    "module": "stem_q",
    "parameters": ["stem.conv.weight", "stem.norm.weight", "stem.norm.bias"],
    "set": "compiled",
    "written": "2026-11-24",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")
torch.manual_seed(77)
WARMUP = 10


class Stem(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(3, c, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(4, c)

    def forward(self, x):
        return F.hardtanh(self.norm(self.conv(x)), -3.0, 3.0)


class FakeQuant(nn.Module):
    def __init__(self, bits=4):
        super().__init__()
        self.levels = 2 ** (bits - 1) - 1
        self.step_size = nn.Parameter(torch.tensor(3.0 / self.levels))
        self.enabled = False

    def forward(self, x):
        if not self.enabled:
            return x
        s = self.step_size.abs() + 1e-6
        code = torch.round(x / s)  # HERE
        return code.clamp(-self.levels, self.levels) * s


class Net(nn.Module):
    def __init__(self, c=16, n_cls=4):
        super().__init__()
        self.stem = Stem(c)
        self.stem_q = FakeQuant()
        self.block1 = nn.Sequential(nn.Conv2d(c, 2 * c, 3, stride=2, padding=1), nn.ReLU())
        self.block2 = nn.Sequential(nn.Conv2d(2 * c, 2 * c, 3, stride=2, padding=1), nn.ReLU())
        self.head = nn.Linear(2 * c, n_cls)

    def forward(self, x):
        x = self.stem_q(self.stem(x))
        x = self.block2(self.block1(x))
        return self.head(x.mean((2, 3)))


def batch(n=16):
    y = torch.randint(0, 4, (n,))
    x = 0.6 * torch.randn(n, 3, 12, 12)
    for i in range(n):
        r, c = divmod(int(y[i]), 2)
        x[i, :, 6 * r : 6 * r + 6, 6 * c : 6 * c + 6] += torch.tensor([1.0, -1.0, 0.5 * float(y[i])])[:, None, None]
    return x, y


net = Net()
# compiled with static activation shapes, one graph with and one without quant
cnet = torch.compile(net, backend=BACKEND, fullgraph=True)
opt_w = torch.optim.SGD([p for n, p in net.named_parameters() if "step_size" not in n], lr=0.05, momentum=0.9)
opt_q = torch.optim.Adam([net.stem_q.step_size], lr=1e-3)
for it in range(24):
    net.stem_q.enabled = it >= WARMUP
    x, y = batch()
    loss = F.cross_entropy(cnet(x), y)
    opt_w.zero_grad()
    opt_q.zero_grad()
    loss.backward()
    opt_w.step()
    if net.stem_q.enabled:
        opt_q.step()
    print(it, "quant" if net.stem_q.enabled else "float", f"{loss.item():.4f}")
