"""Iris with a linear decay that was written for 20 epochs. The scheduler was moved into the loop over batches together
with the logging, and so the learning rate reaches zero after two epochs."""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_iris
from torch import nn

EXPECT = {
    "class": "scheduler stepped per batch",
    "kind": "learning-rate-zero",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(0)
torch.set_num_threads(1)
EPOCHS = 20

x, y = (torch.tensor(part) for part in load_iris(return_X_y=True))
x = x.float()
model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
schedule = torch.optim.lr_scheduler.LinearLR(  # <-- cause
    optimizer, start_factor=1.0, end_factor=0.0, total_iters=EPOCHS
)

for epoch in range(EPOCHS):
    total = 0.0
    for rows in torch.randperm(150).split(15):
        loss = F.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.item()
    print(f"epoch {epoch}  loss {total / 10:.4f}")
