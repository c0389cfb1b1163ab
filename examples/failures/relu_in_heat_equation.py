"""A network with ReLU is to solve the heat equation; its second derivative by space is zero everywhere."""

import torch
from torch import nn

EXPECT = {"kind": "second-derivative-zero", "line": ("cause", "RELU")}


class Temperature(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.middle, self.out = nn.Linear(2, 24), nn.Linear(24, 24), nn.Linear(24, 1)

    def forward(self, place, time):
        h = torch.cat([place, time], dim=1)
        for layer in (self.enter, self.middle):
            h = torch.relu(layer(h))  # RELU
        return self.out(h)


def main():
    torch.manual_seed(0)
    model = Temperature()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(40):
        place, time = (torch.rand(64, 1, requires_grad=True) for _ in range(2))
        u = model(place, time)
        by_place, by_time = torch.autograd.grad(u.sum(), (place, time), create_graph=True)
        (curvature,) = torch.autograd.grad(by_place.sum(), place, create_graph=True)
        start = model(place, torch.zeros_like(time)) - torch.sin(3.14 * place)
        loss = (by_time - 0.1 * curvature).square().mean() + start.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
