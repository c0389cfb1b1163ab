"""Second-order pooling: the covariance of the features is flattened by the root of its eigenvalues; a blank picture has equal eigenvalues, and the gradient of their vectors divides by the differences.

Report: https://github.com/pytorch/pytorch/issues/23133 (torch.symeig gives NaN gradients; the same for equal eigenvalues in pytorch/pytorch issue 47599)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "module": "pool", "step": 90,
    "set": "seventh", "written": "2026-11-22",
}


class CovariancePooling(nn.Module):
    def __init__(self, eps=1e-3):
        super().__init__()
        self.eps = eps

    def forward(self, h):
        b, c, *_ = h.shape
        h = h.flatten(2)
        h = h - h.mean(2, keepdim=True)
        covariance = h @ h.transpose(1, 2) / h.shape[2] + self.eps * torch.eye(c)
        values, vectors = torch.linalg.eigh(covariance)  # CULPRIT
        root = vectors * values.sqrt().unsqueeze(1) @ vectors.transpose(1, 2)
        i, j = torch.triu_indices(c, c)
        return root[:, i, j]


class SecondOrderNet(nn.Module):
    def __init__(self, width=6, classes=3):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, width, 3), nn.Tanh(), nn.Conv2d(width, width, 3))
        self.pool = CovariancePooling()
        self.head = nn.Linear(width * (width + 1) // 2, classes)

    def forward(self, x):
        return self.head(self.pool(self.features(x)))


def pictures(n, step):
    labels = torch.randint(0, 3, (n,))
    axis = torch.arange(10.0)
    stripes = torch.stack([axis.expand(10, 10), axis[:, None].expand(10, 10), axis + axis[:, None]])
    x = torch.sin(stripes[labels] + 6 * torch.rand(n, 1, 1))[:, None] + 0.1 * torch.randn(n, 1, 10, 10)
    if step == 90:
        x[3] = 0.0  # the shutter was closed
    return x, labels


torch.manual_seed(0)
net = SecondOrderNet()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(140):
    x, labels = pictures(8, step)
    loss = nn.functional.cross_entropy(net(x), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 15 == 0:
        print(step, loss.item())
