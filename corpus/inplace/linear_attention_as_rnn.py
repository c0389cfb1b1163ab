"""Linear attention that is run as a recurrent network over sensor readings and chained to a head: its state and its normaliser are summed up in place at each time, after an earlier time has read them.

Report: https://github.com/idiap/fast-transformers/pull/10 (the in-place updates of Zi and Si in recurrent linear attention cause gradient errors when other modules follow)
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "inplace", "kind": "inplace", "mutating_marker": "MUTATES", "module": "attention",
    "set": "ninth", "written": "2026-11-23",
}


class RecurrentLinearAttention(nn.Module):
    def __init__(self, dim, heads=2, eps=1e-6):
        super().__init__()
        self.heads, self.eps = heads, eps
        self.project, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def start(self, x):
        n, d = len(x), x.shape[-1] // self.heads
        return x.new_zeros(n, self.heads, d, d), x.new_zeros(n, self.heads, d)

    def forward(self, x, state):
        si, zi = state
        q, k, v = self.project(x).view(len(x), 3, self.heads, -1).unbind(1)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        zi += k  # MUTATES
        si += torch.einsum("nhd,nhm->nhdm", k, v)  # MUTATES
        norm = 1 / (torch.einsum("nhd,nhd->nh", q, zi) + self.eps)
        read = torch.einsum("nhd,nhdm,nh->nhm", q, si, norm)
        return self.out(read.flatten(1)), (si, zi)


class SensorModel(nn.Module):
    def __init__(self, inputs=3, dim=16):
        super().__init__()
        self.inlet, self.norm = nn.Linear(inputs, dim), nn.LayerNorm(dim)
        self.attention = RecurrentLinearAttention(dim)
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, 1))

    def forward(self, readings):
        state, outputs = None, []
        for x in self.inlet(readings).unbind(1):
            state = state or self.attention.start(x)
            y, state = self.attention(self.norm(x), state)
            outputs.append(self.head(x + y))
        return torch.cat(outputs, 1)


def readings(n, length=12):
    x = torch.randn(n, length, 3)
    return x, (x[..., 0].cumsum(1) / torch.arange(1, length + 1)).tanh()


torch.manual_seed(0)
model = SensorModel()
optimizer = torch.optim.RAdam(model.parameters(), lr=3e-3)
for step in range(100):
    x, y = readings(32)
    loss = F.mse_loss(model(x), y)
    print(step, loss.item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
