"""A feature visualiser is attached at step 40; its forward hook returns what it keeps, a detached copy.

Report: https://github.com/jacobgil/pytorch-grad-cam/issues/88 (hooks on activations), see also pytorch/pytorch issue 49236
"""
import torch
from torch import nn

EXPECT = {
    "class": "stops-learning", "kind": "none-grad", "cut_marker": "CUT",
    "parameters": ["stem.0.weight", "stem.0.bias"],
    "set": "first", "written": "2026-11-22",
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(2, 6, 3), nn.ReLU())
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.stem(x).mean(2))


class Visualiser:
    def __init__(self):
        self.maps = {}

    def __call__(self, module, inputs, output):
        output = output.detach()  # CUT
        self.maps["stem"] = output
        return output


torch.manual_seed(0)
net = Net()
opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(100):
    if step == 40:
        net.stem.register_forward_hook(Visualiser())
        before = net.stem[0].weight.detach().clone()
    x = torch.randn(8, 2, 10)
    loss = nn.functional.cross_entropy(net(x), x.mean((1, 2)).mul(6).long().clamp(0, 2))
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", net.stem[0].weight.grad is None)
