"""Clustering of views in the manner of SwAV: the prototypes are kept on the sphere; while they are frozen nothing happens to them, and once they learn they are put back there right before backward, through .data, so that the features get a gradient by other prototypes than those they were compared with.

Report: https://github.com/facebookresearch/swav/issues/14 (weights of the prototypes are normalised and copied back, under no_grad, at the start of an iteration)
"""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "silent-write", "kind": "silent-mutation", "mutating_marker": "MUTATES", "step": 41,
    "set": "tenth", "written": "2026-11-23",
}


class Swav(nn.Module):
    def __init__(self, inputs=64, width=96, dim=24, prototypes=20):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, dim))
        self.prototypes = nn.Linear(dim, prototypes, bias=False)
        self.keep_on_sphere()

    def keep_on_sphere(self):
        self.prototypes.weight.data.copy_(F.normalize(self.prototypes.weight.data, dim=1))  # MUTATES

    def forward(self, x):
        return self.prototypes(F.normalize(self.backbone(x)))


@torch.no_grad()
def sinkhorn(scores, epsilon=0.05, rounds=3):
    q = torch.exp(scores / epsilon).t()
    q /= q.sum()
    for _ in range(rounds):
        q /= q.sum(1, keepdim=True) * q.shape[0]
        q /= q.sum(0, keepdim=True) * q.shape[1]
    return (q * q.shape[1]).t()


def view(x):
    keep = (torch.rand_like(x) > 0.2).float()
    return x * keep + 0.1 * torch.randn_like(x)


torch.manual_seed(0)
digits = torch.tensor(load_digits().data, dtype=torch.float32) / 16
model = Swav()
optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
for step in range(90):
    x = digits[torch.randint(0, len(digits), (96,))]
    first, second = model(view(x)), model(view(x))
    code_first, code_second = sinkhorn(first), sinkhorn(second)
    loss = -(code_second * (first / 0.1).log_softmax(1)).sum(1).mean() - (code_first * (second / 0.1).log_softmax(1)).sum(1).mean()
    optimizer.zero_grad()
    if step >= 40:
        model.keep_on_sphere()
    loss.backward()
    if step < 40:
        model.prototypes.weight.grad = None
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item(), model.prototypes.weight.norm(dim=1).mean().item())
