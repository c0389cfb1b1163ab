"""Autoencoder of digits whose channel scale is an own Function with a workspace for its gradient, made once for the size of a batch; the epoch ends with a batch that is smaller.

Report: https://github.com/YinghuaGao/SIBA/issues/1 (invalid gradient: got [80, 3, 32, 32] but expected shape compatible with [128, 3, 32, 32])
"""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "custom-function", "kind": "wrong-backward-shape", "apply_marker": "APPLY", "step": 56,
    "set": "tenth", "written": "2026-11-23",
}


class ScaleFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, workspace):
        ctx.save_for_backward(x, scale)
        ctx.workspace = workspace
        return x * scale

    @staticmethod
    def backward(ctx, grad_out):
        x, scale = ctx.saved_tensors
        grad_x = ctx.workspace
        grad_x[: len(grad_out)] = grad_out * scale
        return grad_x, (grad_out * x).sum(0), None


class Scale(nn.Module):
    def __init__(self, width, batch):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.register_buffer("workspace", torch.zeros(batch, width), persistent=False)

    def forward(self, x):
        return ScaleFunction.apply(x, self.scale, self.workspace)  # APPLY


class Autoencoder(nn.Module):
    def __init__(self, batch, width=64, code=10):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, width), nn.ReLU(), Scale(width, batch), nn.Linear(width, code))
        self.decoder = nn.Sequential(nn.Linear(code, width), nn.ReLU(), Scale(width, batch), nn.Linear(width, 64))

    def forward(self, x):
        return self.decoder(self.encoder(x))


torch.manual_seed(0)
images = torch.tensor(load_digits().data, dtype=torch.float32) / 16
loader = DataLoader(TensorDataset(images), batch_size=32, shuffle=True)
model = Autoencoder(loader.batch_size)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
step = 0
for epoch in range(3):
    for (x,) in loader:
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 0:
            print(epoch, step, loss.item())
        step += 1
