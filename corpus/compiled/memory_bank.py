"""Instance discrimination with a feature bank (non-parametric softmax)."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {"kind": "inplace", "line": ("mutated", "HERE"), "module": "bank", "set": "compiled", "written": "2026-11-24"}
BACKEND = os.environ.get("BACKEND", "aot_eager")
torch.manual_seed(13)
N_ITEM, DIM = 96, 24


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(2, 16, 5, padding=2),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.Conv1d(16, 32, 5, stride=2, padding=2),
            nn.ReLU(),
        )
        self.fc = nn.Linear(32, DIM)

    def forward(self, x):
        return F.normalize(self.fc(self.net(x).mean(-1)), dim=-1)


class Bank(nn.Module):
    def __init__(self, momentum=0.5, tau=0.2):
        super().__init__()
        self.register_buffer("vec", F.normalize(torch.randn(N_ITEM, DIM), dim=-1))
        self.m, self.tau = momentum, tau

    def forward(self, z, idx):
        logits = z @ self.vec.t() / self.tau
        with torch.no_grad():
            new = F.normalize(self.m * self.vec[idx] + (1 - self.m) * z, dim=-1)
            self.vec.index_copy_(0, idx, new)  # HERE
        return logits


class InstDisc(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = Encoder()
        self.bank = Bank()

    def forward(self, x, idx):
        return F.cross_entropy(self.bank(self.enc(x), idx), idx)


data = torch.randn(N_ITEM, 2, 1) * torch.sin(
    torch.linspace(0, 12, 40) * (0.5 + torch.rand(N_ITEM, 1, 1)) + 6 * torch.rand(N_ITEM, 2, 1)
)


def augment(x):
    x = x + 0.05 * torch.randn_like(x)
    return x.roll(int(torch.randint(0, 5, ())), -1)


model = InstDisc()
cmodel = torch.compile(model, backend=BACKEND)
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
step = 0
for epoch in range(6):
    for idx in torch.randperm(N_ITEM).split(24):
        loss = cmodel(augment(data[idx]), idx)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
        step += 1
