"""Fine-tuning of a head with a Grad-CAM of what it looks at: the maps hang on a backward hook in the backbone, which is frozen at that stage and has no backward.

Report: https://github.com/Project-MONAI/MONAI/issues/3035 (GradCAM fails with a frozen backbone; the same in jacobgil/pytorch-grad-cam issue 40)
"""
import torch
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {
    "class": "hook", "kind": "hook-never-fires", "hook_marker": "HOOK", "module": "backbone.conv2", "step": 60,
    "set": "seventh", "written": "2026-11-22",
}


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 12, 3, padding=1)

    def forward(self, x):
        return torch.relu(self.conv2(torch.relu(self.conv1(x))))


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.backbone, self.head = Backbone(), nn.Linear(12, classes)

    def forward(self, x):
        return self.head(self.backbone(x).mean((2, 3)))


class GradCAM:
    def __init__(self, layer):
        self.gradient = self.activation = None
        layer.register_forward_hook(self.save_activation)
        layer.register_full_backward_hook(self.save_gradient)  # HOOK

    def save_activation(self, module, inputs, output):
        self.activation = output.detach()

    def save_gradient(self, module, grad_input, grad_output):
        self.gradient = grad_output[0].detach()

    def map(self):
        if self.gradient is None:
            return None
        return torch.relu((self.gradient.mean((2, 3), keepdim=True) * self.activation).sum(1))


torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, torch.tensor(digits.target)
model = Classifier(10)
optimizer, cam = torch.optim.Adam(model.parameters(), lr=3e-3), None
for step in range(120):
    if step == 60:  # second stage: a new head for odd and even, the rest stays as it is
        for p in model.backbone.parameters():
            p.requires_grad_(False)
        model.head = nn.Linear(12, 2)
        optimizer = torch.optim.Adam(model.head.parameters(), lr=3e-3)
        cam = GradCAM(model.backbone.conv2)
    pick = torch.randint(0, len(images), (32,))
    target = labels[pick] if step < 60 else labels[pick] % 2
    loss = nn.functional.cross_entropy(model(images[pick]), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item(), None if cam is None else cam.map())
