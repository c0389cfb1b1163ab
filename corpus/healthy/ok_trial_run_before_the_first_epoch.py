"""Healthy: a trial run that ends before the first epoch does, so that the schedule of epochs is not stepped yet; and a
last phase with LBFGS after the scheduled one, which has ended."""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}
MAX_STEPS = 90

torch.manual_seed(0)
torch.set_num_threads(1)
images, labels = load_digits(return_X_y=True)
x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.3)


def train():
    steps = 0
    for _ in range(4):
        for rows in torch.randperm(len(x)).split(16):
            loss = F.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            if steps == MAX_STEPS:
                return loss.item()
        schedule.step()


print(f"trial run: loss {train():.3f}")

last = nn.Linear(6, 1)
points = torch.randn(64, 6)
values = points.sum(1, keepdim=True).tanh()
coarse = torch.optim.SGD(last.parameters(), lr=0.1)
decay = torch.optim.lr_scheduler.CosineAnnealingLR(coarse, 60)
for _ in range(60):
    coarse.zero_grad()
    F.mse_loss(last(points), values).backward()
    coarse.step()
    decay.step()
fine = torch.optim.LBFGS(last.parameters(), lr=0.5)


def closure():
    fine.zero_grad()
    loss = F.mse_loss(last(points), values)
    loss.backward()
    return loss


for _ in range(8):
    loss = fine.step(closure)
print(f"last phase: loss {loss.item():.4f}")
