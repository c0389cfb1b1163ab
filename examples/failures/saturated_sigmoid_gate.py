"""Gate with a bias of 100: sigmoid is exactly 1 in float32, its derivative exactly 0."""

import torch
from torch import nn

EXPECT = {"kind": "zero-grad", "line": ("cut", "CUT")}


class Highway(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.gate, self.transform, self.out = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, 1)
        self.gate.bias.data.fill_(100)

    def forward(self, x):
        t = torch.sigmoid(self.gate(x))  # CUT
        return self.out(t * torch.tanh(self.transform(x)) + (1 - t) * x)


torch.manual_seed(0)
net = Highway()
opt = torch.optim.Adam(net.parameters(), 1e-3)
for _ in range(4):
    x = torch.randn(16, 8)
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print({"reproduced": not net.gate.weight.grad.any().item()})
