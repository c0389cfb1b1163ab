"""Distils a digit teacher into a small student; after the first validation the teacher is in training mode and no longer the teacher.
Report: https://github.com/neuralmagic/sparseml/pull/2191 (train() of the wrapper also switches the teacher, fixed by overriding train()) and
https://github.com/Sharpiless/yolov5-distillation-5.0/issues/5 (teacher in train(): the distilled model's mAP is half of the plain one's)
Effect: its targets are built from the statistics of sheets of one digit and from dropout; the student ends at 0.48 (0.90 in the mended copy).
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "framework": "plain", "kind": "frozen-in-training-mode", "line": ("cause", "CAUSE"),
    "what": "train() on the wrapper puts the frozen teacher into training mode too, so its batch norm statistics and dropout change its targets; keep the teacher in eval()",
    "set": "twentieth", "written": "2026-11-27",
}


def fit_teacher(x, y, width=600):
    """Random features with a ridge head: quick to fit and about 97 percent right."""
    features = nn.Sequential(nn.Linear(64, width), nn.BatchNorm1d(width), nn.ReLU())
    with torch.no_grad():
        features[1].momentum = 1.0
        features(x)
        features[1].momentum = 0.1
        features.eval()
        h = torch.cat([features(x), torch.ones(len(x), 1)], dim=1)
        w = torch.linalg.solve(h.T @ h + 5.0 * torch.eye(width + 1), h.T @ (F.one_hot(y, 10).float() * 10 - 1))
        head = nn.Linear(width, 10)
        head.weight.copy_(w[:-1].T)
        head.bias.copy_(w[-1])
    return nn.Sequential(*features, nn.Dropout(0.3), head).requires_grad_(False)


class Distiller(nn.Module):
    def __init__(self, teacher, student, temperature=2.0):
        super().__init__()
        self.teacher = teacher
        self.student = student
        self.temperature = temperature

    def forward(self, x):
        with torch.no_grad():
            target = self.teacher(x)  # OTHER
        t = self.temperature
        return F.kl_div(F.log_softmax(self.student(x) / t, 1), F.softmax(target / t, 1), reduction="batchmean") * t * t


def accuracy(net, x, y):
    with torch.no_grad():
        return (net(x).argmax(1) == y).float().mean().item()


def run():
    torch.manual_seed(30)
    digits = load_digits()
    x = torch.tensor(digits.data / 16.0, dtype=torch.float32)
    y = torch.tensor(digits.target)
    order = torch.randperm(len(x))
    x, y = x[order], y[order]
    test_x, test_y = x[1400:], y[1400:]

    teacher = fit_teacher(x[:700], y[:700])
    student = nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))
    model = Distiller(teacher, student)
    model.teacher.eval()
    optimizer = torch.optim.Adam(model.student.parameters(), lr=5e-3)

    # unlabelled transfer images, scanned sheet by sheet: a sheet holds one digit over and over
    sheets = [x[700:1400][y[700:1400] == d] for d in range(10)]
    for step in range(250):
        picked = [sheets[i] for i in torch.randperm(10)[:4]]
        loss = sum(model(sheet[torch.randint(0, len(sheet), (12,))]) for sheet in picked) / 4
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 50 == 0:
            model.eval()
            print(f"step {step + 1:3d}  kd {loss.item():.3f}  student {accuracy(model.student, test_x, test_y):.3f}"
                  f"  teacher {accuracy(model.teacher, test_x, test_y):.3f}")
            model.train()  # CAUSE


if __name__ == "__main__":
    run()
