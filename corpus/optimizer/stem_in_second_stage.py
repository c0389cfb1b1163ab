"""Wine in two stages: first all layers learn, then the stem is frozen and put into eval mode, and only the head goes on.
In the middle of the second stage the learning is resumed after a report, with train() for the whole network."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_wine

EXPECT = {
    "class": "a frozen part is put into training mode", "framework": "plain", "kind": "frozen-in-training-mode",
    "line": ("cause", "CAUSE"),
    "what": "net.train() after the report also switches the frozen stem, whose BatchNorm was to keep its statistics.",
    "set": "ledger", "written": "2026-11-27",
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.ModuleList([nn.Linear(13, 32), nn.BatchNorm1d(32), nn.Linear(32, 32), nn.BatchNorm1d(32)])
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        first, one, second, two = self.stem
        return self.head(torch.relu(two(second(torch.relu(one(first(x)))))))


class Session:
    def __init__(self):
        torch.manual_seed(9)
        x, y = load_wine(return_X_y=True)
        x = torch.tensor(x, dtype=torch.float32)
        self.x, self.y = (x - x.mean(0)) / x.std(0), torch.tensor(y)
        self.net = Net()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=2e-3)

    def learn(self, steps, rows):
        for _ in range(steps):
            batch = rows[torch.randint(0, len(rows), (24,))]
            loss = F.cross_entropy(self.net(self.x[batch]), self.y[batch])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def report(self):
        self.net.eval()
        with torch.no_grad():
            print(f"accuracy {(self.net(self.x).argmax(1) == self.y).float().mean():.3f}")
        self.net.train()  # CAUSE

    def freeze(self):
        for layer in self.net.stem:
            layer.requires_grad_(False)
            layer.eval()
        self.optimizer = torch.optim.AdamW(self.net.head.parameters(), lr=2e-3)


session = Session()
everything = torch.arange(len(session.y))
session.learn(200, everything)
session.report()
session.freeze()
session.learn(60, everything)
session.report()
session.learn(140, everything[session.y == 1])
session.report()
