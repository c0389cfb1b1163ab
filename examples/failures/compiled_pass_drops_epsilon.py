"""A pass over the compiled graph leaves out the epsilon of a normalisation, which only small activations show."""

import torch
from torch import nn
from torch._dynamo.backends.debugging import aot_eager

EXPECT = {"kind": "wrong-compiled", "line": ("cause", "NORM"), "module": "norm", "ask": "compiled"}


def without_epsilon(graph, inputs):
    for node in graph.graph.nodes:
        if "layer_norm" in str(node.target):
            node.args = (*node.args[:4], 0.0)
            node.kwargs = {}
    graph.recompile()
    return aot_eager(graph, inputs)


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale, self.shift, self.width = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width)), width

    def forward(self, x):
        return nn.functional.layer_norm(x, (self.width,), self.scale, self.shift, 1e-3)  # NORM


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(4, 16), Norm(16), nn.Linear(16, 1)

    def forward(self, x):
        return self.down(torch.tanh(self.norm(self.up(x) * 0.01)))


def main():
    torch.manual_seed(0)
    net = Net()
    model = torch.compile(net, backend=without_epsilon)
    opt = torch.optim.Adam(net.parameters())
    x = torch.randn(8, 4)
    off = (model(x) - net(x)).norm().item()
    for _ in range(5):
        x = torch.randn(8, 4)
        loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print({"reproduced": off > 1e-2})


if __name__ == "__main__":
    main()
