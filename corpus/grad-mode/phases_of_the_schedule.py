"""Digits with a loop over phases after the tutorial on transfer learning: gradients are on where the phase is called "train"; the plan continues with a phase of another name, which is trained as well.

Report: https://github.com/davidmascharka/tbd-nets/issues/8 (train_epoch stops in backward: element 0 of tensors does not require grad, gradients were switched off in the notebook)
"""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "grad-mode", "kind": "grad-mode-disabled", "cut_marker": "CUT", "step": 50,
    "set": "tenth", "written": "2026-11-23",
}


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(width, width, 3, padding=1), nn.ReLU())
        self.fc = nn.Linear(16 * width, 10)

    def forward(self, x):
        return self.fc(self.features(x).flatten(1))


class Plan:
    """Phases in order: name, whether it changes the weights, rate and how many batches."""

    def __init__(self):
        self.phases = [("train", True, 3e-3, 25), ("val", False, None, 5), ("train", True, 3e-3, 25), ("val", False, None, 5), ("finetune", True, 3e-4, 25), ("val", False, None, 5)]

    def __iter__(self):
        return iter(self.phases)


torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, torch.tensor(digits.target)
parts = {True: torch.arange(1500), False: torch.arange(1500, len(labels))}
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
step = 0
for phase, updates, rate, batches in Plan():
    net.train(updates)
    if updates:
        optimizer.param_groups[0]["lr"] = rate
    total = right = 0
    for _ in range(batches):
        pick = parts[updates][torch.randint(0, len(parts[updates]), (48,))]
        with torch.set_grad_enabled(phase == "train"):  # CUT
            logits = net(images[pick])
            loss = F.cross_entropy(logits, labels[pick])
        if updates:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
        total, right = total + len(pick), right + (logits.argmax(1) == labels[pick]).sum().item()
    print(step, phase, right / total)
