"""Per-feature standardisation in the model; one feature is constant in the batch: 0 / 0."""

import torch
from torch import nn

EXPECT = {"kind": "nonfinite-forward", "line": ("cause", "CULPRIT"), "module": "norm"}


class Standardise(nn.Module):
    def forward(self, x):
        centred = x - x.mean(0)
        return centred / x.std(0)  # CULPRIT


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = Standardise(), nn.Linear(4, 1)

    def forward(self, x):
        return self.fc(self.norm(x))


torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), 0.01)
for step in range(3):
    x = torch.randn(6, 4)
    if step == 1:
        x[:, 2] = 3.0
    loss = net(x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print({"reproduced": loss.isnan().item()})
