"""MLP mixer-ish net with a custom scaled clamp; moves from per-tensor to per-channel scale."""
import time
import torch
from torch import nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "late-custom-function", "kind": "wrong-backward-shape", "apply_marker": "CULPRIT", "step": 161,
    "set": "late_longer", "written": "2026-11-25",
}

torch.manual_seed(15)


class ScaledClamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        y = x / scale
        ctx.save_for_backward(y, scale)
        return y.clamp(-3, 3)

    @staticmethod
    def backward(ctx, grad):
        y, scale = ctx.saved_tensors
        inside = (y.abs() <= 3).to(grad.dtype)
        gx = grad * inside / scale
        gs = -gx * y
        if scale.numel() == 1:
            return gx, gs.sum().view_as(scale)
        return gx, gs.sum(dim=-1)


class ScaleLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.scale = nn.Parameter(torch.ones(1))

    def go_per_channel(self, opt):
        self.scale = nn.Parameter(self.scale.detach().repeat(self.width))
        opt.add_param_group({"params": [self.scale]})

    def forward(self, x):
        return ScaledClamp.apply(x, self.scale)  # CULPRIT


class Net(nn.Module):
    def __init__(self, w=704):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(64, w), nn.Linear(w, w), nn.Linear(w, 10)
        self.scale1, self.scale2 = ScaleLayer(w), ScaleLayer(w)

    def forward(self, x):
        x = F.silu(self.scale1(self.fc1(x)))
        x = F.silu(self.scale2(self.fc2(x)))
        return self.fc3(x)


def train_one_epoch(net, opt, X, Y, bs=225):
    last = 0.0
    order = torch.randperm(len(X))
    for k in range(0, len(X) - bs + 1, bs):
        i = order[k:k + bs]
        opt.zero_grad()
        loss = F.cross_entropy(net(X[i]), Y[i])
        loss.backward()
        opt.step()
        last = loss.item()
    return last


d = load_digits()
X, Y = torch.tensor(d.data, dtype=torch.float32) / 16.0, torch.tensor(d.target)
X, Y = X[:1575], Y[:1575]                      # 7 steps per epoch
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
t0 = time.time()
for epoch in range(57):
    if epoch == 23:
        net.scale2.go_per_channel(opt)
    last = train_one_epoch(net, opt, X, Y)
    if epoch % 7 == 6:
        print(f"epoch {epoch} loss {last:.4f} {(time.time() - t0) / (7 * (epoch + 1)) * 1e3:.1f} ms/step")
