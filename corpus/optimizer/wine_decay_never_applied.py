"""Wine cultivars. The trainer makes a step decay in its constructor, and its loop steps the optimizer only: the rate
stays at its first, large value."""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_wine
from torch import nn

EXPECT = {
    "class": "scheduler never stepped",
    "kind": "schedule-never-stepped",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}


class Trainer:
    def __init__(self, net, rate):
        self.net = net
        self.optim = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
        self.decay = torch.optim.lr_scheduler.MultiStepLR(self.optim, [10, 20], gamma=0.2)  # <-- cause

    def epoch(self, x, y):
        total = 0.0
        for rows in torch.randperm(len(x)).split(24):
            loss = F.cross_entropy(self.net(x[rows]), y[rows])
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()
            total += loss.item()
        return total


torch.manual_seed(0)
torch.set_num_threads(1)
x, y = (torch.tensor(part) for part in load_wine(return_X_y=True))
x = ((x - x.mean(0)) / x.std(0)).float()
trainer = Trainer(nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 3)), 0.2)
for number in range(30):
    total = trainer.epoch(x, y)
    if number % 10 == 9:
        print(f"epoch {number + 1}  loss {total:.4f}")
