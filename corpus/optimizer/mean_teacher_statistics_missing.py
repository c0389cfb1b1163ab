"""Semi-supervised digits with a mean teacher. The teacher is an average of the student's parameters and is called in eval
mode to give targets; its running statistics are those of the moment at which the copy was made, before any training."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "averaged copy without buffers",
    "kind": "buffers-left-behind",
    "line": ["cause", "cause"],
    "what": "The teacher's running_mean and running_var stay at 0 and 1, because only parameters() are averaged.",
    "symptom": "no error; the teacher is far worse than the student and pulls it down",
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(2)
torch.set_num_threads(1)
digits = load_digits()
x, y = torch.tensor(digits.data, dtype=torch.float32), torch.tensor(digits.target)
student = nn.Sequential(nn.Linear(64, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 10))
teacher = copy.deepcopy(student)
for p in teacher.parameters():
    p.requires_grad_(False)
teacher.eval()


def follow(decay=0.97):
    named = dict(student.named_parameters())
    with torch.no_grad():
        for name, p in teacher.named_parameters():  # <-- cause
            p.data.mul_(decay).add_(named[name].data, alpha=1 - decay)


optimizer = torch.optim.Adam(student.parameters(), lr=2e-3)
for step in range(150):
    labelled, others = torch.randint(0, 200, (32,)), torch.randint(200, len(x), (64,))
    with torch.no_grad():
        targets = teacher(x[others]).softmax(1)
    noisy = student(x[others] + torch.randn(64, 64))
    loss = F.cross_entropy(student(x[labelled]), y[labelled]) + 0.1 * F.mse_loss(noisy.softmax(1), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    follow()
student.eval()
with torch.no_grad():
    found = [(net(x).argmax(1) == y).float().mean().item() for net in (student, teacher)]
print(f"student {found[0]:.3f}  teacher {found[1]:.3f}")
