"""Rotation loss with acos of a clamped dot product: the prediction is initialised at the identity."""

import torch
from torch import nn

EXPECT = {"kind": "nonfinite-backward", "line": ("cause", "CULPRIT")}


class PoseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 4)
        nn.init.zeros_(self.fc.weight)
        self.fc.bias.data = torch.tensor([1.0, 0, 0, 0])

    def forward(self, x):
        q = self.fc(x)
        return q / q.norm(dim=1, keepdim=True)


def geodesic(p, q):
    dot = (p * q).sum(1).abs().clamp(-1, 1)
    return 2 * torch.acos(dot)  # CULPRIT


torch.manual_seed(0)
net = PoseNet()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
target = torch.nn.functional.normalize(torch.randn(5, 4), dim=1)
target[0] = torch.tensor([1.0, 0, 0, 0])
for _ in range(3):
    loss = geodesic(net(torch.randn(5, 6)), target).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print({"reproduced": bool(net.fc.weight.isnan().any()), "loss": loss.item()})
