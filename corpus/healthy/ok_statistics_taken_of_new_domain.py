"""Adaptation to a new domain by its statistics alone (AdaBN): all weights are frozen and BatchNorm takes the running
statistics of the new data under no_grad. Then a new head is trained on top of the backbone in eval mode."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(8)
torch.set_num_threads(1)
digits = load_digits()
x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
backbone = nn.Sequential(nn.Linear(64, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 32), nn.BatchNorm1d(32), nn.ReLU())
head = nn.Linear(32, 10)


def train(body, top, inputs, steps, parameters):
    optimizer = torch.optim.Adam(parameters, lr=3e-3)
    for step in range(steps):
        rows = torch.randint(0, len(inputs), (64,))
        loss = F.cross_entropy(top(body(inputs[rows])), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


first = train(backbone, head, x, 80, [*backbone.parameters(), *head.parameters()])
inverted = 2 * (1 - x)
for p in backbone.parameters():
    p.requires_grad_(False)
backbone.train()
with torch.no_grad():
    for begin in range(0, 1024, 64):
        backbone(inverted[begin:begin + 64])
backbone.eval()
new_head = nn.Linear(32, 10)
second = train(backbone, new_head, inverted, 80, new_head.parameters())
print(f"loss {first:.3f} before, {second:.3f} on the new domain")
