"""Wine cultivars by a helper that builds an MLP: each Linear gets its activation, the last one too."""
import torch
import torch.nn as nn
from sklearn.datasets import load_wine

EXPECT = {
    "class": "ReLU before cross entropy",
    "kind": "logits-never-negative",
    "line": ["cause", "cause"],
    "module": "5",
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(0)
torch.set_num_threads(1)
data = load_wine()
x = torch.tensor(data.data, dtype=torch.float32)
x = (x - x.mean(0)) / x.std(0)
y = torch.tensor(data.target)


def mlp(*widths):
    layers = []
    for a, b in zip(widths, widths[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers)


model = mlp(13, 32, 16, 3)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for epoch in range(20):
    for rows in torch.randperm(len(x)).split(32):
        scores = model(x[rows])  # <-- cause
        loss = criterion(scores, y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
