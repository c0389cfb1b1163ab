"""Detector with a Mish that recomputes its derivative to save memory: one factor of the product rule is missing in it.

Report: https://github.com/digantamisra98/Mish/issues/11 (the derivative in an own implementation is not right; memory-efficient variants in ultralytics/yolov3 issue 1098)
"""
import torch
from torch import nn

EXPECT = {
    "class": "custom-function", "kind": "wrong-backward", "apply_marker": "APPLY",
    "set": "fifth", "written": "2026-11-22",
}


class MishFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.tanh(nn.functional.softplus(x))

    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        t = torch.tanh(nn.functional.softplus(x))
        return grad_output * (t + x * (1 - t * t))


class Mish(nn.Module):
    def forward(self, x):
        return MishFunction.apply(x)  # APPLY


class ConvBlock(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn, self.act = nn.BatchNorm2d(outputs), Mish()

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


class TinyYolo(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(ConvBlock(1, 6), ConvBlock(6, 8, stride=2), ConvBlock(8, 8, stride=2))
        self.detect = nn.Conv2d(8, 3, 1)

    def forward(self, x):
        return self.detect(self.layers(x))


torch.manual_seed(0)
net = TinyYolo()
optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, nesterov=True)
for step in range(80):
    cell = torch.randint(0, 16, (8,))
    row, col = cell // 4, cell % 4
    image = 0.1 * torch.randn(8, 1, 16, 16)
    target = torch.zeros(8, 4, 4)
    for i in range(8):
        image[i, 0, 4 * row[i] : 4 * row[i] + 3, 4 * col[i] : 4 * col[i] + 3] += 1.0
        target[i, row[i], col[i]] = 1.0
    out = net(image)
    box = (out[:, 1:].sigmoid() - 0.375).abs().mean(1)
    loss = nn.functional.binary_cross_entropy_with_logits(out[:, 0], target) + (box * target).sum() / 8
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
