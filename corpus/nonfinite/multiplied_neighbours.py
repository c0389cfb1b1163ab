"""Graph network with a product over the nodes as readout: one large graph is enough for it to overflow.

Report: https://github.com/pyg-team/pytorch_geometric/issues/8726
"""
import torch
from torch import nn
from torch.utils.data import DataLoader

EXPECT = {
    "class": "overflow", "framework": "pyg", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "module": "pool",
    "set": "second", "written": "2026-11-22",
}


class MulAggregation(nn.Module):
    def forward(self, x, index, size):
        index = index[:, None].expand_as(x)
        return x.new_ones(size, x.shape[1]).scatter_reduce(0, index, x, "prod", include_self=False)  # CULPRIT


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.pool, self.out = nn.Linear(3, 4), MulAggregation(), nn.Linear(4, 1)

    def forward(self, x, index, size):
        return self.out(self.pool(self.embed(x).relu() + 0.5, index, size).log1p())


def collate(graphs):
    index = torch.cat([torch.full((len(x),), i) for i, (x, _) in enumerate(graphs)])
    return torch.cat([x for x, _ in graphs]), index, torch.stack([y for _, y in graphs])


g = torch.Generator().manual_seed(3)
data = []
for i in range(160):
    nodes = 900 if i == 101 else int(torch.randint(3, 8, (1,), generator=g))
    x = torch.rand(nodes, 3, generator=g) * (4 if i == 101 else 1)
    data.append((x, torch.tensor([float(nodes)]).log()))

torch.manual_seed(1)
net = Net()
opt = torch.optim.Adam(net.parameters(), 3e-3)
for x, index, y in DataLoader(data, batch_size=4, collate_fn=collate):
    loss = nn.functional.mse_loss(net(x, index, len(y)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", net.out.weight.isnan().any().item())
