"""Magnitude pruning after five epochs, then fine-tuning to win the lost accuracy back. The fine-tuning hardly helps and
the sparse weights stay exactly as they were cut, because pruning replaced the Parameter objects and the optimizer still
holds the old ones."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

EXPECT = {
    "class": "parameter replaced after the optimizer was made",
    "kind": "parameter-not-in-optimizer",
    "line": ["replaced", "cause"],
    "what": "prune_ puts new Parameter objects into the layers (from step 110 on), the optimizer still updates the old tensors, so the pruned weights get gradients but never move.",
    "symptom": "no error; accuracy drops at pruning and recovers only by the biases",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(2)
torch.set_num_threads(1)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 10))

    def forward(self, x):
        return self.body(x)


def prune_(model, amount):
    """Set the smallest share `amount` of each weight matrix to zero; returns the masks."""
    masks = {}
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear):
            weight = layer.weight.detach()
            k = int(amount * weight.numel())
            threshold = weight.abs().flatten().kthvalue(k).values
            mask = (weight.abs() > threshold).float()
            layer.weight = nn.Parameter(weight * mask)  # <-- cause
            masks[name] = mask
    return masks


def apply_masks(model, masks):
    with torch.no_grad():
        for name, layer in model.named_modules():
            if name in masks:
                layer.weight.mul_(masks[name])


def evaluate(model, x, y):
    model.eval()
    with torch.no_grad():
        acc = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return acc


digits = load_digits()
xtr, xte, ytr, yte = train_test_split(
    torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target), test_size=400, random_state=0)

model = Classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
masks = {}
step = 0
for epoch in range(12):
    if epoch == 5:
        masks = prune_(model, 0.85)
        print(f"-- pruned at step {step}: accuracy {evaluate(model, xte, yte):.3f}")
    order = torch.randperm(len(xtr))
    total = 0.0
    for i in range(0, len(xtr), 64):
        idx = order[i:i + 64]
        loss = F.cross_entropy(model(xtr[idx]), ytr[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        apply_masks(model, masks)
        total += loss.item() * len(idx)
        step += 1
    print(f"epoch {epoch:2d}  step {step:3d}  loss {total / len(xtr):.4f}  test acc {evaluate(model, xte, yte):.3f}")
