"""The optimizer is built from the parameters that require a gradient while the body is frozen; unfreezing it at step
200 gives it gradients but no parameter group, so it never moves.

Report: fastai/fastai issue 2133 and skorch-dev/skorch issue 261 (optimizer holds only what was trainable when it was
built)
"""

import copy

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {
    "kind": "parameter-not-in-optimizer",
    "line": ("optimizer", "HERE"),
    "plain": "with: held out 0.56 after 700 steps, body unchanged after step 200; mended (all parameters given to the optimizer): 0.90",
    "set": "twentyeighth",
    "written": "2026-11-29",
}



class RindNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(64, 12), nn.Tanh(),
        )
        self.head = nn.Linear(12, classes)

    def forward(self, x):
        return self.head(self.body(x))


def batches(x, y, size, steps, seed):
    g = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        pick = torch.randint(len(x), (size,), generator=g)
        yield x[pick], y[pick]


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x).argmax(1) == y).float().mean().item()


def pretrain(x, y, steps=200):
    model = RindNet(2)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for xb, yb in batches(x, y, 64, steps, seed=1):
        loss = F.cross_entropy(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return model


def adapt(source, train, held, steps=700, thaw_at=200):
    model = RindNet(10)
    model.body = copy.deepcopy(source.body)
    for p in model.body.parameters():
        p.requires_grad_(False)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=4e-3)  # HERE
    for step, (xb, yb) in enumerate(batches(*train, 64, steps, seed=2)):
        if step == thaw_at:
            for p in model.body.parameters():
                p.requires_grad_(True)
            for group in opt.param_groups:
                group["lr"] = 2e-3
        loss = F.cross_entropy(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 100 == 99:
            print(f"step {step + 1:4d}  loss {loss.item():.4f}  held out {accuracy(model, *held):.3f}")
    return model


def main():
    torch.manual_seed(4)
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    y = torch.tensor(digits.target)
    rough = (y >= 5).long()
    source = pretrain(x[:800], rough[:800])
    print(f"source task {accuracy(source, x[:800], rough[:800]):.3f}")
    model = adapt(source, (x[800:1500], y[800:1500]), (x[1500:], y[1500:]))
    print(f"final held out {accuracy(model, x[1500:], y[1500:]):.3f}")


if __name__ == "__main__":
    main()
