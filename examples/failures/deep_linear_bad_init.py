"""MLP of 20 layers initialised with N(0, 1) instead of a scaled initialisation."""

import torch
from torch import nn

EXPECT = {"kind": "exploding-gradient", "line": ("cause", "CULPRIT")}


class MLP(nn.Module):
    def __init__(self, width=24, depth=14):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, 1)
        self.apply(self.init)

    @staticmethod
    def init(module):
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight)
            nn.init.zeros_(module.bias)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))  # CULPRIT
        return self.head(x)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = MLP()
    opt = torch.optim.SGD(model.parameters(), lr=1e-20)
    for _ in range(3):
        loss = nn.functional.l1_loss(model(torch.randn(16, 24)), torch.zeros(16, 1))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print([f"{layer.weight.grad.norm():.1e}" for layer in model.layers])
