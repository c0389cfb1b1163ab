"""A backbone trained on task A is frozen (requires_grad off, not in the optimizer) and a second head is trained on
inverted pictures. Afterwards the untouched head A has lost most of its accuracy although no weight of it or of the
backbone has moved: net.train() lets the frozen BatchNorm layers take over the running statistics of the new data."""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "BatchNorm buffers of a frozen backbone change",
    "kind": "frozen-buffer-changes",
    "line": ["cause", "cause"],
    "what": "The backbone's parameters are frozen but its BatchNorm layers stay in train mode (net.train()), so running_mean and running_var drift to the new domain and the old task breaks.",
    "symptom": "no error; accuracy of head A falls although no parameter changed",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(7)
torch.set_num_threads(1)


class TwoHeadNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(),
            nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU())
        self.head_a = nn.Linear(32, 10)
        self.head_b = nn.Linear(32, 2)

    def forward(self, x, task):
        h = self.backbone(x)
        return self.head_a(h) if task == "a" else self.head_b(h)


def accuracy(net, x, y, task):
    net.eval()
    with torch.no_grad():
        return (net(x, task).argmax(1) == y).float().mean().item()


def batches(x, y, size=64):
    order = torch.randperm(len(x))
    for i in range(0, len(x) - size + 1, size):
        yield x[order[i:i + size]], y[order[i:i + size]]


digits = load_digits()
xa = torch.tensor(digits.data, dtype=torch.float32) / 16
ya = torch.tensor(digits.target)
xb, yb = 2.0 * (1 - xa), (ya >= 5).long()

net = TwoHeadNet()
opt_a = torch.optim.Adam([*net.backbone.parameters(), *net.head_a.parameters()], lr=5e-3)
for epoch in range(4):
    net.train()
    for x, y in batches(xa, ya):
        opt_a.zero_grad()
        F.cross_entropy(net(x, "a"), y).backward()
        opt_a.step()
print(f"task A after pretraining: {accuracy(net, xa, ya, 'a'):.3f}")

for p in net.backbone.parameters():
    p.requires_grad_(False)
for p in net.head_a.parameters():
    p.requires_grad_(False)
before = copy.deepcopy(dict(net.backbone.named_parameters()))
opt_b = torch.optim.Adam(net.head_b.parameters(), lr=5e-3)
for epoch in range(5):
    net.train()  # <-- cause
    total = 0.0
    for x, y in batches(xb, yb):
        loss = F.cross_entropy(net(x, "b"), y)
        opt_b.zero_grad()
        loss.backward()
        opt_b.step()
        total += loss.item() / 28
    print(f"task B epoch {epoch}  loss {total:.4f}  acc B {accuracy(net, xb, yb, 'b'):.3f}"
          f"  acc A {accuracy(net, xa, ya, 'a'):.3f}")
same = all(torch.equal(p, before[n]) for n, p in net.backbone.named_parameters())
print("backbone parameters unchanged:", same)
