"""Teacher-student with an EMA teacher: supervised phase, then feature distillation."""
import copy
import time
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "late-cut", "kind": "none-grad", "cut_marker": "CULPRIT", "step": 150,
    "set": "late_longer", "written": "2026-11-25",
}

torch.manual_seed(6)
ds = load_digits()
X = torch.tensor(ds.data, dtype=torch.float32) / 16.0
Y = torch.tensor(ds.target)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(64, 736), nn.SiLU(), nn.Linear(736, 736), nn.SiLU(), nn.Linear(736, 128))
        self.head = nn.Sequential(nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 10))

    def forward(self, x):
        return self.head(self.encoder(x))


student = Classifier()
teacher = copy.deepcopy(student).requires_grad_(False)
opt = torch.optim.AdamW(student.parameters(), lr=5e-4, weight_decay=0.0)


@torch.no_grad()
def ema_update(decay=0.98):
    for pt, ps in zip(teacher.parameters(), student.parameters()):
        pt.lerp_(ps, 1 - decay)


def weak(x):
    return x + 0.02 * torch.randn_like(x)


def strong(x):
    return x * (torch.rand_like(x) > 0.2) + 0.1 * torch.randn_like(x)


def supervised_loss(x, y):
    return F.cross_entropy(student(weak(x)), y)


def distill_loss(x, y):
    with torch.no_grad():  # CULPRIT
        t_feat = teacher.encoder(weak(x))
        t_prob = teacher.head(t_feat).softmax(-1)
        s_feat = student.encoder(strong(x))
    s_logit = student.head(s_feat)
    soft = F.kl_div(s_logit.log_softmax(-1), t_prob, reduction="batchmean")
    return F.cross_entropy(s_logit, y) + soft + 0.1 * F.mse_loss(s_feat, t_feat)


PHASES = [("supervised", supervised_loss, 150), ("distill", distill_loss, 250)]
step, t0 = 0, time.time()
for name, loss_fn, length in PHASES:
    for _ in range(length):
        idx = torch.randint(0, len(X), (288,))
        loss = loss_fn(X[idx], Y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema_update()
        step += 1
        if step % 50 == 0:
            print(f"{name} step {step} loss {loss.item():.4f} {(time.time() - t0) / step * 1e3:.1f} ms/step")
