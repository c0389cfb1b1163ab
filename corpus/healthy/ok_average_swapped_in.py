"""Healthy: weights are averaged in the last third at a cyclic rate that touches zero; for evaluation the average is loaded into the model in place and the trained weights are put back.

Report it resembles: https://github.com/timgaripov/swa/issues/15 (does an evaluation of the average in mid-training spoil the running statistics)
"""
import copy

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, update_bn

EXPECT = {"class": "healthy", "kind": "none", "set": "fifth", "written": "2026-11-22"}

torch.manual_seed(0)
data = [(x, (x[:, :2].prod(1) > 0).long()) for x in torch.randn(12, 24, 8)]
held_out = torch.randn(64, 8)
model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))
average = AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
cycle = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=24)


def evaluate():
    trained = copy.deepcopy(model.state_dict())
    if average.n_averaged > 0:
        model.load_state_dict(average.module.state_dict())
        update_bn(data, model)
    model.eval()
    with torch.no_grad():
        right = (model(held_out).argmax(1) == (held_out[:, :2].prod(1) > 0)).float().mean().item()
    model.load_state_dict(trained)
    model.train()
    return right


step = 0
for epoch in range(24):
    for x, y in data:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        cycle.step()
        step += 1
    if epoch >= 16 and epoch % 2 == 1:
        average.update_parameters(model)
    if epoch % 4 == 3:
        print(epoch, step, loss.item(), evaluate())
