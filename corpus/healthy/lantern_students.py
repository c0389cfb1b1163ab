"""Distillation from a frozen teacher with accumulation, tied weights, and an averaged copy."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": None,
    "set": "twentyninth",
    "written": "2026-11-29",
}



def slides():
    data = load_digits()
    x = torch.tensor(data.data, dtype=torch.float32) / 16.0
    y = torch.tensor(data.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(2))
    x, y = x[order], y[order]
    return (x[:1000], y[:1000]), (x[1000:1300], y[1000:1300]), (x[1300:], y[1300:])


class Teacher(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(64, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3),
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3),
            nn.Linear(width, 10),
        )

    def forward(self, x):
        return self.net(x)


class Student(nn.Module):
    """Two layers that share one weight matrix, and a narrow head."""

    def __init__(self, width=24):
        super().__init__()
        self.inp = nn.Linear(64, width)
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.second.weight = self.first.weight
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        h = F.gelu(self.inp(x))
        h = h + F.gelu(self.first(h))
        h = h + F.gelu(self.second(h))
        return self.head(h)


def train_teacher(x, y, epochs=12):
    teacher = Teacher()
    opt = torch.optim.AdamW(teacher.parameters(), lr=2e-3, weight_decay=1e-2)
    for _ in range(epochs):
        perm = torch.randperm(len(x))
        for i in range(0, len(x), 50):
            idx = perm[i : i + 50]
            loss = F.cross_entropy(teacher(x[idx]), y[idx], label_smoothing=0.05)
            opt.zero_grad()
            loss.backward()
            opt.step()
    return teacher.requires_grad_(False).eval()


@torch.no_grad()
def accuracy(model, x, y):
    was = model.training
    model.eval()
    acc = (model(x).argmax(1) == y).float().mean().item()
    model.train(was)
    return acc


@torch.no_grad()
def follow(slow, fast, rate):
    for s, f in zip(slow.parameters(), fast.parameters()):
        s.lerp_(f, 1 - rate)


def main():
    torch.manual_seed(1)
    (x, y), (fx, fy), (tx, ty) = slides()
    teacher = train_teacher(x, y)
    print(f"teacher accuracy {accuracy(teacher, tx, ty):.3f}")
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    student = Student()
    slow = copy.deepcopy(student).requires_grad_(False)
    # half of the labels are unknown to the student; the teacher speaks for all slides
    known = torch.arange(len(x) + len(fx)) % 2 == 0
    loader = DataLoader(TensorDataset(torch.cat([x, fx]), torch.cat([y, fy]), known), batch_size=16, shuffle=True)
    opt = torch.optim.AdamW(student.parameters(), lr=6e-3, weight_decay=1e-3)
    epochs, heat = 14, 3.0
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 6e-3, total_steps=epochs * len(loader) // 4 + epochs)
    student, opt, loader, sched = accelerator.prepare(student, opt, loader, sched)
    for epoch in range(epochs):
        total = 0.0
        for a, b, has in loader:
            with accelerator.accumulate(student):
                a = a + 0.05 * torch.randn_like(a)
                with torch.no_grad():
                    soft = F.softmax(teacher(a) / heat, dim=1)
                out = student(a)
                mimic = F.kl_div(F.log_softmax(out / heat, dim=1), soft, reduction="batchmean") * heat**2
                hard = (F.cross_entropy(out, b, reduction="none") * has).sum() / has.sum().clamp(min=1)
                loss = 0.7 * mimic + 0.3 * hard
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(student.parameters(), 2.0)
                opt.step()
                sched.step()
                opt.zero_grad()
            if accelerator.sync_gradients:
                follow(slow, accelerator.unwrap_model(student), 0.95)
            total += loss.item()
        if epoch % 2 == 1:
            print(
                f"epoch {epoch + 1} loss {total / len(loader):.4f} student {accuracy(student, tx, ty):.3f} "
                f"slow copy {accuracy(slow, tx, ty):.3f}"
            )


if __name__ == "__main__":
    main()
