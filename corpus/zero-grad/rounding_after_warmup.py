"""Quantisation-aware training that starts after a warm-up in full precision: rounding has no slope, nothing carries the gradient past it, and the weights stand still from then on.

Report: https://github.com/pytorch/tutorials/issues/855 (weights are not updated in quantisation-aware training; the estimator that is missing in facebookresearch/fairseq issue 3195)
"""
import torch
from torch import nn

EXPECT = {
    "class": "stops-learning", "kind": "zero-grad", "cut_marker": "CUT", "parameters": ["features.0.weight", "features.2.weight"], "step": 120,
    "set": "fifth", "written": "2026-11-22",
}


class QuantConv(nn.Conv2d):
    bits = None

    def forward(self, x):
        weight = self.weight
        if self.bits is not None:
            top = 2 ** (self.bits - 1) - 1
            scale = weight.detach().abs().amax() / top
            weight = torch.round(weight / scale) * scale  # CUT
        return nn.functional.conv2d(x, weight, self.bias, self.stride, self.padding)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(QuantConv(1, 6, 3, padding=1), nn.ReLU(), QuantConv(6, 6, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.classifier = nn.Linear(24, 4)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 240)
kernels = torch.randn(4, 1, 8, 8)
for step in range(240):
    if step == 120:
        for m in net.modules():
            if isinstance(m, QuantConv):
                m.bits = 4
        print("weights are quantised to 4 bits from here on")
    label = torch.randint(0, 4, (16,))
    image = kernels[label] + 0.7 * torch.randn(16, 1, 8, 8)
    loss = nn.functional.cross_entropy(net(image), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 30 == 0:
        print(step, round(loss.item(), 4), net.features[0].weight.grad.abs().max().item())
