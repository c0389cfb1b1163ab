"""Trains a small conv net on digits and keeps an averaged copy for evaluation; the averaged copy scores near chance although the trained model is good.

Report: https://github.com/FlyreelAI/sesemi/issues/36 (batch norm statistics are not included in the EMA update and so remain unchanged throughout training)

Effect: accuracy of the averaged model is far below the accuracy of the model itself.
"""
import copy
import torch
from torch import nn
from sklearn.datasets import load_digits

EXPECT = {
    "framework": "plain", "kind": "buffers-left-behind", "line": ("cause", "CAUSE"),
    "what": "The EMA update averages only the parameters and leaves out the BatchNorm running statistics, which stay at their initial values in the averaged model; copy the buffers too.",
    "set": "eighteenth", "written": "2026-11-27",
}

torch.manual_seed(3)
digits = load_digits()
images = 40 + 13 * torch.tensor(digits.images, dtype=torch.float32)[:, None]
labels = torch.tensor(digits.target)
order = torch.randperm(len(images))
train_idx, test_idx = order[:1400], order[1400:]


def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU(), nn.MaxPool2d(2))


model = nn.Sequential(block(1, 16), block(16, 32), nn.Flatten(), nn.Linear(32 * 4, 10))
averaged = copy.deepcopy(model).eval()
for p in averaged.parameters():
    p.requires_grad_(False)

optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
criterion = nn.CrossEntropyLoss()
DECAY = 0.97


@torch.no_grad()
def update_average():
    for a, p in zip(averaged.parameters(), model.parameters()):  # CAUSE
        a.mul_(DECAY).add_(p, alpha=1 - DECAY)


@torch.no_grad()
def accuracy(net):
    return (net(images[test_idx]).argmax(1) == labels[test_idx]).float().mean().item()


step = 0
for epoch in range(7):
    model.train()
    for chunk in train_idx[torch.randperm(len(train_idx))].split(64):
        loss = criterion(model(images[chunk]), labels[chunk])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update_average()
        step += 1
    model.eval()
    print(f"epoch {epoch} step {step} loss {loss.item():.3f} model {accuracy(model):.3f} averaged {accuracy(averaged):.3f}")
