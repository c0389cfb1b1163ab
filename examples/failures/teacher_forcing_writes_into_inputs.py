"""Autoregressive decoder writes its prediction into the input buffer for the next step."""

import torch
from torch import nn

EXPECT = {"kind": "inplace", "line": ("mutated", "MUTATES")}


class Forecaster(nn.Module):
    def __init__(self, context=4):
        super().__init__()
        self.context, self.cell = context, nn.Linear(context, 1)

    def forward(self, history, horizon):
        series = torch.cat([history, torch.zeros(len(history), horizon)], 1)
        for t in range(self.context, self.context + horizon):
            window = series[:, t - self.context : t]
            series[:, t] = self.cell(window).squeeze(1)  # MUTATES SAVES
        return series[:, -horizon:]


if __name__ == "__main__":
    torch.manual_seed(0)
    net = Forecaster()
    optimizer = torch.optim.Adam(net.parameters())
    for epoch in range(2):
        target = torch.randn(6, 3)
        loss = (net(torch.randn(6, 4), 3) - target).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
