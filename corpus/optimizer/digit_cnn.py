"""CNN on 8x8 digits with a plateau scheduler on the validation accuracy; the learning rate is cut while it still improves.

Report: https://github.com/md-mohaiminul/ViS4mer/issues/4 (ReduceLROnPlateau has mode "min" by default but is given the
accuracy), same in https://github.com/FunctionLab/selene/issues/115

The scheduler waits for the accuracy to fall. Each better value counts as a bad epoch, so after the fourth validation
(step 80) the rate is divided by ten, and again later down to 5e-6; the accuracy stops at 0.909 instead of 0.977.
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn, optim

EXPECT = {
    "framework": "plain", "kind": "plateau-wrong-direction", "line": ("cause", "CAUSE"),
    "what": "ReduceLROnPlateau runs in its default mode 'min' but gets the accuracy, so every improvement counts as a plateau and the learning rate is cut to almost nothing; use mode='max' (or pass the loss).",
    "set": "twentieth", "written": "2026-11-27",
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 4, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        out = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return out


torch.manual_seed(2)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
labels = torch.tensor(digits.target)
perm = torch.randperm(len(images))
train_idx, val_idx = perm[:1280], perm[1280:]

model = Net()
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=2)  # CAUSE

step = 0
for epoch in range(15):
    for idx in train_idx[torch.randperm(len(train_idx))].split(64):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images[idx]), labels[idx])
        loss.backward()
        optimizer.step()
        step += 1
    acc = accuracy(model, images[val_idx], labels[val_idx])
    scheduler.step(acc)  # OTHER
    print(f"epoch {epoch} step {step} loss {loss.item():.3f} val accuracy {acc:.3f} lr {optimizer.param_groups[0]['lr']:.1e}")
