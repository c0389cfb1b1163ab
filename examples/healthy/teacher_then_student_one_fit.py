"""Healthy: one function that trains a teacher, then a student."""

import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {"kind": None}
torch.manual_seed(0)


def fit(model, loss_of, steps):
    opt = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        x = torch.randn(8, 4)
        loss = loss_of(model, x)
        opt.zero_grad()
        loss.backward()
        opt.step()


teacher, student = nn.Linear(4, 2), nn.Linear(4, 2)
fit(teacher, lambda m, x: F.cross_entropy(m(x), (x[:, 0] > 0).long()), 30)


def distil(m, x):
    with torch.no_grad():
        t = teacher(x).softmax(1)
    return F.kl_div(F.log_softmax(m(x), 1), t, reduction="batchmean")


fit(student, distil, 30)
