"""Three averages of one model, all right: one copies the buffers too, one is put through update_bn before it is evaluated,
and one only stores weights, which are loaded into the model for evaluation."""
import copy

import torch
import torch.nn as nn
from torch.optim.swa_utils import AveragedModel, update_bn

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(6)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(5, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 1))
with_buffers, store = copy.deepcopy(model).eval(), copy.deepcopy(model)
averaged = AveragedModel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
batches = [3 + torch.randn(64, 5) for _ in range(24)]


@torch.no_grad()
def follow(target, buffers):
    for mine, new in zip(target.parameters(), model.parameters()):
        mine.lerp_(new, 0.05)
    for mine, new in zip(target.buffers(), model.buffers()) if buffers else ():
        mine.copy_(new)


@torch.no_grad()
def error(net):
    net.eval()
    return (net(batches[0]) - batches[0].sum(1, keepdim=True)).square().mean().item()


for epoch in range(6):
    model.train()
    for x in batches:
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        follow(with_buffers, True)
        follow(store, False)
        averaged.update_parameters(model)
    kept = [p.detach().clone() for p in model.parameters()]
    with torch.no_grad():
        for p, other in zip(model.parameters(), store.parameters()):
            p.copy_(other)
    stored = error(model)
    with torch.no_grad():
        for p, other in zip(model.parameters(), kept):
            p.copy_(other)
update_bn(batches, averaged)
print(f"with buffers {error(with_buffers):.2f}  averaged {error(averaged):.2f}  stored {stored:.2f}")
