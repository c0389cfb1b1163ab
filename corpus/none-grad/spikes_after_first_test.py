"""Spiking network with a surrogate slope: neurons take a plain comparison in eval mode; the test after the first epoch switches to eval and nobody switches back.

Report: https://github.com/fangwei123456/spikingjelly/issues/386 (in eval() neurons take another branch and the surrogate gradient is lost)
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "late-cut", "kind": "none-grad", "cut_marker": "CUT", "step": 40,
    "set": "eighth", "written": "2026-11-22",
}


class ATan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.save_for_backward(x)
        ctx.alpha = alpha
        return (x >= 0).to(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.alpha / 2 / (1 + (torch.pi / 2 * ctx.alpha * x) ** 2), None


class LIF(nn.Module):
    def __init__(self, tau=2.0, threshold=1.0):
        super().__init__()
        self.tau, self.threshold = tau, threshold

    def fire(self, v):
        if self.training:
            return ATan.apply(v - self.threshold, 2.0)
        return (v >= self.threshold).to(v.dtype)  # CUT

    def forward(self, current):
        v, spikes = torch.zeros_like(current[0]), []
        for x in current:
            v = v + (x - v) / self.tau
            s = self.fire(v)
            v = v * (1 - s.detach())
            spikes.append(s)
        return torch.stack(spikes)


class SpikingNet(nn.Module):
    def __init__(self, inputs=12, hidden=32, classes=4):
        super().__init__()
        self.fc1, self.lif1 = nn.Linear(inputs, hidden), LIF()
        self.fc2, self.lif2 = nn.Linear(hidden, hidden), LIF()
        self.readout = nn.Linear(hidden, classes)

    def forward(self, x, steps=6):
        x = x.expand(steps, *x.shape)
        x = self.lif1(3 * self.fc1(x))
        x = self.lif2(3 * self.fc2(x))
        return self.readout(x.mean(0))


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (n,), generator=g)
    centres = 1.5 * torch.randn(4, 12, generator=torch.Generator().manual_seed(9))
    return TensorDataset(centres[y] + torch.randn(n, 12, generator=g), y)


def test(net, loader):
    net.eval()
    with torch.no_grad():
        hits = [(net(x).argmax(1) == y).float().mean() for x, y in loader]
    return torch.stack(hits).mean().item()


torch.manual_seed(0)
net = SpikingNet()
train_loader = DataLoader(make_data(1280, 1), batch_size=32, shuffle=True)
test_loader = DataLoader(make_data(256, 2), batch_size=64)
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
net.train()
for epoch in range(3):
    for x, y in train_loader:
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item(), test(net, test_loader))
