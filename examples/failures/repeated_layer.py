"""Four message-passing layers are made as one that is repeated: the network has the weights of a single layer."""

import torch
from torch import nn

EXPECT = {"kind": "module-repeated", "line": ("cause", "REPEATS"), "module": "layers"}


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.own = nn.Linear(width, width)
        self.others = nn.Linear(width, width, bias=False)

    def forward(self, adjacency, x):
        return x + torch.tanh(self.own(x) + self.others(adjacency @ x))


class GraphNet(nn.Module):
    def __init__(self, width=8, depth=4):
        super().__init__()
        self.layers = nn.ModuleList([Layer(width)] * depth)  # REPEATS
        self.readout = nn.Linear(width, 1)

    def forward(self, adjacency, x):
        for layer in self.layers:
            x = layer(adjacency, x)
        return self.readout(x)


torch.manual_seed(0)
model = GraphNet()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(20):
    adjacency = torch.rand(16, 6, 6).softmax(-1)
    x = torch.randn(16, 6, 8)
    loss = (model(adjacency, x) - (adjacency @ x).sum(-1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
