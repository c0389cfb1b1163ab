"""Weights of a Conv1D-style (in, out) checkpoint are loaded into a square Linear without the transpose."""

import torch
from torch import nn

EXPECT = {"kind": "first-divergence", "module": "layers.1.out", "ask": "divergence"}


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.inp, self.out = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        return x + self.out(torch.relu(self.inp(x)))


class Encoder(nn.Module):
    def __init__(self, d=10):
        super().__init__()
        self.layers = nn.ModuleList(Layer(d) for _ in range(3))
        self.norm = nn.LayerNorm(d)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


def convert(state):
    new = {k: v.clone() for k, v in state.items()}
    new["layers.1.out.weight"] = new["layers.1.out.weight"].t()
    return new


if __name__ == "__main__":
    torch.manual_seed(0)
    original, ported = Encoder(), Encoder()
    ported.load_state_dict(convert(original.state_dict()))
    x = torch.randn(4, 10)
    print(torch.allclose(original(x), ported(x), atol=1e-4))
