"""Digits with an eigen-CAM for the log every twenty steps: the projection centres what it is given in NumPy, in place, and was given the activations that backward still needs.

Report: https://github.com/jacobgil/pytorch-grad-cam/pull/589 (svd_on_activations writes into the caller's activations, which share memory with the tensor)
"""
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {
    "class": "silent-write", "kind": "silent-mutation", "mutating_marker": "MUTATES", "step": 40,
    "set": "seventh", "written": "2026-11-22",
}


def projection(activation_batch):
    maps = []
    for activations in activation_batch:
        flat = activations.reshape(activations.shape[0], -1)
        flat -= flat.mean(axis=1, keepdims=True)  # MUTATES
        _, _, vt = np.linalg.svd(flat, full_matrices=False)
        maps.append(vt[0].reshape(activations.shape[1:]))
    return np.stack(maps)


class EigenCAM:
    def __init__(self, layer):
        self.activations, self.maps = None, []
        layer.register_forward_hook(self.save)

    def save(self, module, inputs, output):
        self.activations = output

    def __call__(self):
        maps = projection(self.activations.data.numpy())
        self.maps.append(np.maximum(maps, 0))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.features = nn.Sequential(nn.Conv2d(8, 12, 3, padding=1), nn.Tanh())
        self.head = nn.Linear(12, 10)

    def forward(self, x):
        return self.head(self.features(self.stem(x)).mean((2, 3)))


torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
labels = torch.tensor(digits.target)
net = Net()
cam = EigenCAM(net.features)
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(140):
    pick = torch.randint(0, len(images), (32,))
    loss = nn.functional.cross_entropy(net(images[pick]), labels[pick])
    if step >= 40 and step % 20 == 0:
        cam()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item(), len(cam.maps))
