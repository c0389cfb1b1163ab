"""Saliency map: requires_grad_ first, then .to(float32) and unsqueeze; image.grad is read from the copy."""

import numpy as np
import torch
from torch import nn

EXPECT = {"kind": "nonleaf-grad", "line": ("cut", "CUT")}


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.fc = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), nn.Linear(4, 5)

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))


def saliency(model, array):
    image = torch.from_numpy(array).requires_grad_()
    image = image.to(torch.float32).unsqueeze(0)  # CUT
    scores = model(image)
    scores[0, scores.argmax()].backward()
    return image.grad


torch.manual_seed(0)
net = CNN().eval()
result = saliency(net, np.random.default_rng(0).random((3, 9, 9)))
print({"reproduced": result is None})
