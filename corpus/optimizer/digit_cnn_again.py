"""Trains a CNN on rotated digits with ReduceLROnPlateau on the validation accuracy; the scheduler is in its default "min"
mode, so every improvement counts as a bad epoch and the learning rate is cut again and again while the model is still
learning (the accuracy freezes early; in "max" mode it goes on rising).

Report: https://github.com/md-mohaiminul/ViS4mer/issues/4 (ReduceLROnPlateau assumes a "min" metric by default but is
stepped with accuracy)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "framework": "plain", "kind": "plateau-wrong-direction", "line": ("cause", "CAUSE"),
    "what": "ReduceLROnPlateau runs in mode='min' but is stepped with the accuracy, so rising accuracy cuts the learning rate by ten every few epochs; use mode='max'.",
    "set": "twentysecond", "written": "2026-11-28",
}

torch.manual_seed(4)
digits = load_digits()
X = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
Y = torch.tensor(digits.target)
perm = torch.randperm(len(X))
X, Y = X[perm], Y[perm]
x_train, y_train, x_val, y_val = X[:1408], Y[:1408], X[1408:], Y[1408:]


def augment(x):
    n = x.size(0)
    ang = (torch.rand(n) - 0.5) * 1.2
    shift = (torch.rand(n, 2) - 0.5) * 0.5
    theta = torch.stack([torch.stack([ang.cos(), -ang.sin(), shift[:, 0]], 1),
                         torch.stack([ang.sin(), ang.cos(), shift[:, 1]], 1)], 1)
    return F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), align_corners=False)


class SmallCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 16, 3, padding=1)
        self.c2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.c1(x))
        x = F.max_pool2d(F.relu(self.c2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


model = SmallCNN()
optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=2)  # CAUSE
val_aug = augment(x_val)

for epoch in range(16):
    model.train()
    running = 0.0
    for idx in torch.randperm(len(x_train)).split(64):
        loss = F.cross_entropy(model(augment(x_train[idx])), y_train[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item() * len(idx)
    model.eval()
    with torch.no_grad():
        val_acc = (model(val_aug).argmax(1) == y_val).float().mean().item()
    scheduler.step(val_acc)  # OTHER
    print(f"epoch {epoch:2d} loss {running / len(x_train):.3f} val acc {val_acc:.3f} lr {optimizer.param_groups[0]['lr']:.1e}")
