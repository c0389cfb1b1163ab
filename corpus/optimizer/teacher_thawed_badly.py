"""Digits in two phases: after 60 steps the stem is meant to be frozen again, with a name that PyTorch does not know."""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "freeze-without-effect", "framework": "plain", "kind": "freeze-without-effect", "line": ("cause", "FREEZES"),
    "set": "ledger", "written": "2026-11-27",
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(64, 48), nn.ReLU())
        self.head = nn.Linear(48, 10)

    def forward(self, x):
        return self.head(self.stem(x))


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        digits = load_digits()
        self.x, self.y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
        self.net = Net()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)

    def set_stem(self, trains):
        for weight in self.net.stem.parameters():
            if trains:
                weight.requires_grad = True
            else:
                weight.require_grad = False  # FREEZES

    def fit(self, steps):
        for _ in range(steps):
            batch = torch.randint(0, len(self.x), (32,))
            loss = F.cross_entropy(self.net(self.x[batch]), self.y[batch])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        print(loss.item())


trainer = Trainer()
trainer.set_stem(True)
trainer.fit(60)
trainer.set_stem(False)
trainer.fit(120)
