"""Hidden layers are stored as a list of [linear, activation] pairs."""

import argparse

import torch
from torch import nn

EXPECT = {"kind": "unregistered-parameter", "line": ("cut", "CUT"), "module": ""}


class SNLINet(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.hids = []  # CUT
        for i in range(options.n_layers):
            self.hids.append([nn.Linear(options.n_hid, options.n_hid), getattr(nn, options.act)()])  # CUT
        self.classifier = nn.Linear(options.n_hid, 3)

    def forward(self, h):
        for linear, act in self.hids:
            h = act(linear(h))
        return self.classifier(h)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--n-layers", type=int, default=2)
    parser.add_argument("--n-hid", type=int, default=10)
    parser.add_argument("--act", default="Tanh")
    options = parser.parse_args()
    torch.manual_seed(0)
    net = SNLINet(options)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        loss = nn.functional.cross_entropy(net(torch.randn(7, options.n_hid)), torch.randint(0, 3, (7,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print({"reproduced": len(list(net.parameters())) == 2})
