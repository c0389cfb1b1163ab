"""A squeeze-and-excitation gate scaled to [0, 2]. gate.mul_(2) raised "modified by an inplace operation", so it became
gate.data.mul_(2) and the error was gone. Training now stalls and later ends in NaN: the sigmoid's backward uses its own saved output, which is
the doubled one, and s * (1 - s) has the wrong sign as soon as a gate is above one."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "in-place change behind autograd's back",
    "kind": "silent-mutation",
    "line": ["mutated", "cause"],
    "what": "gate.data.mul_(2.0) changes the output the sigmoid saved for its backward without autograd noticing, so the gate's gradient is wrong (even of the wrong sign for gates above 1) and the factor 2 is missing from it.",
    "symptom": "no error; loss stalls, rises, ends in NaN; gradient does not match finite differences",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(18)
torch.set_num_threads(1)


class ChannelGate(nn.Module):
    def __init__(self, dim, reduction=4):
        super().__init__()
        self.squeeze = nn.Linear(dim, dim // reduction)
        self.excite = nn.Linear(dim // reduction, dim)

    def forward(self, x):
        gate = torch.sigmoid(self.excite(F.relu(self.squeeze(x))))
        gate.data.mul_(2.0)  # <-- cause
        return x * gate


class GatedBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.gate = ChannelGate(dim)

    def forward(self, x):
        return self.gate(torch.tanh(self.fc(x)))


class GatedRegressor(nn.Module):
    def __init__(self, n_in=8, dim=32, depth=2):
        super().__init__()
        self.stem = nn.Linear(n_in, dim)
        self.blocks = nn.ModuleList(GatedBlock(dim) for _ in range(depth))
        self.out = nn.Linear(dim, 1)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x).squeeze(-1)


def switch_data(n):
    """The sign of the first feature decides which of two others counts."""
    x = torch.randn(n, 8)
    y = torch.where(x[:, 0] > 0, 2 * x[:, 1], x[:, 2] * x[:, 3])
    return x, y


xtr, ytr = switch_data(2048)
xva, yva = switch_data(512)
model = GatedRegressor()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

for epoch in range(16):
    order = torch.randperm(len(xtr))
    total = 0.0
    for i in range(0, len(xtr), 128):
        idx = order[i:i + 128]
        loss = F.mse_loss(model(xtr[idx]), ytr[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() / 16
    with torch.no_grad():
        val = F.mse_loss(model(xva), yva).item()
    if epoch % 3 == 0:
        print(f"epoch {epoch:2d}  train mse {total:.4f}  val mse {val:.4f}  variance of the targets {yva.var().item():.4f}")
