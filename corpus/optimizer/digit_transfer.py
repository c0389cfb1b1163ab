"""Fine-tunes a classifier on top of a frozen first layer and unfreezes that layer half-way; after that it is meant to train but never moves.

Report: https://github.com/fastai/fastai/issues/2133 (the optimizer needs to be created again after unfreezing, because at creation it only takes the trainable parameters)

Effect: the weights of the stem are exactly what they were before, and the accuracy stops at that of the frozen stem.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "framework": "plain", "kind": "parameter-not-in-optimizer", "line": ("optimizer", "CAUSE"),
    "what": "The optimizer was built only from the parameters that required grad at that time, so the stem that is unfrozen at step 120 is in no parameter group; add it with add_param_group or build the optimizer anew.",
    "set": "eighteenth", "written": "2026-11-27",
}


class Net(nn.Module):
    def __init__(self, basis):
        super().__init__()
        self.stem = nn.Linear(64, basis.shape[1])
        with torch.no_grad():
            self.stem.weight.copy_(basis.T)
            self.stem.bias.zero_()
        self.head = nn.Linear(basis.shape[1], 10)

    def forward(self, x):
        return self.head(torch.relu(self.stem(x)))


def set_trainable(module, flag):
    for p in module.parameters():
        p.requires_grad = flag


def main():
    torch.manual_seed(0)
    d = load_digits()
    x = torch.tensor(d.data / 16.0, dtype=torch.float32)
    x = x - x.mean(0)
    y = torch.tensor(d.target)
    perm = torch.randperm(len(x))
    x, y = x[perm], y[perm]
    _, _, basis = torch.pca_lowrank(x[:1300], q=8)
    model = Net(basis)
    set_trainable(model.stem, False)
    optimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=1e-2)  # CAUSE
    before = model.stem.weight.detach().clone()
    for step in range(360):
        if step == 120:
            set_trainable(model.stem, True)  # OTHER
            print("stem unfrozen")
        idx = torch.randint(0, 1300, (64,))
        loss = F.cross_entropy(model(x[idx]), y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 60 == 0:
            with torch.no_grad():
                acc = (model(x[1300:]).argmax(1) == y[1300:]).float().mean().item()
            moved = (model.stem.weight - before).abs().max().item()
            print(f"step {step + 1} loss {loss.item():.3f} test acc {acc:.3f} stem moved {moved:.5f}")


main()
