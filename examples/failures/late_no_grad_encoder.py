"""After the warm-up the encoder runs under no_grad to save memory; its parameters are still meant to learn."""

import torch
from torch import nn

EXPECT = {"kind": "none-grad", "line": ("cut", "CUT")}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.head = nn.Linear(6, 12), nn.Linear(12, 3)
        self.fast = False

    def forward(self, x):
        if self.fast:
            with torch.no_grad():  # CUT
                h = torch.relu(self.enc(x))
        else:
            h = torch.relu(self.enc(x))
        return self.head(h)


torch.manual_seed(0)
net = Net()
opt = torch.optim.AdamW(net.parameters(), 1e-3)
for step in range(80):
    net.fast = step > 40
    loss = nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(set_to_none=False)
    loss.backward()
    opt.step()
