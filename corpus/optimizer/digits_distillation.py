"""A small student learns digits from a teacher's soft labels; from the first validation on the teacher itself changes.

Report: https://github.com/vrvlive/knowlege-distillation/issues/2 (eval() is not called on the teacher, so dropout and
BatchNorm work in training mode during distillation).
Effect: after 80 student steps the teacher's dropout is active and its running statistics drift to the augmented images; the
distillation loss jumps from 0.22 to 1.8 and stays there (mended: 0.06), and on test images the student's KL to the teacher's real soft
labels gets worse (0.31, mended 0.09). Step below: 150 teacher steps first.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "framework": "plain", "kind": "frozen-in-training-mode", "line": ("cause", "CAUSE"),
    "what": "distiller.train() after the validation also puts the frozen teacher into train mode: its dropout is on and its BatchNorm statistics are overwritten by the augmented batches; put only the student back (or call teacher.eval() again)",
    "set": "twentyfirst", "written": "2026-11-27",
}


class Distiller(nn.Module):
    def __init__(self, teacher, student, temperature=3.0):
        super().__init__()
        self.teacher, self.student, self.t = teacher, student, temperature
        for p in self.teacher.parameters():
            p.requires_grad_(False)

    def loss(self, x):
        with torch.no_grad():
            soft = F.softmax(self.teacher(x) / self.t, dim=1)
        log_p = F.log_softmax(self.student(x) / self.t, dim=1)
        return F.kl_div(log_p, soft, reduction="batchmean") * self.t ** 2


def block(a, b, p):
    return [nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(), nn.Dropout(p)]


def accuracy(net, x, y):
    with torch.no_grad():
        return (net(x).argmax(1) == y).float().mean().item()


torch.manual_seed(0)
data = load_digits()
X, Y = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
order = torch.randperm(len(X))
X, Y = X[order], Y[order]
x_train, y_train, x_test, y_test = X[:1200], Y[:1200], X[1200:], Y[1200:]

teacher = nn.Sequential(*block(64, 128, 0.5), *block(128, 128, 0.7), nn.Linear(128, 10))
opt_t = torch.optim.Adam(teacher.parameters(), lr=3e-3)
for step in range(150):
    idx = torch.randint(0, 1200, (64,))
    loss = F.cross_entropy(teacher(x_train[idx]), y_train[idx])
    opt_t.zero_grad()
    loss.backward()
    opt_t.step()
teacher.eval()
print("teacher", accuracy(teacher, x_test, y_test))
with torch.no_grad():
    soft_test = F.softmax(teacher(x_test) / 3.0, dim=1)

student = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
distiller = Distiller(teacher, student)
opt = torch.optim.Adam(student.parameters(), lr=3e-3)
for step in range(240):
    idx = torch.randint(0, 1200, (64,))
    x = x_train[idx]
    mask = (torch.rand_like(x) > 0.3).float()
    x = x * mask * (0.2 + 0.5 * torch.rand(64, 1))
    loss = distiller.loss(x)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 80 == 79:
        distiller.eval()
        print(f"step {step} kd {loss.item():.3f} student {accuracy(student, x_test, y_test):.3f} "
              f"teacher {accuracy(teacher, x_test, y_test):.3f}")
        with torch.no_grad():
            gap = F.kl_div(F.log_softmax(student(x_test) / 3.0, dim=1), soft_test, reduction="batchmean")
        print(f"  test KL to the soft labels {gap.item():.4f}")
        distiller.train()  # CAUSE
