"""Exponential moving average of the weights for evaluation. The student reaches 93 %, the averaged copy stays at
less than half of that: the update walks over parameters() only, so the copy's BatchNorm running statistics stay at mean 0 and
variance 1 from the start while its inputs are nowhere near that."""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "EMA copy without buffers",
    "kind": "buffers-left-behind",
    "line": ["cause", "cause"],
    "what": "The EMA update averages the parameters but never copies the buffers, so running_mean/running_var of the EMA model keep their initial values and its evaluation is wrong.",
    "symptom": "no error; EMA accuracy far below the student's",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(8)
torch.set_num_threads(1)


class SmallConv(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.out = nn.Linear(96, 10)

    def forward(self, x):
        return self.out(self.body(x).flatten(1))


class ModelEMA:
    def __init__(self, model, decay=0.95):
        self.model = copy.deepcopy(model).eval()
        self.decay = decay
        for p in self.model.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, student):
        for avg, new in zip(self.model.parameters(), student.parameters()):  # <-- cause
            avg.mul_(self.decay).add_(new, alpha=1 - self.decay)


def accuracy(model, x, y):
    was_training = model.training
    model.eval()
    with torch.no_grad():
        acc = (model(x).argmax(1) == y).float().mean().item()
    model.train(was_training)
    return acc


digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)
labels = torch.tensor(digits.target)
xtr, ytr, xte, yte = images[:1400], labels[:1400], images[1400:], labels[1400:]

student = SmallConv()
ema = ModelEMA(student)
optimizer = torch.optim.Adam(student.parameters(), lr=2e-3)
step = 0
for epoch in range(5):
    order = torch.randperm(len(xtr))
    total = 0.0
    for i in range(0, len(xtr), 50):
        idx = order[i:i + 50]
        loss = F.cross_entropy(student(xtr[idx]), ytr[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(student)
        total += loss.item() / 28
        step += 1
    print(f"epoch {epoch}  step {step}  loss {total:.4f}  student {accuracy(student, xte, yte):.3f}"
          f"  ema {accuracy(ema.model, xte, yte):.3f}")
