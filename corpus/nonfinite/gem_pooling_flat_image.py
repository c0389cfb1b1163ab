"""Image retrieval with generalised-mean pooling without the lower bound: an image of the mean colour has channels of exact zeros, the outer root has no slope.

Report: https://github.com/facebookresearch/multigrain/issues/5 (what the eps in GeM is for; also filipradenovic/cnnimageretrieval-pytorch issue 73)
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "edge-of-domain", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "module": "pool",
    "set": "second", "written": "2026-11-22",
}


class GeM(nn.Module):
    def __init__(self, p=3.0):
        super().__init__()
        self.p = nn.Parameter(torch.tensor(p))

    def forward(self, x):
        return x.clamp(min=0).pow(self.p).mean((2, 3)).pow(1 / self.p)  # CULPRIT


g = torch.Generator().manual_seed(8)
images = torch.randn(140, 3, 8, 8, generator=g)  # standardised
images[90] = 0.0
data = TensorDataset(images, torch.arange(140) % 5)
torch.manual_seed(0)
net = nn.Sequential()
net.add_module("conv", nn.Conv2d(3, 8, 3, bias=False))
net.add_module("pool", GeM())
net.add_module("head", nn.Linear(8, 5))
opt = torch.optim.Adam(net.parameters(), 1e-3)
for step, (x, y) in enumerate(DataLoader(data, batch_size=4)):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if net.conv.weight.isnan().any():
        print("reproduced at", step, loss.item())
        break
