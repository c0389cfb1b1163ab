"""evaluate() switches gradients off globally and returns early when the loader is empty, without switching them on."""

import torch
from torch import nn

EXPECT = {"kind": "grad-mode-disabled", "line": ("cut", "CUT")}


def evaluate(model, loader):
    torch.set_grad_enabled(False)  # CUT
    model.eval()
    total, count = 0.0, 0
    for x, y in loader:
        total += nn.functional.mse_loss(model(x), y).item()
        count += 1
    if not count:
        return None
    model.train()
    torch.set_grad_enabled(True)
    return total / count


def fit(model, train, valid, epochs=3):
    opt = torch.optim.Adam(model.parameters())
    for epoch in range(epochs):
        for x, y in train:
            loss = nn.functional.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, evaluate(model, valid))


if __name__ == "__main__":
    torch.manual_seed(0)
    data = [(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(3)]
    fit(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)), data, [])
