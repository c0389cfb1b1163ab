"""Adapters on a frozen trunk that is kept in host memory: the layers are streamed through two static buffers; since a third layer was switched on, two of them share a buffer, and backward finds the later one's weights in it.

Report: https://github.com/vllm-project/vllm/pull/54975 (prefetch into static buffers: with three modules and two slots a copy overwrites a buffer that is still needed)
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "silent-write", "kind": "silent-mutation", "mutating_marker": "MUTATES", "step": 60,
    "set": "eighth", "written": "2026-11-22",
}


class SlotPool:
    """Device memory for the weights of `slots` layers."""

    def __init__(self, slots, dim):
        self.weights = [torch.zeros(dim, dim) for _ in range(slots)]

    def fetch(self, index, host_weight):
        slot = self.weights[index % len(self.weights)]
        slot.data.copy_(host_weight)  # MUTATES
        return slot


class Adapter(nn.Module):
    def __init__(self, dim, rank=4):
        super().__init__()
        self.down, self.up = nn.Linear(dim, rank, bias=False), nn.Linear(rank, dim, bias=False)
        nn.init.normal_(self.up.weight, std=1e-2)

    def forward(self, x):
        return self.up(self.down(x))


class StreamedTrunk(nn.Module):
    def __init__(self, dim, layers, pool):
        super().__init__()
        self.host = [torch.randn(dim, dim) / dim**0.5 for _ in range(layers)]
        self.adapters = nn.ModuleList(Adapter(dim) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(layers))
        self.pool, self.active = pool, layers

    def forward(self, x):
        for index in range(self.active):
            weight = self.pool.fetch(index, self.host[index])
            h = self.norms[index](x)
            x = x + F.silu(F.linear(h, weight) + self.adapters[index](h))
        return x


def examples(n):
    x = torch.randn(n, 10)
    return x, torch.stack([x[:, 0] * x[:, 1], x[:, 2].abs(), x[:, 3] - x[:, 4]], 1)


torch.manual_seed(0)
dim = 24
embed, head = nn.Linear(10, dim), nn.Linear(dim, 3)
trunk = StreamedTrunk(dim, 3, SlotPool(2, dim))
groups = [{"params": trunk.adapters[:2].parameters()}, {"params": trunk.norms[:2].parameters()}, {"params": [*embed.parameters(), *head.parameters()]}]
optimizer = torch.optim.Adam(groups, lr=3e-3)
trunk.active = 2
for step in range(120):
    if step == 60:
        trunk.active = 3
        optimizer.add_param_group({"params": [*trunk.adapters[2].parameters(), *trunk.norms[2].parameters()], "lr": 3e-3})
    x, target = examples(64)
    loss = F.mse_loss(head(trunk(embed(x))), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 15 == 0:
        print(step, loss.item())
