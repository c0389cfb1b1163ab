"""Small DenseNet on digits with a class activation map once it has learned something: a full backward hook goes on the features, whose output the next line of the network rectifies in place.

Report: https://github.com/jacobgil/pytorch-grad-cam/issues/147 (DenseNet: the output of the hooked features is a view and is modified in place by F.relu)
"""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "hook", "kind": "hook-inplace-conflict", "hook_marker": "HOOK", "step": 60,
    "set": "ninth", "written": "2026-11-23",
}


class DenseLayer(nn.Module):
    def __init__(self, inputs, growth):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, growth, 3, padding=1, bias=False)

    def forward(self, x):
        return torch.cat([x, self.conv(F.relu(self.norm(x)))], 1)


class DenseNet(nn.Module):
    def __init__(self, growth=6, layers=3, classes=10):
        super().__init__()
        width, blocks = 8, [nn.Conv2d(1, 8, 3, padding=1, bias=False)]
        for _ in range(layers):
            blocks.append(DenseLayer(width, growth))
            width += growth
        self.features = nn.Sequential(*blocks, nn.BatchNorm2d(width))
        self.classifier = nn.Linear(width, classes)

    def forward(self, x):
        features = self.features(x)
        out = F.relu(features, inplace=True)
        return self.classifier(F.adaptive_avg_pool2d(out, 1).flatten(1))


class GradCAM:
    def __init__(self, model, layer):
        self.model, self.activation, self.gradient = model, None, None
        self.handles = [layer.register_forward_hook(self.keep_activation), layer.register_full_backward_hook(self.keep_gradient)]  # HOOK

    def keep_activation(self, module, inputs, output):
        self.activation = output.detach().clone()

    def keep_gradient(self, module, grad_input, grad_output):
        self.gradient = grad_output[0].detach()

    def __call__(self, image, label):
        self.model.zero_grad()
        self.model(image)[0, label].backward()
        weight = self.gradient.mean((2, 3), keepdim=True)
        return F.relu((weight * self.activation).sum(1))

    def close(self):
        for handle in self.handles:
            handle.remove()


torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, torch.tensor(digits.target)
model = DenseNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
for step in range(120):
    pick = torch.randint(0, len(images), (48,))
    loss = F.cross_entropy(model(images[pick]), labels[pick])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
    if step and step % 60 == 0:
        model.eval()
        cam = GradCAM(model, model.features)
        print("map", cam(images[:1], labels[0]).shape)
        cam.close()
        model.train()
