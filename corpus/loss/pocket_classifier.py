"""F.kl_div is given the student's probabilities instead of log-probabilities, so the loss is no divergence (it is
negative and smallest for a one-hot student): the student learns slowly and its probabilities are badly wrong.

Report: AberHu/Knowledge-Distillation-Zoo#12, microsoft/ProDA#20 and #43: softmax instead of log_softmax in kl_div,
negative loss
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "kind": "logarithm-missing",
    "line": ("cause", "HERE"),
    "plain": "After 500 steps student accuracy 0.845, nll 3.52, loss -38.6; with log_softmax 0.962, nll 0.29, loss 0.14.",
    "set": "twentyseventh",
    "written": "2026-11-29",
}


torch.manual_seed(13)


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(),
            nn.Conv2d(24, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        )
        self.fc = nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(512, 10))

    def forward(self, x):
        return self.fc(self.conv(x))


class Student(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def forward(self, x):
        return self.net(x)


def digits():
    d = load_digits()
    x = torch.tensor(d.images, dtype=torch.float32)[:, None] / 8 - 1
    y = torch.tensor(d.target)
    p = torch.randperm(len(x))
    return x[p[:1300]], y[p[:1300]], x[p[1300:]], y[p[1300:]]


def fit_teacher(x, y, steps=150):
    net = Teacher()
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-3)
    for _ in range(steps):
        idx = torch.randint(0, len(x), (64,))
        loss = F.cross_entropy(net(x[idx]), y[idx], label_smoothing=0.1)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return net.eval().requires_grad_(False)


class Distiller:
    def __init__(self, teacher, student, temperature=4.0, lr=3e-3):
        self.teacher, self.student, self.t = teacher, student, temperature
        self.opt = torch.optim.Adam(student.parameters(), lr=lr)

    def loss(self, s_logits, t_logits):
        s = F.softmax(s_logits / self.t, dim=-1)  # HERE
        t = F.softmax(t_logits / self.t, dim=-1)
        return F.kl_div(s, t, reduction="batchmean") * self.t ** 2

    def step(self, x):
        with torch.no_grad():
            t_logits = self.teacher(x)
        loss = self.loss(self.student(x), t_logits)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


@torch.no_grad()
def report(net, x, y):
    logits = net(x)
    return (logits.argmax(1) == y).float().mean().item(), F.cross_entropy(logits, y).item()


def main():
    x, y, vx, vy = digits()
    teacher = fit_teacher(x, y)
    print("teacher acc %.3f nll %.3f" % report(teacher, vx, vy))
    d = Distiller(teacher, Student())
    for step in range(500):
        idx = torch.randint(0, len(x), (64,))
        xb = x[idx] + 0.2 * torch.randn(64, 1, 8, 8)
        loss = d.step(xb)
        if (step + 1) % 100 == 0:
            acc, nll = report(d.student, vx, vy)
            print(f"step {step + 1} loss {loss:.3f} student acc {acc:.3f} nll {nll:.3f}")


if __name__ == "__main__":
    main()
