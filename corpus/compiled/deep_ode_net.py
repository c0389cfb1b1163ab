"""Learning a dynamical system's end state with a very deep unrolled tanh stack."""

import os

import torch
import torch.nn as nn

EXPECT = {
    "kind": "exploding-gradient",
    "line": ("cause", "HERE"),
    "module": "stages",
    "set": "compiled",
    "written": "2026-11-24",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")
torch.manual_seed(41)
D, DEPTH = 32, 40


class Stage(nn.Module):
    def __init__(self, d, gain):
        super().__init__()
        self.w = nn.Parameter(torch.empty(d, d))
        self.b = nn.Parameter(torch.zeros(d))
        nn.init.normal_(self.w, std=gain / d**0.5)

    def forward(self, x):
        return torch.tanh(x @ self.w + self.b)  # HERE


class Unrolled(nn.Module):
    def __init__(self, d_in=4):
        super().__init__()
        self.lift = nn.Linear(d_in, D)
        self.stages = nn.ModuleList(Stage(D, 4.0) for _ in range(DEPTH))
        self.drop = nn.Linear(D, d_in)

    def forward(self, x):
        h = self.lift(x)
        for s in self.stages:
            h = s(h)
        return self.drop(h)


def lorenz96(x, n=10, dt=0.02, f=2.0):
    for _ in range(n):
        dx = (x.roll(-1, -1) - x.roll(2, -1)) * x.roll(1, -1) - x + f
        x = x + dt * dx
    return x


@torch.compile(backend=BACKEND)
def objective(pred, target):
    scale = target.std(0, keepdim=True) + 1e-3
    return ((pred - target) / scale).square().mean()


model = Unrolled()
for s in model.stages:
    s.compile(backend=BACKEND)
decay, plain = [], []
for n, p in model.named_parameters():
    (decay if p.ndim > 1 else plain).append(p)
opt = torch.optim.AdamW([{"params": decay, "weight_decay": 1e-2}, {"params": plain, "weight_decay": 0.0}], lr=1e-4)

for step in range(15):
    total = 0.0
    opt.zero_grad()
    for micro in range(2):
        x = torch.randn(16, 4)
        loss = objective(model(x), lorenz96(x)) / 2
        loss.backward()
        total += loss.item()
    opt.step()
    if step % 3 == 0:
        print("step", step, "loss", round(total, 4))
print("done")
