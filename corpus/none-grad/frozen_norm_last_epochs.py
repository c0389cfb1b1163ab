"""Small CNN whose batch statistics are fixed for the last epochs: the Function that takes over returns no gradient for scale and shift, which should go on learning."""
import torch
from torch import nn

EXPECT = {
    "class": "late-function", "kind": "none-grad", "cut_marker": "CUT", "module": "norm", "step": 342,
    "parameters": ["norm.weight", "norm.bias"],
    "set": "late", "written": "2026-11-22",
}


class FixedNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mean, var, weight, bias, eps):
        factor = (weight * torch.rsqrt(var + eps))[:, None, None]
        ctx.save_for_backward(factor)
        return (x - mean[:, None, None]) * factor + bias[:, None, None]

    @staticmethod
    def backward(ctx, grad):
        (factor,) = ctx.saved_tensors
        return grad * factor, None, None, None, None, None


class Norm(nn.BatchNorm2d):
    fixed = False

    def forward(self, x):
        if not self.fixed:
            return super().forward(x)
        return FixedNorm.apply(x, self.running_mean, self.running_var, self.weight, self.bias, self.eps)  # CUT


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(2, 8, 3), Norm(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), 2e-2, momentum=0.9)
scheduler = torch.optim.lr_scheduler.MultiStepLR(opt, [5], gamma=0.2)
for epoch in range(8):
    net.norm.fixed = epoch >= 6
    for _ in range(57):
        y = torch.randint(0, 3, (12,))
        x = torch.randn(12, 2, 8, 8)
        x[:, 0, 2:5] += y[:, None, None] - 1.0
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    scheduler.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
