"""Healthy: architecture search; the weights of the choices are plain tensors outside parameters(), with an optimizer of their own that starts after a warm-up.

Report it resembles: https://github.com/quark0/darts/issues/109 (the search loop with two optimizers)
"""
import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "fifth", "written": "2026-11-22"}


class MixedOp(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ops = nn.ModuleList([
            nn.Identity(), nn.Sequential(nn.Linear(dim, dim), nn.ReLU()), nn.Sequential(nn.Linear(dim, dim), nn.Tanh()),
        ])

    def forward(self, x, weights):
        return sum(w * op(x) for w, op in zip(weights, self.ops))


class Network(nn.Module):
    def __init__(self, dim=12, cells=2):
        super().__init__()
        self.stem, self.cells, self.classifier = nn.Linear(6, dim), nn.ModuleList([MixedOp(dim) for _ in range(cells)]), nn.Linear(dim, 3)
        self.alphas = (1e-3 * torch.randn(cells, 3)).requires_grad_()

    def arch_parameters(self):
        return [self.alphas]

    def forward(self, x):
        h = self.stem(x)
        for cell, weights in zip(self.cells, self.alphas.softmax(-1)):
            h = cell(h, weights)
        return self.classifier(h)


def batch():
    x = torch.randn(32, 6)
    return x, (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 1).long()


torch.manual_seed(0)
model = Network()
w_optim = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=3e-4)
a_optim = torch.optim.Adam(model.arch_parameters(), lr=3e-3, betas=(0.5, 0.999), weight_decay=1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(w_optim, 300, eta_min=1e-3)
for step in range(300):
    if step >= 60:
        x, y = batch()  # validation data
        a_optim.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        a_optim.step()
    x, y = batch()
    loss = nn.functional.cross_entropy(model(x), y)
    w_optim.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    w_optim.step()
    schedule.step()
    if step % 50 == 0:
        print(step, loss.item(), model.alphas.softmax(-1)[0].tolist())
