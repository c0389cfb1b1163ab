"""Healthy: adversarial domain adaptation; an own Function turns the gradient round on purpose, with a weight that is zero in the beginning.

Report it resembles: https://github.com/fungtion/DANN/issues/3 (what ReverseLayerF does to which gradients)
"""
import math

import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "fifth", "written": "2026-11-22"}


class ReverseLayerF(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return -ctx.alpha * grad_output, None


class DANN(nn.Module):
    def __init__(self, inputs=10, dim=16, classes=3):
        super().__init__()
        self.feature = nn.Sequential(nn.Linear(inputs, dim), nn.BatchNorm1d(dim), nn.ReLU(), nn.Linear(dim, dim), nn.ReLU())
        self.class_classifier = nn.Linear(dim, classes)
        self.domain_classifier = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 2))

    def forward(self, x, alpha):
        feature = self.feature(x)
        return self.class_classifier(feature), self.domain_classifier(ReverseLayerF.apply(feature, alpha))


torch.manual_seed(0)
net = DANN()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
total = 300
for step in range(total):
    alpha = 2.0 / (1.0 + math.exp(-10 * step / total)) - 1
    source, target = torch.randn(16, 10), torch.randn(16, 10) + 0.8
    label = source[:, :3].argmax(1)
    class_out, source_domain = net(source, alpha)
    _, target_domain = net(target, alpha)
    err_label = nn.functional.cross_entropy(class_out, label)
    err_domain = nn.functional.cross_entropy(source_domain, torch.zeros(16).long()) + nn.functional.cross_entropy(target_domain, torch.ones(16).long())
    loss = err_label + 0.3 * err_domain
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, round(alpha, 3), err_label.item(), err_domain.item())
