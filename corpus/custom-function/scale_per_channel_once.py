"""Own function for a scale of channels: written for one scale for each of them, it gives a gradient of that shape when the scale becomes one for each row."""
import torch
from torch import nn

EXPECT = {
    "class": "late-function", "kind": "wrong-backward-shape", "apply_marker": "APPLIED", "step": 345,
    "set": "late_again", "written": "2026-11-22",
}


class Rescale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, grad):
        x, scale = ctx.saved_tensors
        return grad * scale, (grad * x).sum(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(7, 12), nn.Linear(12, 2)
        self.scale, self.shared = nn.Parameter(torch.ones(12)), nn.Parameter(torch.ones(16, 1))
        self.share = False

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.last(Rescale.apply(h, self.shared if self.share else self.scale))  # APPLIED


torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), 3e-2)
for step in range(360):
    net.share = step >= 345
    x = torch.randn(16, 7)
    loss = nn.functional.cross_entropy(net(x), (x[:, 0] > x[:, 1]).long())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 60 == 0:
        print(step, round(loss.item(), 4))
