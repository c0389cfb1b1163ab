"""Attention weights are taken with .detach().numpy() for a plot and normalised in place: they share memory."""

import torch
from torch import nn

EXPECT = {"kind": "silent-mutation", "line": ("mutated", "MUTATES"), "module": "attn"}
PLOTS = []


class Attention(nn.Module):
    def __init__(self, d, plot):
        super().__init__()
        self.q, self.k, self.plot = nn.Linear(d, d), nn.Linear(d, d), plot

    def forward(self, x):
        w = torch.softmax(self.q(x) @ self.k(x).transpose(1, 2), -1)  # SAVES
        out = w @ x
        if self.plot:
            picture = w.detach().numpy()
            picture /= picture.max()  # MUTATES
            PLOTS.append(picture.copy())
        return out


class Model(nn.Module):
    def __init__(self, plot):
        super().__init__()
        self.attn, self.head = Attention(6, plot), nn.Linear(6, 1)

    def forward(self, x):
        return self.head(self.attn(x)).mean()


def grad(plot):
    torch.manual_seed(0)
    model = Model(plot)
    model(torch.randn(2, 5, 6)).square().backward()
    return model.attn.q.weight.grad


if __name__ == "__main__":
    print({"reproduced": not torch.allclose(grad(True), grad(False))})
