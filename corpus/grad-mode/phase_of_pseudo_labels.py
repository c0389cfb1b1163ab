"""Transfer learning loop with phases: after some epochs a phase with pseudo-labels joins, its name is not "train", and the switch for gradients compares with that.

Report: https://github.com/Lightning-AI/pytorch-lightning/issues/18222 (element 0 of tensors does not require grad, gradients are off where training runs), switch as in the transfer learning tutorial
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "grad-mode", "kind": "grad-mode-disabled", "cut_marker": "CUT", "step": 80,
    "set": "fifth", "written": "2026-11-22",
}

torch.manual_seed(0)
x = torch.randn(320, 8)
y = (x[:, 0] * x[:, 1] > 0).long()
sets = {"train": TensorDataset(x[:160], y[:160]), "val": TensorDataset(x[160:200], y[160:200]), "pseudo": TensorDataset(x[200:], y[200:])}
loaders = {name: DataLoader(data, batch_size=16, shuffle=name != "val") for name, data in sets.items()}
model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)
best_acc, steps = 0.0, 0
for epoch in range(12):
    phases = ["train", "val"] if epoch < 7 else ["train", "pseudo", "val"]
    for phase in phases:
        if phase == "val":
            model.eval()
        else:
            model.train()
        running_loss, corrects = 0.0, 0
        for inputs, labels in loaders[phase]:
            optimizer.zero_grad()
            with torch.set_grad_enabled(phase == "train"):  # CUT
                outputs = model(inputs)
                if phase == "pseudo":
                    labels = outputs.detach().argmax(1)
                loss = criterion(outputs, labels)
            if phase != "val":
                loss.backward()
                optimizer.step()
                steps += 1
            running_loss += loss.item() * len(inputs)
            corrects += (outputs.argmax(1) == labels).sum().item()
        if phase == "train":
            scheduler.step()
        size = len(sets[phase])
        print(epoch, steps, phase, round(running_loss / size, 4), corrects / size)
        if phase == "val":
            best_acc = max(best_acc, corrects / size)
print("best", best_acc)
