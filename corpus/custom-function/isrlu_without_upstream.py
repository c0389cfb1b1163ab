"""Autoencoder with the inverse square root linear unit as an own Function: its backward returns the slope of the unit and leaves out what came in.

Report: https://github.com/pytorch/pytorch/issues/4355 (gradcheck fails for an ISRLU whose backward returns ctx.nisr ** 3)
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "custom-function", "kind": "wrong-backward", "apply_marker": "APPLY",
    "set": "eighth", "written": "2026-11-22",
}


class ISRLUFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, alpha):
        negatives = tensor.clamp(max=0)
        nisr = torch.rsqrt(1.0 + alpha * negatives**2)
        ctx.save_for_backward(nisr)
        return tensor * nisr

    @staticmethod
    def backward(ctx, grad_out):
        (nisr,) = ctx.saved_tensors
        return nisr**3, None


class ISRLU(nn.Module):
    def __init__(self, alpha=1.0):
        super().__init__()
        self.alpha = alpha

    def forward(self, x):
        return ISRLUFunction.apply(x, self.alpha)  # APPLY


def waves(n=640, length=20):
    t = torch.linspace(0, 1, length)
    phase, rate = torch.rand(n, 1) * 6.28, 1 + 2 * torch.rand(n, 1)
    return torch.sin(6.28 * rate * t + phase) + 0.05 * torch.randn(n, length)


class Autoencoder(nn.Module):
    def __init__(self, length=20, code=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(length, 24), nn.Tanh(), nn.Linear(24, code))
        self.decoder = nn.Sequential(nn.Linear(code, 24), ISRLU(), nn.Linear(24, length))

    def forward(self, x):
        return self.decoder(self.encoder(x))


torch.manual_seed(0)
model = Autoencoder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
loader = DataLoader(TensorDataset(waves()), batch_size=32, shuffle=True)
for epoch in range(5):
    total = 0.0
    for (x,) in loader:
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    scheduler.step()
    print(epoch, total / len(loader))
