"""A small student learns leaf diseases from the soft answers of a larger teacher, on unlabelled measurements.

The student's loss is negative and its probabilities are much too sure.
Follows https://github.com/microsoft/ProDA/issues/43
"""
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "logarithm-missing",
    "line": ("cause", "HERE"),
    "plain": "the distillation loss is negative; accuracy is fair but the student's log loss on held-out leaves is very bad",
    "set": "twentyfifth",
    "written": "2026-11-28",
}

DISEASES = 6
FEATURES = 20
WARMTH = 2.0


def leaves(n, seed):
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(50).normal(size=(DISEASES, FEATURES)) * 0.55
    y = rng.integers(0, DISEASES, size=n)
    x = centres[y] + rng.normal(size=(n, FEATURES))
    x[:, :4] = np.abs(x[:, :4]) * np.sign(x[:, 4:8])
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


def network(width, dropout):
    return nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), nn.Dropout(dropout),
                         nn.Linear(width, width), nn.ReLU(), nn.Linear(width, DISEASES))


def fit_teacher(x, y):
    teacher = network(128, 0.3)
    opt = torch.optim.AdamW(teacher.parameters(), lr=1e-3, weight_decay=0.05)
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
    for epoch in range(8):
        for bx, by in loader:
            loss = F.cross_entropy(teacher(bx), by)
            opt.zero_grad()
            loss.backward()
            opt.step()
    return teacher.eval().requires_grad_(False)


def distill_loss(student_logits, teacher_logits):
    answer = F.softmax(student_logits / WARMTH, dim=1)
    wanted = F.softmax(teacher_logits / WARMTH, dim=1)
    return F.kl_div(answer, wanted, reduction="batchmean") * WARMTH ** 2  # HERE


@torch.no_grad()
def score(model, x, y):
    model.eval()
    logits = model(x)
    model.train()
    return (logits.argmax(1) == y).float().mean().item(), F.cross_entropy(logits, y).item()


def main():
    torch.manual_seed(6)
    x, y = leaves(3000, 0)
    unlabelled, _ = leaves(6000, 1)
    held_x, held_y = leaves(2000, 2)
    teacher = fit_teacher(x, y)
    good, nll = score(teacher, held_x, held_y)
    teacher.eval()
    print(f"teacher: accuracy {good:.3f} log loss {nll:.3f}")
    student = network(32, 0.0)
    opt = torch.optim.Adam(student.parameters(), lr=3e-3)
    loader = DataLoader(TensorDataset(unlabelled), batch_size=64, shuffle=True)
    for epoch in range(10):
        total = 0.0
        for (bx,) in loader:
            loss = distill_loss(student(bx), teacher(bx))
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        good, nll = score(student, held_x, held_y)
        print(f"epoch {epoch} distill {total / len(loader):.4f} held accuracy {good:.3f} log loss {nll:.3f}")


if __name__ == "__main__":
    main()
