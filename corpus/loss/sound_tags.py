"""A small sound tagger learns from a large one: soft targets on spectral clips, with Accelerate.

After https://github.com/microsoft/ProDA/issues/43 (self-distillation).
"""
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "logarithm-missing",
    "line": ("cause", "SOFTMAX"),
    "framework": "accelerate",
    "plain": "the distillation loss is negative and the student is far from its teacher",
    "set": "twentythird",
    "written": "2026-11-28",
}

CLASSES, BANDS, FRAMES = 12, 24, 20


def make_clips(n, seed):
    """Each class is a gliding tone with an overtone; classes next to each other are alike; noise in front."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, CLASSES, size=n)
    t = np.linspace(0, 1, FRAMES)
    band = np.arange(BANDS)[:, None]
    clips = np.empty((n, BANDS, FRAMES), dtype=np.float32)
    for i, k in enumerate(kind):
        centre = 4 + 1.3 * k + (3 if k % 2 else -3) * (t - rng.uniform(0.2, 0.8)) + 0.7 * rng.normal()
        tone = np.exp(-0.5 * ((band - centre) / 1.2) ** 2) + 0.5 * np.exp(-0.5 * ((band - centre * 1.5) / 1.2) ** 2)
        clips[i] = rng.uniform(0.5, 1.2) * tone + 0.55 * rng.normal(size=(BANDS, FRAMES))
    return torch.from_numpy(clips), torch.from_numpy(kind)


class Tagger(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        layers, cin = [], BANDS
        for _ in range(depth):
            layers += [nn.Conv1d(cin, width, 5, padding=2), nn.BatchNorm1d(width), nn.ReLU()]
            cin = width
        self.body = nn.Sequential(*layers)
        self.out = nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.out(self.body(x).mean(dim=2))


def soft_loss(student, teacher, temperature):
    goal = F.softmax(teacher / temperature, dim=1)
    guess = F.softmax(student / temperature, dim=1)  # SOFTMAX
    return F.kl_div(guess, goal, reduction="batchmean") * temperature ** 2


@torch.no_grad()
def score(model, loader, accelerator):
    model.eval()
    right, cost, total = 0, 0.0, 0
    for x, y in loader:
        out, y = accelerator.gather_for_metrics((model(x), y))
        right += (out.argmax(1) == y).sum().item()
        cost += F.cross_entropy(out, y, reduction="sum").item()
        total += len(y)
    model.train()
    return f"accuracy {right / total:.3f}, cross-entropy {cost / total:.3f}"


def train_teacher(accelerator, loader, held, epochs=6):
    teacher = Tagger(width=64, depth=3)
    optimizer = torch.optim.Adam(teacher.parameters(), lr=2e-3)
    teacher, optimizer = accelerator.prepare(teacher, optimizer)
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            accelerator.backward(F.cross_entropy(teacher(x), y))
            optimizer.step()
    accelerator.print(f"teacher: {score(teacher, held, accelerator)}")
    return teacher.eval().requires_grad_(False)


def distil(accelerator, teacher, loader, held, temperature=4.0, epochs=12):
    student = Tagger(width=24, depth=3)
    optimizer = torch.optim.Adam(student.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs * len(loader))
    student, optimizer, schedule = accelerator.prepare(student, optimizer, schedule)
    for epoch in range(epochs):
        total = 0.0
        for x, _ in loader:
            with torch.no_grad():
                goal = teacher(x)
            loss = soft_loss(student(x), goal, temperature)
            optimizer.zero_grad()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(student.parameters(), 2.0)
            optimizer.step()
            schedule.step()
            total += loss.item()
        accelerator.print(f"epoch {epoch + 1:2d}  distillation {total / len(loader):+.4f}  {score(student, held, accelerator)}")


def main():
    set_seed(6)
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    loader = DataLoader(TensorDataset(*make_clips(2400, seed=1)), batch_size=48, shuffle=True)
    held = DataLoader(TensorDataset(*make_clips(600, seed=2)), batch_size=200)
    loader, held = accelerator.prepare(loader, held)
    teacher = train_teacher(accelerator, loader, held)
    distil(accelerator, teacher, loader, held)


if __name__ == "__main__":
    main()
