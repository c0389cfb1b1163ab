"""Quantisation-aware fine-tuning with learned clipping values: the quantizer prepares the model after a warm-up and sorts the new parameters into groups of its own, which nobody hands to the optimizer of the loop.

Report: https://github.com/IntelLabs/distiller/issues/35 (PACT's groups do not arrive in the optimizer of the main script)
"""
import torch
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {
    "class": "optimizer", "kind": "parameter-not-in-optimizer", "optimizer_marker": "OPTIMIZER", "step": 50,
    "set": "eighth", "written": "2026-11-22",
}


class RoundThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


class ClippedQuantizedReLU(nn.Module):
    def __init__(self, bits=4, start=3.0):
        super().__init__()
        self.levels = 2**bits - 1
        self.clip_val = nn.Parameter(torch.tensor(start))

    def forward(self, x):
        x = torch.minimum(x.clamp(min=0), self.clip_val)
        scale = self.levels / self.clip_val
        return RoundThrough.apply(x * scale) / scale


class PACTQuantizer:
    def __init__(self, model, bits, decay):
        self.model, self.bits, self.decay = model, bits, decay
        self.groups = []

    def prepare_model(self, lr):
        for parent in list(self.model.modules()):
            for name, child in list(parent.named_children()):
                if isinstance(child, nn.ReLU):
                    setattr(parent, name, ClippedQuantizedReLU(self.bits))
        clip = [p for n, p in self.model.named_parameters() if n.endswith("clip_val")]
        rest = [p for n, p in self.model.named_parameters() if not n.endswith("clip_val")]
        self.groups = [{"params": rest, "lr": lr}, {"params": clip, "lr": lr, "weight_decay": self.decay}]
        return self.model


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.act1 = nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU()
        self.conv2, self.act2 = nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU()
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = self.act1(self.conv1(x))
        x = self.act2(self.conv2(x))
        return self.fc(x.flatten(1))


torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1, torch.tensor(digits.target)
net = Net()
quantizer = PACTQuantizer(net, bits=4, decay=1e-3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9)  # OPTIMIZER
for step in range(140):
    if step == 50:
        quantizer.prepare_model(lr=0.03)
    pick = torch.randint(0, len(images), (64,))
    loss = nn.functional.cross_entropy(net(images[pick]), labels[pick])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item(), [round(p.item(), 3) for n, p in net.named_parameters() if n.endswith("clip_val")])
