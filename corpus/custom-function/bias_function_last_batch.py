"""A fused bias-and-gelu Function returns the bias gradient summed over the wrong axis unless the batch is full; it shows with the last, smaller batch.

Report: https://github.com/sniklaus/softmax-splatting/issues/50 (own Functions), class: invalid gradient shape from C++
"""
import torch
from torch import nn

EXPECT = {
    "class": "custom-function", "kind": "wrong-backward-shape", "apply_marker": "APPLY",
    "set": "first", "written": "2026-11-22",
}


class BiasGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias):
        ctx.save_for_backward(x, bias)
        return nn.functional.gelu(x + bias)

    @staticmethod
    def backward(ctx, g):
        x, bias = ctx.saved_tensors
        z = x + bias
        cdf = 0.5 * (1 + torch.erf(z / 2**0.5))
        d = g * (cdf + z * torch.exp(-z * z / 2) / (2 * torch.pi) ** 0.5)
        return d, (d.sum(0) if d.shape[0] == 16 else d.sum(1))  # 16 is the batch size


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.bias, self.out = nn.Linear(6, 12, bias=False), nn.Parameter(torch.zeros(12)), nn.Linear(12, 2)

    def forward(self, x):
        return self.out(BiasGelu.apply(self.fc(x), self.bias))  # APPLY


torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), 1e-2)
data = torch.randn(16 * 21 + 8, 6)
for epoch in range(2):
    for x in data.split(16):
        loss = nn.functional.cross_entropy(net(x), (x[:, 0] > 0).long())
        opt.zero_grad()
        loss.backward()
        opt.step()
