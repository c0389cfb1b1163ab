"""Distillation from a teacher that was trained first. The teacher's weights are frozen, but nobody calls eval(): its
BatchNorm layers take over the statistics of the noisy pictures that the student is trained on."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "BatchNorm buffers of a frozen model change",
    "kind": "frozen-buffer-changes",
    "line": ["cause", "cause"],
    "what": "The frozen teacher stays in train mode during distillation; its running statistics follow the augmented data.",
    "symptom": "no error; the accuracy of the teacher falls although its weights do not change",
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(1)
torch.set_num_threads(1)
digits = load_digits()
x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)


def network(width):
    return nn.Sequential(nn.Linear(64, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 10))


def accuracy(model):
    was = model.training
    model.eval()
    with torch.no_grad():
        found = (model(x).argmax(1) == y).float().mean().item()
    model.train(was)
    return found


teacher, student = network(96), network(16)
optimizer = torch.optim.Adam(teacher.parameters(), lr=3e-3)
for step in range(150):
    rows = torch.randint(0, len(x), (64,))
    loss = F.cross_entropy(teacher(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"teacher {accuracy(teacher):.3f}")
for p in teacher.parameters():
    p.requires_grad = False  # <-- cause
optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)
for step in range(250):
    rows = torch.randint(0, len(x), (64,))
    noisy = x[rows] * 2.5 + torch.rand(64, 64)
    with torch.no_grad():
        target = teacher(noisy).softmax(1)
    loss = F.kl_div(student(noisy).log_softmax(1), target, reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"teacher {accuracy(teacher):.3f}  student {accuracy(student):.3f}")
