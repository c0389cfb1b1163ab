"""The displacement of a loaded plate as a function of the place, in a network of twenty tanh layers whose weights were drawn with standard deviation one: the outputs look tame, the gradient doubles with every layer on its way back.

Report: https://tomroth.com.au/exploding_vanishing_gradients/ (hidden layers from torch.randn: "exploding gradient. Same with tanh, which was unexpected"; see also https://github.com/torch/nn/issues/449 on initialisation of very deep networks)
"""
import torch
from torch import nn

EXPECT = {
    "class": "silent", "kind": "exploding-gradient", "source_marker": "CULPRIT",
    "set": "eleventh", "written": "2026-11-23",
}


class PlateField(nn.Module):
    def __init__(self, width=64, depth=20):
        super().__init__()
        self.enter = nn.Linear(2, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.leave = nn.Linear(width, 1)
        self.reset_parameters()

    def reset_parameters(self):
        for layer in self.hidden:
            nn.init.normal_(layer.weight, 0.0, 1.0)
            nn.init.zeros_(layer.bias)

    def forward(self, place):
        h = torch.tanh(self.enter(place))
        for layer in self.hidden:
            h = torch.tanh(layer(h))  # CULPRIT
        return self.leave(h).squeeze(-1)


def deflection(place):
    """First modes of a plate held at its edges."""
    x, y = place.unbind(-1)
    return torch.sin(torch.pi * x) * torch.sin(torch.pi * y) + 0.3 * torch.sin(2 * torch.pi * x) * torch.sin(torch.pi * y)


def train(model, steps=60):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for step in range(steps):
        place = torch.rand(256, 2)
        loss = (model(place) - deflection(place)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}")


torch.manual_seed(0)
train(PlateField())
