"""A student learns from a teacher whose own loss is added for the log, and from a copy of itself that follows it. The
flood level and the teacher's entropy are constants of the loss."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {"kind": None, "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(1)
torch.set_num_threads(1)


def net(width):
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 3))


teacher, student = net(32), net(8)
follower = copy.deepcopy(student)
optimizer = torch.optim.SGD(student.parameters(), lr=0.05)
for step in range(200):
    x = torch.randn(32, 6)
    y = x[:, :3].argmax(1)
    with torch.no_grad():
        t = teacher(x).softmax(1)
        teacher_loss = F.cross_entropy(teacher(x), y)
        target = follower(x).softmax(1)
    s = student(x).log_softmax(1)
    divergence = (t * t.log()).sum(1).mean() - (t * s).sum(1).mean()
    consistency = F.kl_div(s, target, reduction="batchmean")
    loss = divergence + 0.5 * F.nll_loss(s, y) + 0.1 * consistency + 0.5 * teacher_loss
    loss = (loss - 0.02).abs() + 0.02
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for mine, own in zip(follower.parameters(), student.parameters()):
            mine.lerp_(own, 0.05)
print(f"loss {loss.item():.4f}")
