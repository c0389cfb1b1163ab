"""Grad-CAM style code with register_backward_hook on a whole residual block."""

import torch
from torch import nn

EXPECT = {"kind": "legacy-hook-partial", "line": ("hook", "HOOK"), "module": "layer4"}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.b(torch.relu(self.a(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.layer4, self.fc = nn.Conv2d(1, 4, 3), Block(), nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(self.layer4(self.conv(x)).mean((2, 3)))


class GradCam:
    def __init__(self, model, layer):
        self.model, self.grad = model, None
        layer.register_backward_hook(self.save)  # HOOK

    def save(self, module, grad_input, grad_output):
        self.grad = grad_input[0]

    def __call__(self, x):
        self.model(x)[0].max().backward()
        return self.grad.mean((2, 3))


torch.manual_seed(0)
net = Net()
print(GradCam(net, net.layer4)(torch.rand(1, 1, 9, 9)).shape)
