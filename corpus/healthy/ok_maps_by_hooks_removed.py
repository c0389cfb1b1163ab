"""Healthy: every thirty steps a Grad-CAM is taken by hooks that are removed at once; the gradient of a feature map is read after retain_grad(), what is kept is detached and copied.

Report it resembles: https://github.com/jacobgil/pytorch-grad-cam/issues/562 (whether the gradients of the activations are saved)
"""
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "seventh", "written": "2026-11-22"}


class Capture:
    def __init__(self, layer):
        self.features = None
        self.handle = layer.register_forward_hook(self.save)

    def save(self, module, inputs, output):
        output.retain_grad()
        self.features = output

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.handle.remove()
        self.features = None

    def map(self):
        weight = self.features.grad.mean((2, 3), keepdim=True)
        cam = torch.relu((weight * self.features).sum(1)).detach().numpy().copy()
        cam -= cam.min()
        return cam / max(cam.max(), 1e-12)


def step_loss(net, images, labels):
    pick = torch.randint(0, len(images), (32,))
    return nn.functional.cross_entropy(net(images[pick]), labels[pick])


torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, torch.tensor(digits.target)
net = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 12, 3, padding=1), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 10)
)
optimizer, maps = torch.optim.Adam(net.parameters(), lr=5e-3), []
for step in range(180):
    optimizer.zero_grad()
    if step % 30 == 15:
        with Capture(net[4]) as capture:
            loss = step_loss(net, images, labels)
            loss.backward()
            maps.append(capture.map().mean(0))
    else:
        loss = step_loss(net, images, labels)
        loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, loss.item(), len(maps), float(np.mean(maps)) if maps else None)
