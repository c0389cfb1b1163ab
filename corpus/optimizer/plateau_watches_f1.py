"""Tumour classification with early evaluation. The scheduler waits for its metric to fall, and is given the F1 score,
which rises: it cuts the rate after every other evaluation."""
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import f1_score
from torch import nn

EXPECT = {
    "class": "metric of the wrong direction",
    "kind": "plateau-wrong-direction",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(0)
torch.set_num_threads(1)
x, y = (torch.tensor(part) for part in load_breast_cancer(return_X_y=True))
x, y = ((x - x.mean(0)) / x.std(0)).float(), y.float()
order = torch.randperm(len(x))
train, held_out = order[:400], order[400:]
model = nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 1))
nn.init.constant_(model[-1].bias, -1.5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.03)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=3)  # <-- cause

for step in range(160):
    rows = train[torch.randint(0, len(train), (32,))]
    loss = nn.functional.binary_cross_entropy_with_logits(model(x[rows]).squeeze(1), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 4:
        with torch.no_grad():
            predicted = (model(x[held_out]).squeeze(1) > 0).float()
        value = f1_score(y[held_out].numpy(), predicted.numpy())
        plateau.step(value)
        if step % 40 == 39:
            print(f"step {step}  loss {loss.item():.3f}  F1 {value:.3f}  rate {plateau.get_last_lr()[0]:.5f}")
