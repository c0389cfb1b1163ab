"""Statistics pooling (x-vector): std over time of an utterance that has one frame only."""

import torch
from torch import nn

EXPECT = {"kind": "nonfinite-forward", "line": ("cause", "CULPRIT"), "module": "pool"}


class StatsPool(nn.Module):
    def forward(self, h):
        return torch.cat([h.mean(1), h.std(1)], 1)  # CULPRIT


class XVector(nn.Module):
    def __init__(self):
        super().__init__()
        self.frame = nn.Sequential(nn.Conv1d(5, 8, 3), nn.ReLU())
        self.pool, self.fc = StatsPool(), nn.Linear(16, 4)

    def forward(self, x):
        return self.fc(self.pool(self.frame(x).transpose(1, 2)))


def main():
    torch.manual_seed(0)
    net, opt = XVector(), None
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    for n in [12, 9, 3, 8]:
        loss = nn.functional.cross_entropy(net(torch.randn(2, 5, n)), torch.tensor([0, 3]))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print({"reproduced": loss.isnan().item()})


if __name__ == "__main__":
    main()
