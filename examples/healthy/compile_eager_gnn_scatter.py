"""Healthy: torch.compile(backend="eager") on a graph network with scatter/index_add and isolated nodes."""

import torch
from torch import nn

EXPECT = {"kind": None}


class SAGE(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.self_, self.neigh = nn.Linear(i, o), nn.Linear(i, o)

    def forward(self, h, src, dst):
        agg = torch.zeros_like(h).index_add_(0, dst, h[src])
        deg = torch.zeros(len(h)).index_add_(0, dst, torch.ones(len(dst))).clamp(min=1)
        return self.self_(h) + self.neigh(agg / deg[:, None])


class GNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = SAGE(6, 12), SAGE(12, 3)

    def forward(self, h, src, dst):
        return self.c2(torch.relu(self.c1(h, src, dst)), src, dst)


def main():
    torch.manual_seed(0)
    net = GNN()
    fast = torch.compile(net, backend="eager")
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    h, y = torch.randn(15, 6), torch.randint(0, 3, (15,))
    src, dst = torch.randint(0, 12, (30,)), torch.randint(0, 12, (30,))
    train = torch.rand(15) < 0.6
    for _ in range(8):
        loss = nn.functional.cross_entropy(fast(h, src, dst)[train], y[train])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(loss.item())


if __name__ == "__main__":
    main()
