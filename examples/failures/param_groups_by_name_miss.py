"""Two learning rates by name: "backbone" and "head"; the neck matches neither filter and is never updated."""

import torch
from torch import nn

EXPECT = {"kind": "parameter-not-in-optimizer", "line": ("optimizer", "OPTIMIZER")}


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.neck, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(torch.relu(self.neck(torch.relu(self.backbone(x)))))


def build_optimizer(model, lr):
    named = dict(model.named_parameters())
    groups = [
        {"params": [p for n, p in named.items() if "backbone" in n], "lr": lr * 0.1},
        {"params": [p for n, p in named.items() if "head" in n], "lr": lr},
    ]
    return torch.optim.SGD(groups, momentum=0.9)  # OPTIMIZER


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Detector()
    opt = build_optimizer(model, 0.1)
    before = model.neck.weight.detach().clone()
    for _ in range(4):
        loss = nn.functional.cross_entropy(model(torch.randn(8, 8)), torch.randint(0, 2, (8,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print({"reproduced": torch.equal(before, model.neck.weight)})
