"""Own power-iteration layer updates its vector u in place on every forward; the critic is called on real and fake."""

import torch
from torch import nn

EXPECT = {"kind": "inplace", "line": ("mutated", "MUTATES"), "module": "2"}


class SNLinear(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(o, i) / i**0.5)
        self.register_buffer("u", nn.functional.normalize(torch.randn(o), dim=0))

    def forward(self, x):
        with torch.no_grad():
            v = nn.functional.normalize(self.weight.t() @ self.u, dim=0)
            self.u.copy_(nn.functional.normalize(self.weight @ v, dim=0))  # MUTATES
        sigma = self.u @ (self.weight @ v)  # SAVES
        return x @ (self.weight / sigma).t()


def main():
    torch.manual_seed(0)
    D = nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2), SNLinear(8, 1))
    real, fake = torch.randn(6, 3), torch.randn(6, 3)
    loss = torch.relu(1 - D(real)).mean() + torch.relu(1 + D(fake)).mean()
    loss.backward()


if __name__ == "__main__":
    main()
